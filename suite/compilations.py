"""Notices what is compiled or tuned within a block, by ``torch.compile``, Inductor or Triton, whoever calls them.

A kernel may be compiled when it meets a new shape, and choose among its configurations by trying them. All of that
belongs to the warm-up: a pair in which it happens times the compiler, and ``suite.sampling`` gives no verdict then.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from torch._dynamo.callback import callback_handler

__all__ = ["watched"]


@contextmanager
def watched() -> Iterator[list[str]]:
    """A list that grows by an entry for each compilation and each tried configuration within the block."""
    found: list[str] = []

    def by_torch(arguments: Any) -> None:
        found.append(f"torch.compile {arguments.compile_id} ({arguments.callback_trigger.name.lower()})")

    with ExitStack() as stack:
        # Frames, backward passes that are compiled when first run, recordings of CUDA graphs.
        callback_handler.register_start_callback(by_torch)
        stack.callback(callback_handler.remove_start_callback, by_torch)
        if importlib.util.find_spec("triton"):
            _watch_triton(found.append, stack)
        yield found


def _watch_triton(note: Callable[[str], None], stack: ExitStack) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    # Only accelerators have it, so that nothing is known of its types where this is checked.
    knobs: Any = importlib.import_module("triton").knobs
    autotuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
    before = knobs.runtime.jit_post_compile_hook

    def compiled(*args: Any, **kwargs: Any) -> Any:
        # Also called where the binary came from a cache on disk, which takes its time too.
        note(f"Triton {kwargs['fn'].name}")
        return before(*args, **kwargs) if before else None

    stack.enter_context(mock.patch.object(knobs.runtime, "jit_post_compile_hook", compiled))
    for tuner, tries in ((autotuner, "_bench"), (CachingAutotuner, "benchmark_all_configs")):
        stack.enter_context(mock.patch.object(tuner, tries, _noting(note, getattr(tuner, tries))))


def _noting(note: Callable[[str], None], real: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        note(f"{real.__qualname__} tries configurations")
        return real(*args, **kwargs)

    return noting
