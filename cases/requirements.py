"""The documented statements that the suite checks, read from ``requirements.toml``.

A case cites the ids of the statements it checks. The table in a report is read by people who know the documentation
and not the suite, so each statement carries its source.
"""

import difflib
import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

__all__ = ["FILE", "Exercise", "Level", "Requirement", "check_cited", "load_requirements"]

FILE = Path(__file__).with_name("requirements.toml")
"""The statements, to be edited there."""


class Level(StrEnum):
    """How firmly the documentation says it."""

    MUST = "MUST"
    """Said plainly."""
    SHOULD = "SHOULD"
    """Recommended or hedged."""


class Exercise(StrEnum):
    """How a statement is exercised on a machine without an accelerator."""

    REAL = "real"
    """The real thing runs on the CPU."""
    EMBEDDED = "embedded"
    """With bundled kernels through the embedded Hub."""
    SHIM = "shim"
    """With the recorded shim that lets KernelConfig take ``cpu``."""
    PROOF = "proof"
    """The documented refusal is provoked."""
    DEVICE = "device"
    """It needs the device, and is NOT_RUN elsewhere; its decision is tested with a faked device."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One documented statement."""

    id: str
    """``group.name``."""
    level: Level
    sources: tuple[str, ...]
    """Document and section, as in ``Transformers documentation: Intel GPU, Installation``."""
    statement: str
    """One sentence, in words of our own."""
    cpu: tuple[Exercise, ...]

    @property
    def group(self) -> str:
        """The part of the id before the dot."""
        return self.id.split(".")[0]


@functools.cache
def load_requirements(file: Path = FILE) -> Mapping[str, Requirement]:
    """All statements by id, in the order of the file.

    Raises:
        ValueError: an entry is incomplete, has an unknown word, or the id of another; the message names it.
    """
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    documents = content["documents"]
    found: dict[str, Requirement] = {}
    for entry in content["requirement"]:
        name = entry.get("id", "without an id")
        try:
            requirement = Requirement(
                id=entry["id"],
                level=Level(entry["level"]),
                sources=tuple(_source(text, documents) for text in entry["sources"]),
                statement=entry["statement"],
                cpu=tuple(Exercise(word) for word in entry["cpu"]),
            )
        except KeyError as error:
            raise ValueError(f"{file.name}: requirement {name}: {error} is missing or no document") from error
        except ValueError as error:
            raise ValueError(f"{file.name}: requirement {name}: {error}") from error
        if name in found:
            raise ValueError(f"{file.name}: requirement {name} stands there twice")
        found[name] = requirement
    return MappingProxyType(found)


def _source(text: str, documents: Mapping[str, str]) -> str:
    letter, _, section = text.partition(": ")
    return f"{documents[letter]}, {section}"


def check_cited(ids: Iterable[str]) -> None:
    """Refuse a citation of a statement that does not exist.

    Raises:
        ValueError: an id is unknown, or there is none at all; the message has the ids that come closest.
    """
    known = load_requirements()
    cited = list(ids)
    if not cited:
        raise ValueError(f"no requirement is cited; expected at least one id from {FILE.name}")
    for name in cited:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or [
                i for i in known if i.startswith(name.split(".")[0])
            ]
            hint = f"did you mean {', '.join(close)}?" if close else f"the groups are {', '.join(_groups())}"
            raise ValueError(f"{name!r} is no requirement of {FILE.name}: {hint}")


def _groups() -> list[str]:
    return list(dict.fromkeys(requirement.group for requirement in load_requirements().values()))


def __getattr__(name: str) -> Mapping[str, Requirement]:
    # ``REQUIREMENTS`` reads its file when it is first used, so that importing this module costs nothing.
    if name == "REQUIREMENTS":
        return load_requirements()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
