"""The table of a pin ladder: one row a revision, and in words what is not as it was at the one before. Every string is
cleaned here, so that pages and texts only lay it out.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from cases.axes import Phase, Property
from cases.ladder import rung_of
from reports.clean import one_line
from reports.evidence import case_of, kernels_of
from reports.ladder import Aspect, Change, Step, changes, offered, steps
from reports.record import Determinism, Outcome, Record
from reports.style import Style, more
from reports.verdict import severity, speed_figures
from reports.views import Bounded
from reports.words import DASH, TIMES

__all__ = ["COLUMNS", "Cell", "Row", "section", "table"]

COLUMNS = {
    "builds": "build variants that the revision offers",
    "forward": "parameters of the layer's forward, and what its class says of itself, by its source",
    "outcome": "the worst of its checks",
    "error": "largest error of outputs and gradients, as a multiple of PyTorch's own",
    "difference": "largest relative difference of a row of the output from that of the first revision that gave one; "
    "other bits means those of an output or a gradient",
    "speed": "time of PyTorch divided by time of the kernel: geometric mean over what was measured, with its interval",
    "repeats": "whether repeats of one call give the same bits",
    "digest": "of the files of the build that was loaded",
}
"""What each cell of a row holds."""

SAME = 0.02
"""Speeds this near are the same, as in every verdict of the suite."""
ROWS = 60
"""Revisions that are shown."""
LINES = 40
"""Changes that are listed under a table of text."""
SHOWN = 4
"""Builds that a cell lists before it counts the rest."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is known of one revision in one respect."""

    text: str
    change: str = ""
    """How that differs from the revision before, in words; empty where it does not."""


@dataclass(frozen=True, slots=True)
class Row:
    """One revision."""

    name: str
    """All its names."""
    commit: str
    worst: Outcome
    cells: Mapping[str, Cell]
    """By column."""
    found: tuple[str, ...]
    """Which commits changed what, where that was looked for."""

    @property
    def changed(self) -> str:
        """The columns that are not as at the revision before."""
        return ", ".join(column for column, cell in self.cells.items() if cell.change)


Speeds = dict[tuple[str, Phase | None], tuple[float, float]]
"""ln ratio and half width of its interval, by the check that measured it."""


def table(records: Sequence[Record], measured: Iterable[Record]) -> Bounded[Row]:
    """The rows in order, of too many the newest. ``measured`` are the speeds of the run that count."""
    found = steps(records)
    known = changes(found)
    speeds: dict[str, Speeds] = {step.name: {} for step in found}
    for record in measured:
        figures, name = speed_figures(record), rung_of(record.case)
        if figures is not None and name in speeds:
            ratio, low, high = map(math.log, figures)
            speeds[name][record.case.removesuffix(f"@{name}"), record.phase] = ratio, (high - low) / 2
    origin = next((step.name for step in found if _figures(step, "difference")), "")
    rows = []
    before: Step | None = None
    for step in found:
        rows.append(_row(step, before, origin, [change for change in known if change.after is step], speeds))
        before = step
    return Bounded(tuple(rows[-ROWS:]), max(0, len(rows) - ROWS))


def _row(step: Step, before: Step | None, origin: str, known: Sequence[Change], speeds: Mapping[str, Speeds]) -> Row:
    cells = {
        "builds": _builds(step, before),
        "forward": _compared(step, before, lambda of: offered(of.about.measures, Aspect.FORWARD) or DASH),
        "outcome": _compared(step, before, lambda of: _outcome(_worst(of))),
        "error": _compared(step, before, _error),
        "difference": _difference(step, before, origin, known),
        "speed": _speed(step, before, speeds),
        "repeats": _compared(step, before, _repeats),
        "digest": _digest(step, before),
    }
    measures = step.about.measures
    worst = _worst(step)
    return Row(
        name=one_line(str(measures.get("names") or step.name), 80),
        commit=one_line(str(measures.get("commit") or ""), 40),
        worst=worst.outcome if worst is not None else Outcome.UNKNOWN,
        cells=cells,
        found=tuple(_found(step, before, aspect) for aspect in Aspect if f"first_{aspect}" in measures),
    )


def _compared(step: Step, before: Step | None, text: Callable[[Step], str]) -> Cell:
    now = text(step)
    was = now if before is None else text(before)
    return Cell(one_line(now, 200), f"was {one_line(was, 200)}" if was != now else "")


def _builds(step: Step, before: Step | None) -> Cell:
    now, was = (
        [build for build in str(of.about.measures.get("builds") or "").split(", ") if build] if of else []
        for of in (step, before)
    )
    parts = []
    for word, builds in (("new", [b for b in now if b not in was]), ("gone", [b for b in was if b not in now])):
        if before is not None and builds:
            parts.append(f"{word}: {_listed(builds)}")
    return Cell(_listed(now) or "none", "; ".join(parts))


def _listed(builds: Sequence[str]) -> str:
    more = f" and {len(builds) - SHOWN} more" if len(builds) > SHOWN else ""
    return one_line(", ".join(builds[:SHOWN]), 200) + more


def _worst(step: Step) -> Record | None:
    """The worst of the checks that ran, else of those that did not."""
    every = step.checks.values()
    ran = [record for record in every if record.outcome not in (Outcome.NOT_RUN, Outcome.NOT_SUPPORTED)]
    return max(ran or every, key=lambda record: severity(record.outcome), default=None)


def _outcome(record: Record | None) -> str:
    return Outcome.UNKNOWN.value if record is None else f"{record.outcome} {record.reason or ''}".strip()


def _figures(step: Step, name: str, **given: str) -> list[float]:
    """A measure of the checks of a whole model, where it is a number, and other measures are as given."""
    kinds = (Property.FORWARD, Property.GRADIENT, Property.GENERATE)
    measures = [record.measures for (_, kind, _), record in step.checks.items() if kind in kinds]
    values = [each.get(name) for each in measures if all(each.get(key) == value for key, value in given.items())]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]


def _error(step: Step) -> str:
    found = _figures(step, "error_ratio")
    return f"{max(found):.3g}{TIMES}" if found else DASH


def _difference(step: Step, before: Step | None, origin: str, known: Sequence[Change]) -> Cell:
    # A resumed run has the outputs of the first revision no more, and begins with another one.
    found = _figures(step, "difference", first=origin)
    shown = next((change.check for change in known if change.aspect is Aspect.OUTPUT), None)
    # In training the bits of gradients count too, so they may be others where the output is the same.
    where = case_of(shown.case) if shown is not None else None
    said = f"other bits than {_name(before)}, as {where.model} {where.dtype} {where.mode} shows" if where else ""
    return Cell(f"{max(found):.2g}" if found else DASH, one_line(said, 200))


def _repeats(step: Step) -> str:
    grades = [record.determinism for record in step.checks.values() if record.determinism is not None]
    return max(grades, key=list(Determinism).index).value if grades else DASH


def _digest(step: Step, before: Step | None) -> Cell:
    now, was = (_digests(of) if of else frozenset() for of in (step, before))
    text = ", ".join(one_line(digest.removeprefix("sha256:"), 40)[:12] for digest in sorted(now)[:2])
    return Cell(text or DASH, f"another build than {_name(before)}" if now and was and now != was else "")


def _digests(step: Step) -> frozenset[str]:
    entries = (entry for record in step.checks.values() for entry in kernels_of(record.evidence))
    return frozenset(entry.digest for entry in entries if entry.digest and entry.name != "attention")


def _speed(step: Step, before: Step | None, speeds: Mapping[str, Speeds]) -> Cell:
    own = speeds[step.name]
    if not own:
        return Cell(DASH)
    mean, half = _mean(list(own.values()))
    low, high = math.exp(mean - half), math.exp(mean + half)
    text = f"{math.exp(mean):.3f}{TIMES} ({low:.3f} {DASH} {high:.3f}) of {len(own)}"
    other = {} if before is None else speeds[before.name]
    # PyTorch is the same on both, so that the ratio of their ratios is that of the kernels' times.
    common = [(own[key][0] - other[key][0], math.hypot(own[key][1], other[key][1])) for key in own if key in other]
    if not common:
        return Cell(text)
    change, half = _mean(common)
    if change - half > math.log1p(SAME):
        return Cell(text, f"faster than {_name(before)}, {math.exp(change):.3f}{TIMES}")
    if change + half < -math.log1p(SAME):
        return Cell(text, f"slower than {_name(before)}, {math.exp(change):.3f}{TIMES}")
    return Cell(text)


def _mean(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean of logarithms, and its half width: those of measurements made one after another add in quadrature."""
    return math.fsum(v for v, _ in values) / len(values), math.hypot(*(half for _, half in values)) / len(values)


def _name(step: Step | None) -> str:
    return one_line(step.name, 60) if step is not None else ""


def _found(step: Step, before: Step | None, aspect: Aspect) -> str:
    measures = step.about.measures
    span = f"between {_name(before)} and {_name(step)}"
    commit = measures[f"first_{aspect}"]
    if not commit:
        return f"{aspect}: not narrowed down {span}: {one_line(str(measures.get(f'first_{aspect}_seen')), 200)}"
    tried, of = (one_line(str(measures.get(f"first_{aspect}_{word}")), 20) for word in ("tried", "between"))
    seen = one_line(str(measures.get(f"first_{aspect}_seen")), 200)
    return f"{aspect} first differs at {one_line(str(commit), 40)[:10]} ({span}; {tried} of {of} commits tried): {seen}"


def section(records: Sequence[Record], measured: Iterable[Record], style: Style) -> str:
    """The table as text; empty where no ladder was climbed."""
    rows = table(records, measured)
    if not rows.items:
        return ""
    shown = ("outcome", "error", "difference", "speed", "repeats")
    cells = [
        [style.cell(row.name, 40), style.cell(row.commit[:10], 10)]
        + [style.text(row.cells[column].text, 60) for column in shown]
        + [style.text(row.changed, 80)]
        for row in rows.items
    ]
    headers = ["revision", "commit", *shown, "changed"]
    written = tabulate(cells, headers=headers, tablefmt=style.table, disable_numparse=True)
    lines = [
        f"{style.bullet}{style.text(sentence, 400)}"
        for row in rows.items
        for sentence in (*_told(row), *(f"{row.name}: {found}" for found in row.found))
    ]
    # The newest revisions are those that somebody decides about.
    cut = more(max(0, len(lines) - LINES), style) + lines[-LINES:]
    return "\n".join([style.heading("Pin ladder"), *_earlier(rows, style), written, "", *cut]).rstrip()


def _told(row: Row) -> Iterator[str]:
    """What changed in the columns that a table of text has no room for, or whose change has a cause to be told."""
    for column, cell in row.cells.items():
        if cell.change and cell.text != DASH and column not in ("digest", "error"):
            yield f"{row.name}: {column} {cell.text} ({cell.change})"


def _earlier(rows: Bounded[Row], style: Style) -> list[str]:
    return [f"{style.bullet}{rows.left_out:,} earlier revisions are in results.jsonl"] if rows.left_out else []
