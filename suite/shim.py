"""The one shim of the suite: ``KernelConfig`` accepts a device type that kernels supports and Transformers refuses.

``cpu`` is refused in every form (FINDINGS.md, V4), although kernels supports it and the default mapping has an entry
for it. With the shim the CPU runs the very code that accelerators run. It is recorded wherever it was in force, and one
statement tests the behaviour without it.
"""

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from transformers.utils import kernel_config

__all__ = ["accept_device"]

SHIM = "kernel-config-accepts"
LISTED = "KERNELS_SUPPORTED_DEVICE_TYPES"
"""Where Transformers keeps the list; before 5.21 it stands as a literal in each function that asks."""
KNOWN = frozenset({"cuda", "rocm", "xpu"})
"""A literal that holds these is that list."""


def _accepted() -> tuple[str, ...]:
    listed = getattr(kernel_config, LISTED, None)
    if listed is not None:
        return tuple(listed)
    return tuple(text for function in _functions(kernel_config) for literal in _literals(function) for text in literal)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions and methods that a module defines itself."""
    for member in vars(module).values():
        if getattr(member, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(member):
            yield member
        elif inspect.isclass(member):
            yield from (method for method in vars(member).values() if inspect.isfunction(method))


def _literals(function: FunctionType) -> list[tuple[Any, ...]]:
    """The constants of a function that list device types."""
    return [text for text in function.__code__.co_consts if isinstance(text, tuple) and _lists_devices(text)]


def _lists_devices(constant: tuple[Any, ...]) -> bool:
    return all(isinstance(text, str) for text in constant) and KNOWN.issubset(constant)


def _extended(code: CodeType, device: str) -> CodeType:
    constants = (
        (*constant, device) if isinstance(constant, tuple) and _lists_devices(constant) else constant
        for constant in code.co_consts
    )
    return code.replace(co_consts=tuple(constants))


_ACCEPTED = _accepted()
"""What the library accepts of its own, before any shim."""
_shimmed: set[str] = set()


def accept_device(device: str) -> tuple[str, ...]:
    """Make KernelConfig accept a device type; the shims that this took, by name."""
    if device in _ACCEPTED:
        return ()
    if device not in _shimmed:
        _shimmed.add(device)
        if hasattr(kernel_config, LISTED):
            getattr(kernel_config, LISTED).append(device)
        else:
            for function in _functions(kernel_config):
                function.__code__ = _extended(function.__code__, device)
    return (f"{SHIM}-{device}",)
