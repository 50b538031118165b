"""Captures what a model really passes to its registered layers, to its functions and to its attention.

A probe needs inputs that the layer meets in life: right shapes, strides, dtypes, optional arguments, calls by keyword.
So the model runs once in the mode of the case with PyTorch's forwards, and every call is copied before it is made. It
runs at two sizes: a dimension that moves when the batch or the prompt does is an axis, one that stays is part of the
layer. That is all that is ever known of a layer here, and enough to ask it for other sizes.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cases.inputs import Inputs
from suite import passes
from suite.arms import Site
from suite.subject import Subject

__all__ = ["SMALL", "WIDE", "Call", "Captured", "Plain", "capture", "copied"]

WIDE = Inputs("capture", 2, 48, (0, 0), "the size of the dense recipe, longer than the zoo's windows and chunks")
SMALL = Inputs("capture-small", 3, 37, (0, 0, 0), "no size in common with the other, nor with any width of the zoo")

Plain = int | float | bool | str | torch.dtype | torch.device | None
"""Values of arguments, besides tensors, that a call can be made again with."""

_CACHES = ("past_key_values", "cache_params")
"""Where an output keeps its cache, and where the next call takes it."""

Key = tuple[str, str, int, str]
"""Registered name, path, ordinal of the call in its pass, phase: the same call at another size."""


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call, nested as they were given."""

    names: tuple[str, ...]
    """Names of the positional arguments, by the signature of PyTorch's forward."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def replaced(self, change: Callable[[str, Any], Any]) -> "Call":
        """The call with every leaf changed; ``change`` is given its path, such as ``position_embeddings.0``."""
        args = tuple(_mapped(change, name, value) for name, value in zip(self.names, self.args, strict=True))
        return Call(self.names, args, {name: _mapped(change, name, value) for name, value in self.kwargs.items()})

    def leaves(self) -> dict[str, Any]:
        """Every leaf by its path."""
        found: dict[str, Any] = {}
        self.replaced(lambda path, leaf: found.setdefault(path, leaf))
        return found

    def tensors(self) -> dict[str, torch.Tensor]:
        """The leaves that are tensors."""
        return {path: leaf for path, leaf in self.leaves().items() if isinstance(leaf, torch.Tensor)}

    def copied(self) -> "Call":
        """Copies of all tensors, in the same memory layout."""
        return self.replaced(lambda _, leaf: copied(leaf) if isinstance(leaf, torch.Tensor) else leaf)


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """One call of one place at the first size, and at the second where the model made it there too."""

    name: str
    path: str
    module: torch.nn.Module
    is_function: bool
    phase: str
    """``prompt``, or ``token`` for one more token with a filled cache."""
    call: Call
    small: Call | None
    learned: frozenset[str]
    """Arguments that gradients flow through in the model: hidden states do, cosines of positions don't."""

    def signature(self) -> tuple[object, ...]:
        """Equal for calls that differ in sizes of axes only, or in a size of one (a token is a short prompt)."""
        other = self.small.leaves() if self.small else {}

        def kind(path: str, leaf: Any) -> tuple[object, ...]:
            if not isinstance(leaf, torch.Tensor):
                return (path, type(leaf).__name__)
            second = other.get(path)
            sizes = second.shape if isinstance(second, torch.Tensor) and second.dim() == leaf.dim() else leaf.shape
            fixed = ["*" if a != b or a == 1 else a for a, b in zip(leaf.shape, sizes, strict=True)]
            return (path, leaf.dtype, *fixed)

        layer = type(self.module).__name__
        return (self.name, layer, *(kind(path, leaf) for path, leaf in self.call.leaves().items()))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of the original, gaps between rows included; repeated (expanded) axes stay repeated."""
    tensor = tensor.detach()
    core = tensor
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            core = core.narrow(axis, 0, 1)
    result = torch.empty_strided(core.shape, core.stride(), dtype=core.dtype, device=core.device)
    return result.copy_(core).expand(tensor.shape)


def _mapped(change: Callable[[str, Any], Any], path: str, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_mapped(change, f"{path}.{index}", item) for index, item in enumerate(value))
    if isinstance(value, dict):
        return {key: _mapped(change, f"{path}.{key}", item) for key, item in value.items()}
    return change(path, value)


class _Recorder:
    """Keeps copies of the calls of one pass."""

    def __init__(self) -> None:
        self.calls: dict[Key, tuple[Site, str, Call]] = {}
        self.learned: dict[Key, frozenset[str]] = {}
        self.phase = "prompt"
        self.unusable = 0
        self._ordinals: Counter[tuple[str, str, str]] = Counter()

    def record(self, site: Site, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        place = (site.name, site.path, self.phase)
        ordinal, self._ordinals[place] = self._ordinals[place], self._ordinals[place] + 1
        call = Call(_positional_names(forward, len(args)), args, kwargs)
        if any(not isinstance(leaf, torch.Tensor | Plain) for leaf in call.leaves().values()):
            # A cache object: its arithmetic is the model-level checks' to judge, and it can't be had in float64.
            self.unusable += 1
            return
        key = (site.name, site.path, ordinal, self.phase)
        self.learned[key] = frozenset(path for path, leaf in call.tensors().items() if leaf.requires_grad)
        self.calls[key] = site, self.phase, call.copied()


def _positional_names(forward: Callable[..., Any], count: int) -> tuple[str, ...]:
    names: list[str] = []
    for parameter in list(inspect.signature(forward).parameters.values())[1:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return tuple(names[:count]) + tuple(f"argument {index}" for index in range(len(names), count))


@contextmanager
def _recording(sites: list[Site], recorder: _Recorder) -> Iterator[None]:
    """Record calls of PyTorch's forwards at ``sites``, which are bound now."""
    before = [(site.module, site.module.__dict__.get("forward")) for site in sites]

    def recording(site: Site) -> Callable[..., Any]:
        forward = type(site.module).forward
        bound = MethodType(forward, site.module)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            recorder.record(site, forward, args, kwargs)
            return bound(*args, **kwargs)

        return recorded

    for site in sites:
        site.module.__dict__["forward"] = recording(site)
    try:
        yield
    finally:
        for module, forward in before:
            module.__dict__["forward"] = forward


@contextmanager
def _recording_attention(
    implementation: str, definition: Callable[..., Any], recorder: _Recorder, paths: dict[int, str]
) -> Iterator[None]:
    """Record calls of an attention interface, and answer them by ``definition`` in place of the kernel."""
    local = ALL_ATTENTION_FUNCTIONS._local_mapping
    before = local.get(implementation)

    def recorded(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        site = Site("attention", paths.get(id(module), ""), module, True)
        recorder.record(site, definition, args, kwargs)
        return definition(module, *args, **kwargs)

    local[implementation] = recorded
    try:
        yield
    finally:
        if before is None:
            del local[implementation]
        else:
            local[implementation] = before


def capture(
    subject: Subject, sites: list[Site], attention: tuple[str, Callable[..., Any]] | None
) -> tuple[list[Captured], int]:
    """Calls of ``sites``, and of an attention implementation given with its definition; one of each signature.

    The subject's PyTorch arm must be on. Also returns how many calls could not be kept.
    """
    model = subject.loaded.model
    device, vocabulary = subject.backend.torch_device(), int(model.config.vocab_size)
    paths = {id(module): path for path, module in model.named_modules()}
    recorders = []
    for inputs in (WIDE, SMALL):
        recorder = _Recorder()
        with ExitStack() as stack:
            stack.enter_context(_recording(sites, recorder))
            if attention is not None:
                stack.enter_context(_recording_attention(*attention, recorder, paths))
            _pass(subject, passes.batch(inputs, device, vocabulary), recorder)
        recorders.append(recorder)
    wide, small = recorders
    found: dict[tuple[object, ...], Captured] = {}
    for key, (site, phase, call) in wide.calls.items():
        partner = small.calls.get(key)
        other = partner[2] if partner and _alike(call, partner[2]) else None
        learned = wide.learned[key]
        captured = Captured(site.name, site.path, site.module, site.is_function, phase, call, other, learned)
        found.setdefault(captured.signature(), captured)
    return list(found.values()), wide.unusable


def _alike(one: Call, other: Call) -> bool:
    def kinds(call: Call) -> list[tuple[object, ...]]:
        return [
            (path, leaf.dtype, leaf.dim()) if isinstance(leaf, torch.Tensor) else (path, type(leaf))
            for path, leaf in call.leaves().items()
        ]

    return kinds(one) == kinds(other)


def _pass(subject: Subject, given: passes.Batch, recorder: _Recorder) -> None:
    """The passes of the case's mode: a prompt, and one more token where a cache belongs to the mode.

    The prompt with gradients, to see where they flow; the token without, since caches are written in place.
    """
    model, record = subject.loaded.model, subject.record
    if subject.case.mode.trains or not record.generates:
        passes.run(model, record, given)
        return
    ids = given.arguments["input_ids"]
    result = model(input_ids=ids, use_cache=True)
    cache = {name: kept for name in _CACHES if (kept := getattr(result, name, None)) is not None}
    recorder.phase = "token"
    with torch.no_grad():
        model(input_ids=ids[:, :1], use_cache=True, **cache)
