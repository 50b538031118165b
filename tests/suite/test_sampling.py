"""The timing procedure on a made-up clock: no real time passes, and nothing here depends on the machine."""

import gc
import random

from suite.sampling import Arm, Clock, Sampler
from suite.statistics import LOOKS


class World:
    """A clock that moves only when an arm works, and a diary of what was called."""

    def __init__(self, drift: float = 0.0, noise: float = 0.0) -> None:
        self.time = 0.0
        self.diary: list[str] = []
        self.speed = 1.0
        self._drift, self._noise, self._draw = drift, noise, random.Random(7)

    def arm(self, name: str, seconds: float) -> Arm:
        def call() -> None:
            self.diary.append(name)
            self.speed *= 1 + self._drift
            self.time += seconds * self.speed * self._draw.lognormvariate(0.0, self._noise)

        return Arm(call, lambda: self.diary.append(f"prepare {name}"))

    def sampler(self, budget: float = 1e9, seed: int = 0) -> Sampler:
        return Sampler(Clock(lambda: self.time, lambda: None), budget, seed)


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


def test_the_order_is_counterbalanced() -> None:
    """Fault: the same arm always first, warmed up by nobody."""
    world = World()
    world.sampler().measure(world.arm("a", 0.01), world.arm("b", 0.01))
    timed = [entry for entry in world.diary if not entry.startswith("prepare")][-4:]
    assert timed in (["a", "b", "b", "a"], ["b", "a", "a", "b"])


def test_the_seed_chooses_who_is_first() -> None:
    """Fault: a fixed first arm in every case of a run."""
    firsts = set()
    for seed in (0, 1):
        world = World()
        result = world.sampler(seed=seed).measure(world.arm("a", 0.01), world.arm("b", 0.02))
        timed = [entry for entry in world.diary if not entry.startswith("prepare")]
        firsts.add(timed[-2 * len(result.logs)])
    assert firsts == {"a", "b"}


def test_noise_that_never_settles_is_inconclusive_and_says_which_condition_was_not_met() -> None:
    """Fault: a verdict for lack of patience."""
    world = World(noise=0.5)
    result = world.sampler().measure(world.arm("a", 0.01), world.arm("b", 0.0101))
    assert result.verdict == "INCONCLUSIVE"
    assert len(result.logs) == LOOKS[-1]
    assert f"after {LOOKS[-1]} pairs" in result.unmet


def test_the_budget_ends_the_sampling_but_not_before_the_first_look() -> None:
    """Fault: a budget that leaves too few pairs for any interval, or is not kept."""
    world = World(noise=0.5)
    result = world.sampler(budget=0.0).measure(world.arm("a", 0.01), world.arm("b", 0.01))
    assert len(result.logs) == LOOKS[0]
    assert "budget" in result.unmet or result.verdict != "INCONCLUSIVE"


def test_short_calls_are_repeated_within_a_sample() -> None:
    """Fault: samples as short as the clock's own resolution."""
    world = World()
    result = world.sampler().measure(world.arm("a", 1e-5), world.arm("b", 1e-5))
    assert result.inner_calls >= 100


def test_preparation_is_not_timed() -> None:
    """Fault: the cost of switching arms counted as the kernel's."""
    world = World()

    def slow_switch() -> None:
        world.time += 1.0

    a, b = world.arm("a", 0.01), world.arm("b", 0.01)
    result = world.sampler().measure(Arm(a.call, slow_switch), Arm(b.call, slow_switch))
    assert result.pytorch_seconds < 0.02


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
