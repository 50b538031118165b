"""The suite finds every seeded fault by the check that is there for it, and says nothing against the healthy twins."""

import re
from pathlib import Path

import pytest

from cases import plan
from cases.axes import Device, Property, Tier
from cases.case import Case
from cases.mappings import KernelReference
from reports.record import Reason
from suite.qualify import Alarm, FaultVerdict
from tests.faults import repositories
from tests.faults.alone import NEEDED
from tests.faults.records import ATTENTION, FAULTS, Fault

BY_ID = {fault.id: fault for fault in FAULTS}


@pytest.fixture
def of(verdicts: tuple[FaultVerdict, ...]) -> dict[str, FaultVerdict]:
    return {verdict.fault: verdict for verdict in verdicts if not verdict.without}


def spoken(verdict: FaultVerdict, checked: Property) -> Alarm:
    found = [alarm for alarm in verdict.alarms if alarm.property is checked]
    assert found, f"{verdict.fault}: {checked} said nothing; what spoke: {verdict.alarms}"
    return found[0]


@pytest.mark.parametrize("identifier", BY_ID)
def test_a_fault_is_found_by_the_check_that_is_there_for_it(identifier: str, of: dict[str, FaultVerdict]) -> None:
    """A check gone blind: the fault is missed, or found only by luck, by a check that is there for something else."""
    verdict = of[identifier]
    assert verdict.caught, f"{verdict.sentence}: no check saw it; run {verdict.repro}"
    assert verdict.as_expected, f"expected {BY_ID[identifier].by} to say so, heard {verdict.alarms}"


@pytest.mark.parametrize("identifier", BY_ID)
def test_nothing_is_said_against_the_healthy_twin(identifier: str, of: dict[str, FaultVerdict]) -> None:
    """A check so strict, or so wrong, that it accuses kernels that are right."""
    verdict = of[identifier]
    assert verdict.twin_alarms == ()
    assert verdict.twin_clean


def test_rounding_too_early_is_seen_by_the_error_ratio(of: dict[str, FaultVerdict]) -> None:
    """S02: a limit that no ``allclose`` could set, and that a looser one would not see."""
    alarm = spoken(of["S02"], Property.PROBE)
    assert alarm.reason is Reason.TOLERANCE
    assert re.search(r"has 1\.[2-4]\d* × PyTorch's error on average over \d+ rows \(limit 1\.15 ×\)", alarm.message)


def test_one_row_of_positions_for_all_is_seen_by_positions(of: dict[str, FaultVerdict]) -> None:
    """S14: positions that differ by a shift only, of which attention sees nothing."""
    assert "position" in spoken(of["S14"], Property.PROBE).message


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("S01", "epsilon"),
        ("S03", "rows of size 300"),
        ("S04", "row zero"),
        ("S09", "writes to the incoming gradient"),
        ("S12", "writes to its argument"),
        ("S13", "earlier result"),
    ],
)
def test_a_probe_says_what_it_did_and_what_came_of_it(identifier: str, words: str, of: dict[str, FaultVerdict]) -> None:
    """A fault found by an accident of another recipe, with a message that leads its author astray."""
    assert words in spoken(of[identifier], Property.PROBE).message


def test_leaking_sequences_are_seen_by_logits(of: dict[str, FaultVerdict]) -> None:
    """S15: greedy tokens compared instead, which are the same."""
    alarm = spoken(of["S15"], Property.FORWARD)
    assert alarm.reason is Reason.TOLERANCE


@pytest.mark.parametrize("identifier", ["S22", "S25"])
def test_a_kernel_that_does_not_run_is_seen_by_the_ledger_alone(identifier: str, of: dict[str, FaultVerdict]) -> None:
    """S22 and S25: results are right, since PyTorch made them, and a comparison is content."""
    assert {alarm.property for alarm in of[identifier].alarms} == {Property.ENGAGE}


def test_a_kernel_left_in_training_is_seen_by_its_missing_gradients(of: dict[str, FaultVerdict]) -> None:
    """S24: a training step without an error that trains nothing."""
    assert "20 of 21 parameters" in spoken(of["S24"], Property.GRADIENT).message


def test_a_branch_on_data_is_seen_by_its_graph_breaks(of: dict[str, FaultVerdict]) -> None:
    """S20: outputs compared and graph breaks not counted."""
    alarm = spoken(of["S20"], Property.COMPILE)
    assert alarm.reason is Reason.GRAPH_BREAK


@pytest.mark.parametrize(("mechanism", "identifier"), [(name, fault) for name, ids in NEEDED.items() for fault in ids])
def test_without_its_mechanism_a_fault_escapes(
    mechanism: str, identifier: str, verdicts: tuple[FaultVerdict, ...]
) -> None:
    """A table that claims for some mechanisms what another finds: nobody would know what each is good for."""
    found = next(each for each in verdicts if each.without == mechanism and each.fault == identifier)
    assert not found.caught, f"also found by {found.alarms}: {identifier} does not need {mechanism}"


def test_every_fault_is_known_to_need_some_mechanism() -> None:
    """A fault that is found whatever is switched off: by what, nobody has looked."""
    assert {fault for faults in NEEDED.values() for fault in faults} == set(BY_ID)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_run_with_a_case_of_the_users_own_plan(fault: Fault) -> None:
    """A fault that is found only where no user would ever run it."""
    case = Case.from_id(fault.case(broken=True))
    tier = Tier.FULL if case.mode.compiles else Tier.CORE
    kernels = () if fault.target == ATTENTION else ((fault.target, KernelReference("/folder", "Broken")),)
    attentions = (case.attention,) if fault.target == ATTENTION else ()
    planned = plan.build(plan.Selection(tier=tier, kernels=kernels, attentions=attentions))
    # Pairs are covered, so some case has this model, and some case this dtype and mode, but not always one has all.
    alike = [each for each in planned if (each.dtype, each.mode) == (case.dtype, case.mode)]
    assert alike
    assert any(each.model == case.model for each in planned)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_repository_holds_the_fault_or_the_twin_and_never_both(fault: Fault, tmp_path: Path) -> None:
    """A twin accused for the fault that lies beside it, or an edit that no longer fits its source."""
    broken = repositories.source(fault, broken=True)
    healthy = repositories.source(fault, broken=False)
    for text, other in ((broken, "class Healthy"), (healthy, "class Broken")):
        compile(text, fault.source, "exec")
        assert other not in text or fault.layer(broken=True) == "Healthy"
    made = [repositories.make(tmp_path, fault, Device.CPU, broken=each) for each in (True, False)]
    assert len({path.name for path in made}) == 2
    assert len({next((path / "build").iterdir()).name for path in made}) == (2 if fault.id == "S22" else 1)
