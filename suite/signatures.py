"""Compares the forward of a kernel with every class and function of Transformers that carries its registered name.

The library compares the number and the kind of the parameters, and with the one class that it meets first. So a
kernel with query and key exchanged is accepted, and one that fits Llama is bound to Gemma unasked. Here names, order
and defaults are compared too, with every carrier among the models of the zoo.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import transformers

from cases.models import MODELS

__all__ = ["Carrier", "Comparison", "carriers", "compare", "disagreements"]


@dataclass(frozen=True, slots=True)
class Carrier:
    """A class or function of Transformers that a kernel of the name replaces the forward of."""

    name: str
    """``modeling_llama.LlamaRMSNorm``."""
    signature: Signature
    """Of the forward, ``self`` included."""
    module: str
    aliases: frozenset[str]
    """Identifiers by which its module calls it, for finding its calls."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs: ``problems`` break some caller, ``notes`` break none that is known."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    carriers: int


def carriers(name: str) -> tuple[Carrier, ...]:
    """Every class and function with the registered name in the modules that the zoo's models are defined in."""
    modules = {_modeling_module(model) for model in MODELS.values() if name in model.carries}
    found = {carrier.name: carrier for module in sorted(modules) for carrier in _in_module(module, name)}
    # Activations are classes of one module, whatever model they serve.
    found |= {carrier.name: carrier for carrier in _in_module("transformers.activations", name)}
    return tuple(found.values())


def _modeling_module(model: Any) -> str:
    architecture: Any = getattr(transformers, model.architecture)
    mapping = getattr(architecture, "_model_mapping", None)
    if mapping is None:
        return str(architecture.__module__)
    return str(mapping[transformers.CONFIG_MAPPING[model.model_type]].__module__)


@functools.cache
def _carried(module: str) -> Mapping[str, tuple[Carrier, ...]]:
    found: dict[str, list[Carrier]] = {}
    objects: dict[Any, list[str]] = {}
    for attribute, value in vars(sys.modules[module]).items():
        carrier: Any = value if inspect.isclass(value) else type(value)
        if isinstance(getattr(carrier, "kernel_layer_name", None), str):
            objects.setdefault(carrier, []).append(attribute)
    for carrier, attributes in objects.items():
        signature = inspect.signature(carrier.forward)
        name = f"{module.rpartition('.')[2]}.{attributes[0]}"
        layer: str = carrier.kernel_layer_name
        found.setdefault(layer, []).append(Carrier(name, signature, module, frozenset({*attributes, layer})))
    return {layer: tuple(group) for layer, group in found.items()}


def _in_module(module: str, name: str) -> tuple[Carrier, ...]:
    return _carried(module).get(name, ())


_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def compare(kernel: Signature, found: Iterable[Carrier]) -> Comparison:
    """Hold a kernel's forward against every carrier. Carriers of one signature are one line of the result."""
    groups: dict[str, list[Carrier]] = {}
    for carrier in found:
        groups.setdefault(_shape(carrier.signature), []).append(carrier)
    everyone = [carrier.signature for group in groups.values() for carrier in group]
    problems: list[str] = []
    notes: list[str] = []
    for group in groups.values():
        names = ", ".join(carrier.name for carrier in group[:3]) + (f" and {len(group) - 3} more" if group[3:] else "")
        wrong, harmless = _differences(kernel, group, everyone)
        problems += [f"{text} (against {names})" for text in wrong]
        notes += [f"{text} (against {names})" for text in harmless]
    return Comparison(tuple(problems), tuple(notes), len(everyone))


def _shape(signature: Signature) -> str:
    """Everything about a signature but its annotations."""
    bare = [parameter.replace(annotation=Parameter.empty) for parameter in signature.parameters.values()]
    return str(Signature(bare))


def _differences(kernel: Signature, group: list[Carrier], everyone: list[Signature]) -> tuple[list[str], list[str]]:
    ours, theirs = list(kernel.parameters.values()), list(group[0].signature.parameters.values())
    if len(ours) != len(theirs):
        return [_count(ours, theirs)], []
    problems: list[str] = []
    notes: list[str] = []
    named = {parameter.name: position for position, parameter in enumerate(theirs)}
    for position, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.kind != other.kind:
            problems.append(
                f"parameter {position} of forward is {mine} ({mine.kind.description}), expected {other} "
                f"({other.kind.description}): the library refuses it at load; use the layer's own signature"
            )
        elif mine.kind in _VARIADIC or position == 0:
            continue
        elif mine.name != other.name and named.get(mine.name, 0) > 0:
            problems.append(
                f"parameter {position} of forward is {mine.name!r} where callers pass {other.name!r}, and "
                f"{mine.name!r} stands at {named[mine.name]}: the library accepts it and the arguments are exchanged; "
                "put the parameters in the layer's own order"
            )
        elif mine.name != other.name:
            text = f"parameter {position} of forward is called {mine.name!r}, the layer's own {other.name!r}"
            caller = _called_by_name(group, other)
            if caller is None:
                notes.append(f"{text}; callers pass it by position")
            else:
                problems.append(f"{text}, and {caller}: that call raises TypeError; rename it")
        problems += _default(mine, other, everyone, position, notes)
    return problems, notes


def _count(ours: list[Parameter], theirs: list[Parameter]) -> str:
    names = {parameter.name for parameter in theirs}
    extra = [parameter.name for parameter in ours if parameter.name not in names]
    missing = [parameter.name for parameter in theirs if parameter.name not in {mine.name for mine in ours}]
    detail = [f"too many: {', '.join(extra)}"] if extra else []
    detail += [f"missing: {', '.join(missing)}"] if missing else []
    return (
        f"forward takes {len(ours)} parameters with self, expected {len(theirs)} "
        f"({'; '.join(detail) or 'same names'}): the library refuses it at load; use the layer's own signature"
    )


def _default(
    mine: Parameter, other: Parameter, everyone: list[Signature], position: int, notes: list[str]
) -> list[str]:
    """A default that callers rely on and the kernel has not, or has with another value.

    Where the carriers disagree among themselves no kernel can have all their defaults: then having one is enough.
    """
    if other.default is Parameter.empty or mine.kind in _VARIADIC or _same(mine.default, other.default):
        return []
    wanted = "none" if mine.default is Parameter.empty else f"{mine.default!r}"
    text = f"parameter {mine.name!r} of forward has the default {wanted}, the layer's own {other.default!r}"
    shared = any(
        _same(mine.default, list(signature.parameters.values())[position].default)
        for signature in everyone
        if len(signature.parameters) > position
    )
    if shared:
        notes.append(f"{text}; other classes of the name have the kernel's")
        return []
    return [f"{text}: a caller that leaves it out gets another result or a TypeError; use the layer's own default"]


def _same(left: object, right: object) -> bool:
    return left is right or (type(left) is type(right) and repr(left) == repr(right))


def _called_by_name(group: list[Carrier], parameter: Parameter) -> str | None:
    """Who passes a parameter by name, as far as the carriers' own modules show; an optional one always may be."""
    if parameter.kind is Parameter.KEYWORD_ONLY or parameter.default is not Parameter.empty:
        return "callers may pass it by name, since it is optional"
    for carrier in group:
        for alias in carrier.aliases:
            if parameter.name in _keywords(carrier.module).get(alias, ()):
                return f"{carrier.module.rpartition('.')[2]} calls {alias}({parameter.name}=…)"
    return None


@functools.cache
def _keywords(module: str) -> Mapping[str, frozenset[str]]:
    """The keyword arguments by the identifier of what is called, anywhere in the source of a module."""
    found: dict[str, set[str]] = {}
    file = getattr(sys.modules[module], "__file__", None)
    tree = ast.parse(Path(file).read_bytes()) if file else ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            callee = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            found.setdefault(callee, set()).update(keyword.arg for keyword in node.keywords if keyword.arg)
    return {callee: frozenset(names) for callee, names in found.items()}


def disagreements(forwards: Mapping[str, Callable[..., Any]]) -> list[str]:
    """In what repositories that are mapped to one name differ: which of them is used must make no difference."""
    shapes = {promised: inspect.signature(forward) for promised, forward in forwards.items()}
    first = next(iter(shapes), "")
    return [
        f"{promised} takes {_shape(signature)} and {first} takes {_shape(shapes[first])}: repositories that are mapped "
        "to one name must take the same parameters, since the device, the mode or a pin decides which of them is used"
        for promised, signature in shapes.items()
        if _shape(signature) != _shape(shapes[first])
    ]
