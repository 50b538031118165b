"""Measures two arms against each other in time: warm-up, inner loop, counterbalanced pairs, and when to stop.

Knows no model and no torch: an arm is a pair of functions, and clock, ``synchronize`` and device events are handed in,
so that the whole procedure runs in tests on a made-up clock. Samples come in the order A B B A, since a drifting
machine then favours neither arm; a ratio is taken within each pair only.

A pair is the quickest of up to eight samples of either arm, all taken by turns. On a machine that does something else
as well, half of the samples are interrupted, and an interruption lasts longer than a sample: single samples told a
slowdown of 5 % apart in 0 of 60 runs there, and the quickest of eight in 56 of 60, with no false difference. What a
kernel could hide in this way, by being quick at times only, shows in all samples together, which must not contradict.
"""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from suite.statistics import Interval
from suite.stopping import Stopping, WarmUp
from suite.throttling import MOST_DROPPED, Throttling

__all__ = ["Arm", "Clock", "Measurement", "Pair", "Sampler", "garbage_collection_off"]

BLOCK = 8
"""Samples of either arm in a pair, at most."""
BLOCK_SECONDS = 0.05
"""Time for either arm's samples of a pair: samples that are long take fewer, since they average by themselves."""
MOST_CALLS = 10_000
"""Calls in one sample at most, so that a call that takes no time at all does not run for ever."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time in seconds, and the wait for the device that must stand on both sides of a sample."""

    now: Callable[[], float]
    synchronize: Callable[[], None]
    mark: Callable[[], object] | None = None
    """Puts an event into the device's queue; None where the device has none."""
    between: Callable[[object, object], float] = lambda start, end: 0.0
    """Seconds of device time between two events that have passed."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the two things compared: what is timed, and what has to be set up before each sample, untimed."""

    call: Callable[[], object]
    prepare: Callable[[int], object] = lambda calls: None
    """Is told how many calls the sample is going to have."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Samples of either arm, taken by turns. Times are seconds a call."""

    pytorch_samples: tuple[float, ...]
    kernel_samples: tuple[float, ...]
    clock: float | None = None
    """MHz of the device after the pair."""
    device_pytorch: float | None = None
    """The same by the device's own events, where it has some."""
    device_kernel: float | None = None

    @property
    def pytorch(self) -> float:
        """The quickest sample of PyTorch."""
        return min(self.pytorch_samples)

    @property
    def kernel(self) -> float:
        """The quickest sample of the kernel."""
        return min(self.kernel_samples)

    @property
    def log(self) -> float:
        """ln(t_pytorch / t_kernel)."""
        return math.log(self.pytorch / self.kernel)

    @property
    def log_of_all(self) -> float:
        """The same of all samples, interrupted ones too."""
        return math.log(sum(self.pytorch_samples) / sum(self.kernel_samples))


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came out. Times are seconds a call, medians over the pairs."""

    interval: Interval
    verdict: str
    """FASTER, SAME, SLOWER or INCONCLUSIVE."""
    unmet: str
    """For INCONCLUSIVE: the condition that was not met; else empty."""
    pairs: tuple[Pair, ...]
    """All pairs in their order, none left out."""
    kept: tuple[bool, ...]
    """For each pair whether it counts: False where the device had slowed down."""
    first_call: tuple[float, float]
    """First timed call of PyTorch and of the kernel."""
    inner_calls: int
    settled: bool
    """Whether both arms settled in warm-up."""
    of_all: Interval
    """The ratio of all samples, interrupted ones too: wider, and it must not contradict."""
    compiled: tuple[str, ...] = ()
    """What was compiled or tuned after warm-up, while pairs were timed; with any there is no verdict."""
    device: Interval | None = None
    """The same ratio by device events. Near 1 with another wall-clock ratio: the calls are bound by their launch."""

    @property
    def logs(self) -> tuple[float, ...]:
        """ln(t_pytorch / t_kernel) of every pair that counts."""
        return tuple(pair.log for pair, kept in zip(self.pairs, self.kept, strict=True) if kept)

    @property
    def pytorch_seconds(self) -> float:
        """Median of PyTorch."""
        return median(pair.pytorch for pair in self.pairs)

    @property
    def kernel_seconds(self) -> float:
        """Median of the kernel."""
        return median(pair.kernel for pair in self.pairs)

    @property
    def clock_read(self) -> bool:
        """Whether the device's clock could be read, so that throttling would have shown."""
        return any(pair.clock is not None for pair in self.pairs)


@dataclass(frozen=True, slots=True)
class Sampler:
    """The procedure. ``budget`` is the seconds it may take after warm-up; the first look is always reached."""

    clock: Clock
    budget: float
    seed: int = 0
    """Its lowest bit says which arm is first."""
    warm_up: WarmUp = field(default_factory=WarmUp)
    stopping: Stopping = field(default_factory=Stopping)
    throttling: Throttling = field(default_factory=Throttling)
    compiled: Sequence[str] = ()
    """What was compiled so far; grows by itself where somebody watches (``suite.compilations``)."""
    least_sample: float = 1e-3
    """A sample repeats its call until it lasts this long, or 100 times the clock's own cost."""

    def measure(self, pytorch: Arm, kernel: Arm) -> Measurement:
        """Time both arms until the interval decides, or until the last look or the budget."""
        with garbage_collection_off():
            first = (self._once(pytorch, 1)[0], self._once(kernel, 1)[0])
            warm = (self._warm(pytorch), self._warm(kernel))
            calls = self._inner_calls(warm)
            quickest = calls * min(min(times) for times in warm)
            block = max(1, min(BLOCK, int(BLOCK_SECONDS / max(quickest, 1e-9))))
            warmed_up = len(self.compiled)
            pairs, interval, verdict = self._pairs(pytorch, kernel, calls, block)
        kept = self.throttling.kept([pair.clock for pair in pairs])
        unmet = "" if verdict else self.stopping.unmet(interval, sum(kept), self.budget)
        of_all, other = self.stopping.look(self._logs(pairs, of_all=True))
        if {verdict, other} == {"FASTER", "SLOWER"}:
            unmet = (
                f"the quickest samples say {verdict} ({interval.ratio:.3f}) and all samples together {other} "
                f"({of_all.ratio:.3f}): one arm is quick at times only"
            )
            verdict = None
        dropped = kept.count(False)
        if dropped > MOST_DROPPED * len(pairs):
            verdict = None
            unmet = (
                f"{dropped} of {len(pairs)} pairs were measured while the device ran below 75 % of its usual clock; at "
                "most a tenth may"
            )
        late = tuple(self.compiled[warmed_up:])
        if late:
            verdict = None
            unmet = f"{len(late)} compilations after warm-up, within the pairs: {', '.join(late[:3])}"[:500]
        return Measurement(
            interval=interval,
            verdict=verdict or "INCONCLUSIVE",
            unmet=unmet,
            pairs=tuple(pairs),
            kept=tuple(kept),
            first_call=first,
            inner_calls=calls,
            settled=all(self.warm_up.settled(times) for times in warm),
            of_all=of_all,
            compiled=late,
            device=self._device(pairs, kept),
        )

    def _once(self, arm: Arm, calls: int) -> tuple[float, float | None]:
        """Seconds of one sample by the wall clock and by events: synchronize, ``calls`` calls, synchronize."""
        clock, call = self.clock, arm.call
        arm.prepare(calls)
        clock.synchronize()
        begin = clock.mark() if clock.mark else None
        start = clock.now()
        for _ in range(calls):
            call()
        end = clock.mark() if clock.mark else None
        clock.synchronize()
        seconds = clock.now() - start
        return seconds, clock.between(begin, end) if clock.mark else None

    def _warm(self, arm: Arm) -> list[float]:
        """Seconds of each call of the warm-up."""
        times: list[float] = []
        while not self.warm_up.warm(times):
            times.append(self._once(arm, 1)[0])
        due = len(times)
        while not (self.warm_up.settled(times) or self.warm_up.exhausted(times, due, self.budget)):
            times.append(self._once(arm, 1)[0])
        return times

    def _inner_calls(self, warm: Sequence[Sequence[float]]) -> int:
        empty = min(self._once(Arm(lambda: None), 1)[0] for _ in range(5))
        quickest = min(min(times) for times in warm)
        return min(MOST_CALLS, max(1, math.ceil(max(self.least_sample, 100 * empty) / max(quickest, 1e-9))))

    def _pairs(self, pytorch: Arm, kernel: Arm, calls: int, block: int) -> tuple[list[Pair], Interval, str | None]:
        pairs: list[Pair] = []
        start = self.clock.now()
        turns = _turns(kernel_first=bool(self.seed % 2))
        while True:
            look = self.stopping.next_look(len(pairs))
            assert look is not None
            while len(pairs) < look and (
                len(pairs) < self.stopping.looks[0] or self.clock.now() - start <= self.budget
            ):
                pairs.append(self._pair(pytorch, kernel, calls, [next(turns) for _ in range(block)]))
            # Out of budget between two looks, this is the last look and takes the place of those that do not come.
            interval, verdict = self.stopping.look(self._logs(pairs))
            if verdict is not None or len(pairs) < look or self.stopping.next_look(len(pairs)) is None:
                return pairs, interval, verdict

    def _pair(self, pytorch: Arm, kernel: Arm, calls: int, turns: Sequence[bool]) -> Pair:
        taken: tuple[list[tuple[float, float | None]], list[tuple[float, float | None]]] = ([], [])
        for kernel_first in turns:
            for is_kernel in (kernel_first, not kernel_first):
                taken[is_kernel].append(self._once(kernel if is_kernel else pytorch, calls))
        # A clock that stands still between two readings must not end the run.
        pytorch_samples, kernel_samples = (tuple(max(seconds, 1e-12) / calls for seconds, _ in arm) for arm in taken)
        device_pytorch, device_kernel = (
            min((seconds / calls for _, seconds in arm if seconds is not None), default=None) for arm in taken
        )
        return Pair(pytorch_samples, kernel_samples, self.throttling.note(), device_pytorch, device_kernel)

    def _logs(self, pairs: Sequence[Pair], *, of_all: bool = False) -> list[float]:
        logs = [pair.log_of_all if of_all else pair.log for pair in pairs]
        kept = self.throttling.kept([pair.clock for pair in pairs])
        # With all of them dropped there is nothing to look at but what is there; the verdict is taken away later.
        return [log for log, keep in zip(logs, kept, strict=True) if keep] or logs

    def _device(self, pairs: Sequence[Pair], kept: Sequence[bool]) -> Interval | None:
        logs = [
            math.log(pair.device_pytorch / pair.device_kernel)
            for pair, keep in zip(pairs, kept, strict=True)
            if keep and pair.device_pytorch and pair.device_kernel
        ]
        return self.stopping.look(logs)[0] if logs else None


def _turns(*, kernel_first: bool) -> Iterator[bool]:
    """Who is first, sample after sample: A B B A."""
    while True:
        yield kernel_first
        kernel_first = not kernel_first


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
