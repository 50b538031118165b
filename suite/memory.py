"""The check ``memory``: peak memory of a call, in bytes of tensors alive at once above what was alive before.

Accelerators count it in their allocator. The CPU's allocator does not, so there a dispatch mode follows every storage
that an operator returns until it is freed; views and in-place results share storage and are counted once.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reports.record import Outcome
from suite.device import Backend
from suite.finding import Finding
from suite.model_checks import arm
from suite.subject import Subject
from suite.work import works

__all__ = ["check", "peak_bytes", "ran_out"]

_SAID = ("out of memory", "can't allocate memory")
"""How devices, and torch's allocator on the CPU, which has no exception type of its own for it, say it."""


def ran_out(text: str) -> bool:
    """Whether the text of an exception says that memory ran out."""
    return any(words in text.lower() for words in _SAID)


class _Storages(TorchDispatchMode):
    """Sums the storages that are alive, and keeps the highest sum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.alive: int = 0
        self.peak: int = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # What goes in without having come out was there before, and a view of it is no new memory.
        for tensor in _tensors((args, kwargs)):
            self._known.add(tensor.untyped_storage().data_ptr())
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._follow(tensor)
        return result

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key == 0 or key in self._known:
            return
        self._known.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size


def _tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def peak_bytes(backend: Backend, call: Callable[[], object]) -> int:
    """Peak of one call; the result is dropped before return."""
    if backend.has_peak_memory():
        backend.synchronize()
        before = backend.memory_allocated()
        backend.reset_peak_memory()
        call()
        backend.synchronize()
        return max(0, backend.peak_memory() - before)
    with _Storages() as storages:
        call()
    return int(storages.peak)


def _peak(subject: Subject, *, kernel: bool) -> int:
    with arm(subject, kernel=kernel):
        work = works(subject)[0]
        work.prepare(1)
        peak = peak_bytes(subject.backend, work.call)
        # Gradients that a training step left behind would count as there before for the other arm.
        work.prepare(0)
    return peak


def check(subject: Subject) -> Finding:
    """Peak memory of one call, kernel over PyTorch. A figure without a limit: what it may be is the adopter's gate."""
    pytorch = _peak(subject, kernel=False)
    kernel = _peak(subject, kernel=True)
    ratio = kernel / max(pytorch, 1)
    return Finding(
        Outcome.PASS,
        message=f"peak {ratio:.2f} × PyTorch's",
        measures={"ratio": ratio, "kernel_bytes": kernel, "pytorch_bytes": pytorch},
    )
