"""Which kernel repositories a plan uses, so that each is looked at before any code of it is called.

One record for each registered name whose kernel some planned case asks for, and for each Hub attention. The installed
default mapping is not here: what it holds differs by device and version, and loading it is the check of its own cases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cases.attention import attention, attention_name
from cases.case import Case
from cases.mappings import BUNDLED, MAPPINGS, KernelReference
from cases.models import MODELS
from cases.plan import USER, offered

__all__ = ["PREFIX", "RepositoryInUse", "in_use"]

PREFIX = "repository/"
"""Begins the id of a repository check, where the id of a case begins with its model."""


@dataclass(frozen=True, slots=True)
class RepositoryInUse:
    """A registered name, and the kernel that this run asks for under it."""

    name: str
    """Registered name of a layer or function, or ``org~repo`` for an attention implementation."""
    kernel: KernelReference | None
    """The layer asked for; None for an attention, which is asked for by ``implementation``."""
    implementation: str | None = None
    """``org/repo[@revision]``, as ``attn_implementation`` takes it; None for a layer."""
    former: tuple[KernelReference, ...] = ()
    """Earlier versions of a bundled repository: a pin may name any of them, so all must take the same parameters."""
    rung: str = ""
    """The revision of a ladder that this is; empty without one."""

    @property
    def id(self) -> str:
        """The id of the check, where a case would have its own."""
        return f"{PREFIX}{self.name}{f'@{self.rung}' if self.rung else ''}"

    @property
    def promised(self) -> str:
        """What was asked for, as evidence names it."""
        return self.kernel.promised if self.kernel is not None else f"{self.implementation}"


def in_use(
    cases: Iterable[Case], own: Mapping[str, Mapping[str, KernelReference]], chosen: Iterable[str] = ()
) -> tuple[RepositoryInUse, ...]:
    """Every repository that the cases ask for, then those asked for by id in ``chosen``; sorted by name.

    ``own`` are the user's own kernels: by mapping, the kernel of each registered name.

    Raises:
        ValueError: ``chosen`` has an id that no bundled and no given kernel answers to.
    """
    found: dict[str, RepositoryInUse] = {}
    for case in cases:
        mapping = MAPPINGS.get(case.mapping)
        entries = own.get(case.mapping, {}) if mapping is None else mapping.entries or {}
        for name, kernel in offered(entries, case.mode).items():
            if name in MODELS[case.model].carries:
                repository = _layer(name, kernel, case.mapping)
                found[repository.id] = repository
        choice = attention(case.attention)
        if choice.hub and choice.implementation is not None:
            repository = _attention(choice.implementation)
            found[repository.id] = repository
    for text in chosen:
        asked = text.removeprefix(PREFIX)
        name, at, rung = asked.partition("@")
        user = f"{USER}{at}{rung}"
        wanted = own.get(user, {}).get(name) or (None if at else BUNDLED.get(name))
        if "~" in name:
            found[text] = _attention(asked.replace("~", "/"))
        elif wanted is not None:
            found[text] = _layer(name, wanted, user)
        else:
            raise ValueError(f"{text!r}: no kernel for {asked!r}; bundled are {', '.join(BUNDLED)}")
    return tuple(found[identity] for identity in sorted(found))


def _layer(name: str, kernel: KernelReference, mapping: str) -> RepositoryInUse:
    former: tuple[KernelReference, ...] = ()
    if BUNDLED.get(name) == kernel and kernel.version is not None:
        former = tuple(
            KernelReference(kernel.repository, kernel.layer, version) for version in range(1, kernel.version)
        )
    rung = mapping.partition("@")[2]
    return RepositoryInUse(name, kernel, former=former, rung=rung)


def _attention(implementation: str) -> RepositoryInUse:
    return RepositoryInUse(attention_name(implementation), None, implementation)
