"""What the class of a layer kernel says of itself: is it pure, what does it claim, does its forward stop gradients?

The library copies nothing but ``forward`` from the class onto the user's module, so a class with state of its own
would lose it. It takes the flags on trust: ``has_backward`` is true unless the class says otherwise, and no flag is
ever verified (design/upstream-facts, V27, V34). A forward that runs without gradients and does not say so trains a
model in which everything below the layer stands still, silently.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch

from suite.repository_files import FLAGS

__all__ = ["claims", "impurities", "stops_gradients"]

_STOPPING = (torch.no_grad, torch.inference_mode)
_STOPPING_NAMES = frozenset({"no_grad", "inference_mode"})
_FORMS = frozenset({"dtype", "device", "shape"})


def impurities(layer: Any, name: str) -> list[str]:
    """Why the library would refuse the class, or must: not a module, a constructor, members of its own."""
    if not (inspect.isclass(layer) and issubclass(layer, torch.nn.Module)):
        return [f"{name} is {type(layer).__name__} and no subclass of torch.nn.Module; make it one"]
    problems = []
    if layer.__init__ is not torch.nn.Module.__init__:
        problems.append(
            f"{name} has a constructor of its own, which is never called: only its forward is put on the user's "
            "module; remove __init__ and read what is needed from self"
        )
    if layer.forward is torch.nn.Module.forward:
        problems.append(f"{name} has no forward")
    known = {member for member, _ in inspect.getmembers(torch.nn.Module)} | FLAGS
    extra = sorted({member for member, _ in inspect.getmembers(layer)} - known)
    if extra:
        problems.append(
            f"{name} has members beside its forward ({', '.join(extra)[:200]}), which the user's module has not: the "
            "library refuses it at load; make them functions or constants of the Python module"
        )
    return problems


def claims(layer: Any) -> tuple[dict[str, str], list[str]]:
    """What the class claims by its two flags, in words, and what is wrong with them."""
    problems = [
        f"{flag} is {getattr(layer, flag)!r}; expected True or False"
        for flag in sorted(FLAGS)
        if not isinstance(getattr(layer, flag, True), bool)
    ]
    backward = getattr(layer, "has_backward", None)
    return {
        "has_backward": "claimed by default" if backward is None else "claimed" if backward else "declined",
        "can_torch_compile": "claimed" if getattr(layer, "can_torch_compile", False) else "not claimed",
    }, problems


def stops_gradients(layer: Any) -> str | None:
    """How the forward as a whole runs without gradients, or None if it does not.

    Looks at what a decorator left in the function, under whatever name it was imported, and at a ``with`` that the
    whole body is in. A part without gradients is no fault: indices and statistics need none.
    """
    forward = layer.forward
    for function in _layers_of(forward):
        context = _stopping_context(function)
        if context is not None:
            return f"it is decorated with torch.{context}"
    return _stopping_body(inspect.unwrap(forward))


def _layers_of(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The function and what its decorators wrapped, from the outside in."""
    seen: set[int] = set()
    current: Any = function
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = getattr(current, "__wrapped__", None)


def _stopping_context(function: Callable[..., Any]) -> str | None:
    """The gradient context that torch's decorator keeps in the closure of its wrapper."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.endswith("_contextlib.py"):
        return None
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # a cell that was never filled
            continue
        for candidate in (held, getattr(held, "__self__", None)):
            if isinstance(candidate, torch.set_grad_enabled) and not candidate.mode:
                return "set_grad_enabled(False)"
            if isinstance(candidate, torch.inference_mode) and not candidate.mode:
                continue
            for kind in _STOPPING:
                if candidate is kind or isinstance(candidate, kind):
                    return kind.__name__
    return None


def _stopping_body(function: Callable[..., Any]) -> str | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # compiled, or made at run time
        return None
    definition = tree.body[0] if tree.body else None
    if not isinstance(definition, ast.FunctionDef):
        return None
    inside: set[str] = set()
    for statement in definition.body:
        if isinstance(statement, ast.With):
            names = [_last_name(item.context_expr) for item in statement.items]
            stopping = next((name for name in names if name in _STOPPING_NAMES), None)
            if stopping is None:
                continue
            if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                return f"its result is computed under torch.{stopping}"
            inside |= {node.id for node in _names(statement) if isinstance(node.ctx, ast.Store)}
        elif isinstance(statement, ast.Return) and statement.value is not None:
            if _last_name(statement.value) == "detach":
                return "its result is detached"
            used = {node.id for node in _names(statement.value)} - _asked_for_form(statement.value)
            if inside and used <= inside:
                return "its result is computed without gradients"
    return None


def _names(tree: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _asked_for_form(tree: ast.AST) -> set[str]:
    """Names of which only the form is asked, which carries no gradient: ``x.dtype``."""
    forms = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _FORMS]
    return {node.value.id for node in forms if isinstance(node.value, ast.Name)}


def _last_name(expression: ast.expr) -> str:
    target = expression.func if isinstance(expression, ast.Call) else expression
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
