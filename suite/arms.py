"""The two arms of a comparison on one model: its forwards as kernels left them, and as PyTorch has them.

One model serves both arms, so that weights, memory layout and everything else are the same. Switching re-binds the
``forward`` of every registered layer and of the function objects, which one process shares among all models: while
the PyTorch arm is on, those are PyTorch's too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch

__all__ = ["Arms", "Site", "pytorch_forwards", "sites"]


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One place where a kernel can be bound: a registered layer, or a registered function object."""

    name: str
    """Registered name."""
    path: str
    """Where in the model; functions carry the path of the first module that holds them."""
    module: torch.nn.Module
    is_function: bool

    def forward(self) -> Any:
        """The bound ``forward`` of now: an instance attribute if kernelized, else the class's."""
        return self.module.forward

    def has_kernel(self) -> bool:
        """Whether the forward of now is another one than the class's own."""
        return getattr(self.forward(), "__func__", self.forward()) is not type(self.module).forward


def sites(model: torch.nn.Module) -> list[Site]:
    """Every place of ``model`` where the kernels library binds: classes with ``kernel_layer_name``, ``_kernel_funcs``.

    A function object is listed once, however many modules hold it.
    """
    found: list[Site] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        for function in getattr(module, "_kernel_funcs", {}).values():
            if id(function) not in seen:
                seen.add(id(function))
                found.append(Site(type(function).kernel_layer_name, path, function, True))
        name = getattr(type(module), "kernel_layer_name", None)
        if isinstance(name, str):
            found.append(Site(name, path, module, False))
    return found


@contextmanager
def pytorch_forwards(model: torch.nn.Module) -> Iterator[None]:
    """Bind every class's own forward in ``model`` within the block, and what was there before after it.

    A model that was loaded without kernels needs this too: its function objects are those of the whole process, and
    hold the kernel of whatever model was kernelized last.
    """
    found = sites(model)
    before = [site.module.__dict__.get("forward") for site in found]
    for site in found:
        site.module.forward = MethodType(type(site.module).forward, site.module)
    try:
        yield
    finally:
        for site, forward in zip(found, before, strict=True):
            if forward is None:
                site.module.__dict__.pop("forward", None)
            else:
                site.module.forward = forward


class Arms:
    """Remembers the forwards that a kernelized model has, and switches between them and PyTorch's.

    ``attention`` and ``reference_attention`` are the values of ``attn_implementation`` in the kernel arm and in the
    PyTorch arm; None leaves it alone.
    """

    def __init__(self, model: Any, attention: str | None, reference_attention: str | None) -> None:
        self.model = model
        self.sites = sites(model)
        self._kernels = [site.forward() for site in self.sites]
        self._attention = attention
        self._reference_attention = reference_attention

    def use_kernels(self) -> None:
        """Bind what was bound when this object was made."""
        for site, forward in zip(self.sites, self._kernels, strict=True):
            site.module.forward = forward
        self._set_attention(self._attention)

    def use_pytorch(self) -> None:
        """Bind every class's own forward."""
        for site in self.sites:
            site.module.forward = MethodType(type(site.module).forward, site.module)
        self._set_attention(self._reference_attention)

    @contextmanager
    def pytorch(self) -> Iterator[None]:
        """PyTorch within the block, kernels after it."""
        self.use_pytorch()
        try:
            yield
        finally:
            self.use_kernels()

    def unchanged(self) -> bool:
        """Whether the kernels bound now are those that were bound at first."""
        return all(
            getattr(site.forward(), "__func__", None) is getattr(forward, "__func__", None)
            for site, forward in zip(self.sites, self._kernels, strict=True)
        )

    def release(self) -> None:
        """Undo what outlives the model: function objects are shared by the process, and go back to PyTorch."""
        for site in self.sites:
            if site.is_function:
                site.module.forward = MethodType(type(site.module).forward, site.module)

    def _set_attention(self, implementation: str | None) -> None:
        # Set on the configuration: set_attn_implementation asks the Hub again, and this runs between timed samples.
        if implementation is not None and self.model.config._attn_implementation != implementation:
            self.model.config._attn_implementation = implementation
