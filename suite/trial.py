"""One call of one forward, with all that it leaves behind: results, gradients, changed arguments.

The same code runs the kernel, PyTorch's forward, and PyTorch's forward in float64, so that what is compared is the
same work. ``Layer`` holds a working copy of the module, whose weights and gradients a probe may touch; the model's own
stay as they are.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from cases.axes import DType
from cases.inputs import SEED
from suite.capture import Call
from suite.numerics import InDouble, RoutingReplay
from suite.perturb import EPSILON

__all__ = ["Layer", "Result", "Truth", "run", "truth_of"]

PARAMETER = "parameter "
"""Begins the name of a gradient that belongs to a weight of the module."""


@dataclass(slots=True, eq=False)
class Layer:
    """What is probed: two forwards of one module, and the module twice."""

    name: str
    path: str
    pytorch: Callable[..., Any]
    """Unbound: the first argument is the module."""
    kernel: Callable[..., Any]
    module: Any
    exact: Any
    """In float64 on the CPU."""
    learned: frozenset[str] | None
    """Arguments whose gradients are asked for, besides the weights'; None: no gradients are."""
    states: frozenset[str] = frozenset()
    """Arguments that PyTorch's own forward writes to: by contract, so that a kernel has to as well."""

    @property
    def where(self) -> str:
        """Registered name, class and place, for messages."""
        return f"{self.name} ({type(self.module).__name__}{f' at {self.path}' if self.path else ''})"

    def duplicate(self) -> "Layer":
        """The same layer with weights of its own."""
        return Layer(
            self.name,
            self.path,
            self.pytorch,
            self.kernel,
            duplicate(self.module),
            duplicate(self.exact),
            self.learned,
            self.states,
        )

    @contextmanager
    def epsilon(self, value: float | None) -> Iterator[None]:
        """Set every attribute that holds an epsilon, in both copies, for the block."""
        if value is None:
            yield
            return
        before = [
            (module, name, number)
            for copied in (self.module, self.exact)
            for module in copied.modules()
            for name, number in vars(module).items()
            if isinstance(number, float) and EPSILON.search(name)
        ]
        for module, name, _ in before:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, number in before:
                setattr(module, name, number)


@dataclass(slots=True)
class Result:
    """What a call left behind. Tensors are the forward's own, where it returned them: nothing is copied."""

    outputs: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    """Names whose gradients were asked for."""
    given: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensor arguments as they were before the call, by path."""
    after: dict[str, torch.Tensor] = field(default_factory=dict)
    """The same after it."""
    cotangents: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """Incoming gradients before and after."""

    def written(self) -> frozenset[str]:
        """Arguments that are no longer what they were."""
        return frozenset(path for path, before in self.given.items() if not same(before, self.after[path]))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Outputs that are tensors."""
        return {name: value for name, value in self.outputs.items() if isinstance(value, torch.Tensor)}


@dataclass(slots=True)
class Truth:
    """A float64 result and the choices of experts it made."""

    result: Result
    routing: list[torch.Tensor]
    closest: float
    """The smallest margin by which an expert was chosen, relative to the largest score; infinity without a choice."""


class _Choices(RoutingReplay):
    """Records choices, and how close they were."""

    closest = float("inf")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        if func in (torch.topk, torch.Tensor.topk) and args[0].is_floating_point():
            scores, chosen = args[0].detach(), result.values.shape[-1]
            if chosen < scores.shape[-1]:
                ordered = torch.sort(scores, dim=-1, descending=True).values
                margin = ordered[..., chosen - 1] - ordered[..., chosen]
                size = scores.abs().amax(-1).clamp_min(1e-30)
                self.closest = min(self.closest, float((margin / size).min()))
        return result


def duplicate(module: Any) -> Any:
    """A copy with weights of its own, and the model's configuration, which is large and only read."""
    shared = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    return copy.deepcopy(module, shared)


def exact_copy(module: Any) -> Any:
    """A copy in float64 on the CPU, in the simplest implementation: grouped matrix products know no float64."""
    result = duplicate(module).cpu().double()
    for part in result.modules():
        if hasattr(getattr(part, "config", None), "_experts_implementation"):
            part.config = copy.copy(part.config)
            part.config._experts_implementation = "eager"
    return result


def gradients_of(layer: Layer, call: Call) -> frozenset[str]:
    """Names of all that has a gradient: arguments through which one flows in the model, and weights."""
    if layer.learned is None:
        return frozenset()
    tensors = {path for path, leaf in call.tensors().items() if leaf.is_floating_point() and path in layer.learned}
    weights = {PARAMETER + name for name, _ in layer.module.named_parameters()}
    return frozenset(tensors | weights) - layer.states


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, counting NaN as equal to itself."""
    return torch.equal(one, other) or (
        one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())
    )


def flattened(value: Any) -> dict[str, Any]:
    """Outputs by name: ``output``, or ``output 0``, ``output 1`` … of a tuple."""
    if not isinstance(value, tuple | list):
        return {"output": value}
    return {
        f"{'output ' + str(index) if name == 'output' else name.replace('output', f'output {index}.', 1)}": leaf
        for index, item in enumerate(value)
        for name, leaf in flattened(item).items()
    }


def cotangent(output: torch.Tensor, *, repeated: bool) -> torch.Tensor:
    """A fixed random incoming gradient; ``repeated``: one row of it for all rows, expanded as a sum's gradient is."""
    generator = torch.Generator().manual_seed(SEED)
    shape = (1,) * (output.dim() - 1) + tuple(output.shape[-1:]) if repeated else output.shape
    # Whole 64ths: the same numbers in every precision, also where float32 is made float64 under our feet (InDouble).
    drawn = torch.randint(-128, 129, shape, generator=generator).to(output.device, output.dtype) / 64
    return drawn.expand(output.shape)


def run(
    function: Callable[..., Any],
    module: Any,
    call: Call,
    asked: frozenset[str] = frozenset(),
    like: dict[str, torch.Tensor] | None = None,
    *,
    repeated: bool = False,
    keep: bool = False,
) -> Result:
    """Call ``function`` on copies of the arguments, and go backward if gradients are ``asked`` for.

    ``like`` are outputs whose dtypes the incoming gradients are rounded to, so that all arms get the same ones. With
    ``keep`` gradients of the module that are there already stay and are added to.
    """
    prepared = call.copied().replaced(
        lambda path, leaf: leaf.requires_grad_() if isinstance(leaf, torch.Tensor) and path in asked else leaf
    )
    weights = dict(module.named_parameters())
    for name, weight in weights.items():
        weight.requires_grad_(PARAMETER + name in asked)
        if not keep:
            weight.grad = None
    result = Result(given=call.tensors(), asked=asked)
    with torch.set_grad_enabled(bool(asked)):
        value = function(module, *prepared.args, **prepared.kwargs)
    result.outputs = flattened(value)
    ends = {name: end for name, end in result.tensors().items() if end.requires_grad}
    if ends:
        for name, end in ends.items():
            model = (like or {}).get(name, end)
            drawn = cotangent(model, repeated=repeated).to(end.device, end.dtype)
            result.cotangents[name] = drawn.clone(), drawn
        torch.autograd.backward(list(ends.values()), [after for _, after in result.cotangents.values()])
    leaves = {**prepared.tensors(), **{PARAMETER + name: weight for name, weight in weights.items()}}
    result.gradients = {name: leaf.grad for name, leaf in leaves.items() if name in asked and leaf.grad is not None}
    result.after = {path: leaf.detach() for path, leaf in prepared.tensors().items()}
    result.outputs = {
        name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in result.outputs.items()
    }
    return result


def in_double(call: Call) -> Call:
    """The call in float64 on the CPU."""

    def change(_: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        leaf = leaf.cpu()
        return leaf.double() if leaf.is_floating_point() else leaf

    return call.replaced(change)


def truth_of(
    layer: Layer, call: Call, asked: frozenset[str], like: dict[str, torch.Tensor], *, repeated: bool = False
) -> Truth:
    """PyTorch's forward in float64."""
    routing: list[torch.Tensor] = []
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Choices(routing, recording=True) as choices, InDouble():
            result = run(layer.pytorch, layer.exact, in_double(call), asked, like, repeated=repeated)
        return Truth(result, routing, choices.closest)
    finally:
        torch.set_default_dtype(before)


@contextmanager
def replayed(routing: list[torch.Tensor], dtype: DType) -> Iterator[RoutingReplay | None]:
    """Take the experts that float64 took, where the choice was a near tie."""
    if not routing:
        yield None
        return
    with RoutingReplay(routing, recording=False, dtype=dtype) as replay:
        yield replay
