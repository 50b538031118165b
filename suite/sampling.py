"""Measures two arms against each other in time: warm-up, inner loop, counterbalanced pairs, and when to stop.

Knows no model and no torch: an arm is a pair of functions, and clock and ``synchronize`` are handed
in, so that the whole procedure runs in tests on a made-up clock. Samples come in the order A B B A, since a drifting
machine then favours neither arm; a ratio is taken within each pair only.
"""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from suite.statistics import LOOKS, Interval, decide, estimate

__all__ = ["Arm", "Clock", "Measurement", "Sampler"]


@dataclass(frozen=True, slots=True)
class Clock:
    """Time in seconds, and the wait for the device that must stand on both sides of a sample."""

    now: Callable[[], float]
    synchronize: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the two things compared: what is timed, and what has to be set up before each sample, untimed."""

    call: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came out. Times are seconds a call, medians over the pairs."""

    interval: Interval
    verdict: str
    """FASTER, SAME, SLOWER or INCONCLUSIVE."""
    unmet: str
    """For INCONCLUSIVE: the condition that was not met; else empty."""
    logs: tuple[float, ...]
    """ln(t_pytorch / t_kernel) of every pair, none left out."""
    pytorch_seconds: float
    kernel_seconds: float
    first_call: tuple[float, float]
    """First call of PyTorch and of the kernel: compilation, autotuning and caches are in these."""
    inner_calls: int


@dataclass(frozen=True, slots=True)
class Sampler:
    """The procedure. ``budget`` is the seconds it may take after warm-up; the first look is always reached."""

    clock: Clock
    budget: float
    seed: int = 0
    warm_calls: int = 3
    warm_seconds: float = 0.5
    enough_calls: int = 10
    """Warm-up ends after ``warm_calls`` calls and either ``warm_seconds`` or this many calls."""
    least_sample: float = 1e-3
    """A sample repeats its call until it lasts this long, or 100 times the clock's own cost."""

    def measure(self, pytorch: Arm, kernel: Arm) -> Measurement:
        """Time both arms until the interval decides, or until the last look or the budget."""
        with garbage_collection_off():
            first = (self._once(pytorch, 1), self._once(kernel, 1))
            self._warm(pytorch)
            self._warm(kernel)
            calls = self._inner_calls(pytorch, kernel)
            return self._pairs(pytorch, kernel, calls, first)

    def _once(self, arm: Arm, calls: int) -> float:
        """Seconds of one sample: synchronize, ``calls`` calls, synchronize."""
        arm.prepare()
        self.clock.synchronize()
        start = self.clock.now()
        for _ in range(calls):
            arm.call()
        self.clock.synchronize()
        return self.clock.now() - start

    def _warm(self, arm: Arm) -> None:
        times: list[float] = []
        while len(times) < self.warm_calls or (sum(times) < self.warm_seconds and len(times) < self.enough_calls):
            times.append(self._once(arm, 1))
        for _ in range(2 * self.enough_calls):
            # Settled: the mean of the last five differs by less than 5 % from that of the five before.
            if len(times) >= 10 and abs(sum(times[-5:]) / max(sum(times[-10:-5]), 1e-12) - 1) < 0.05:
                return
            if sum(times) > 2 * self.warm_seconds:
                return
            times.append(self._once(arm, 1))

    def _inner_calls(self, pytorch: Arm, kernel: Arm) -> int:
        empty = min(self._once(Arm(lambda: None), 1) for _ in range(5))
        quickest = min(self._once(arm, 1) for arm in (pytorch, kernel) for _ in range(2))
        return max(1, math.ceil(max(self.least_sample, 100 * empty) / max(quickest, 1e-9)))

    def _pairs(self, pytorch: Arm, kernel: Arm, calls: int, first: tuple[float, float]) -> Measurement:
        logs: list[float] = []
        times: tuple[list[float], list[float]] = ([], [])
        start = self.clock.now()
        kernel_first = bool(self.seed % 2)
        interval, verdict = Interval(1.0, 0.0, math.inf), None
        for look in LOOKS:
            while len(logs) < look and (len(logs) < LOOKS[0] or self.clock.now() - start <= self.budget):
                arms = (kernel, pytorch) if kernel_first else (pytorch, kernel)
                samples = [self._once(arm, calls) for arm in arms]
                reference, measured = reversed(samples) if kernel_first else samples
                kernel_first = not kernel_first
                logs.append(math.log(reference / measured))
                times[0].append(reference / calls)
                times[1].append(measured / calls)
            # Out of budget between two looks, this is the last look and takes the place of those that do not come.
            interval = estimate(logs)
            verdict = decide(interval)
            if verdict is not None or len(logs) < look:
                break
        unmet = "" if verdict else self._unmet(interval, len(logs))
        return Measurement(
            interval, verdict or "INCONCLUSIVE", unmet, tuple(logs), _median(times[0]), _median(times[1]), first, calls
        )

    def _unmet(self, interval: Interval, pairs: int) -> str:
        why = "at the last look" if pairs >= LOOKS[-1] else f"within the budget of {self.budget:g} s"
        return (
            f"after {pairs} pairs, {why}, the interval {interval.low:.3f} to {interval.high:.3f} lies neither wholly "
            "inside nor wholly outside 0.98 to 1.02"
        )


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Collect now, then keep the collector from running inside a sample."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
