"""From which shape on a kernel wins, and how many calls pay back what it cost to load. Pure functions from records, and
from the cells that ``suite.breakeven`` measures, to maps and sentences.

A map belongs to one case: one model, so one width, in batches of several sizes. The maps of one kernel in models of
several widths stand side by side.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from cases.axes import Property
from reports.clean import one_line
from reports.evidence import PLAIN, Ledger, case_of
from reports.ratio import Ratio
from reports.record import Measure, Outcome, Record, Speed, figure
from reports.verdict import ratio_of
from reports.words import TIMES

__all__ = ["Cell", "Map", "Payback", "first_win", "heat_map", "maps", "measures_of", "of_kernel", "payback"]

MOST_CELLS = 64
"""Cells of a map that are read."""
SIGNS = {Speed.FASTER: "+", Speed.SAME: "=", Speed.SLOWER: "-", Speed.INCONCLUSIVE: "?"}
"""The verdicts that a cell can have, and a sign for each."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape. Times are seconds a call."""

    rows: int
    tokens: int
    """Tokens of each row."""
    ratio: Ratio
    verdict: Speed
    unmet: str
    """What an INCONCLUSIVE one lacks; else empty."""
    pytorch_seconds: float
    kernel_seconds: float

    @property
    def shape(self) -> str:
        """``4 × 16``: rows and tokens."""
        return f"{self.rows} {TIMES} {self.tokens}"


@dataclass(frozen=True, slots=True)
class Payback:
    """Calls of one shape after which a cost is paid back; the ends follow from those of the shape's ratio."""

    calls: int
    low: int
    high: int

    def __str__(self) -> str:
        """``52 (40 to 71)``."""
        return f"{self.calls:,} ({self.low:,} to {self.high:,})"


def first_win(cells: Sequence[Cell]) -> Cell | None:
    """The smallest shape, by its number of tokens, from which on no shape is slower and this one is faster."""
    ordered = sorted(cells, key=lambda cell: (cell.rows * cell.tokens, cell.rows))
    for place, cell in enumerate(ordered):
        if cell.verdict is Speed.FASTER and all(later.verdict is not Speed.SLOWER for later in ordered[place:]):
            return cell
    return None


def payback(cell: Cell, cost: float) -> Payback | None:
    """Calls after which ``cost`` seconds are paid back; None where a call saves nothing for certain."""
    if cell.verdict is not Speed.FASTER or not cell.ratio.low > 1:
        return None

    def calls(ratio: float) -> int:
        return math.ceil(cost / (cell.pytorch_seconds * (1 - 1 / ratio)))

    return Payback(calls(cell.ratio.value), calls(cell.ratio.high), calls(cell.ratio.low))


@dataclass(frozen=True, slots=True)
class Map:
    """The map of one case."""

    case: str
    kernel: str
    """The mapping, or the attention kernel where there are no others."""
    width: int
    """Hidden size of the model."""
    cells: tuple[Cell, ...]
    """By number of tokens."""
    cost: float
    """Seconds that the download of its kernels took, loading, and the first pass."""
    left_out: str
    """Which shapes were not measured, and why."""

    @property
    def label(self) -> str:
        """What tells it from the other maps of its kernel."""
        case = case_of(self.case)
        parts = [f"width {self.width:,}", *([case.dtype.value, case.model, case.attention] if case else [])]
        return one_line(" · ".join(parts), 90)

    @property
    def sentence(self) -> str:
        """Where it starts to win, and when it has paid for itself."""
        win = first_win(self.cells)
        if win is None:
            return f"wins at none of the {len(self.cells)} shapes for certain"
        paid = payback(win, self.cost)
        rest = f"; {paid} such calls pay back the {self.cost:.2g} s of download, load and first pass" if paid else ""
        return f"starts to win at {win.shape} tokens, with {win.ratio}{rest}"


def measures_of(width: int, cells: Sequence[Cell], cost: float, left_out: str) -> dict[str, Measure]:
    """A map as measures of a record: lists with a number for each shape, verdicts apart by blanks, unmet conditions by
    line ends, and what follows from them. ``first_win`` is rows and tokens: ``4x16``."""
    win = first_win(cells)
    paid = payback(win, cost) if win else None
    return {
        "width": width,
        "rows": [float(cell.rows) for cell in cells],
        "tokens": [float(cell.tokens) for cell in cells],
        "ratios": [cell.ratio.value for cell in cells],
        "lows": [cell.ratio.low for cell in cells],
        # JSON has no infinity.
        "highs": [min(cell.ratio.high, 1e9) for cell in cells],
        "verdicts": " ".join(cell.verdict for cell in cells),
        "unmet": "\n".join(cell.unmet for cell in cells),
        "pytorch_seconds": [cell.pytorch_seconds for cell in cells],
        "kernel_seconds": [cell.kernel_seconds for cell in cells],
        "first_win": f"{win.rows}x{win.tokens}" if win else None,
        "cost_seconds": cost,
        "payback_calls": paid.calls if paid else None,
        "payback_low": paid.low if paid else None,
        "payback_high": paid.high if paid else None,
        "left_out": left_out,
    }


def maps(records: Sequence[Record], ledger: Ledger) -> list[Map]:
    """The maps among the records. A kernel that was not called, or failed at anything before, has none."""
    found = []
    downloads = _downloads(records)
    for record in records:
        if record.property is not Property.BREAK_EVEN or record.outcome not in (Outcome.PASS, Outcome.WAIVED):
            continue
        case, cells = case_of(record.case), _cells(record)
        if case is None or not cells or not ledger.asks(record.case) or not ledger.proved(record):
            continue
        kernel = f"attention {case.attention}" if case.mapping == PLAIN else case.mapping
        width, cost = record.measures.get("width"), figure(record, "cost_seconds") or 0.0
        # The check of a repository comes first, so that loading finds it in the cache.
        used = {_repository(entry.promised) for entry in ledger.entries(record) if entry.calls}
        cost += math.fsum(downloads.get(repository, 0.0) for repository in used)
        found.append(
            Map(
                case=one_line(record.case, 200),
                kernel=one_line(kernel, 60),
                width=width if isinstance(width, int) else 0,
                cells=cells,
                cost=cost if 0 <= cost < 1e6 else 0.0,
                left_out=one_line(str(record.measures.get("left_out") or ""), 300),
            )
        )
    return sorted(found, key=lambda each: (each.kernel, each.width, each.case))


def _downloads(records: Iterable[Record]) -> dict[str, float]:
    """Seconds that the download of each repository took in the checks of repositories."""
    found: defaultdict[str, float] = defaultdict(float)
    for record in records:
        if record.property is Property.REPOSITORY:
            found[_repository(str(record.measures.get("promised")))] += figure(record, "download_seconds") or 0.0
    return found


def _repository(promised: str) -> str:
    """``org/repo@v1`` of ``org/repo@v1:Layer``."""
    return promised.rpartition(":")[0] or promised


def of_kernel(found: Iterable[Map]) -> dict[str, list[Map]]:
    """The maps by kernel."""
    groups: defaultdict[str, list[Map]] = defaultdict(list)
    for each in found:
        groups[each.kernel].append(each)
    return dict(groups)


def _cells(record: Record) -> tuple[Cell, ...]:
    """The cells of a record, which may hold anything; what is no cell is left out."""
    names = ("rows", "tokens", "ratios", "lows", "highs", "pytorch_seconds", "kernel_seconds")
    columns = [column for name in names if isinstance(column := record.measures.get(name), list)]
    if len(columns) < len(names):
        return ()
    verdicts = str(record.measures.get("verdicts") or "").split()
    unmet = str(record.measures.get("unmet") or "").split("\n")
    found: list[Cell] = []
    for number, (line, verdict) in enumerate(zip(zip(*columns, strict=False), verdicts, strict=False)):
        rows, tokens, value, low, high, pytorch, kernel = line
        ratio = ratio_of(value, low, high)
        sound = ratio and verdict in SIGNS and all(0 < number < 1e9 for number in (rows, tokens, pytorch, kernel))
        if ratio and sound and len(found) < MOST_CELLS:
            why = one_line(unmet[number], 300) if number < len(unmet) and verdict == Speed.INCONCLUSIVE else ""
            found.append(Cell(int(rows), int(tokens), ratio, Speed(verdict), why, pytorch, kernel))
    return tuple(sorted(found, key=lambda cell: (cell.rows * cell.tokens, cell.rows)))


def heat_map(cells: Sequence[Cell]) -> str:
    """The ratios as a table for a terminal, batches downwards and lengths to the right, with a sign for the verdict."""
    lengths = sorted({cell.tokens for cell in cells})
    found = {(cell.rows, cell.tokens): f"{cell.ratio} {SIGNS[cell.verdict]}" for cell in cells}
    rows = [[rows, *(found.get((rows, tokens), "") for tokens in lengths)] for rows in sorted({c.rows for c in cells})]
    table = tabulate(rows, headers=["rows", *(f"{tokens} tokens" for tokens in lengths)], disable_numparse=True)
    unmet = [f"{cell.shape} is INCONCLUSIVE: {cell.unmet}" for cell in cells if cell.unmet]
    return "\n".join([table, "", ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items()), *unmet])
