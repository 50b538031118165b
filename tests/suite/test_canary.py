"""Whether a machine is fit: the rules on made-up figures, and one look at the real machine without judging it."""

from dataclasses import replace

import pytest

from cases.axes import Device
from reports.record import Outcome, Reason
from suite.canary import Fitness, ProcessorTime, examine, finding, foreign_share, problems
from suite.device import BACKENDS

FIT = Fitness(True, True, 1.0001, 8.0, 1e-3, 0.05)


def test_a_fit_machine_has_no_problem() -> None:
    """Fault: a canary that always dies."""
    assert problems(FIT, FIT) == []
    assert finding(FIT, "before").outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(FIT, product_right=False), "multiplies"),
        (replace(FIT, nan_stays=False), "NaN"),
        (replace(FIT, clocks=1.1), "clocks"),
        (replace(FIT, bandwidth=0.001), "GB/s"),
        (replace(FIT, foreign=0.9), "90%"),
        (replace(FIT, product_seconds=2e-3), "2.00 times as long"),
        (replace(FIT, product_seconds=0.5e-3), "0.50 times as long"),
    ],
)
def test_each_fault_of_a_machine_is_named(found: Fitness, said: str) -> None:
    """Fault: a quarantine without a reason, or a fault that is not seen."""
    [problem] = problems(found, FIT)
    assert said in problem
    result = finding(found, "after", FIT)
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, Reason.UNFIT)
    assert said in result.message


def test_an_unknown_load_is_no_fault() -> None:
    """Fault: every machine without Linux's accounting in quarantine."""
    assert problems(replace(FIT, foreign=None)) == []


def test_the_load_of_the_run_itself_is_not_foreign() -> None:
    """Fault: a run that quarantines itself by working."""
    before, after = ProcessorTime(100, 50, 1000), ProcessorTime(180, 120, 1100)
    assert foreign_share(before, after) == pytest.approx(0.1)
    assert foreign_share(None, after) is None
    assert foreign_share(after, after) is None


def test_this_machine_can_be_examined() -> None:
    """Fault: an examination that raises where nothing is wrong."""
    found = examine(BACKENDS[Device.CPU])
    assert found.product_right
    assert found.nan_stays
    assert found.foreign is None or 0 <= found.foreign <= 1
