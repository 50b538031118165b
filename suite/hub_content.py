"""What the embedded Hub serves: kernel repositories, read from folders once, with commits made from their content.

A commit id depends on nothing but the files, so that the same files have the same commit on every machine.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BUNDLED", "Repository", "Served", "Snapshot", "bundled_repositories"]

BUNDLED = Path(__file__).resolve().parent.parent / "cases" / "kernels"
"""Where the bundled kernel repositories lie: ``<name>/v<N>/build/<variant>/…``."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A kernel repository. All its content is read when a server starts, so later edits are not served."""

    id: str
    """``publisher/name``."""
    branches: Mapping[str, Path]
    """Branch to the folder that holds ``build/``. A kernel's version N is the branch ``vN``."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tag to the branch it marks, or to a commit of one."""
    suffix: str = ""
    """Appended to the ``id`` in every metadata.json. The id of a build must be unique, and kernels keeps imported
    modules under it: a copy with the same id would be given the modules of the original."""
    history: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """Branch to the folders of its earlier commits, the oldest first. No two commits of a branch hold the same files:
    a commit id is made of nothing else."""


def bundled_repositories(root: Path = BUNDLED) -> list[Repository]:
    """The repositories under ``root``, each by the trusted publisher ``embedded`` and again by ``stranger``.

    Every version ``v<N>`` has the tag ``v<N>.0.0``; ``main`` is the newest.
    """
    found = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        versions = {
            int(path.name[1:]): path
            for path in folder.iterdir()
            if path.name[:1] == "v" and path.name[1:].isdecimal() and (path / "build").is_dir()
        }
        if not versions:
            continue
        branches = {f"v{number}": versions[number] for number in sorted(versions)}
        branches["main"] = versions[max(versions)]
        tags = {f"v{number}.0.0": f"v{number}" for number in sorted(versions)}
        found.append(Repository(f"embedded/{folder.name}", branches, tags))
        found.append(Repository(f"stranger/{folder.name}", branches, tags, suffix="_stranger"))
    return found


class Snapshot:
    """The files of one commit, and every answer about them."""

    def __init__(self, folder: Path, suffix: str) -> None:
        """Read ``folder/build``; ``suffix`` is that of ``Repository``."""
        self.files = dict(sorted(_files(folder, suffix)))
        self.blobs = {path: _git_hash("blob", content) for path, content in self.files.items()}
        listing = "".join(f"{blob} {path}\n" for path, blob in self.blobs.items())
        self.commit = _git_hash("commit", listing.encode())

    def tree(self, under: str, recursive: bool) -> list[dict[str, Any]] | None:
        """Entries below a folder (the root is ``""``); None if there is no such folder."""
        prefix = f"{under}/" if under else ""
        entries: dict[str, dict[str, Any]] = {}
        for path, content in self.files.items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                name = prefix + "/".join(parts[:depth])
                entries[name] = {"type": "directory", "path": name, "oid": _git_hash("tree", name.encode()), "size": 0}
            if recursive or len(parts) == 1:
                entries[path] = {"type": "file", "path": path, "oid": self.blobs[path], "size": len(content)}
        return list(entries.values()) or None


def _files(folder: Path, suffix: str) -> Iterator[tuple[str, bytes]]:
    # Not Path.rglob: it does not enter linked folders, and variants with the same content are links to one of them.
    for where, folders, names in os.walk(folder / "build", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(where, name)
            content = path.read_bytes()
            if suffix and name == "metadata.json":
                metadata = json.loads(content)
                content = json.dumps(metadata | {"id": metadata["id"] + suffix}, indent=2).encode() + b"\n"
            yield path.relative_to(folder).as_posix(), content


def _git_hash(kind: str, content: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content, usedforsecurity=False).hexdigest()


class Served:
    """A repository as it is served: references to commits, commits to snapshots."""

    def __init__(self, repository: Repository) -> None:
        """Read every branch.

        Raises:
            ValueError: a tag marks nothing, or a branch comes back to files that it had.
            OSError: a file cannot be read.
        """
        self.id = repository.id
        self.snapshots: dict[str, Snapshot] = {}
        self.histories: dict[str, list[str]] = {}
        """Branch to its commits, the oldest first."""
        for branch, newest in repository.branches.items():
            commits = [Snapshot(path, repository.suffix) for path in (*repository.history.get(branch, ()), newest)]
            self.snapshots |= {snapshot.commit: snapshot for snapshot in commits}
            self.histories[branch] = [snapshot.commit for snapshot in commits]
            if len(set(self.histories[branch])) < len(commits):
                raise ValueError(f"two commits on branch {branch!r} of {self.id} hold the same files")
        self.branches = {branch: commits[-1] for branch, commits in self.histories.items()}
        self.tags = {tag: self.branches.get(target, target) for tag, target in repository.tags.items()}
        for tag, commit in self.tags.items():
            if commit not in self.snapshots:
                known = ", ".join(self.branches)
                raise ValueError(f"tag {tag!r} of {self.id} marks {commit!r}; expected a commit or one of: {known}")

    def at(self, revision: str) -> Snapshot | None:
        """What a tag, branch (``v1`` or ``refs/heads/v1``) or full commit id stands for; None if for nothing.

        kernels asks with the full name where it looks whether a newer version has the missing build.
        """
        revision = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        commit = self.tags.get(revision) or self.branches.get(revision) or revision
        return self.snapshots.get(commit)

    def commits(self, revision: str) -> list[str] | None:
        """A revision and what came before it, the newest first; None if there is no such revision."""
        snapshot = self.at(revision)
        if snapshot is None:
            return None
        positions = [
            (history.index(snapshot.commit), history)
            for history in self.histories.values()
            if snapshot.commit in history
        ]
        # A branch that was given without its history knows less of a commit than the one it stems from.
        position, history = max(positions)
        return history[position::-1]
