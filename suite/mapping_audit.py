"""What is wrong with the default mapping, found without a device: by reading it, Transformers' sources, and a table.

A remark is no verdict. Most are about what a user cannot see: a name that no layer carries does nothing, a branch as a
pin is another kernel tomorrow, an entry that consents to foreign code does so for everybody.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import transformers

from cases.documentation import TABLE, Operation
from reports.audit import Entry, Kind, Remark

__all__ = ["carried_names", "pins", "remarks", "table_differences", "trusted", "unmatched_names"]


_TAG = re.compile(
    r"(?:use_kernel_(?:forward|func)_from_hub(?:_with_fallback)?|replace_kernel_forward_from_hub)"
    r"\(\s*(?:\w+,\s*)?[\"'](\w+)[\"']"
)


_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


@cache
def carried_names() -> frozenset[str]:
    """Names that classes and functions of the installed Transformers carry, read from its sources."""
    root = Path(transformers.__file__).parent
    # The module of the mapping has examples in its texts, and carries nothing.
    files = [path for path in root.rglob("*.py") if path.name not in ("hub_kernels.py", "kernel_config.py")]
    found: set[str] = set()
    for path in files:
        # Two thousand files of which few hold it: looked for in the bytes, a run does not notice the search.
        content = path.read_bytes()
        if b"_from_hub" in content:
            found.update(_TAG.findall(_COMMENT.sub("", content.decode(errors="replace"))))
    return frozenset(found)


def unmatched_names(entries: Iterable[Entry], carried: frozenset[str]) -> tuple[list[str], list[str]]:
    """Names of the mapping that nothing carries, and carried names that are not in the mapping."""
    mapped = {entry.name for entry in entries}
    return sorted(mapped - carried), sorted(carried - mapped)


def table_differences(entries: Iterable[Entry], table: Iterable[Operation] = TABLE) -> list[Remark]:
    """Where the mapping has another repository than the documentation's table, or one where that has a dash."""
    by_place: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in entries:
        by_place[entry.name, entry.device].add(entry.repository)
    found = []
    for operation in table:
        for name in operation.names:
            for device, documented in operation.repositories.items():
                seen = by_place[name, device]
                if seen != ({documented} if documented else set()):
                    text = f"the table has {documented or 'a dash'}, the mapping {', '.join(sorted(seen)) or 'nothing'}"
                    found.append(Remark(Kind.TABLE, name, device, text))
    return found


_COMMIT = re.compile(r"[0-9a-f]{40}")


def pins(entries: Iterable[Entry]) -> Iterator[Remark]:
    """Pins that are branches. A version is one too, but by agreement only compatible builds are added to it."""
    for entry in entries:
        if entry.revision is not None and not _COMMIT.fullmatch(entry.revision):
            text = f"{entry.repository} is pinned to the branch or tag {entry.revision!r}"
            yield Remark(Kind.MUTABLE_PIN, entry.name, entry.device, text)


def trusted(entries: Iterable[Entry]) -> Iterator[Remark]:
    """Entries that consent to foreign code."""
    for entry in entries:
        if entry.trusted:
            text = f"{entry.repository} at {entry.pin} runs without the user's consent (trust_remote_code=True)"
            yield Remark(Kind.TRUST, entry.name, entry.device, text)


def remarks(
    entries: tuple[Entry, ...], carried: frozenset[str], lazy: Mapping[str, Mapping[str, object]]
) -> list[Remark]:
    """Everything that can be seen without a Hub. ``lazy`` are the modules that Transformers loads by a short name."""
    dead, orphans = unmatched_names(entries, carried)
    found = [Remark(Kind.DEAD_NAME, name, "", "no class or function of Transformers carries it") for name in dead]
    found += [Remark(Kind.ORPHAN_TAG, name, "", "carried, and no device has a kernel for it") for name in orphans]
    found += [*pins(entries), *trusted(entries), *table_differences(entries)]
    for name, pin in lazy.items():
        revision = pin.get("revision")
        if isinstance(revision, str) and not _COMMIT.fullmatch(revision):
            text = f"{pin.get('repo_id')} is pinned to the branch or tag {revision!r}"
            found.append(Remark(Kind.MUTABLE_PIN, name, "", text))
    return sorted(set(found))
