"""What outcomes, evidence and speeds add up to."""

import math

import pytest

from cases.axes import Property
from reports.evidence import Ledger
from reports.record import Engagement, Outcome, Reason, Record, Speed
from reports.verdict import FAILING, Overall, count, judge, speedups, worst
from tests.reports.synthetic import engaged, environment, fallen_back

KERNEL = "llama/f32/inference/sdpa/bundled"
PLAIN = "llama/f32/inference/sdpa/pytorch"


def record(
    case: str = KERNEL,
    property: Property = Property.FORWARD,
    outcome: Outcome = Outcome.PASS,
    evidence: tuple[Engagement, ...] = (),
    reason: Reason | None = None,
) -> Record:
    return Record(case=case, property=property, outcome=outcome, evidence=evidence, reason=reason)


def speed(
    ratio: float | None,
    verdict: Speed = Speed.FASTER,
    case: str = KERNEL,
    outcome: Outcome = Outcome.PASS,
    calls: bool = True,
) -> Record:
    return Record(
        case=case,
        property=Property.SPEED,
        outcome=outcome,
        speed=verdict,
        evidence=(engaged("RMSNorm"),) if calls else (fallen_back("RMSNorm"),),
        measures={"ratio": ratio},
        reason=None if calls else Reason.CANNOT_LOAD,
    )


def test_the_worst_of_nothing_is_unknown() -> None:
    """Catches an empty set that is taken for a pass."""
    assert worst([]) is Outcome.UNKNOWN
    assert worst([Outcome.PASS, Outcome.FALLBACK, Outcome.NOT_RUN]) is Outcome.FALLBACK
    assert worst([Outcome.CRASH, Outcome.FAIL]) is Outcome.FAIL


def test_counts_are_worst_first() -> None:
    """Catches a summary that hides one failure behind many passes."""
    assert list(count([Outcome.PASS, Outcome.PASS, Outcome.FAIL]).items()) == [(Outcome.FAIL, 1), (Outcome.PASS, 2)]


@pytest.mark.parametrize("outcome", sorted(FAILING))
def test_every_failing_outcome_turns_the_run_red(outcome: Outcome) -> None:
    """Catches a run that is green in spite of a failure, a crash or a fallback."""
    found = judge(
        [record(evidence=(engaged("RMSNorm"),)), record(property=Property.GENERATE, outcome=outcome)], environment(2)
    )
    assert found.overall is Overall.FAIL
    assert outcome in found.causes[0]


@pytest.mark.parametrize("outcome", [Outcome.NOT_SUPPORTED, Outcome.NOT_RUN, Outcome.WAIVED])
def test_other_outcomes_leave_a_run_green_if_something_passed(outcome: Outcome) -> None:
    """Catches a skip or a waived fault that fails the run."""
    found = judge(
        [record(evidence=(engaged("RMSNorm"),)), record(property=Property.GENERATE, outcome=outcome)], environment(2)
    )
    assert found.overall is Overall.PASS
    assert not found.fails


def test_a_run_without_any_pass_is_never_green() -> None:
    """Catches green that means "did nothing"."""
    assert judge([], environment(0)).overall is Overall.UNKNOWN
    assert judge([record(outcome=Outcome.NOT_RUN)], environment(1)).overall is Overall.UNKNOWN


def test_fewer_records_than_planned_are_an_unfinished_run() -> None:
    """Catches a run that was stopped half-way and reads as complete."""
    found = judge([record(evidence=(engaged("RMSNorm"),))], environment(3))
    assert found.overall is Overall.INCOMPLETE
    assert "1 of 3" in found.causes[0]
    assert judge([record(evidence=(engaged("RMSNorm"),))], None).overall is Overall.INCOMPLETE


def test_a_check_that_pytorch_itself_fails_in_leaves_the_run_without_an_answer() -> None:
    """Catches green over a property of which nobody can say whether it holds."""
    proved = record(evidence=(engaged("RMSNorm"),))
    idle = record(property=Property.COMPILE, outcome=Outcome.NOT_RUN, reason=Reason.NOT_APPLICABLE)
    found = judge([proved, idle], environment(2))
    assert found.overall is Overall.PASS
    assert any("1 were not made (NOT_RUN: 1 NOT_APPLICABLE)" in cause for cause in found.causes)
    found = judge([proved, record(property=Property.COMPILE, outcome=Outcome.NOT_RUN, reason=Reason.EXCEPTION)], None)
    assert found.overall is Overall.INCOMPLETE
    assert any(cause.startswith("1 checks could not be made, since PyTorch itself") for cause in found.causes)


@pytest.mark.parametrize("kind", [kind for kind in Property if kind not in (Property.STATEMENT, Property.LOAD)])
def test_a_pass_on_a_kernel_case_without_a_call_is_red(kind: Property) -> None:
    """Catches the pass of a model that ran in PyTorch all along, for every property, with or without a ledger."""
    silent = Engagement(
        name="RMSNorm", promised="o/r@v1:RMSNorm", resolved="o/r@c:RMSNorm", modules=2, bound=2, calls=0
    )
    for evidence in ((silent,), ()):
        found = judge([record(property=kind, evidence=evidence)], environment(1))
        assert found.overall is Overall.FAIL
        assert len(found.violations) == found.passes.unproved == 1


def test_a_pass_may_stand_on_the_ledger_of_its_case() -> None:
    """Catches a demand that every record repeats the ledger of ``engage``."""
    found = judge([record(property=Property.ENGAGE, evidence=(engaged("RMSNorm"),)), record()], environment(2))
    assert found.overall is Overall.PASS
    assert found.passes.proved == 2


def test_a_case_that_asks_for_no_kernel_needs_no_call() -> None:
    """Catches plain PyTorch cases and statements that are blamed for calling no kernel."""
    plain = Engagement(name="attention", promised="pytorch", modules=2, bound=2, calls=9)
    found = judge([record(PLAIN, evidence=(plain,)), record("statement/off.env", Property.STATEMENT)], environment(2))
    assert found.overall is Overall.PASS
    assert (found.passes.plain, found.passes.proved) == (2, 0)


def test_a_hub_attention_is_a_kernel_to_be_called() -> None:
    """Catches a case with no layer kernel whose attention kernel was quietly replaced."""
    found = judge([record("llama/f32/inference/bundled/pytorch")], environment(1))
    assert found.overall is Overall.FAIL


def test_engage_needs_every_promised_name_called_and_resolved() -> None:
    """Catches one kernel that never ran behind another that did."""
    silent = Engagement(name="SiLU", promised="o/r@v1:SiLU", resolved="o/r@c:SiLU", modules=2, bound=2, calls=0)
    unknown = Engagement(name="SiLU", promised="o/r@v1:SiLU", modules=2, bound=2, calls=4)
    excused = Engagement(name="SiLU", promised="o/r@v1:SiLU", modules=2, reason=Reason.NO_DEVICE)
    for entry, red in ((silent, True), (unknown, True), (excused, False)):
        found = judge([record(property=Property.ENGAGE, evidence=(engaged("RMSNorm"), entry))], environment(1))
        assert found.fails is red


def test_the_mean_is_geometric_and_over_measured_cases_only() -> None:
    """Catches an arithmetic mean, and a fallback or a missing figure that counts as 1."""
    found = [
        speed(2.0),
        speed(0.5, Speed.SLOWER, "a/f32/inference/sdpa/bundled"),
        speed(8.0, Speed.INCONCLUSIVE, "b/f32/inference/sdpa/bundled"),
        speed(None, Speed.NOT_MEASURED, "c/f32/inference/sdpa/bundled", Outcome.NOT_RUN, calls=False),
        speed(100.0, Speed.FASTER, "d/f32/inference/sdpa/bundled", calls=False),
        speed(100.0, Speed.FASTER, "e/f32/inference/sdpa/bundled", Outcome.FALLBACK),
        speed(None, Speed.FASTER, "f/f32/inference/sdpa/bundled"),
        speed(math.inf, Speed.FASTER, "g/f32/inference/sdpa/bundled"),
    ]
    result = speedups(found, Ledger(found))
    assert result.mean is not None
    assert result.mean.value == pytest.approx(2.0)
    assert len(result.measured) == 3
    assert result.excluded == {"CANNOT_LOAD": 1, "NOT_CALLED": 1, "FALLBACK": 1, "no ratio recorded": 2}


def test_without_a_measurement_there_is_no_mean() -> None:
    """Catches a mean of 1 over nothing."""
    assert speedups([], Ledger([])).mean is None
