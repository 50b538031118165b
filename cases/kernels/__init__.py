"""The bundled kernel repositories: where they lie, and what every build of them must hold.

A repository is ``<name>/<version branch>/build/<variant>/``, as on the Hub. They are pure PyTorch, so that one source
serves every backend: ``torch-cpu`` holds the files, the other variants link to them, and each variant has a
``metadata.json`` of its own. Metadata is derived, never edited: ``python -m cases.kernels`` writes it, and
``python -m cases.kernels --check`` says what is stale. Nothing here imports torch; the kernel sources do, and are
imported by the ``kernels`` package only.

A new kernel is a new ``layers.py`` (or a class in one), that command, and a line in ``cases/mappings.py``.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BACKENDS", "ORGANISATION", "ROOT", "Build", "builds", "write"]

ROOT = Path(__file__).parent

ORGANISATION = "embedded"
"""Owner of all of them on the embedded Hub, where it is a trusted publisher."""

SOURCE_BACKEND = "cpu"
"""The backend whose variant holds the real files."""

BACKENDS = ("cpu", "cuda", "rocm", "xpu", "metal", "cann")
"""Backends by the names that kernels gives them: Apple's mps is metal, Ascend's npu is cann."""

METADATA = "metadata.json"


@dataclass(frozen=True, slots=True)
class Build:
    """One variant of one version of a repository."""

    folder: Path
    name: str
    version: int
    backend: str

    def sources(self) -> Iterator[str]:
        """Names of the files that make up the kernel, sorted."""
        source = self.folder.parent / f"torch-{SOURCE_BACKEND}"
        return (path.name for path in sorted(source.glob("*.py")))

    def metadata(self) -> str:
        """The text that ``metadata.json`` must hold.

        The digest is what kernels' ``Digest.hash_variant`` computes: base64 of each file's SHA-256. The id becomes
        the name of a Python module, and two builds of one id shadow each other, so that it holds all four of name,
        version, backend and content.
        """
        source = self.folder.parent / f"torch-{SOURCE_BACKEND}"
        hashes = {name: hashlib.sha256((source / name).read_bytes()).digest() for name in self.sources()}
        content = hashlib.sha256(b"".join(hashes.values())).hexdigest()[:8]
        document = {
            "id": f"_{self.name.replace('-', '_')}_v{self.version}_{self.backend}_{content}",
            "name": self.name,
            "version": self.version,
            "license": "Apache-2.0",
            "python-depends": [],
            "backend": {"type": self.backend},
            "digest": {
                "algorithm": "sha256",
                "files": {name: base64.b64encode(value).decode() for name, value in hashes.items()},
            },
        }
        return json.dumps(document, indent=2) + "\n"

    def stale(self) -> list[str]:
        """What differs from what must be there, one sentence each."""
        wrong = []
        path = self.folder / METADATA
        if not path.is_file() or path.read_text(encoding="utf-8") != self.metadata():
            wrong.append(f"{path.relative_to(ROOT)} does not match its sources")
        expected = {*self.sources(), METADATA}
        present = {entry.name for entry in self.folder.iterdir()} if self.folder.is_dir() else set()
        wrong.extend(
            f"{(self.folder / name).relative_to(ROOT)} is {'missing' if name in expected else 'not part of the build'}"
            for name in sorted(expected ^ present - {"__pycache__"})
        )
        if self.backend != SOURCE_BACKEND:
            wrong.extend(
                f"{(self.folder / name).relative_to(ROOT)} is no link to torch-{SOURCE_BACKEND}"
                for name in self.sources()
                if (link := self.folder / name).exists()
                and not (link.is_symlink() and str(link.readlink()) == self.target(name))
            )
        return wrong

    def target(self, name: str) -> str:
        """Where a variant's link to a source points."""
        return f"../torch-{SOURCE_BACKEND}/{name}"


def builds() -> list[Build]:
    """Every build that must exist, sorted."""
    return [
        Build(branch / "build" / f"torch-{backend}", branch.parent.name, int(branch.name[1:]), backend)
        for branch in sorted(ROOT.glob("*/v[0-9]*"))
        for backend in BACKENDS
    ]


def write(build: Build) -> None:
    """Make a build what it must be: links and metadata; the sources are left alone."""
    build.folder.mkdir(parents=True, exist_ok=True)
    if build.backend != SOURCE_BACKEND:
        for entry in build.folder.iterdir():
            if entry.name != METADATA and not entry.is_dir():
                entry.unlink()
        for name in build.sources():
            (build.folder / name).symlink_to(build.target(name))
    (build.folder / METADATA).write_text(build.metadata(), encoding="utf-8")
