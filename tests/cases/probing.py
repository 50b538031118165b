"""Real calls of registered layers and functions, and their results by PyTorch, by a kernel and in float64.

The tests of the bundled kernels compare on these. It is a small helper of the tests, and on purpose not the one of
``suite``: two ways to the same number would show a mistake in either.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import transformers
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from cases.models import MODELS, Model

TOKENS = torch.randint(3, 250, (2, 48), generator=torch.Generator().manual_seed(0))


def build(model: Model, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model.model_type, **model.overrides)
    architecture = getattr(transformers, model.architecture)
    construct = architecture.from_config if model.architecture.startswith("Auto") else architecture._from_config
    return construct(config, **settings).eval()


def registered(network: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    for module in network.modules():
        if hasattr(type(module), "kernel_layer_name"):
            yield str(type(module).kernel_layer_name), module
        for function in getattr(module, "_kernel_funcs", {}).values():
            yield type(function).kernel_layer_name, function


@contextmanager
def hooked(network: Any, hook: Callable[..., object]) -> Iterator[None]:
    """Call ``hook`` with name, object and arguments before each call of a registered object within the block."""
    # A function kernel is one object per process and hangs on every layer: hook each object once.
    objects = {id(module): (name, module) for name, module in registered(network)}

    def before(name: str) -> Callable[..., object]:
        return lambda module, arguments, keywords: hook(name, module, arguments, keywords)

    handles = [module.register_forward_pre_hook(before(name), with_kwargs=True) for name, module in objects.values()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Call:
    """One call that a model made."""

    name: str
    module: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@cache
def captured(model: str, dtype: torch.dtype) -> tuple[Call, ...]:
    """The first call of each registered class in a prompt and in a decode step, on weights away from neutral."""
    record = MODELS[model]
    # PyTorch's grouped matrix product has no float64, in which the reference is computed.
    network = build(record, experts_implementation="eager")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * (0.2 if parameter.dim() == 1 else 0.1))
    network = network.to(dtype)
    calls: dict[tuple[str, type], Call] = {}

    def keep(name: str, module: Any, arguments: Any, keywords: Any) -> None:
        copies = tree_map(
            lambda value: value.clone() if isinstance(value, torch.Tensor) else value, (arguments, keywords)
        )
        calls.setdefault((name, type(module)), Call(name, module, *copies))

    with torch.no_grad(), hooked(network, keep):
        if record.generates:
            output = network(input_ids=TOKENS, use_cache=True)
            kept = {key: output[key] for key in ("past_key_values", "cache_params") if key in output}
            network(input_ids=TOKENS[:, :1], **kept)
        else:
            network(input_ids=TOKENS)
    return tuple(calls.values())


class StayInFloat64(TorchFunctionMode):
    """Reads float32 as float64: forwards that widen to float32 would otherwise narrow the reference to it."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is torch.Tensor.float:
            return arguments[0].double()
        values = [
            torch.float64 if value is torch.float32 else value for value in (*arguments, *(keywords or {}).values())
        ]
        return function(*values[: len(arguments)], **dict(zip(keywords or {}, values[len(arguments) :], strict=True)))


@dataclass(frozen=True)
class Results:
    """All that a call leaves behind, by name."""

    outputs: dict[str, torch.Tensor]
    inputs: dict[str, torch.Tensor]
    """The arguments after the call, which a kernel may not have written to."""
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)


def run(call: Call, forward: Callable[..., Any], gradients: bool, double: bool = False) -> Results:
    """Run ``forward`` on copies of a call's arguments and of its module."""

    def prepared(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = (value.double() if double and value.is_floating_point() else value).detach().clone()
        return value.requires_grad_(gradients and value.is_floating_point())

    arguments, keywords = tree_map(prepared, (call.arguments, call.keywords))
    module = copy.deepcopy(call.module) if any(True for _ in call.module.parameters()) else call.module
    module = module.double() if double else module
    with StayInFloat64() if double else nullcontext(), torch.set_grad_enabled(gradients):
        output = forward(module, *arguments, **keywords)
    outputs = {
        f"output {place}": value
        for place, value in enumerate(output if isinstance(output, tuple) else (output,))
        if isinstance(value, torch.Tensor)
    }
    inputs = {
        str(place): value
        for place, value in [*enumerate(arguments), *keywords.items()]
        if isinstance(value, torch.Tensor)
    }
    found = {}
    if gradients:
        generator = torch.Generator().manual_seed(2)
        ends = [value for value in outputs.values() if value.requires_grad]
        starts = [torch.randn(value.shape, generator=generator).to(value.dtype) for value in ends]
        torch.autograd.backward(ends, starts)
        leaves = {**inputs, **dict(module.named_parameters())}
        found = {name: value.grad for name, value in leaves.items() if value.grad is not None}
    return Results(
        {name: value.detach() for name, value in outputs.items()},
        {name: value.detach() for name, value in inputs.items()},
        found,
    )
