"""What a run means. Pure functions from records to outcomes, counts and the one verdict that decides the exit status.

A verdict is green only if something was verified, nothing failed, nothing is missing and every pass is proved. Each
cause of another colour is a sentence in ``Verdict.causes``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cases.axes import Property
from reports.clean import one_line
from reports.controls import Controls, controls, is_control, without_controls
from reports.evidence import Ledger, Violation
from reports.ratio import Ratio, geometric_mean
from reports.record import Environment, Outcome, Reason, Record, Speed

__all__ = [
    "FAILING",
    "Overall",
    "Passes",
    "Speedups",
    "Verdict",
    "count",
    "judge",
    "ratio_of",
    "severity",
    "speed_figures",
    "speedups",
    "worst",
]

_SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}

FAILING = frozenset(
    {Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT, Outcome.HARNESS_ERROR, Outcome.RESOURCE, Outcome.FALLBACK}
)
"""Outcomes that fail a run. A fallback where no kernel was promised is written by the suite as NOT_RUN, so every
FALLBACK in a results file is a broken promise."""


class Overall(StrEnum):
    """The verdict on a run."""

    PASS = "PASS"
    """Everything planned has an answer, nothing failed, every pass on a kernel case is proved."""
    FAIL = "FAIL"
    """Something failed, or a pass is not proved."""
    INCOMPLETE = "INCOMPLETE"
    """Nothing failed so far, but part of the plan has no record."""
    UNKNOWN = "UNKNOWN"
    """Nothing was verified."""


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of a run by what carries them."""

    proved: int = 0
    """On a case that asks for kernels, with calls of kernel forwards seen."""
    plain: int = 0
    """On a case or statement that asks for no kernel, so that none has to be called."""
    unproved: int = 0
    """On a case that asks for kernels, without the proof: each is a violation."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.proved + self.plain + self.unproved


@dataclass(frozen=True, slots=True)
class Speedups:
    """The speed records of a run, taken together."""

    measured: tuple[Record, ...]
    """Those with a ratio that counts: timed, with kernels proved to have run."""
    mean: Ratio | None
    """Geometric mean of t_pytorch / t_kernel over ``measured``; None where there is none, or the machine was unfit."""
    verdicts: dict[Speed, int]
    """How many of ``measured`` have each verdict."""
    excluded: dict[str, int]
    """How many speed records are not in the mean, by the reason code or outcome that keeps them out."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run and the numbers behind it."""

    overall: Overall
    causes: tuple[str, ...]
    """Why it is not PASS, or what it rests on: one sentence each, the gravest first."""
    outcomes: dict[Outcome, int]
    passes: Passes
    violations: tuple[Violation, ...]
    planned: int | None
    """(case, property) pairs in the plan; None if the environment is unknown."""
    recorded: int
    """(case, property) pairs that have a record."""
    speedups: Speedups
    controls: Controls
    """What the machine could show, and whether it was fit to."""

    @property
    def fails(self) -> bool:
        """Whether the exit status is not 0. Only PASS is 0: not tested is never green."""
        return self.overall is not Overall.PASS


def severity(outcome: Outcome) -> int:
    """Rank of an outcome, 0 the best."""
    return _SEVERITY[outcome]


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of a set; UNKNOWN for the empty set, since not tested is never green."""
    return max(outcomes, key=severity, default=Outcome.UNKNOWN)


def count(outcomes: Iterable[Outcome]) -> dict[Outcome, int]:
    """How many there are of each outcome that occurs, worst first."""
    found = Counter(outcomes)
    return {outcome: found[outcome] for outcome in sorted(found, key=severity, reverse=True)}


def speed_figures(record: Record) -> Ratio | None:
    """Ratio and interval of a speed record; None where the ratio is absent, or not positive and finite."""
    return ratio_of(*(record.measures.get(name) for name in ("ratio", "low", "high")))


def ratio_of(value: object, low: object, high: object) -> Ratio | None:
    """A ratio from untrusted figures; an end that is none, or lies on the wrong side, is not known."""
    ratio = _positive(value)
    if ratio is None:
        return None
    ends = _positive(low), _positive(high)
    return Ratio(
        ratio,
        ends[0] if ends[0] is not None and ends[0] <= ratio else 0.0,
        ends[1] if ends[1] is not None and ends[1] >= ratio else math.inf,
    )


def _positive(value: object) -> float | None:
    """The value as a float if it is a number that can be a ratio; a billion is no speedup but a broken clock."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        return None
    return float(value)


def speedups(records: Iterable[Record], ledger: Ledger) -> Speedups:
    """Take the speed records together: the geometric mean over measured cases only, the rest counted by reason.

    INCONCLUSIVE was measured, so it is in the mean: to leave it out would keep only what is far from 1.
    """
    measured: list[Record] = []
    ratios: list[Ratio] = []
    excluded: Counter[str] = Counter()
    for record in records:
        if record.property is not Property.SPEED or is_control(record):
            continue
        figures = speed_figures(record)
        cause = _exclusion(record, ledger)
        if cause is None and figures is None:
            cause = "no ratio recorded"
        if cause is not None or figures is None:
            excluded[cause or "no ratio recorded"] += 1
            continue
        measured.append(record)
        ratios.append(figures)
    return Speedups(
        measured=tuple(measured),
        mean=geometric_mean(ratios),
        verdicts={kind: number for kind in Speed if (number := sum(record.speed is kind for record in measured))},
        excluded=dict(excluded.most_common()),
    )


def _exclusion(record: Record, ledger: Ledger) -> str | None:
    """Why a speed record must not count as a speedup, or None."""
    if record.speed is None or record.speed is Speed.NOT_MEASURED:
        return record.reason.value if record.reason else record.outcome.value
    if record.outcome not in (Outcome.PASS, Outcome.FAIL, Outcome.WAIVED):
        return record.reason.value if record.reason else record.outcome.value
    if not ledger.asks(record.case):
        return "asks for no kernel"
    if not ledger.proved(record):
        return Reason.NOT_CALLED.value
    return None


def judge(records: Sequence[Record], environment: Environment | None, objections: Sequence[str] = ()) -> Verdict:
    """The verdict on a run. ``objections`` fail it, whatever its records say."""
    about_machine = controls(records)
    records = without_controls(records)
    ledger = Ledger(records)
    outcomes = count(record.outcome for record in records)
    passes, violations = _passes(records, ledger)
    planned = environment.planned if environment else None
    recorded = len({(record.case, record.property) for record in records})
    overall, causes = _overall(records, outcomes, passes, planned, recorded, objections)
    found = speedups(records, ledger)
    if about_machine.quarantined:
        found = replace(found, mean=None)
    return Verdict(
        overall=overall,
        causes=causes,
        outcomes=outcomes,
        passes=passes,
        violations=tuple(violations),
        planned=planned,
        recorded=recorded,
        speedups=found,
        controls=about_machine,
    )


def _passes(records: Iterable[Record], ledger: Ledger) -> tuple[Passes, list[Violation]]:
    """Sort the passes by what carries them."""
    proved = plain = 0
    violations: list[Violation] = []
    for record in records:
        if record.outcome is not Outcome.PASS:
            continue
        violation = ledger.violation(record)
        if violation is not None:
            violations.append(violation)
        elif ledger.asks(record.case) and ledger.proved(record):
            proved += 1
        else:
            plain += 1
    return Passes(proved, plain, len(violations)), violations


def _overall(
    records: Iterable[Record],
    outcomes: dict[Outcome, int],
    passes: Passes,
    planned: int | None,
    recorded: int,
    objections: Sequence[str],
) -> tuple[Overall, tuple[str, ...]]:
    idle = [record for record in records if record.outcome is Outcome.NOT_RUN]
    unanswered = [record for record in idle if record.reason is Reason.EXCEPTION]
    failed = [f"{number:,} {outcome}" for outcome, number in outcomes.items() if outcome in FAILING]
    failing: list[str] = []
    if failed:
        failing.append("Failing outcomes: " + ", ".join(failed) + ".")
    if passes.unproved:
        failing.append(f"{passes.unproved:,} passes on kernel cases have no proof that a kernel ran.")
    failing.extend(objections)
    missing: list[str] = []
    if planned is None:
        missing.append("The environment is unknown, so whether the run is complete is unknown too.")
    elif recorded < planned:
        missing.append(f"Unfinished: {recorded:,} of {planned:,} planned checks have a record.")
    if unanswered:
        first = one_line(f"{unanswered[0].case} {unanswered[0].property}: {unanswered[0].message}", 300)
        missing.append(f"{len(unanswered):,} checks could not be made, since PyTorch itself fails in them: {first}")
    if failing:
        return Overall.FAIL, (*failing, *missing)
    if not passes.total:
        return Overall.UNKNOWN, ("Nothing was verified: no check passed or failed.", *missing)
    if missing:
        return Overall.INCOMPLETE, tuple(missing)
    proof = f"{passes.proved:,} of {passes.total:,} passes are proved by counted kernel calls"
    rest = f"; the other {passes.plain:,} ask for no kernel call." if passes.plain else "."
    number = sum(outcomes.values())
    several = f" ({number:,} records: a speed has one for each phase)" if number > recorded else ""
    reasons = Counter(record.reason.value if record.reason else "no reason" for record in idle).most_common()
    why = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
    silent = (f"{len(idle):,} were not made (NOT_RUN: {why}).",) if idle else ()
    whole = f"All {recorded:,} planned checks have a record{several} and none failed."
    return Overall.PASS, (whole, proof + rest, *silent)
