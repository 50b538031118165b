"""The pin ladder: one layer of one repository at every revision that has a name, and the same cases for each.

A rung is a tag or a version branch ``v<N>``. Two names of one commit are one rung, called by its tag, since a branch is
another kernel tomorrow. The mapping of a case on the rung ``v2.0.0`` is ``user@v2.0.0``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from packaging.version import InvalidVersion, Version

from cases.case import Case
from cases.mappings import KernelReference
from cases.plan import USER

__all__ = ["PREFIX", "Ladder", "Rung", "climb", "rung_of", "rungs"]

PREFIX = "ladder/"
"""Begins the id of the check of a rung, where the id of a case begins with its model."""

_READABLE = re.compile(r"[\w.+-]+")
"""Names that can stand in a case id and on a command line as they are."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One revision of the repository."""

    name: str
    """What it is called in case ids: its first readable name, else its commit."""
    commit: str
    position: int
    """Its number on the ladder, from 0."""
    names: tuple[str, ...]
    """Every tag and version branch that it has, in the order of the ladder."""
    version: int | None = None
    """N, if it is called by the branch ``v<N>``."""

    @property
    def mapping(self) -> str:
        """Last coordinate of the id of a case on this rung."""
        return f"{USER}@{self.name}"

    @property
    def id(self) -> str:
        """The id of the check of this rung."""
        return f"{PREFIX}{self.name}"


@dataclass(frozen=True, slots=True)
class Ladder:
    """What ``--ladder`` names."""

    layer: str
    """Registered name."""
    repository: str
    """``owner/name`` on a Hub."""
    name: str
    """Class in the repository's ``layers``."""

    def kernel(self, rung: Rung) -> KernelReference:
        """The layer on a rung, asked for in the way of a user who pins it."""
        if rung.version is not None:
            return KernelReference(self.repository, self.name, rung.version)
        return KernelReference(self.repository, self.name, revision=rung.name)


def rungs(tags: Mapping[str, str], branches: Mapping[str, str]) -> tuple[Rung, ...]:
    """The ladder of tags and branches (name to commit): versions in their order, ``v1`` after ``v1.9.0``.

    Tags that are no versions come last, by name. Branches that are no versions are no rungs: they are where work is.
    """
    versions = {name: int(name[1:]) for name in branches if re.fullmatch(r"v\d+", name) and name not in tags}
    ranks = {name: _rank(name) for name in tags} | {name: (0, n, 1, Version("0")) for name, n in versions.items()}
    names: dict[str, list[str]] = {}
    for name in sorted(ranks, key=lambda name: (ranks[name], name)):
        names.setdefault(tags[name] if name in tags else branches[name], []).append(name)
    found = []
    for position, (commit, known) in enumerate(names.items()):
        called = next((name for name in known if _READABLE.fullmatch(name)), commit)
        found.append(Rung(called, commit, position, tuple(known), versions.get(called)))
    return tuple(found)


def _rank(tag: str) -> tuple[int, int, int, Version]:
    try:
        version = Version(tag)
    except InvalidVersion:
        return 1, 0, 0, Version("0")
    return 0, version.major, 0, version


def rung_of(identity: str) -> str | None:
    """The revision that the id of a case, a rung or a repository names; None if it names none."""
    match = re.fullmatch(rf"{PREFIX}(.+)|.+/{USER}@(.+)|repository/\w+@(.+)", identity)
    return None if match is None else match[1] or match[2] or match[3]


def climb(cases: Iterable[Case], ladder: Iterable[Rung]) -> tuple[Case, ...]:
    """Each case with the user's own kernel, once for every rung in turn; others, on one rung already, as they are."""
    rungs = tuple(ladder)
    return tuple(
        climbed
        for case in cases
        for climbed in ([replace(case, mapping=rung.mapping) for rung in rungs] if case.mapping == USER else [case])
    )
