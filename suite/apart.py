"""Keeps the revisions of one repository apart, as if each were the only one that its process has loaded.

kernels imports a build under its ``id``, and Python finds the parts of a package by its name: of two revisions whose
builds have one id, the second would be given the parts of the first. An id that changes with each build prevents that,
and not every repository has one. So the modules of a revision are taken out of ``sys.modules`` while another is in use.
"""

import sys
from pathlib import Path
from types import ModuleType

from huggingface_hub.file_download import repo_folder_name

from cases.mappings import KernelReference

__all__ = ["Apart"]


class Apart:
    """What is put aside in a process."""

    def __init__(self) -> None:
        self._aside: dict[str, dict[str, ModuleType]] = {}
        self._entered: dict[str, str] = {}

    def enter(self, kernel: KernelReference) -> None:
        """Put the other revisions of its repository aside; what was put aside of this one is there again."""
        revision, _, _ = kernel.promised.rpartition(":")
        before = self._entered.setdefault(kernel.repository, revision)
        if before == revision or kernel.is_local:
            return
        # The cache that Hub clients share has one folder for each repository.
        folder = repo_folder_name(repo_id=kernel.repository, repo_type="kernel")
        loaded = {name: module for name, module in list(sys.modules.items()) if folder in _parts(module)}
        for name in loaded:
            del sys.modules[name]
        self._aside[before] = loaded
        sys.modules.update(self._aside.pop(revision, {}))
        self._entered[kernel.repository] = revision


def _parts(module: ModuleType) -> tuple[str, ...]:
    return Path(getattr(module, "__file__", None) or "").parts
