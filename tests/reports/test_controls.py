"""What the controls of a run say in its report, and that they are no checks of kernels."""

from typing import Any

from cases.axes import Phase, Property
from reports.controls import controls
from reports.record import Engagement, Outcome, Reason, Record, Speed
from reports.store import latest
from reports.verdict import judge

CASE = "llama-tiny/f32/inference/eager/bundled"


def control(name: str, **changes: Any) -> Record:
    return Record(**{"case": f"control/{name}", "property": Property.SPEED, "outcome": Outcome.PASS, **changes})


def speed(**changes: Any) -> Record:
    ledger = (
        Engagement(name="RMSNorm", promised="a/b@v1:N", resolved="a/b@c:N (torch-cpu)", modules=1, bound=1, calls=2),
    )
    fields: dict[str, Any] = {
        "case": CASE,
        "property": Property.SPEED,
        "outcome": Outcome.PASS,
        "phase": Phase.PREFILL,
        "speed": Speed.FASTER,
        "evidence": ledger,
        "measures": {"ratio": 2.0, "low": 1.9, "high": 2.1},
    }
    return Record(**{**fields, **changes})


AA = control("aa-1", speed=Speed.SAME, message="fine", measures={"half_width": 0.012, "least_effect": 0.044})
UNFIT = control(
    "fitness-before",
    property=Property.STATEMENT,
    outcome=Outcome.NOT_RUN,
    reason=Reason.UNFIT,
    message="somebody else's",
)


def test_noise_floor_and_least_effect_are_those_of_the_worst_control() -> None:
    """Fault: the noise floor of the quietest moment of a night."""
    louder = control("aa-2", speed=Speed.SAME, measures={"half_width": 0.03, "least_effect": 0.08})
    found = controls([AA, louder, speed()])
    assert (found.number, found.floor, found.least_effect) == (2, 0.03, 0.08)
    assert "±3.0%" in found.sentences[-1]
    assert "8.0%" in found.sentences[-1]


def test_without_controls_nothing_is_claimed() -> None:
    """Fault: a noise floor of 0 % where nobody measured one."""
    assert controls([speed()]).sentences == ()


def test_controls_are_no_checks() -> None:
    """Fault: a plan that seems complete, or a pass that is counted, because of a control."""
    verdict = judge([AA, UNFIT, speed()], None)
    assert verdict.recorded == 1
    assert verdict.passes.total == 1
    assert verdict.speedups.excluded == {}
    assert [record.case for record in verdict.speedups.measured] == [CASE]


def test_a_false_difference_is_a_warning() -> None:
    """Fault: a noisy session that looks like any other."""
    assert "NOISY" in controls([control("aa-1", speed=Speed.FASTER, message="1.1×")]).warnings[0]


def test_the_speeds_of_an_unfit_machine_are_kept_and_do_not_count() -> None:
    """Fault: a headline from a machine that did something else."""
    verdict = judge([UNFIT, speed()], None)
    assert verdict.speedups.mean is None
    assert len(verdict.speedups.measured) == 1
    assert "QUARANTINED" in verdict.controls.warnings[0]


def test_a_phase_stands_for_what_was_written_for_all_phases_before() -> None:
    """Fault: a crash that stays in a resumed run though both phases were measured since."""
    crash = speed(phase=None, outcome=Outcome.CRASH, speed=None, measures={})
    assert latest([crash, speed(), speed(phase=Phase.DECODE)]) == (speed(), speed(phase=Phase.DECODE))
