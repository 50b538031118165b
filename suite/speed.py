"""The check ``speed``: paired, counterbalanced time of the kernel and of PyTorch, phase by phase.

Only for kernels that are right and that are called in the very phase: where one is not called there is no speedup, not
even 1×. SLOWER is a claim about somebody's kernel, so it is recorded as INCONCLUSIVE until a fresh process has seen
the same (``suite.confirm``).
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch

from cases.axes import Phase, Tier
from cases.break_even import SECONDS
from reports.record import Outcome, Reason, Speed
from suite.compilations import watched
from suite.compiled_speed import compiled
from suite.compiling import generates
from suite.confirm import AWAITS
from suite.control import Control
from suite.device import Backend
from suite.finding import Finding, Measure
from suite.model_checks import ArmError
from suite.sampling import Arm, Clock, Measurement, Sampler
from suite.stopping import Stopping
from suite.subject import Subject
from suite.throttling import Throttling
from suite.work import Work, calls_seen, works

__all__ = ["SEVERAL", "Timing", "arm_of", "clock_of", "control", "measure", "phases", "speed", "timed"]

SEVERAL = 1e9
"""Stands for infinity in records, whose JSON has none."""


@dataclass
class Timing:
    """What the speed checks of one worker share."""

    budget: float
    """Seconds a case may take for its pairs, over all its phases."""
    backend: Backend
    enabled: bool = True
    """False with ``--benchmark-disable``: every arm runs once, and nothing is timed."""
    flags: bool = True
    """Whether the cost of deterministic algorithms is worth its time: a second in each case that has it."""
    compiler: str | None = None
    """Backend of ``torch.compile`` for compiled models; None where there is no time to generate code."""
    map_seconds: float = SECONDS[Tier.CORE]
    """Seconds a break-even map may take."""
    control: Control = field(default_factory=Control)
    throttling: Throttling = field(default_factory=Throttling)
    stopping: Stopping = field(default_factory=Stopping)

    def sampler(self, subject: Subject, phase: Phase) -> Sampler:
        """The procedure for one phase; which arm is first follows from the id of the case."""
        return Sampler(
            clock_of(self.backend),
            self.budget / len(phases(subject)),
            seed=zlib.crc32(f"{subject.case.id} {phase}".encode()),
            throttling=self.throttling,
            stopping=self.stopping,
        )


def clock_of(backend: Backend) -> Clock:
    """The wall clock, with the device's own events as a second channel where it has some."""
    if not backend.has_events():
        return Clock(perf_counter, backend.synchronize)
    return Clock(perf_counter, backend.synchronize, backend.mark, backend.between)


def phases(subject: Subject) -> tuple[Phase, ...]:
    """The phases that are timed of a case, known before its model is loaded."""
    if subject.case.mode.trains:
        return (Phase.TRAIN_STEP,)
    decodes = subject.record.generates and not subject.case.mode.compiles
    return (Phase.PREFILL, Phase.DECODE) if decodes else (Phase.PREFILL,)


def _work(subject: Subject, phase: Phase, *, kernel: bool) -> Work:
    renew = subject.arms.use_kernels if kernel else subject.arms.use_pytorch
    return next(work for work in works(subject, renew) if work.phase is phase)


def measure(subject: Subject, phase: Phase, timing: Timing, *, kernel: bool = True) -> Measurement:
    """Time both arms of a phase; without ``kernel`` PyTorch against itself."""
    pytorch, other = _work(subject, phase, kernel=False), _work(subject, phase, kernel=kernel)
    try:
        return timed(timing.sampler(subject, phase), arm_of(pytorch, kernel=False), arm_of(other, kernel=kernel))
    finally:
        if subject.case.mode.trains:
            subject.loaded.model.zero_grad(set_to_none=True)
        subject.arms.use_kernels()


def timed(sampler: Sampler, pytorch: Arm, kernel: Arm) -> Measurement:
    """Measure two arms, and watch that nothing is compiled while their pairs are timed."""
    with watched() as compiled:
        return replace(sampler, compiled=compiled).measure(pytorch, kernel)


def arm_of(work: Work, *, kernel: bool) -> Arm:
    """The work as an arm whose exceptions say whose they are."""

    def blamed(call: Callable[..., object]) -> Callable[..., Any]:
        def run(*arguments: int) -> object:
            try:
                return call(*arguments)
            except (torch.OutOfMemoryError, MemoryError):
                raise
            except Exception as error:
                raise ArmError(error, kernel=kernel) from error

        return run

    return Arm(blamed(work.call), blamed(work.prepare))


def control(subject: Subject, timing: Timing) -> tuple[str, Finding] | None:
    """The A/A control on the first phase of a case, if one is due."""
    if not timing.enabled:
        return None
    return timing.control.before_case(lambda: measure(subject, phases(subject)[0], timing, kernel=False))


def speed(subject: Subject, phase: Phase, timing: Timing) -> Finding:
    """Both arms of one phase. Only for kernels that engaged and are right."""
    plain = next(work for work in works(subject) if work.phase is phase)
    calls = calls_seen(subject, plain)
    if subject.tests_a_kernel and not calls:
        return _not_measured(Reason.NOT_CALLED, f"no kernel of this case is called in {phase}, so there is no speedup")
    if not timing.enabled:
        other = _work(subject, phase, kernel=False)
        other.prepare(1)
        other.call()
        subject.arms.use_kernels()
        return _not_measured(Reason.DISABLED, "timing is switched off by --benchmark-disable; each arm ran once")
    if subject.case.mode.compiles:
        return _compiled(subject, calls, timing)
    return _finding(subject, plain, calls, measure(subject, phase, timing), timing)


def _compiled(subject: Subject, calls: int, timing: Timing) -> Finding:
    """Two instances, each compiled. A kernel that is called without compilation and is in no graph has no speedup."""
    if timing.compiler is None or not generates(subject.case):
        return _not_measured(
            Reason.NOT_APPLICABLE,
            "compiled models are timed in tier full and with all kernels together, since generating code takes minutes",
        )
    if not any(site.has_kernel() for site in subject.arms.sites):
        return _not_measured(Reason.NOT_APPLICABLE, "which attention is in a compiled graph cannot be proved")
    with compiled(subject, timing.compiler) as instances:
        pytorch, kernel = arm_of(instances.pytorch, kernel=False), arm_of(instances.kernel, kernel=True)
        result = timed(timing.sampler(subject, instances.kernel.phase), pytorch, kernel)
        inside = instances.in_graph()
    if not inside:
        return _not_measured(Reason.NOT_CALLED, "no kernel of this case is in the compiled graphs, so no speedup")
    finding = _finding(subject, instances.kernel, calls, result, timing)
    finding.measures["in_graph"] = ", ".join(inside)
    return finding


def _not_measured(reason: Reason, message: str) -> Finding:
    return Finding(Outcome.NOT_RUN, reason, message, speed=Speed.NOT_MEASURED)


def _finding(subject: Subject, work: Work, calls: int, result: Measurement, timing: Timing) -> Finding:
    verdict, unmet = timing.control.claimed(result)
    if verdict is Speed.SLOWER:
        verdict, unmet = Speed.INCONCLUSIVE, f"SLOWER, {AWAITS}"
    interval = result.interval
    text = f"{interval.ratio:.2f}× ({interval.low:.2f} to {interval.high:.2f})"
    measures: dict[str, Measure] = {
        "ratio": interval.ratio,
        "low": interval.low,
        "high": min(interval.high, SEVERAL),
        "claimed": result.verdict,
        "unmet": unmet,
        "calls": calls,
        **_figures(work, result),
        "load_seconds": subject.load_seconds,
        **subject.downloads.measures,
        "first_pass_seconds": subject.first_pass_seconds,
    }
    return Finding(Outcome.PASS, message=f"{text}: {unmet}" if unmet else text, measures=measures, speed=verdict)


def _figures(work: Work, result: Measurement) -> dict[str, Measure]:
    found: dict[str, Measure] = {
        "pairs": len(result.logs),
        "pytorch_ms": 1e3 * result.pytorch_seconds,
        "kernel_ms": 1e3 * result.kernel_seconds,
        "pytorch_tokens_per_second": work.tokens / result.pytorch_seconds,
        "kernel_tokens_per_second": work.tokens / result.kernel_seconds,
        "first_call_pytorch_ms": 1e3 * result.first_call[0],
        "first_call_kernel_ms": 1e3 * result.first_call[1],
        "inner_calls": result.inner_calls,
        "settled": result.settled,
        "dropped": result.kept.count(False),
        "compiled_after_warm_up": len(result.compiled),
        "throttling": "watched" if result.clock_read else "not watched: the clock of this device cannot be read",
        "logs": list(result.logs),
        # Raw seconds a call, for pytest-benchmark and for whoever wants to compute it otherwise.
        "pytorch_seconds": [float(f"{time:.6g}") for pair in result.pairs for time in pair.pytorch_samples],
        "kernel_seconds": [float(f"{time:.6g}") for pair in result.pairs for time in pair.kernel_samples],
        "samples_per_pair": len(result.pairs[0].pytorch_samples),
        "all_ratio": result.of_all.ratio,
        "all_low": result.of_all.low,
        "all_high": min(result.of_all.high, SEVERAL),
    }
    if result.device is not None:
        found |= {
            "device_ratio": result.device.ratio,
            "device_low": result.device.low,
            "device_high": min(result.device.high, SEVERAL),
        }
    return found
