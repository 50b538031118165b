"""Error against float64, and the one table of limits. Pure functions on tensors, and two modes for the reference pass.

The rule (design: tolerance is a multiple of PyTorch's own error): let e_ref be the error of PyTorch in the tested dtype
against PyTorch in float64, e_ker the kernel's, both per row; the kernel passes when e_ker <= factor * max(e_ref, floor)
for the worst row and for the median row. A single absolute tolerance can be right for one dtype and one depth only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cases.axes import DType

__all__ = [
    "LIMITS",
    "Comparison",
    "InDouble",
    "Limit",
    "RoutingReplay",
    "compare",
    "compare_named",
    "row_errors",
    "torch_dtype",
]

_TORCH: dict[DType, torch.dtype] = {
    DType.FLOAT32: torch.float32,
    DType.BFLOAT16: torch.bfloat16,
    DType.FLOAT16: torch.float16,
}


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype of an axis value."""
    return _TORCH[dtype]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on e_ker / max(e_ref, floor), and why it is what it is. Changing one is a reviewed diff."""

    factor: float
    floor: float
    """In units of the dtype's machine epsilon."""
    reason: str
    rows: int = 1
    """How many rows there must be."""


LIMITS: dict[str, Limit] = {
    "output": Limit(2.0, 1.0, "another order of summation moves the error by less than this, a wrong formula by more"),
    "gradient": Limit(2.0, 1.0, "as for outputs; rows are parameters, since a parameter is what the optimiser sees"),
    "generate": Limit(2.0, 4.0, "attention over a cache sums in other blocks than over a whole sequence"),
    "probe": Limit(2.0, 0.5, "as for outputs; one layer rounds once or twice, so half an epsilon is its usual error"),
    "probe-gradient": Limit(
        3.0,
        1.0,
        "a fused backward pass takes row sums from its rounded result: flash attention's own tests allow 3 times "
        "PyTorch's error, and PyTorch's fused attention on a CPU has up to 2.4 times that of its eager form",
    ),
    "probe-mean": Limit(
        1.15,
        0.1,
        "a norm that squares or sums in bfloat16 has 1.25 to 1.31 times PyTorch's mean error, a healthy one at most "
        "1.05; a mean over 256 rows is known to 3 %. Where PyTorch rounds less than a tenth of an epsilon it is exact",
        rows=256,
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Errors of kernel and PyTorch against float64, relative to the row's own size, of the row that decides."""

    error_kernel: float
    error_pytorch: float
    """PyTorch's own, or the floor where that is larger: ``error_kernel`` over this is ``ratio``."""
    ratio: float
    """The larger of the worst-row and the median-row ratio e_ker / max(e_ref, floor)."""
    limit: float
    worst: str
    """Which row decides: the kernel's worst by name, or the median row."""
    finite: bool
    """False when the kernel gives NaN or infinity where float64 does not."""

    @property
    def passed(self) -> bool:
        """Whether the ratio is within the limit."""
        return self.finite and self.ratio <= self.limit


def row_errors(value: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Relative root-mean-square error of each row (last dimension) of ``value``, flat over the leading dimensions."""
    width = truth.shape[-1] if truth.dim() else 1
    difference = (value.double() - truth).reshape(-1, width)
    size = truth.reshape(-1, width).norm(dim=-1)
    # A row that is zero in truth has no relative error: measure it against a typical row instead.
    typical = size.median() if bool((size > 0).any()) else size.new_tensor(1.0)
    errors: torch.Tensor = difference.norm(dim=-1) / torch.where(size > 0, size, typical.clamp_min(1e-30))
    return errors


def compare(
    kernel: torch.Tensor,
    pytorch: torch.Tensor,
    truth: torch.Tensor,
    dtype: DType,
    kind: str = "output",
    place: Callable[[int], str] = "row {}".format,
) -> Comparison:
    """Compare tensors of one shape, rows along the last dimension. ``truth`` is float64; ``place`` names a row."""
    return _judge(row_errors(kernel, truth), row_errors(pytorch, truth), dtype, LIMITS[kind], place)


def compare_named(
    kernel: Mapping[str, torch.Tensor],
    pytorch: Mapping[str, torch.Tensor],
    truth: Mapping[str, torch.Tensor],
    dtype: DType,
    kind: str = "gradient",
) -> Comparison:
    """Compare tensors by name; each is one row. Names whose truth is zero are left out: they have no relative error.

    Zero up to rounding, that is: the gradient of a key bias vanishes, since softmax ignores a shift of all scores.
    """
    sizes = {name: float(tensor.norm()) for name, tensor in truth.items()}
    names = [name for name, size in sizes.items() if size > 1e-10 * max(sizes.values())]

    def errors(arm: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([row_errors(arm[name].flatten(), truth[name].flatten())[0] for name in names])

    return _judge(errors(kernel), errors(pytorch), dtype, LIMITS[kind], lambda index: names[index])


def _judge(
    kernel: torch.Tensor, pytorch: torch.Tensor, dtype: DType, limit: Limit, name: Callable[[int], str]
) -> Comparison:
    floor = limit.floor * torch.finfo(torch_dtype(dtype)).eps
    finite = bool(torch.isfinite(kernel).all()) or not bool(torch.isfinite(pytorch).all())
    kernel, pytorch = kernel.nan_to_num(nan=float("inf")), pytorch.nan_to_num(nan=float("inf"))
    worst = float(kernel.max()) / max(float(pytorch.max()), floor)
    median = float(kernel.median()) / max(float(pytorch.median()), floor)
    if median > worst and finite:
        # The figures are those that decide, or a reader divides two numbers and gets a third.
        own, reference, where = kernel.median(), pytorch.median(), "the median row"
    else:
        own, reference, where = kernel.max(), pytorch.max(), name(int(kernel.argmax()))
    return Comparison(
        error_kernel=float(own),
        error_pytorch=max(float(reference), floor),
        ratio=max(worst, median),
        limit=limit.factor,
        worst=where,
        finite=finite,
    )


class InDouble(TorchFunctionMode):
    """Runs code that casts to float32 on purpose (norms, softmax, rotary angles) in float64 instead.

    Without it a model in float64 would still round to float32 in those places, and could not serve as truth for
    float32. Rewrites every ``torch.float32`` among the arguments of a torch call, and ``Tensor.float``.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call ``func`` with float64 wherever float32 was asked for."""
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        new_args = [torch.float64 if argument is torch.float32 else argument for argument in args]
        new_kwargs = {key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()}
        return func(*new_args, **new_kwargs)


class RoutingReplay(TorchFunctionMode):
    """Lets all arms take the experts that the float64 pass took, where the choice was a near tie.

    A mixture of experts turns a rounding difference at a tie into another expert and a large error, in PyTorch as in a
    kernel, by luck. The first pass (``recorded`` empty and ``recording``) keeps the indices of each ``topk``; later
    passes take these wherever their own choice differs by less than ``TIE`` epsilons, so a wrong router stays wrong.
    The epsilon is that of the dtype under test, which a router that computes in float32 has inherited in its inputs.
    """

    TIE = 8.0
    """PyTorch's own outputs are off by one to two epsilons after two layers, scores by up to twice that."""

    def __init__(self, recorded: list[torch.Tensor], *, recording: bool, dtype: DType | None = None) -> None:
        super().__init__()
        self.recorded = recorded
        self.recording = recording
        self.epsilon = 0.0 if dtype is None else torch.finfo(torch_dtype(dtype)).eps
        self.position = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Pass everything through but ``topk``."""
        result = func(*args, **(kwargs or {}))
        if func not in (torch.topk, torch.Tensor.topk):
            return result
        if self.recording:
            self.recorded.append(result.indices.detach().cpu())
            return result
        position, self.position = self.position, self.position + 1
        if position >= len(self.recorded) or self.recorded[position].shape != result.indices.shape:
            return result
        scores: torch.Tensor = args[0]
        indices = self.recorded[position].to(scores.device)
        values = scores.gather(-1, indices)
        size = scores.detach().abs().amax(-1, keepdim=True).float()
        slack = self.TIE * self.epsilon * size
        tie = (result.values.detach().float() - values.detach().float()).abs().amax(-1, keepdim=True) <= slack
        chosen = torch.where(tie, indices, result.indices)
        return torch.return_types.topk((scores.gather(-1, chosen), chosen))
