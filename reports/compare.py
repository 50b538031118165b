"""What is different between two runs: the one before and the one after. Pure functions from two ``Run`` to a
``Comparison``; ``reports.compare_text`` writes it down.

Checks are joined on their ids, which do not name the device, so that a run can be held against one of another release,
of another revision of a kernel, or of another device. A check that is not made any more is as much of a step back as
one that fails: what is not tested is never green.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cases.axes import Phase, Property
from reports.audit import Audit, Remark, read_audit
from reports.controls import is_control
from reports.ratio import Ratio, geometric_mean
from reports.record import Environment, Outcome, Record, Speed
from reports.store import Run
from reports.verdict import FAILING, Verdict, severity, speed_figures
from reports.waivers import Waiver, finding_of, judge_run, usage_of

__all__ = ["Change", "Comparison", "Difference", "FindingChange", "Kind", "SpeedChange", "compare"]

Check = tuple[str, Property, Phase | None]


class Kind(StrEnum):
    """What became of a check, the gravest first."""

    REGRESSED = "regressed"
    """Fails, and did not before, or fails in a graver way."""
    LOST = "no longer checked"
    """Gave an answer before, and gives none now."""
    WAIVED = "now a known fault"
    """A waiver knows the failure; before it held, or failed without a waiver."""
    MENDED = "mended"
    """Failed before, or was waived, and holds now."""
    UNPLANNED = "not in the later plan"
    """Was checked before, and the later run was started with other choices, which leave it out."""
    GAINED = "newly checked"
    """Gives an answer, and gave none before."""
    OTHERWISE = "answered otherwise"
    """Another outcome of the same weight, another reason, another grade."""


@dataclass(frozen=True, slots=True)
class Change:
    """One check whose answer is another one."""

    kind: Kind
    before: Record | None
    after: Record | None

    @property
    def record(self) -> Record:
        """The later of its records."""
        found = self.after or self.before
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Difference:
    """A named thing that has another value. Empty: it was not there, or is not there any more."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A known fault of the stack that one of the runs met and the other did not."""

    id: str
    """As in FINDINGS.md: ``V31``; else the id of the waiver."""
    reason: str
    before: str
    """``seen``, ``not seen`` (its checks hold), ``not known here`` (its waiver is for other versions or devices)
    or ``not checked``."""
    after: str


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A speed that both runs have."""

    before: Record
    after: Record

    @property
    def way(self) -> int:
        """-1: slower than before, 1: faster, 0: neither is shown.

        Two decided verdicts that differ speak for themselves, and so does SAME twice. Elsewhere what counts is whether
        the intervals meet.
        """
        order = (Speed.SLOWER, Speed.SAME, Speed.FASTER)
        was, now = self.before.speed, self.after.speed
        if was in order and now in order and (was is not now or now is Speed.SAME):
            return (order.index(now) > order.index(was)) - (order.index(now) < order.index(was))
        old, new = speed_figures(self.before), speed_figures(self.after)
        if old is None or new is None:
            return 0
        return (new.low > old.high) - (new.high < old.low)

    @property
    def worse(self) -> bool:
        """Whether it is slower than before, and not still FASTER: a smaller gain is no loss."""
        return self.way < 0 and self.after.speed is not Speed.FASTER


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is different."""

    before: Run
    after: Run
    verdicts: tuple[Verdict, Verdict]
    """On the earlier and on the later run."""
    environment: tuple[Difference, ...]
    """Device, driver, packages, tier, Hub, commit of the suite."""
    mapping: tuple[Difference, ...]
    """What Transformers takes from the Hub by itself: entries of its default mapping, and what stands outside of it."""
    remarks: tuple[tuple[Remark, bool], ...]
    """What the audit says of the mapping in one run only; True: in the later one."""
    audited: bool
    """Whether both runs have an audit, without which nothing is known of the mapping."""
    findings: tuple[FindingChange, ...]
    changes: tuple[Change, ...]
    """The gravest first."""
    kernels: tuple[Difference, ...]
    """Kernel repositories of which another revision or other bytes were loaded."""
    speeds: tuple[SpeedChange, ...]
    speed_means: tuple[Ratio, Ratio, int] | None
    """Geometric means of the speedups that both runs have, and how many those are."""
    speeds_apart: str
    """Why speeds are not held against each other; empty: they are."""

    @property
    def worse(self) -> bool:
        """Whether the later run has anything that is worse."""
        if any(change.kind in (Kind.REGRESSED, Kind.LOST) for change in self.changes):
            return True
        was, now = self.verdicts
        return (now.fails and not was.fails) or any(change.worse for change in self.speeds)


def compare(before: Run, after: Run) -> Comparison:
    """Hold a run against an earlier one."""
    first, second = read_audit(before.folder), read_audit(after.folder)
    apart = _apart(before.environment, after.environment)
    verdicts = judge_run(before), judge_run(after)
    pairs = [] if apart else list(_speed_pairs(*verdicts))
    return Comparison(
        before,
        after,
        verdicts,
        _environment(before.environment, after.environment),
        _mapping(first, second) if first and second else (),
        _remarks(first, second) if first and second else (),
        first is not None and second is not None,
        tuple(_findings(before, after)),
        tuple(sorted(_changes(before, after), key=_rank)),
        _kernels(before.environment, after.environment),
        tuple(sorted((pair for pair in pairs if pair.way), key=lambda pair: (not pair.worse, _drift(pair)))),
        _means(pairs),
        apart,
    )


def _rank(change: Change) -> tuple[int, int]:
    return list(Kind).index(change.kind), -severity(change.record.outcome)


def _changes(before: Run, after: Run) -> Iterator[Change]:
    old, new = _by_check(before.records), _by_check(after.records)
    made = [run.environment.choices for run in (before, after) if run.environment]
    other_plan = len(set(made)) == 2
    for check in dict.fromkeys((*old, *new)):
        kind = _kind(old.get(check), new.get(check))
        if kind is Kind.LOST and check not in new and other_plan:
            kind = Kind.UNPLANNED
        if kind is not None:
            yield Change(kind, old.get(check), new.get(check))


def _by_check(records: Iterable[Record]) -> Mapping[Check, Record]:
    return {(r.case, r.property, r.phase): r for r in records if not is_control(r)}


def _answers(record: Record | None) -> bool:
    return record is not None and record.outcome is not Outcome.NOT_RUN


def _kind(before: Record | None, after: Record | None) -> Kind | None:
    """What became of a check; None where nothing did. Speeds that both have are compared by their figures."""
    fails = after is not None and after.outcome in FAILING
    if fails and after and (before is None or severity(after.outcome) > severity(before.outcome)):
        return Kind.REGRESSED
    if not _answers(before):
        return Kind.GAINED if _answers(after) else None
    if not _answers(after):
        return Kind.LOST
    assert before is not None
    assert after is not None
    if after.outcome is Outcome.PASS and before.outcome in (*FAILING, Outcome.WAIVED):
        return Kind.MENDED
    if after.outcome is Outcome.WAIVED and before.outcome is not Outcome.WAIVED:
        return Kind.WAIVED
    same = (before.outcome, before.reason, before.determinism) == (after.outcome, after.reason, after.determinism)
    return None if same else Kind.OTHERWISE


def _environment(before: Environment | None, after: Environment | None) -> tuple[Difference, ...]:
    return tuple(_differing(_described(before), _described(after)))


def _described(environment: Environment | None) -> dict[str, str]:
    if environment is None:
        return {}
    names = ("device", "device_name", "device_count", "driver", "python", "platform", "threads", "hub", "tier")
    found = {name.replace("_", " "): str(getattr(environment, name)) for name in names}
    return found | {"commit of the suite": environment.suite_commit} | environment.packages


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name, "") != after.get(name, ""):
            yield Difference(name, before.get(name, ""), after.get(name, ""))


def _mapping(before: Audit, after: Audit) -> tuple[Difference, ...]:
    return tuple(_differing(_entries(before), _entries(after)))


def _entries(audit: Audit) -> dict[str, str]:
    """Place in the mapping, or outside of it, to what stands there."""
    found: dict[str, list[str]] = {}
    for entry in audit.entries:
        consent = ", trust_remote_code" if entry.trusted else ""
        capability = f", capability {entry.capabilities}" if entry.capabilities else ""
        text = f"{entry.repository}@{entry.pin}:{entry.layer}{capability}{consent}"
        found.setdefault(f"{entry.name} on {entry.device}, {entry.mode}", []).append(text)
    return {place: "; ".join(sorted(texts)) for place, texts in found.items()} | audit.defaults


def _remarks(before: Audit, after: Audit) -> tuple[tuple[Remark, bool], ...]:
    gone = [(remark, False) for remark in before.remarks if remark not in after.remarks]
    return (*gone, *((remark, True) for remark in after.remarks if remark not in before.remarks))


def _findings(before: Run, after: Run) -> Iterator[FindingChange]:
    old, new = _states(before), _states(after)
    for name in dict.fromkeys((*old, *new)):
        was, reason = old.get(name, ("not known here", ""))
        now, reason = new.get(name, ("not known here", reason))
        if was != now:
            yield FindingChange(name, reason, was, now)


def _states(run: Run) -> dict[str, tuple[str, str]]:
    """Finding to its state in a run and what it is about. One that any of its waivers met was seen."""
    used = usage_of(run)
    gone = tuple(waiver for waiver in used.elsewhere if _gone(waiver, run.records))
    states = {
        "not checked": (*used.unmatched, *used.unchecked),
        "not known here": used.elsewhere,
        "not seen": (*used.healed, *gone),
        "seen": tuple(waiver for waiver, _ in used.used),
    }
    return {finding_of(waiver): (state, waiver.reason) for state, waivers in states.items() for waiver in waivers}


def _gone(waiver: Waiver, records: Iterable[Record]) -> bool:
    """Whether all that a waiver for other versions is about was checked, and holds or has another known fault."""
    outcomes = {record.outcome for record in records if waiver.meets(record)}
    return bool(outcomes) and outcomes <= {Outcome.PASS, Outcome.WAIVED}


def _kernels(before: Environment | None, after: Environment | None) -> tuple[Difference, ...]:
    return tuple(_differing(_loaded(before), _loaded(after)))


def _loaded(environment: Environment | None) -> dict[str, str]:
    kernels = environment.kernels if environment else ()
    return {f"{kernel.repo} ({kernel.variant}, {kernel.revision or 'local'})": kernel.digest for kernel in kernels}


def _apart(before: Environment | None, after: Environment | None) -> str:
    """Why speeds of the two runs are no matter of better or worse."""
    if before is None or after is None:
        return "the environment of one run is unknown"
    for environment, which in ((before, "earlier"), (after, "later")):
        if environment.quarantined:
            return f"the machine of the {which} run was unfit ({environment.quarantined})"
    if before.device_name != after.device_name:
        return f"the devices differ ({before.device_name}, {after.device_name})"
    return ""


def _speed_pairs(before: Verdict, after: Verdict) -> Iterator[SpeedChange]:
    old, new = _by_check(before.speedups.measured), _by_check(after.speedups.measured)
    for check in old:
        if check in new:
            yield SpeedChange(old[check], new[check])


def _drift(pair: SpeedChange) -> float:
    """Ratio after over ratio before."""
    old, new = speed_figures(pair.before), speed_figures(pair.after)
    return new.value / old.value if old and new else 1.0


def _means(pairs: Iterable[SpeedChange]) -> tuple[Ratio, Ratio, int] | None:
    figures = [
        (old, new) for pair in pairs if (old := speed_figures(pair.before)) and (new := speed_figures(pair.after))
    ]
    before, after = geometric_mean([old for old, _ in figures]), geometric_mean([new for _, new in figures])
    return (before, after, len(figures)) if before and after else None
