"""The timing procedure on a made-up clock: no real time passes, and nothing here depends on the machine."""

import gc
import random
from collections.abc import Callable

import pytest

from suite.sampling import BLOCK, Arm, Clock, Sampler
from suite.statistics import LOOKS
from suite.stopping import Stopping
from suite.throttling import Throttling


class World:
    """A clock that moves only when an arm works, and a diary of what was called."""

    def __init__(self, drift: float = 0.0, noise: float = 0.0, interruptions: float = 0.0) -> None:
        self.time = 0.0
        self.diary: list[str] = []
        self.speed = 1.0
        self._drift, self._noise, self._interruptions = drift, noise, interruptions
        self._draw = random.Random(7)

    def arm(self, name: str, seconds: float) -> Arm:
        def call() -> None:
            self.diary.append(name)
            self.speed *= 1 + self._drift
            self.time += seconds * self.speed * self._draw.lognormvariate(0.0, self._noise)
            if self._draw.random() < self._interruptions:
                self.time += self._draw.uniform(1, 8) * seconds

        return Arm(call, lambda calls: self.diary.append(f"prepare {name} {calls}"))

    def sampler(self, budget: float = 1e9, seed: int = 0, throttling: Throttling | None = None) -> Sampler:
        return Sampler(Clock(lambda: self.time, lambda: None), budget, seed, throttling=throttling or Throttling())

    def timed(self) -> list[str]:
        return [entry for entry in self.diary if not entry.startswith("prepare")]


def test_a_kernel_twice_as_fast_is_faster_and_one_twice_as_slow_is_slower() -> None:
    """Fault: a ratio upside down."""
    world = World(noise=0.01)
    result = world.sampler().measure(world.arm("pytorch", 0.02), world.arm("kernel", 0.01))
    assert result.verdict == "FASTER"
    assert result.interval.low < 2.0 < result.interval.high * 1.01
    result = world.sampler().measure(world.arm("pytorch", 0.01), world.arm("kernel", 0.02))
    assert result.verdict == "SLOWER"


def test_equal_arms_are_the_same_even_while_the_machine_gets_slower() -> None:
    """Fault: all of A, then all of B, so that a drifting clock becomes a difference."""
    world = World(drift=0.002, noise=0.002)
    result = world.sampler().measure(world.arm("a", 0.01), world.arm("b", 0.01))
    assert result.verdict == "SAME"


def test_a_small_effect_is_found_though_half_of_all_samples_are_interrupted() -> None:
    """Fault: an interval of 40 % on any machine that does something else as well."""
    world = World(noise=0.005, interruptions=0.4)
    result = world.sampler().measure(world.arm("pytorch", 1.0e-3), world.arm("kernel", 1.1e-3))
    assert result.verdict == "SLOWER"
    assert result.interval.low < 1 / 1.1 < result.interval.high
    assert result.of_all.half_width > result.interval.half_width


def test_a_kernel_that_is_quick_at_times_only_is_not_called_faster() -> None:
    """Fault: the quickest samples hide that the usual one is slow."""
    world, turn = World(noise=0.001), iter(range(10**9))

    def moody() -> None:
        world.time += 0.004 if next(turn) % 4 == 0 else 0.01

    result = world.sampler().measure(world.arm("pytorch", 0.005), Arm(moody))
    assert result.verdict == "INCONCLUSIVE"
    assert "quick at times only" in result.unmet


def test_the_order_is_counterbalanced() -> None:
    """Fault: the same arm always first, warmed up by nobody."""
    world = World()
    world.sampler().measure(world.arm("a", 0.01), world.arm("b", 0.01))
    assert world.timed()[-4:] in (["a", "b", "b", "a"], ["b", "a", "a", "b"])


def test_the_seed_chooses_who_is_first() -> None:
    """Fault: a fixed first arm in every case of a run."""
    firsts = set()
    for seed in (0, 1):
        world = World()
        result = world.sampler(seed=seed).measure(world.arm("a", 0.01), world.arm("b", 0.02))
        samples = sum(len(pair.pytorch_samples) + len(pair.kernel_samples) for pair in result.pairs)
        firsts.add(world.timed()[-samples])
    assert firsts == {"a", "b"}


def test_noise_that_never_settles_is_inconclusive_and_says_which_condition_was_not_met() -> None:
    """Fault: a verdict for lack of patience."""
    world = World(noise=0.5)
    result = world.sampler().measure(world.arm("a", 0.06), world.arm("b", 0.0606))
    assert result.verdict == "INCONCLUSIVE"
    assert len(result.logs) == LOOKS[-1]
    assert f"after {LOOKS[-1]} pairs" in result.unmet


def test_the_budget_ends_the_sampling_but_not_before_the_first_look() -> None:
    """Fault: a budget that leaves too few pairs for any interval, or is not kept."""
    world = World(noise=0.5)
    result = world.sampler(budget=0.0).measure(world.arm("a", 0.01), world.arm("b", 0.01))
    assert len(result.logs) == LOOKS[0]
    assert "budget" in result.unmet or result.verdict != "INCONCLUSIVE"


def test_short_calls_are_repeated_within_a_sample_and_short_samples_within_a_pair() -> None:
    """Fault: samples as short as the clock's own resolution."""
    world = World()
    result = world.sampler().measure(world.arm("a", 1e-5), world.arm("b", 1e-5))
    assert result.inner_calls >= 100
    assert {len(pair.kernel_samples) for pair in result.pairs} == {BLOCK}


def test_long_samples_come_one_to_a_pair() -> None:
    """Fault: sixteen calls of a second in each pair."""
    world = World()
    result = world.sampler().measure(world.arm("a", 1.0), world.arm("b", 1.0))
    assert {len(pair.kernel_samples) for pair in result.pairs} == {1}


def test_preparation_is_not_timed_and_knows_the_number_of_calls() -> None:
    """Fault: the cost of switching arms, or of copying a cache, counted as the kernel's."""
    world, asked = World(), set()

    def slow_switch(calls: int) -> None:
        world.time += 1.0
        asked.add(calls)

    a, b = world.arm("a", 1e-4), world.arm("b", 1e-4)
    result = world.sampler().measure(Arm(a.call, slow_switch), Arm(b.call, slow_switch))
    assert result.pytorch_seconds < 0.02
    assert asked == {1, result.inner_calls}


def test_first_calls_are_kept_apart() -> None:
    """Fault: compilation time in the first pair."""
    world = World()
    calls = iter([5.0])

    def call() -> None:
        world.time += next(calls, 0.01)

    result = world.sampler().measure(world.arm("a", 0.01), Arm(call))
    assert result.first_call[1] == 5.0
    assert result.kernel_seconds < 0.02


def test_the_garbage_collector_is_off_while_timing_and_on_again_after() -> None:
    """Fault: a collection inside one arm's sample; a process left without a collector."""
    world, seen = World(), []

    def call() -> None:
        seen.append(gc.isenabled())
        world.time += 0.01

    world.sampler().measure(Arm(call), world.arm("b", 0.01))
    assert not any(seen)
    assert gc.isenabled()


def _clocks(slow: Callable[[int], bool]) -> Throttling:
    number = iter(range(10**6))
    return Throttling(lambda: 1000.0 if slow(next(number)) else 2000.0)


def test_pairs_of_a_throttled_device_are_dropped_as_pairs_and_counted() -> None:
    """Fault: figures of a hot device among those of a cool one."""
    world = World(noise=0.02)
    result = world.sampler(throttling=_clocks(lambda n: n == 3)).measure(world.arm("a", 0.01), world.arm("b", 0.012))
    assert result.kept.count(False) == 1
    assert len(result.logs) == len(result.pairs) - 1
    assert result.clock_read


def test_with_too_many_dropped_pairs_there_is_no_verdict() -> None:
    """Fault: a verdict from what a throttling device left over."""
    world = World()
    sampler = world.sampler(throttling=_clocks(lambda n: n % 4 == 0))
    result = sampler.measure(world.arm("a", 0.01), world.arm("b", 0.02))
    assert result.verdict == "INCONCLUSIVE"
    assert "below 75 %" in result.unmet


def test_device_events_are_a_second_channel() -> None:
    """Fault: a launch-bound call taken for a slow kernel."""
    world, device = World(), {"time": 0.0}

    def arm(wall: float, work: float) -> Arm:
        def call() -> None:
            world.time += wall
            device["time"] += work

        return Arm(call)

    def between(start: object, end: object) -> float:
        assert isinstance(start, float)
        assert isinstance(end, float)
        return end - start

    clock = Clock(lambda: world.time, lambda: None, lambda: device["time"], between)
    result = Sampler(clock, 1e9).measure(arm(0.02, 0.001), arm(0.01, 0.001))
    assert result.interval.ratio == pytest.approx(2)
    assert result.device is not None
    assert result.device.ratio == pytest.approx(1)


def test_without_events_there_is_no_second_channel() -> None:
    """Fault: wall-clock time sold as device time."""
    world = World()
    assert world.sampler().measure(world.arm("a", 0.01), world.arm("b", 0.01)).device is None


def test_more_looks_can_be_asked_for() -> None:
    """Fault: a sign-off that stops where a nightly run does."""
    world = World(noise=0.5)
    sampler = Sampler(Clock(lambda: world.time, lambda: None), 1e9, stopping=Stopping((8, 16)))
    assert len(sampler.measure(world.arm("a", 0.06), world.arm("b", 0.061)).pairs) == 16
