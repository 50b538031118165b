"""Two instances of a model, compiled: with kernels and in PyTorch, as the two arms of a speed.

A compiled model has its forwards baked in, so one model cannot serve both arms by turns as it does elsewhere. The
second instance has the same weights from the same folder, in a place of its own; that is the price. Function objects
are shared by the process all the same, and a compiled model looks whether they are those that it was compiled with. So
the arm that runs is put on before each sample, as for models that are not compiled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from suite.subject import Subject
from suite.tracing import Lines, Watch, fresh
from suite.work import Work, works

__all__ = ["BACKEND", "Instances", "compiled"]

BACKEND = "inductor"
"""What users get from ``torch.compile(model)``; a backend that generates no code has no speed."""


@dataclass(frozen=True, slots=True)
class Instances:
    """The first piece of work of a case, of both models. Compilation is in the first call of each."""

    pytorch: Work
    kernel: Work
    watch: Watch
    """Sees the graphs of the model with kernels."""
    lines: tuple[tuple[str, Lines], ...]
    """Registered names with the lines of their kernels."""

    def in_graph(self) -> list[str]:
        """Registered names whose kernels are in the graphs that were made so far."""
        return sorted({name for name, lines in self.lines if lines.holds(self.watch.traced)})


@contextmanager
def compiled(subject: Subject, backend: str) -> Iterator[Instances]:
    """Both instances within the block; nothing compiled is left after it."""
    twin, watch = subject.in_pytorch(), Watch(backend)
    fresh()
    try:
        with_kernels = torch.compile(subject.loaded.model, backend=watch)
        plain = torch.compile(twin.loaded.model, backend=backend)
        subject.arms.use_kernels()
        yield Instances(
            works(twin, subject.arms.use_pytorch, plain)[0],
            works(subject, subject.arms.use_kernels, with_kernels)[0],
            watch,
            tuple((site.name, Lines.of(site.forward())) for site in subject.arms.sites if site.has_kernel()),
        )
    finally:
        fresh()
        subject.arms.use_kernels()
