"""Writes a comparison of two runs down: what got worse first, then what changed in the stack, then the rest."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from reports.compare import Change, Comparison, Difference, Kind
from reports.record import Outcome, Record
from reports.style import MARKDOWN, TERMINAL, Style, more
from reports.verdict import speed_figures

__all__ = ["comparison_markdown", "comparison_text", "headline"]

LINES = 40
"""Lines of one section that are written; the rest is counted."""
NOTHING = "nothing"


def comparison_text(found: Comparison) -> str:
    """The comparison for the terminal."""
    return "\n\n".join([headline(found), *_sections(found, TERMINAL)]) + "\n"


def comparison_markdown(found: Comparison) -> str:
    """The comparison for the step summary of a CI."""
    return "\n\n".join([f"## {headline(found, MARKDOWN)}", *_sections(found, MARKDOWN)]) + "\n"


def headline(found: Comparison, style: Style = TERMINAL) -> str:
    """Whether anything is worse, and how much is different, in a line."""
    counts = Counter(change.kind for change in found.changes)
    parts = [f"{counts[kind]:,} {kind}" for kind in Kind if counts[kind]]
    for way, words in ((-1, "slower than before"), (1, "faster than before")):
        number = sum(change.way == way for change in found.speeds)
        parts += [f"{number:,} {words}"] if number else []
    nothing = "every check as before"
    if found.speeds_apart:
        nothing += ", speeds not held against each other"
    verdicts = " to ".join(
        f"{style.text(str(run.folder), 120)} ({verdict.overall})"
        for run, verdict in zip((found.before, found.after), found.verdicts, strict=True)
    )
    return f"{'WORSE' if found.worse else 'NOT WORSE'}, from {verdicts}: {', '.join(parts) or nothing}"


def _sections(found: Comparison, style: Style) -> list[str]:
    sections = [
        _differences("What the runs were made with", found.environment, style),
        *(_checks(kind, found.changes, style) for kind in (Kind.REGRESSED, Kind.LOST, Kind.WAIVED)),
        _speeds(found, style),
        _findings(found, style),
        _mapping(found, style),
        _differences("Kernels of which other revisions or bytes were loaded", found.kernels, style),
        *(_checks(kind, found.changes, style) for kind in (Kind.MENDED, Kind.OTHERWISE, Kind.UNPLANNED, Kind.GAINED)),
    ]
    return [section for section in sections if section]


def _listed(title: str, lines: Sequence[str], style: Style) -> str:
    if not lines:
        return ""
    heading = style.heading(f"{title} ({len(lines):,})")
    return "\n".join([heading, *lines[:LINES], *more(len(lines) - LINES, style)])


def _differences(title: str, found: Iterable[Difference], style: Style) -> str:
    return _listed(title, [_difference(each, style) for each in found], style)


def _difference(each: Difference, style: Style) -> str:
    before, after = (style.code(text, 200) if text else NOTHING for text in (each.before, each.after))
    return f"{style.bullet}{style.text(each.name, 120)}: {before} to {after}"


def _checks(kind: Kind, changes: Iterable[Change], style: Style) -> str:
    lines = []
    for change in (change for change in changes if change.kind is kind):
        record = change.record
        name = f"{record.case} {record.property}{f' {record.phase}' if record.phase else ''}"
        line = f"{style.bullet}{style.code(name, 160)}: {_answer(change.before)} to {_answer(change.after)}"
        if change.after is not None and change.after.message and change.after.outcome is not Outcome.PASS:
            line += f"{style.line_end}\n    {style.text(change.after.message, 240)}"
        lines.append(line)
    return _listed(kind.capitalize(), lines, style)


def _answer(record: Record | None) -> str:
    if record is None:
        return "no record"
    return " ".join(text.value for text in (record.outcome, record.reason, record.determinism) if text is not None)


def _speeds(found: Comparison, style: Style) -> str:
    title = style.heading("Speed")
    if found.speeds_apart:
        return f"{title}\n{style.bullet}not held against each other: {style.text(found.speeds_apart, 300)}"
    if found.speed_means is None:
        return f"{title}\n{style.bullet}no speed was measured in both runs"
    before, after, number = found.speed_means
    mean = f"{style.bullet}geometric mean over the {number:,} measured in both: before {before}, after {after}"
    if not found.speeds:
        return f"{title}\n{mean}; none moved"
    rows = [
        [
            style.cell(f"{change.after.case} {change.after.phase}", 120),
            _figures(change.before),
            _figures(change.after),
            "slower than before" if change.way < 0 else "faster than before",
        ]
        for change in found.speeds[:LINES]
    ]
    table = tabulate(rows, headers=["speedup of", "before", "after", ""], tablefmt=style.table, disable_numparse=True)
    return "\n".join([title, mean, "", table, *more(len(found.speeds) - LINES, style)])


def _figures(record: Record) -> str:
    return f"{speed_figures(record)} {record.speed}"


def _findings(found: Comparison, style: Style) -> str:
    lines = [
        f"{style.bullet}{style.text(each.id, 60)}: {each.before} to {each.after}. {style.text(each.reason, 200)}"
        for each in found.findings
    ]
    return _listed("Known faults of the stack (cases/FINDINGS.md)", lines, style)


def _mapping(found: Comparison, style: Style) -> str:
    if not found.audited:
        return f"{style.heading('Default mapping')}\n{style.bullet}unknown: a run without audit.json"
    lines = [_difference(each, style) for each in found.mapping]
    lines += [
        f"{style.bullet}{'new remark' if new else 'no longer true'}, {remark.kind}: "
        f"{style.text(f'{remark.name} {remark.device}'.strip(), 80)}: {style.text(remark.text, 200)}"
        for remark, new in found.remarks
    ]
    return _listed("Default mapping", lines, style) or f"{style.heading('Default mapping')}\n{style.bullet}as before"
