"""What a run says about determinism, mapping by mapping: repeats in one process and in a fresh one, sequences alone and
in a batch, PyTorch's deterministic algorithms, and how often a kernel gives the very bits of PyTorch. Pure functions;
lists are bounded and strings cleaned, so that the template only lays out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from cases.axes import Property
from reports.clean import one_line
from reports.evidence import case_of
from reports.record import Determinism, Outcome, Record, figure
from reports.verdict import FAILING
from reports.views import OTHER, Bounded

__all__ = ["Cost", "Repeatability", "notable", "repeatability"]

MAPPINGS = 40
"""Rows of the table."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Time with deterministic algorithms over time without, of the case in the middle of those measured."""

    ratio: float
    low: float
    high: float
    cases: int


@dataclass(frozen=True, slots=True)
class Repeatability:
    """One mapping."""

    mapping: str
    counts: dict[Determinism, int]
    """Cases by grade."""
    ungraded: int
    fresh_same: int
    fresh_other: int
    """Cases that a fresh process repeated, and gave the same or other bits."""
    batches: int
    """Cases whose sequences were also given alone."""
    batch_kernel: int
    batch_pytorch: int
    """How many of these had the same bits alone."""
    batch_lost: int
    """How many had them in PyTorch and not with the kernel."""
    flags: dict[str, int]
    """Cases by what deterministic algorithms do: ``hold``, ``vary``, ``raise``."""
    cost: Cost | None
    match_bits: float | None
    match_top1: float | None
    """Share of logits with PyTorch's bits, and of tokens with PyTorch's first choice: the case in the middle."""


def repeatability(records: Iterable[Record]) -> tuple[Repeatability, ...]:
    """One row for each mapping that determinism was checked of."""
    checked: defaultdict[str, list[Record]] = defaultdict(list)
    forward: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        rows = {Property.DETERMINISM: checked, Property.FORWARD: forward}.get(record.property)
        if rows is not None:
            case = case_of(record.case)
            rows[case.mapping if case else OTHER].append(record)
    return tuple(_row(mapping, checked[mapping], forward[mapping]) for mapping in sorted(checked)[:MAPPINGS])


def _row(mapping: str, checked: Sequence[Record], forward: Sequence[Record]) -> Repeatability:
    graded = Counter(record.determinism for record in checked)
    fresh = Counter(str(record.measures.get("fresh_process")) for record in checked)
    batches = [gaps for record in checked if (gaps := _gaps(record)) is not None]
    flags = Counter(str(record.measures.get("flags")) for record in checked)
    return Repeatability(
        mapping=one_line(mapping, 60),
        counts={grade: graded[grade] for grade in Determinism if graded[grade]},
        ungraded=graded[None],
        fresh_same=fresh["same"],
        fresh_other=fresh["other"],
        batches=len(batches),
        batch_kernel=sum(kernel == 0 for kernel, _ in batches),
        batch_pytorch=sum(pytorch == 0 for _, pytorch in batches),
        batch_lost=sum(_lost(gaps) for gaps in batches),
        flags={word: flags[word] for word in ("hold", "vary", "raise") if flags[word]},
        cost=_cost(checked),
        match_bits=_middle(forward, "match_bits"),
        match_top1=_middle(forward, "match_top1"),
    )


def notable(records: Iterable[Record], limit: int = 20) -> Bounded[Record]:
    """The records that a reader should know of, the gravest first: not bitwise, not in a batch, not with the flags."""

    def weight(record: Record) -> tuple[bool, int, bool, bool]:
        grade = list(Determinism).index(record.determinism or Determinism.BITWISE)
        gaps = _gaps(record)
        return record.outcome in FAILING, grade, record.measures.get("flags") in ("vary", "raise"), _lost(gaps)

    found = [
        (weight(record), record)
        for record in records
        if record.property is Property.DETERMINISM and record.outcome is not Outcome.NOT_RUN
    ]
    ranked = sorted((pair for pair in found if any(pair[0])), key=lambda pair: pair[0], reverse=True)
    return Bounded.of([record for _, record in ranked], limit)


def _gaps(record: Record) -> tuple[float, float] | None:
    """Differences between a sequence alone and in its batch, of the kernel and of PyTorch."""
    kernel, pytorch = figure(record, "batch_kernel"), figure(record, "batch_pytorch")
    return None if kernel is None or pytorch is None else (kernel, pytorch)


def _lost(gaps: tuple[float, float] | None) -> bool:
    return gaps is not None and gaps[0] > 0 == gaps[1]


def _cost(records: Sequence[Record]) -> Cost | None:
    names = ("flags_cost", "flags_cost_low", "flags_cost_high")
    found = []
    for record in records:
        ratio, low, high = (figure(record, name) for name in names)
        if ratio is not None and low is not None and high is not None:
            found.append((ratio, low, high))
    return Cost(*sorted(found)[len(found) // 2], len(found)) if found else None


def _middle(records: Sequence[Record], name: str) -> float | None:
    found = [share for record in records if (share := figure(record, name)) is not None]
    return median(found) if found else None
