"""The revisions of a pin ladder in order, with all that was recorded of each, and what changed from one to the next.

What changed is found here from records alone. ``suite.first_change`` looks for the commit that changed it, and
``reports.ladder_table`` shows both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from cases.axes import Phase, Property
from cases.ladder import rung_of
from reports.record import Determinism, Outcome, Record
from reports.verdict import FAILING

__all__ = ["Aspect", "Change", "Step", "changes", "observed", "offered", "steps"]

LATEST = 10**6
"""The place of a revision whose record holds none."""

JUDGED = frozenset(Property) - {Property.STATEMENT, Property.LADDER, Property.MEMORY, Property.SPEED}
"""Checks whose outcome says whether a kernel is right and runs."""


class Aspect(StrEnum):
    """What of a revision is compared with the one before, where the same thing seen again has the same value."""

    BUILDS = "builds"
    """The build variants that it offers."""
    FORWARD = "forward"
    """Parameters and flags of the layer, by its source."""
    OUTCOME = "outcome"
    """How a check ended."""
    OUTPUT = "output"
    """The bits that the model gives."""


@dataclass(frozen=True, slots=True)
class Step:
    """One revision."""

    name: str
    about: Record
    """Its own record: what its files offer."""
    checks: Mapping[tuple[str, Property, Phase | None], Record]
    """All others, by the id that the check has on every revision."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is seen at one revision, and otherwise at the next."""

    aspect: Aspect
    before: Step
    after: Step
    was: str
    now: str
    check: Record | None = None
    """The check of the later revision that shows it; None where its files do."""


def steps(records: Iterable[Record]) -> tuple[Step, ...]:
    """The ladder, from the first revision on; empty where none was climbed."""
    found: dict[str, tuple[Record, dict[tuple[str, Property, Phase | None], Record]]] = {}
    others: list[tuple[str, Record]] = []
    for record in records:
        name = rung_of(record.case)
        if name is None:
            continue
        if record.property is Property.LADDER:
            found[name] = (record, {})
        else:
            others.append((name, record))
    for name, record in others:
        if name in found:
            found[name][1][record.case.removesuffix(f"@{name}"), record.property, record.phase] = record
    made = [Step(name, about, checks) for name, (about, checks) in found.items()]
    return tuple(sorted(made, key=_position))


def _position(step: Step) -> int:
    position = step.about.measures.get("position")
    return position if isinstance(position, int) else LATEST


def offered(measures: Mapping[str, object], aspect: Aspect) -> str | None:
    """What the files of a revision say of builds or forward, as one text; None where they say nothing."""
    if aspect is Aspect.BUILDS:
        builds = measures.get("builds")
        return None if builds is None else str(builds)
    if measures.get("parameters") is None:
        return None
    flags = "".join(f", {flag} {measures.get(flag)}" for flag in ("has_backward", "can_torch_compile"))
    return f"({measures['parameters']}){flags}"


def observed(record: Record, aspect: Aspect) -> str | None:
    """What a check saw of outcome or output; None where there is nothing to compare.

    An outcome is what it was before any waiver. Where repeats of one revision differ, its bits say nothing.
    """
    if aspect is Aspect.OUTCOME:
        return f"{_ended(record)} {record.reason or ''}".strip()
    digest = record.measures.get("digest")
    return str(digest) if digest is not None and record.determinism is Determinism.BITWISE else None


def _ended(record: Record) -> Outcome:
    return record.unwaived or record.outcome


def changes(found: Sequence[Step]) -> list[Change]:
    """What changed between neighbours, in order. Of several checks that show it, the first that fails now is named."""
    return [change for before, after in pairwise(found) for change in _between(before, after)]


def _between(before: Step, after: Step) -> Iterator[Change]:
    for aspect in (Aspect.BUILDS, Aspect.FORWARD):
        was, now = (offered(step.about.measures, aspect) for step in (before, after))
        if was is not None and now is not None and was != now:
            yield Change(aspect, before, after, was, now)
    for aspect in (Aspect.OUTCOME, Aspect.OUTPUT):
        common = [key for key in after.checks if key in before.checks and _tells(before, after, key, aspect)]
        for key in sorted(common, key=lambda key: (_ended(after.checks[key]) not in FAILING, *_rank(key)))[:1]:
            was, now = (observed(step.checks[key], aspect) for step in (before, after))
            yield Change(aspect, before, after, str(was), str(now), after.checks[key])


def _tells(before: Step, after: Step, key: tuple[str, Property, Phase | None], aspect: Aspect) -> bool:
    """Whether a check shows that something changed."""
    old, new = before.checks[key], after.checks[key]
    was, now = observed(old, aspect), observed(new, aspect)
    if was == now or was is None or now is None:
        return False
    return aspect is Aspect.OUTPUT or (new.property in JUDGED and not FAILING.isdisjoint((_ended(old), _ended(new))))


def _rank(key: tuple[str, Property, Phase | None]) -> tuple[bool, int]:
    # What its files are accused of comes after what its results show.
    return key[1] is Property.REPOSITORY, list(Property).index(key[1])
