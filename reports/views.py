"""The tables of a report as plain data: matrix, ledger, correctness. Pure functions; every table is
bounded and says how much it leaves out, and every string is cleaned, so that templates only lay out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from cases.axes import Property
from reports.clean import clean, one_line
from reports.evidence import PLAIN, Ledger, case_of
from reports.record import Engagement, Outcome, Reason, Record, figure
from reports.verdict import FAILING, count, severity, worst

__all__ = [
    "OTHER",
    "Accuracy",
    "Bounded",
    "Cell",
    "Failure",
    "LedgerLine",
    "Matrix",
    "accuracy",
    "failures",
    "ledger_lines",
    "matrix",
    "severest",
]

OTHER = "no model"
"""Row and column of checks that are about no model: statements, controls."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Bounded(Generic[Item]):
    """The first items of a list, and how many more there are."""

    items: tuple[Item, ...]
    left_out: int = 0

    @classmethod
    def of(cls, items: Sequence[Item], limit: int) -> "Bounded[Item]":
        """The first ``limit`` items."""
        return cls(tuple(items[:limit]), max(0, len(items) - limit))


def severest(records: Iterable[Record]) -> list[Record]:
    """The records, worst outcome first, else in their own order."""
    return sorted(records, key=lambda record: -severity(record.outcome))


@dataclass(frozen=True, slots=True)
class Failure:
    """Failing records that are alike: same outcome, property, reason and message but for its numbers."""

    example: Record
    number: int


_NUMBER = re.compile(r"\d[\d.,e+-]*")


def failures(records: Iterable[Record], limit: int) -> Bounded[Failure]:
    """The failing records in groups of alike ones, worst outcome and largest group first."""
    groups: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.outcome in FAILING:
            kind = (record.outcome, record.property, record.reason or "", _NUMBER.sub("#", record.message[:500]))
            groups[kind].append(record)
    found = [Failure(members[0], len(members)) for members in groups.values()]
    found.sort(key=lambda failure: (-severity(failure.example.outcome), -failure.number))
    return Bounded.of(found, limit)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a matrix."""

    row: str
    column: str
    outcome: Outcome
    """The worst of what applies; UNKNOWN if there is no record."""
    counts: dict[Outcome, int]
    """Of all records of the cell, worst first."""

    @property
    def total(self) -> int:
        """Records of the cell."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models against one other axis, the worst outcome in each cell."""

    axis: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    left_out: int
    """Records that are in no cell, since there are too many rows or columns."""


def matrix(records: Iterable[Record], axis: str, rows: int = 80, columns: int = 32) -> Matrix:
    """Model against ``mapping`` or ``attention``. Of too many of either, those with most records stay."""
    found: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        case = case_of(record.case)
        place = (case.model, str(getattr(case, axis))) if case else (OTHER, OTHER)
        found[place].append(record)
    row_sizes: Counter[str] = Counter()
    column_sizes: Counter[str] = Counter()
    for (row, column), inside in found.items():
        row_sizes[row] += len(inside)
        column_sizes[column] += len(inside)
    row_names = _kept(row_sizes, rows)
    column_names = _kept(column_sizes, columns)
    lines = tuple(
        (one_line(row, 60), tuple(_cell(row, column, found.get((row, column), [])) for column in column_names))
        for row in row_names
    )
    inside_cells = sum(cell.total for _, cells in lines for cell in cells)
    total = sum(row_sizes.values())
    return Matrix(axis, tuple(one_line(name, 60) for name in column_names), lines, total - inside_cells)


def _kept(sizes: Counter[str], limit: int) -> list[str]:
    names = sorted(name for name, _ in sizes.most_common(limit))
    if OTHER in names:
        names.remove(OTHER)
        names.append(OTHER)
    return names


def _cell(row: str, column: str, records: Sequence[Record]) -> Cell:
    # A property that does not exist for a case (gradients in inference) says nothing of the cell, unless all are such.
    applicable = [r.outcome for r in records if r.reason not in (Reason.NOT_APPLICABLE, Reason.NOT_REGISTERED)]
    counts = count(record.outcome for record in records)
    return Cell(clean(row), clean(column), worst(applicable or list(counts)), counts)


IDLE = frozenset({Reason.NOT_APPLICABLE, Reason.NOT_REGISTERED, Reason.SHADOWED})
"""Reasons that lie in the model: it has no such name, calls it in no pass of the mode, or a larger kernel does it."""


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """What became of one registered name under one promise, over all cases where it went the same way."""

    name: str
    promised: str
    resolved: str
    """Repository, revision and layer that were loaded; empty when PyTorch ran."""
    variant: str
    cases: int
    modules: int
    bound: int
    calls: int
    reason: Reason | None
    signature: str
    """State of the signature of what was loaded."""
    detail: str
    """What the library said, of the first case that has something."""
    example: str
    """A case where it went this way."""

    @property
    def state(self) -> str:
        """``engaged``, ``partly``, ``fallback``, ``idle`` with nothing to do, ``pytorch`` where asked for."""
        if self.promised == PLAIN:
            return "pytorch"
        if self.reason in IDLE:
            return "idle"
        if self.calls and self.bound >= self.modules and self.reason is None:
            return "engaged"
        return "partly" if self.calls else "fallback"


_VARIANT = re.compile(r"^(.*?)\s*\(([^()]*)\)$", re.DOTALL)
_STATES = {"fallback": 0, "partly": 1, "engaged": 2, "idle": 3, "pytorch": 4}


def ledger_lines(ledger: Ledger, limit: int = 60) -> Bounded[LedgerLine]:
    """The engagement ledger of a run, fallbacks first."""
    groups: defaultdict[tuple[str, str, str | None, Reason | None], list[tuple[str, Engagement]]] = defaultdict(list)
    for case, entries in ledger.cases().items():
        for entry in entries:
            groups[entry.name, entry.promised, entry.resolved, entry.reason].append((case, entry))
    lines: list[LedgerLine] = []
    for (name, promised, resolved, reason), members in groups.items():
        match = _VARIANT.match(resolved or "")
        lines.append(
            LedgerLine(
                name=one_line(name, 80),
                promised=one_line(promised, 160),
                resolved=one_line(match[1] if match else resolved or "", 160),
                variant=one_line(match[2], 80) if match else "",
                cases=len({case for case, _ in members}),
                modules=sum(entry.modules for _, entry in members),
                bound=sum(entry.bound for _, entry in members),
                calls=sum(entry.calls for _, entry in members),
                reason=reason,
                signature=one_line(next((entry.signature for _, entry in members if entry.signature), ""), 200),
                detail=one_line(next((entry.detail for _, entry in members if entry.detail), ""), 400),
                example=clean(members[0][0]),
            )
        )
    lines.sort(key=lambda line: (_STATES[line.state], line.name, line.promised))
    return Bounded.of(lines, limit)


BINS = 12
"""Bars of the histogram: ten tenths of the limit, up to twice the limit, and beyond."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How near the errors of one property come to their limits."""

    property: Property
    bars: tuple[int, ...]
    """Records by error / limit: ten bars of a tenth, one up to 2, one beyond."""
    measured: int
    without: int
    """Records of the property that ran and hold no figure."""
    median: float
    """Median of error / limit."""
    largest: float


def accuracy(records: Iterable[Record], limit: int = 15) -> tuple[tuple[Accuracy, ...], Bounded[tuple[float, Record]]]:
    """The distribution of error / limit for each property that has it, and the records with the largest."""
    shares: defaultdict[Property, list[float]] = defaultdict(list)
    without: Counter[Property] = Counter()
    ranked: list[tuple[float, Record]] = []
    for record in records:
        share = _share_of_limit(record)
        if share is not None:
            shares[record.property].append(share)
            ranked.append((share, record))
        elif record.outcome in (Outcome.PASS, Outcome.FAIL, Outcome.WAIVED):
            without[record.property] += 1
    ranked.sort(key=lambda pair: -pair[0])
    found = tuple(
        Accuracy(kind, _bars(shares[kind]), len(shares[kind]), without[kind], median(shares[kind]), max(shares[kind]))
        for kind in Property
        if shares[kind]
    )
    return found, Bounded.of(ranked, limit)


def _share_of_limit(record: Record) -> float | None:
    error, limit = figure(record, "error_ratio"), figure(record, "limit")
    if error is None or limit is None:
        return None
    return error / limit if limit > 0 and error >= 0 else None


def _bars(shares: Iterable[float]) -> tuple[int, ...]:
    bars = [0] * BINS
    for share in shares:
        # A share of exactly 1 is within the limit and belongs to the tenth bar.
        bars[min(9, int(share * 10)) if share <= 1 else 10 if share <= 2 else 11] += 1
    return tuple(bars)
