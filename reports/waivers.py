"""Waivers: known faults that a run may have and still be green, each in a file that its owner keeps true.

A waiver names one check, the versions of one package, what the failure says, and the day on which somebody has to look
again. It turns exactly that failure into WAIVED; another failure of the same check stays a failure. A waiver whose
check passes (healed), that meets no check (unmatched) or whose day has come (expired) is reported, and fails a strict
run.
"""

import functools
import importlib.metadata
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from cases.axes import Property
from cases.statements import STATEMENTS
from reports.record import Outcome, Record
from reports.store import Run
from reports.verdict import Verdict, judge

__all__ = [
    "FILE",
    "SHIPPED",
    "InUse",
    "Usage",
    "Waiver",
    "WaiverError",
    "apply",
    "finding_of",
    "judge_run",
    "read",
    "usage",
    "usage_of",
    "waived",
]

SHIPPED = Path(__file__).resolve().parent.parent / "cases" / "waivers.toml"
"""The waivers of this suite for the released stack."""

FILE = "waivers.json"
"""What a run was judged with, in its folder."""

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class WaiverError(Exception):
    """A file of waivers is not readable; the text says where, what was expected, and what to do."""


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known fault."""

    id: Line
    check: Line
    """Id of the check, with ``*`` for any text: ``statement/off.env#attention``, ``*/f16/*/only-RMSNorm``."""
    package: Line
    """The package whose fault it is."""
    versions: Line
    """The versions that have it, as in ``>=5.20,<5.23``."""
    seen: Line
    """A regular expression that the message of the failure must match: another failure is not waived."""
    reason: Line
    link: Line
    """Where the fault is described: ``FINDINGS.md#v6`` beside the file, or an address."""
    owner: Line
    """Who looks again."""
    expires: date
    """The day from which on it has to be looked at again."""
    property: Property | None = None
    """Only this property; None: all of them."""
    device: Line | None = None
    """Only on this device type; None: on all."""
    outcome: Outcome = Outcome.FAIL
    """The outcome that is waived."""

    def meets(self, record: Record) -> bool:
        """Whether it is about this check."""
        return fnmatchcase(record.case, self.check) and self.property in (None, record.property)

    def holds_for(self, packages: Mapping[str, str]) -> bool:
        """Whether the installed version of its package is in range."""
        installed = packages.get(self.package)
        try:
            return installed is not None and Version(installed) in SpecifierSet(self.versions, prereleases=True)
        except InvalidVersion:
            return False


def finding_of(waiver: Waiver) -> str:
    """The fault by its name in FINDINGS.md, which several waivers may share; the waiver's own id for another page."""
    page, _, name = waiver.link.partition("#")
    return name.upper() if page == "FINDINGS.md" and name else waiver.id


class _File(msgspec.Struct, forbid_unknown_fields=True):
    waiver: list[Waiver] = []


class InUse(msgspec.Struct, frozen=True):
    """``waivers.json``: the waivers of a run, and whether they were strict."""

    waivers: tuple[Waiver, ...] = ()
    strict: bool = False


def read(paths: Iterable[Path]) -> tuple[Waiver, ...]:
    """The waivers of one or more files.

    Raises:
        WaiverError: a file cannot be read, an entry is not valid, or two entries have one id.
    """
    found: dict[str, Waiver] = {}
    for path in paths:
        for waiver in _read_one(path):
            if waiver.id in found:
                raise WaiverError(f"{path}: there are two waivers {waiver.id!r}; ids must be unique over all files")
            found[waiver.id] = waiver
    return tuple(found.values())


def _read_one(path: Path) -> list[Waiver]:
    form = "expected a TOML file with tables [[waiver]], as cases/waivers.toml has them"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WaiverError(f"{path}: {error.strerror or error}; {form}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WaiverError(f"{path}: {error}; {form}") from None
    entries = table.get("waiver", [])
    names = [
        entry.get("id", f"number {n}") if isinstance(entry, dict) else f"number {n}"
        for n, entry in enumerate(entries, 1)
    ]
    try:
        waivers = msgspec.convert(table, _File).waiver
    except msgspec.ValidationError as error:
        place = re.search(r"\$\.waiver\[(\d+)\]", str(error))
        which = f" waiver {names[int(place[1])]}" if place else ""
        raise WaiverError(f"{path}:{which}: {error}; {form}") from None
    for waiver in waivers:
        try:
            SpecifierSet(waiver.versions)
            re.compile(waiver.seen)
        except InvalidSpecifier:
            text = f"versions {waiver.versions!r} is no range; expected one like '>=5.20,<5.23'"
            raise WaiverError(f"{path}: waiver {waiver.id}: {text}") from None
        except re.error as error:
            text = f"seen {waiver.seen!r} is no regular expression ({error})"
            raise WaiverError(f"{path}: waiver {waiver.id}: {text}") from None
    return waivers


_MARK = " \N{RIGHTWARDS DOUBLE ARROW} "
"""Between a word on a waiver that does not apply and what the check said."""


@functools.cache
def installed() -> Mapping[str, str]:
    """Versions of what is installed here, by name."""
    return {name: part.version for part in importlib.metadata.distributions() if (name := part.metadata["Name"])}


def waived(record: Record, waivers: Iterable[Waiver], packages: Mapping[str, str], device: str) -> Record:
    """The record as waivers leave it: WAIVED where one knows this failure, else with a word on one that does not."""
    known = [w for w in waivers if w.meets(record) and record.outcome is w.outcome and w.device in (None, device)]
    problems = {waiver.id: _problem(waiver, record, packages) for waiver in known}
    for waiver in known:
        if not problems[waiver.id]:
            return msgspec.structs.replace(record, outcome=Outcome.WAIVED, waiver=waiver.id, unwaived=record.outcome)
    said = [f"waiver {name} does not apply: {problem}" for name, problem in problems.items()]
    if not said:
        return record
    return msgspec.structs.replace(record, message=f"{'; '.join(said)}{_MARK}{record.message}"[:20_000])


def _problem(waiver: Waiver, record: Record, packages: Mapping[str, str]) -> str:
    """Why a waiver that is about this check does not know this failure; empty if it does."""
    if not waiver.holds_for(packages):
        return f"it is for {waiver.package} {waiver.versions}, and installed is {packages.get(waiver.package, 'none')}"
    if re.search(waiver.seen, record.message, re.DOTALL) is None:
        return f"it knows a failure that says {waiver.seen!r}"
    return ""


def apply(
    records: Iterable[Record], waivers: Sequence[Waiver], packages: Mapping[str, str], device: str
) -> tuple[Record, ...]:
    """Records of a run under other waivers than those it was made with."""
    found = []
    for record in records:
        if record.waiver is not None and record.unwaived is not None:
            record = msgspec.structs.replace(record, outcome=record.unwaived, waiver=None, unwaived=None)
        plain = record.message.rpartition(_MARK)[2]
        found.append(waived(msgspec.structs.replace(record, message=plain), waivers, packages, device))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Usage:
    """What became of each waiver in a run."""

    used: tuple[tuple[Waiver, int], ...] = ()
    """With the number of records that each turned."""
    healed: tuple[Waiver, ...] = ()
    """The check passes: the fault is gone, and the waiver can go too."""
    unmatched: tuple[Waiver, ...] = ()
    """No check of this run, and no statement of the suite, has such an id."""
    expired: tuple[Waiver, ...] = ()
    elsewhere: tuple[Waiver, ...] = ()
    """For versions or a device that are not these."""
    unchecked: tuple[Waiver, ...] = ()
    """Its checks were not made, or ended in another way than it knows."""
    strict: bool = False

    @property
    def objections(self) -> tuple[str, ...]:
        """What a strict run fails for, one sentence each."""
        if not self.strict:
            return ()
        return (
            *(f"Strict: waiver {w.id} is healed, {w.check} passes; remove it." for w in self.healed),
            *(f"Strict: waiver {w.id} matches no check ({w.check}); correct or remove it." for w in self.unmatched),
            *(f"Strict: waiver {w.id} has expired on {w.expires}; {w.owner} has to look again." for w in self.expired),
        )


def usage(
    records: Sequence[Record],
    waivers: Iterable[Waiver],
    packages: Mapping[str, str],
    device: str,
    *,
    strict: bool = False,
    today: date | None = None,
) -> Usage:
    """What became of each waiver. Those for other versions or devices are set aside first."""
    today = today or datetime.now(UTC).date()
    used, healed, unmatched, expired, elsewhere, unchecked = [], [], [], [], [], []
    for waiver in waivers:
        if not waiver.holds_for(packages) or waiver.device not in (None, device):
            elsewhere.append(waiver)
            continue
        met = [record for record in records if waiver.meets(record)]
        turned = sum(record.waiver == waiver.id for record in met)
        if waiver.expires <= today:
            expired.append(waiver)
        if turned:
            used.append((waiver, turned))
        elif met and all(record.outcome is Outcome.PASS for record in met):
            healed.append(waiver)
        elif not met and not any(fnmatchcase(statement.case, waiver.check) for statement in STATEMENTS.values()):
            unmatched.append(waiver)
        else:
            unchecked.append(waiver)
    return Usage(
        tuple(used), tuple(healed), tuple(unmatched), tuple(expired), tuple(elsewhere), tuple(unchecked), strict
    )


def usage_of(run: Run) -> Usage:
    """The same for a run on disk, with the waivers that it was made with; nothing where it has none."""
    environment = run.environment
    in_use = run.waivers if isinstance(run.waivers, InUse) else _of_folder(run.folder / FILE)
    if environment is None or in_use is None:
        return Usage()
    return usage(run.records, in_use.waivers, environment.packages, environment.device, strict=in_use.strict)


def _of_folder(path: Path) -> InUse | None:
    """The waivers of a run; None where there are none, or none that can be read."""
    if not path.is_file() or path.stat().st_size > 4 * 2**20:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=InUse)
    except (msgspec.MsgspecError, ValueError):
        return None


def judge_run(run: Run) -> Verdict:
    """The verdict on a run, strict waivers included."""
    return judge(run.records, run.environment, usage_of(run).objections)
