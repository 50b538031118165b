"""Calibration on a made-up clock: what it counts, and that a slowdown is as large as it says."""

import random

import pytest

from suite.calibrate import SLOWDOWNS, Calibration, calibrate, slowed, spread, table
from suite.sampling import Arm, Clock, Sampler


class World:
    """A clock that moves by a millisecond a call, give or take, and by four microseconds whenever it is read."""

    def __init__(self, noise: float) -> None:
        self.time = 0.0
        draw = random.Random(11)

        def call() -> None:
            self.time += 1e-3 * draw.lognormvariate(0, noise)

        self.work = Arm(call)
        self.clock = Clock(self.now, lambda: None)

    def now(self) -> float:
        self.time += 4e-6
        return self.time


@pytest.fixture(scope="module")
def quiet() -> Calibration:
    """The calibration of a quiet machine."""
    world = World(0.003)
    return calibrate(world.work, lambda seed: Sampler(world.clock, 1e9, seed), 4, 2)


def test_a_quiet_machine_finds_every_real_slowdown_and_no_false_one(quiet: Calibration) -> None:
    """Fault: a calibration that counts the wrong verdicts."""
    found = quiet
    assert (found.aa_runs, found.injected_runs) == (4, 2)
    assert found.false_differences == 0
    assert found.wrong_sign == 0
    assert set(found.detected) == {"1.01", "1.02", "1.05", "1.1", "1.2"}
    assert found.detected["1.01"] == 0, "1 % counts as the same"
    assert found.detected["1.05"] == found.detected["1.1"] == found.detected["1.2"] == 1
    assert 0 < found.half_width < 0.02
    assert 0 < found.spread_iqr < 0.01
    assert found.seconds_per_verdict > 0.01


def test_a_deceived_machine_is_caught() -> None:
    """Fault: a control that cannot fail. Here the second arm of each measurement is slower by its place."""
    world = World(0.0)

    class Biased(Sampler):
        def measure(self, pytorch: Arm, kernel: Arm):  # type: ignore[no-untyped-def]
            return super().measure(pytorch, slowed(kernel, self.clock, 1.3))

    assert calibrate(world.work, lambda seed: Biased(world.clock, 1e9, seed), 4, 1).false_differences == 4


@pytest.mark.parametrize("factor", SLOWDOWNS)
def test_a_slowdown_takes_the_share_of_the_call_that_it_says(factor: float) -> None:
    """Fault: 5 % that are 3 %."""
    world = World(0.0)
    times = []
    for arm in (slowed(world.work, world.clock, 1.0), slowed(world.work, world.clock, factor)):
        start = world.time
        for _ in range(100):
            arm.call()
        times.append(world.time - start)
    assert times[1] / times[0] == pytest.approx(factor, abs=0.005)


def test_the_table_says_what_the_figures_say(quiet: Calibration) -> None:
    """Fault: a share shown as a count."""
    text = table(quiet, "a device")
    assert "0 of 4 A/A runs" in text
    assert "100% of 2" in text


def test_the_spread_is_the_interquartile_range() -> None:
    """Fault: a spread of one run that is no number."""
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert spread([1.0]) == 0.0
