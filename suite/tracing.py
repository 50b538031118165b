"""Watches ``torch.compile``: how many graphs it makes, where it breaks off, and whose lines the graphs come from.

The watch is a backend of its own around the real one. It sees each graph with the reason it ends for and, for every
node, the stack of the Python lines that it was traced from. That tells a kernel that is in the graph from one that
was left out or replaced, and a break inside a kernel from one that PyTorch's own code makes.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend

__all__ = ["Break", "Lines", "Watch", "fresh"]

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

Frame = tuple[str, int]
"""File and line."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a function."""

    file: str
    first: int
    last: int

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Lines":
        """The lines of the innermost function, without what decorators put around it."""
        code = getattr(inspect.unwrap(function), "__func__", inspect.unwrap(function)).__code__
        last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
        return cls(code.co_filename, code.co_firstlineno, last)

    def holds(self, frames: Iterable[Frame]) -> bool:
        """Whether any of the frames is in the function."""
        return any(file == self.file and self.first <= line <= self.last for file, line in frames)


@dataclass(frozen=True, slots=True)
class Break:
    """One end of a graph that was not the end of the function."""

    reason: str
    frames: tuple[Frame, ...]
    """From the outermost call to the line that broke."""


@dataclass
class Watch:
    """A backend of ``torch.compile`` that looks at what it hands on to the backend called ``name``."""

    name: str
    graphs: int = 0
    breaks: list[Break] = field(default_factory=list)
    traced: set[Frame] = field(default_factory=set)

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        """Take note of a graph and compile it."""
        self.graphs += 1
        reason: Any = getattr(graph, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            frames = tuple((frame.filename, frame.lineno or 0) for frame in reason.user_stack)
            self.breaks.append(Break(" ".join(str(reason.reason).split())[:300], frames))
        for node in graph.graph.nodes:
            for file, line in _FRAME.findall(node.stack_trace or ""):
                self.traced.add((file, int(line)))
        return lookup_backend(self.name)(graph, inputs)

    def first_break(self) -> str:
        """The first break in words, with its place."""
        if not self.breaks:
            return ""
        file, line = self.breaks[0].frames[-1] if self.breaks[0].frames else ("?", 0)
        return f"{self.breaks[0].reason} ({file}:{line})"


def fresh() -> None:
    """Forget every graph and count: what one arm compiled must not serve the other, nor outlive the check."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
