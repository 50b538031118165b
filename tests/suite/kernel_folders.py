"""Makes kernel repositories for the tests of the model checks: the bundled ones with one line changed, or a layer."""

import re
from collections.abc import Mapping
from pathlib import Path

from cases.kernels import ROOT, Build, write

__all__ = ["edited", "layer_folder"]


def edited(folder: Path, bundled: str, file: str, changes: Mapping[str, str]) -> Path:
    """A copy of a bundled repository (``attention/v1``) below ``folder``, with texts of one file replaced."""
    source = ROOT / bundled / "build" / "torch-cpu"
    files = {path.name: path.read_text(encoding="utf-8") for path in source.glob("*.py")}
    for old, new in changes.items():
        assert old in files[file], f"{bundled}/{file} has no {old!r}"
        files[file] = files[file].replace(old, new)
    return _written(folder, files)


def layer_folder(folder: Path, text: str) -> Path:
    """A repository whose ``layers.py`` is ``text``."""
    start = '"""Layers for a test."""\n\nfrom . import layers\n\n__all__ = ["layers"]\n'
    return _written(folder, {"__init__.py": start, "layers.py": text})


def _written(folder: Path, files: Mapping[str, str]) -> Path:
    # kernels keeps modules by the id of a build, which is made of this name: no two folders may share it.
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(folder.parts[-3:]).lower()).strip("-")
    build = Build(folder / "build" / "torch-cpu", name, 1, "cpu")
    build.folder.mkdir(parents=True)
    for file, text in files.items():
        (build.folder / file).write_text(text, encoding="utf-8")
    write(build)
    return folder
