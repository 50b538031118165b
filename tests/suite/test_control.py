"""The control of a session: when it is due, what it says, and what a false difference does. Nothing is timed."""

import pytest

from reports.record import Outcome, Speed
from suite.control import EVERY, Control, finding, identity
from suite.sampling import Measurement, Pair
from suite.statistics import Interval


def measurement(ratio: float, verdict: str, half_width: float = 0.01) -> Measurement:
    interval = Interval(ratio, ratio * (1 - half_width), ratio * (1 + half_width))
    pair = Pair((1.0,), (1.0,))
    return Measurement(interval, verdict, "", (pair,) * 8, (True,) * 8, (1.0, 1.0), 1, True, interval)


def test_a_control_comes_first_and_then_every_fifty_cases() -> None:
    """Fault: a night of timings with one control at its begin."""
    control, made = Control(), []
    for case in range(2 * EVERY + 1):
        if control.before_case(lambda: measurement(1.0, "SAME")) is not None:
            made.append(case)
    assert made == [0, EVERY, 2 * EVERY]
    assert control.noisy == ""


@pytest.mark.parametrize("verdict", ["FASTER", "SLOWER"])
def test_a_control_that_claims_a_difference_makes_the_session_noisy(verdict: str) -> None:
    """Fault: a control that nobody listens to."""
    control = Control()
    made = control.before_case(lambda: measurement(1.1, verdict))
    assert made is not None
    assert "1.100" in control.noisy


def test_a_control_that_raises_is_due_again() -> None:
    """Fault: one model that PyTorch cannot run takes the control from the whole session."""
    control = Control()

    def fails() -> Measurement:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        control.before_case(fails)
    assert control.before_case(lambda: measurement(1.0, "SAME")) is not None


def test_the_least_effect_is_what_counts_as_the_same_and_two_half_widths() -> None:
    """Fault: a least effect that one run in two would miss."""
    found = finding(measurement(1.0, "SAME", 0.01))
    assert found.outcome is Outcome.PASS
    assert found.speed is Speed.SAME
    assert found.measures["half_width"] == pytest.approx(0.01, rel=0.01)
    assert found.measures["least_effect"] == pytest.approx(0.04, rel=0.01)


def test_each_of_several_workers_has_controls_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the control of one device overwritten by that of another."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    alone = identity("aa-1")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert alone == "control/aa-1" != identity("aa-1")
