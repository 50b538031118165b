"""The checks that compare two arms and need no input recipe: determinism, memory and speed.

Each takes a subject whose kernels are known to run, and returns a finding. An exception of the kernel arm is a FAIL of
the kernel; one of the PyTorch arm means that there is nothing to hold the kernel against.
"""

from collections.abc import Callable
from time import perf_counter

import torch

from cases.axes import Phase
from cases.inputs import SEED
from reports.record import Determinism, Outcome, Reason, Speed
from suite import passes
from suite.finding import Finding, Measure
from suite.memory import peak_bytes
from suite.model_checks import arm
from suite.sampling import Arm, Clock, Sampler
from suite.subject import Subject

__all__ = ["determinism", "memory", "speed"]

REPEATS = 10
"""Calls that must agree bit for bit. Races show within a few; design/measurement section 4 asks for ten."""


def _everything(subject: Subject) -> list[torch.Tensor]:
    """All that a pass of the case's mode produces: output, and gradients in training."""
    if not subject.case.mode.trains:
        return [subject.ask(passes.forward, "dense")]
    result = subject.ask(passes.forward_backward, "dense")
    return [result.output, *result.by_name.values()]


def _repeats(subject: Subject, *, kernel: bool) -> tuple[int, float]:
    """Number of repeats that differ from the first call, and the largest relative difference."""
    with arm(subject, kernel=kernel):
        first = _everything(subject)
        different, largest = 0, 0.0
        for _ in range(REPEATS - 1):
            again = _everything(subject)
            gap = max(
                float((a - b).norm() / b.norm().clamp_min(1e-30)) if not torch.equal(a, b) else 0.0
                for a, b in zip(again, first, strict=True)
            )
            different += gap > 0
            largest = max(largest, gap)
    return different, largest


def determinism(subject: Subject) -> Finding:
    """The same call ten times, bit for bit; PyTorch first, since it may vary itself."""
    reference, _ = _repeats(subject, kernel=False)
    different, largest = _repeats(subject, kernel=True)
    measures: dict[str, Measure] = {
        "repeats": REPEATS,
        "different": different,
        "reference_different": reference,
        "largest_difference": largest,
    }
    if different == 0:
        grade, text = Determinism.BITWISE, f"{REPEATS} calls, the same bits"
    elif reference:
        grade, text = Determinism.REFERENCE_VARIES, f"PyTorch itself differs in {reference} of {REPEATS - 1} repeats"
    else:
        truth, _ = subject.truth.forward("dense")
        with arm(subject, kernel=False):
            own = subject.ask(passes.forward, "dense")
        allowed = float((own - truth).norm() / truth.norm())
        grade = Determinism.TOLERANT if largest <= allowed else Determinism.VARIES
        text = f"{different} of {REPEATS - 1} repeats differ, by up to {largest:.2e}; PyTorch's own repeats agree"
    outcome = Outcome.FAIL if grade is Determinism.VARIES else Outcome.PASS
    reason = Reason.NONDETERMINISTIC if outcome is Outcome.FAIL else None
    return Finding(outcome, reason, text, measures=measures, determinism=grade)


def _work(subject: Subject) -> tuple[Phase, Callable[[], object]]:
    """What is timed and weighed: a training step, or a prefill. Results stay on the device."""
    model, record, given = subject.loaded.model, subject.record, subject.batches["dense"]
    if subject.case.mode.trains:

        def step() -> object:
            passes.run(model, record, given).float().mean().backward()
            model.zero_grad(set_to_none=True)
            return None

        return Phase.TRAIN_STEP, step

    def prefill() -> object:
        with torch.no_grad():
            return passes.run(model, record, given)

    return Phase.PREFILL, prefill


def memory(subject: Subject) -> Finding:
    """Peak memory of one call, kernel over PyTorch. A figure without a limit: what it may be is the adopter's gate."""
    _, work = _work(subject)
    with arm(subject, kernel=False):
        pytorch = peak_bytes(subject.backend, work)
    with arm(subject, kernel=True):
        kernel = peak_bytes(subject.backend, work)
    ratio = kernel / max(pytorch, 1)
    return Finding(
        Outcome.PASS,
        message=f"peak {ratio:.2f} × PyTorch's",
        measures={"ratio": ratio, "kernel_bytes": kernel, "pytorch_bytes": pytorch},
    )


def speed(subject: Subject, budget: float) -> tuple[Phase, Finding]:
    """Paired, counterbalanced time of both arms. Only for kernels that engaged and are right."""
    phase, work = _work(subject)
    arms = subject.arms

    sampler = Sampler(Clock(perf_counter, subject.backend.synchronize), budget, seed=SEED)
    try:
        result = sampler.measure(Arm(work, arms.use_pytorch), Arm(work, arms.use_kernels))
    finally:
        arms.use_kernels()
    interval = result.interval
    text = f"{interval.ratio:.2f}× ({interval.low:.2f} to {interval.high:.2f})"
    measures: dict[str, Measure] = {
        "ratio": interval.ratio,
        "low": interval.low,
        "high": min(interval.high, 1e9),
        "pairs": len(result.logs),
        "pytorch_ms": 1e3 * result.pytorch_seconds,
        "kernel_ms": 1e3 * result.kernel_seconds,
        "first_call_pytorch_ms": 1e3 * result.first_call[0],
        "first_call_kernel_ms": 1e3 * result.first_call[1],
        "inner_calls": result.inner_calls,
        "unmet": result.unmet,
        "logs": list(result.logs),
    }
    message = text if not result.unmet else f"{text}: {result.unmet}"
    return phase, Finding(Outcome.PASS, message=message, measures=measures, speed=Speed(result.verdict))
