"""Whether a kernel's result agrees with PyTorch's, given the float64 result of the same call.

The rule is that of ``suite.numerics``, row by row, with three additions that probes need. Rows on which PyTorch itself
is far off in this dtype are not judged, since nothing can be learned there. What float64 has as zero is measured
against a typical row. And where there are many rows, the mean error counts: a norm that sums in bfloat16 is no worse
than twice PyTorch's error on any row, and a quarter worse on average.
"""

from dataclasses import dataclass, field

import torch

from cases.axes import DType
from suite.numerics import LIMITS, torch_dtype
from suite.trial import PARAMETER, Result, same

__all__ = ["Agreement", "Complaint", "agree"]

ROW = 16
"""Elements that a row has at least: the error of fewer is a matter of luck. Dimensions are joined until there are."""
LOST = 0.05
"""Relative error above which PyTorch's own row says nothing, in any precision."""
LOST_EPSILONS = 256.0
"""The same in machine epsilons: a row that loses eight bits to cancellation is as far off with any order of sums."""
MOST = 0.5
"""Share of rows that must be usable: the few on which PyTorch had luck are no fair choice."""
VANISHED = 1e-3
"""Rows that float64 has smaller than this share of a typical one are what cancellation leaves of full-sized numbers."""
CANCELLED = 16.0
"""Their error is measured against a typical row, and may be this many times larger: the roundings of what cancelled."""
FLOAT32_FLOOR = 4 * 2.0**-24
"""Four roundings of float32 are no fault in any precision; four times as many in a gradient, which is a chain."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong."""

    what: str
    """``output 0``, ``gradient of hidden_states``, or the relation that is broken."""
    text: str
    figure: float
    limit: float

    @property
    def weight(self) -> float:
        """How far over its limit; for choosing the worst."""
        return self.figure / self.limit if self.limit else float("inf")


@dataclass(slots=True)
class Agreement:
    """Complaints and the largest figures of one comparison."""

    complaints: list[Complaint] = field(default_factory=list)
    ratio: float = 0.0
    limit: float = LIMITS["probe"].factor
    """That of ``ratio``, which is the one nearest to its limit: gradients have a wider one than outputs."""
    mean_ratio: float = 0.0
    judged: int = 0
    """Tensors that had rows to judge."""


def row_errors(value: torch.Tensor, truth: torch.Tensor, *, whole: bool = False, sums: bool = False) -> torch.Tensor:
    """Relative root-mean-square error of each row; all is one row if ``whole``.

    ``sums`` is for gradients: a row of one is what is left of a sum that cancels, so a small row is measured against
    the root mean square of all.
    """
    width = truth.numel() if whole else 1
    if not whole:
        for size in reversed(truth.shape):
            if width >= ROW:
                break
            width *= size
    difference = (value.cpu().double() - truth).reshape(-1, max(width, 1))
    size_of = truth.reshape(-1, max(width, 1)).norm(dim=-1)
    positive = size_of[size_of > 0]
    typical = positive.median() if positive.numel() else size_of.new_tensor(1.0)
    errors: torch.Tensor = difference.norm(dim=-1)
    if sums:
        size_of = size_of.clamp_min(float(size_of.square().mean().sqrt()) or 1.0)
        errors /= size_of
        return errors
    return errors / torch.where(size_of > VANISHED * typical, size_of, CANCELLED * typical)


def agree(kernel: Result, pytorch: Result, truth: Result, dtype: DType, *, many: bool = False) -> Agreement:
    """Compare outputs, arguments that PyTorch's forward changes, and gradients."""
    found = Agreement()
    if _structure(kernel, pytorch, found):
        return found
    for name, value in pytorch.tensors().items():
        _compare(found, name, kernel.tensors()[name], value, truth.tensors()[name], dtype, many=many)
    for path in sorted(pytorch.written()):
        what = f"argument {path} after the call"
        _compare(found, what, kernel.after[path], pytorch.after[path], truth.after[path], dtype)
    for name, value in pytorch.gradients.items():
        if name not in kernel.asked:
            continue
        exact = truth.gradients.get(name)
        if exact is None or not bool(exact.any()):
            continue
        what = f"gradient of {name}"
        if name not in kernel.gradients:
            found.complaints.append(Complaint(what, f"{what} is missing, and PyTorch has one", 1.0, 0.0))
            continue
        _compare(found, what, kernel.gradients[name], value, exact, dtype, whole=name.startswith(PARAMETER))
    return found


def _structure(kernel: Result, pytorch: Result, found: Agreement) -> bool:
    """Complain of another number, shape or dtype of outputs; true if there is nothing more to compare."""

    def shape(value: object) -> str:
        return f"{_short(value.dtype)} {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:60]

    own = {name: shape(value) for name, value in pytorch.outputs.items()}
    its = {name: shape(value) for name, value in kernel.outputs.items()}
    if own == its:
        return False
    text = f"returns {', '.join(its.values())} where PyTorch returns {', '.join(own.values())}"
    found.complaints.append(Complaint("structure", text, 1.0, 0.0))
    found.judged += 1
    return True


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _compare(
    found: Agreement,
    what: str,
    kernel: torch.Tensor,
    pytorch: torch.Tensor,
    truth: torch.Tensor,
    dtype: DType,
    *,
    many: bool = False,
    whole: bool = False,
) -> None:
    if not truth.is_floating_point():
        # A choice: where PyTorch's is float64's, the kernel's must be too.
        if same(pytorch.cpu(), truth):
            found.judged += 1
            if not same(kernel.cpu(), truth):
                found.complaints.append(Complaint(what, f"{what} differs, and it holds whole numbers", 1.0, 0.0))
        return
    if not truth.numel():
        return
    epsilon = torch.finfo(torch_dtype(dtype)).eps
    sums = what.startswith("gradient")
    own, its = (row_errors(each, truth, whole=whole, sums=sums) for each in (pytorch, kernel))
    usable = own <= min(LOST, LOST_EPSILONS * epsilon)
    if float(usable.double().mean()) < MOST:
        return
    found.judged += 1
    own, its = own[usable], its[usable]
    if not bool(torch.isfinite(its).all()):
        text = f"{what} has NaN or infinity in {int((~torch.isfinite(its)).sum())} of {its.numel()} rows"
        found.complaints.append(Complaint(what, f"{text}, where PyTorch has none", float("inf"), 1.0))
        return
    limit = LIMITS["probe-gradient" if sums else "probe"]
    floor = max(limit.floor * epsilon, FLOAT32_FLOOR * (4 if sums else 1))
    ratio = max(_over(its.max(), own.max(), floor), _over(its.median(), own.median(), floor))
    if ratio / limit.factor > found.ratio / found.limit:
        found.ratio, found.limit = ratio, limit.factor
    if ratio > limit.factor:
        text = f"{what} has {ratio:.3g} × PyTorch's error (limit {limit.factor:g} ×)"
        errors = f"{float(its.max()):.2e} against {float(own.max()):.2e} on the worst of {its.numel()} rows"
        found.complaints.append(Complaint(what, f"{text}: {errors}", ratio, limit.factor))
    limit = LIMITS["probe-mean"]
    if many and its.numel() >= limit.rows:
        mean = _over(its.mean(), own.mean(), max(limit.floor * epsilon, FLOAT32_FLOOR))
        found.mean_ratio = max(found.mean_ratio, mean)
        if mean > limit.factor:
            text = f"{what} has {mean:.3g} × PyTorch's error on average over {its.numel()} rows"
            found.complaints.append(Complaint(what, f"{text} (limit {limit.factor:g} ×)", mean, limit.factor))


def _over(kernel: torch.Tensor, pytorch: torch.Tensor, floor: float) -> float:
    return float(kernel) / max(float(pytorch), floor)
