"""The set-ups whose fault is not in the kernel: each does around the loading of a model what users have done.

Loading is wrapped, and everything after it, from the ledger to the gradients, is what it is in any other run.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from cases.axes import Mode
from cases.case import Case
from suite.loading import Loaded, Loader
from tests.faults.records import SetUp

__all__ = ["applied"]

_load = Loader.load


def _left_in_training(loader: Loader, case: Case, path: Path) -> Loaded:
    """Load for inference; switch kernels off by the attribute; train. Transformers un-binds nothing then."""
    loaded = _load(loader, replace(case, mode=Mode.INFERENCE), path)
    loaded.model.use_kernels = False
    loaded.model.train()
    return loaded


def _deep_copied(loader: Loader, case: Case, path: Path) -> Loaded:
    """Load, copy, and give the original's kernels back, as when only the copy is kept."""
    loaded = _load(loader, case, path)
    copied: Any = copy.deepcopy(loaded.model)
    loaded.model.set_use_kernels(False)
    return replace(loaded, model=copied)


@contextmanager
def applied(set_up: SetUp) -> Iterator[None]:
    """Load models in the way of ``set_up`` within the block."""
    loads = {SetUp.LEFT_IN_TRAINING: _left_in_training, SetUp.DEEP_COPY: _deep_copied}
    if set_up not in loads:
        yield
        return
    with mock.patch.object(Loader, "load", loads[set_up]):
        yield
