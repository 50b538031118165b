"""The checks that compare two arms and need no input recipe: determinism and memory.

Each takes a subject whose kernels are known to run, and returns a finding. An exception of the kernel arm is a FAIL of
the kernel; one of the PyTorch arm means that there is nothing to hold the kernel against.
"""

import torch

from reports.record import Determinism, Outcome, Reason
from suite import passes
from suite.finding import Finding, Measure
from suite.memory import peak_bytes
from suite.model_checks import arm
from suite.subject import Subject
from suite.work import works

__all__ = ["determinism", "memory"]

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
    """The same call ten times, bit for bit. Where the kernel varies, so may PyTorch, and that is asked then."""
    different, largest = _repeats(subject, kernel=True)
    reference = _repeats(subject, kernel=False)[0] if different else None
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


def _peak(subject: Subject, *, kernel: bool) -> int:
    with arm(subject, kernel=kernel):
        work = works(subject)[0]
        work.prepare(1)
        peak = peak_bytes(subject.backend, work.call)
        # Gradients that a training step left behind would count as there before for the other arm.
        work.prepare(0)
    return peak


def memory(subject: Subject) -> Finding:
    """Peak memory of one call, kernel over PyTorch. A figure without a limit: what it may be is the adopter's gate."""
    pytorch = _peak(subject, kernel=False)
    kernel = _peak(subject, kernel=True)
    ratio = kernel / max(pytorch, 1)
    return Finding(
        Outcome.PASS,
        message=f"peak {ratio:.2f} × PyTorch's",
        measures={"ratio": ratio, "kernel_bytes": kernel, "pytorch_bytes": pytorch},
    )
