"""The run in a screenful: plain text for the terminal, and Markdown for the step summary of a CI. Both have a bounded
length, whatever the run holds, and the full record stays in ``results.jsonl``.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tabulate import tabulate

from cases.axes import Property
from cases.statements import PREFIX
from reports import break_even, chart, hub_away, ladder_table, qualification, views
from reports.clean import markdown, one_line
from reports.controls import without_controls
from reports.evidence import Ledger
from reports.never_slower import recommend
from reports.record import Outcome, Record
from reports.store import Run
from reports.style import MARKDOWN, TERMINAL, Style, more
from reports.verdict import FAILING, Verdict, severity
from reports.waivers import Waiver, judge_run, usage_of
from reports.words import REASONS, TIMES

__all__ = ["markdown_summary", "text_summary"]

FAILURES = 10
"""Kinds of failure that are listed."""
STATEMENTS = 200
"""Failing statements that are named."""
EXTREMES = 3
"""Speedups listed at either end."""
MAPS = 6
"""Break-even maps that have a line."""
WARNINGS = 5
"""Warnings of one kind that are listed."""
COMMAND = 400
"""Characters of a command that are shown: a command that was cut cannot be run, so this is generous."""


def text_summary(run: Run) -> str:
    """The summary for the terminal."""
    verdict = judge_run(run)
    return "\n\n".join([_first_line(run, verdict), *_sections(run, verdict, TERMINAL)]) + "\n"


def markdown_summary(run: Run) -> str:
    """The summary as Markdown, the text of ``report.md``."""
    verdict = judge_run(run)
    # The name of the device is in the line, and may hold signs that would be read as markup.
    title = f"## {markdown(_first_line(run, verdict), 600)}"
    return "\n\n".join([title, *_sections(run, verdict, MARKDOWN)]) + "\n"


def _first_line(run: Run, verdict: Verdict) -> str:
    where = one_line(run.environment.device_name, 60) if run.environment else "an unknown device"
    of = f" of {verdict.planned:,} planned" if verdict.planned is not None else ""
    speed = verdict.speedups
    faster = f", geometric mean speedup {speed.mean} of {len(speed.measured):,} measured" if speed.mean else ""
    return (
        f"{verdict.overall} on {where}: {verdict.recorded:,}{of} checks recorded, "
        f"{verdict.passes.total:,} pass ({verdict.passes.proved:,} proved by counted kernel calls){faster}"
    )


def _sections(run: Run, verdict: Verdict, style: Style) -> list[str]:
    machine = [style.text(each, 500) for each in (*hub_away.sentences(run), *verdict.controls.sentences)]
    parts = [
        "\n".join(
            f"{style.bullet}{cause}" for cause in (*verdict.causes, *qualification.sentences(run.records), *machine)
        ),
        _outcome_table(run.records, style),
        _waivers(run, style),
        _warnings(run, verdict, style),
        _failures(run, style),
        _statements(run, style),
        _fallbacks(run, style),
        _speeds(run, verdict, style),
        ladder_table.section(run.records, verdict.speedups.measured, style),
    ]
    return [part for part in parts if part]


def _outcome_table(records: Sequence[Record], style: Style) -> str:
    counts: defaultdict[Property, Counter[Outcome]] = defaultdict(Counter)
    for record in without_controls(records):
        counts[record.property][record.outcome] += 1
    present = sorted({outcome for found in counts.values() for outcome in found}, key=severity)
    rows = [[kind.value, *(counts[kind][outcome] or "" for outcome in present)] for kind in Property if kind in counts]
    if not rows:
        return ""
    if len(rows) > 1:
        rows.append(["all", *(sum(counts[kind][outcome] for kind in counts) for outcome in present)])
    headers = ["property", *(style.text(outcome.value, 40) for outcome in present)]
    align = ("left", *("right" for _ in present))
    return tabulate(rows, headers=headers, tablefmt=style.table, colalign=align)


def _waivers(run: Run, style: Style) -> str:
    """What became of the waivers: those that hide a failure, and those that somebody has to look at."""
    found = usage_of(run)

    def names(waivers: Sequence[Waiver]) -> str:
        return ", ".join(style.text(f"{waiver.id} ({waiver.check})", 160) for waiver in waivers)

    used = ", ".join(style.text(waiver.id, 60) for waiver, _ in found.used)
    lines = [
        (len(found.used), "in use: known faults, described in cases/FINDINGS.md", used),
        (len(found.healed), "healed: the check passes, remove them", names(found.healed)),
        (len(found.unmatched), "unmatched: no check has such an id", names(found.unmatched)),
        (len(found.expired), "expired: look again", names(found.expired)),
        (len(found.elsewhere), "for other versions or devices", ", ".join(w.id for w in found.elsewhere)),
    ]
    said = [f"{style.bullet}{number:,} {what}: {which}" for number, what, which in lines if number]
    return "\n".join([style.heading("Waivers"), *said]) if said else ""


def _warnings(run: Run, verdict: Verdict, style: Style) -> str:
    lines = []
    if run.broken_count:
        lines.append(
            style.heading(
                f"Warning, {run.broken_count:,} unreadable line{'s' * (run.broken_count > 1)} in results.jsonl"
            )
        )
        lines += [
            f"{style.bullet}line {line.number}: {style.text(line.problem, 160)}" for line in run.broken[:WARNINGS]
        ]
        lines += more(run.broken_count - min(WARNINGS, len(run.broken)), style)
    if verdict.violations:
        lines.append(style.heading(f"{len(verdict.violations):,} passes without proof"))
        lines += [
            f"{style.bullet}{_check(found.record, style)}: {style.text(found.problem, 160)}"
            for found in verdict.violations[:WARNINGS]
        ]
        lines += more(len(verdict.violations) - WARNINGS, style)
    return "\n".join(lines)


def _failures(run: Run, style: Style) -> str:
    found = views.failures(run.records, FAILURES)
    if not found.items:
        return ""
    lines = [style.heading("Failures")]
    for failure in found.items:
        record = failure.example
        alike = f" and {failure.number - 1:,} more alike" if failure.number > 1 else ""
        reason = f" {style.text(record.reason.value, 40)}" if record.reason else ""
        said = record.message or (REASONS[record.reason] if record.reason else "")
        parts = [f"{style.bullet}{style.text(record.outcome.value, 40)}{reason}  {_check(record, style)}{alike}"]
        if said:
            parts.append(f"    {style.text(said, 300)}")
        if record.repro:
            parts.append(f"    {style.code(record.repro, COMMAND)}")
        lines.append(f"{style.line_end}\n".join(parts))
    lines += more(found.left_out, style)
    return "\n".join(lines)


def _statements(run: Run, style: Style) -> str:
    """Every statement that fails, by name: the list of failures above is cut, and these are few."""
    failing = [r for r in run.records if r.property is Property.STATEMENT and r.outcome in FAILING]
    if len(failing) <= FAILURES:
        return ""
    names = ", ".join(style.text(record.case.removeprefix(PREFIX), 60) for record in failing[:STATEMENTS])
    left = more(len(failing) - STATEMENTS, style)
    return "\n".join(
        [style.heading(f"{len(failing):,} documented statements that fail"), f"{style.bullet}{names}", *left]
    )


def _fallbacks(run: Run, style: Style) -> str:
    """Registered names where PyTorch ran though a kernel was promised or known."""
    found = [line for line in views.ledger_lines(Ledger(run.records)).items if line.state in ("fallback", "partly")]
    if not found:
        return ""
    rows = [
        [
            style.text(line.name, 40),
            style.cell(line.promised, 70),
            style.text(line.reason.value if line.reason else "", 40),
            f"{line.bound:,} / {line.modules:,}",
            line.calls,
            line.cases,
        ]
        for line in found[:FAILURES]
    ]
    headers = ["PyTorch ran for", "asked for", "reason", "bound", "calls", "cases"]
    table = tabulate(rows, headers=headers, tablefmt=style.table, disable_numparse=True)
    return "\n".join([table, *more(len(found) - FAILURES, style)])


def _speeds(run: Run, verdict: Verdict, style: Style) -> str:
    ledger = Ledger(run.records)
    best = recommend(verdict, ledger)
    rows = chart.speed_rows(verdict.speedups.measured)
    parts = []
    if rows:
        ends = rows if len(rows) <= 2 * EXTREMES else [*rows[:EXTREMES], *rows[-EXTREMES:]]
        cells = [
            [
                style.cell(f"{row.case} {row.phase}", 120),
                f"{row.ratio.value:.3f}{TIMES}",
                row.ratio.interval,
                row.verdict,
            ]
            for row in ends
        ]
        headers = [
            "fastest and slowest" if len(ends) < len(rows) else "speedup of",
            "ratio",
            "95 % interval",
            "verdict",
        ]
        parts.append(tabulate(cells, headers=headers, tablefmt=style.table, disable_numparse=True))
        unmet = [
            f"{style.bullet}{style.cell(f'{row.case} {row.phase}', 120)} is INCONCLUSIVE: {style.text(row.unmet, 300)}"
            for row in ends
            if row.unmet
        ]
        parts += ["\n".join(unmet)] if unmet else []
    if verdict.speedups.excluded:
        causes = ", ".join(f"{number:,} {style.text(cause, 40)}" for cause, number in verdict.speedups.excluded.items())
        parts.append(f"No speedup counted: {causes}.")
    mapped = views.Bounded.of(break_even.maps(run.records, ledger), MAPS)
    if mapped.items:
        lines = [
            f"{style.bullet}{style.text(f'{each.kernel}, {each.label}: {each.sentence}', 400)}" for each in mapped.items
        ]
        parts.append("\n".join([style.heading("Break-even"), *lines, *more(mapped.left_out, style)]))
    if best.choices:
        parts.append(style.text(f"{best.headline} {best.regret}", 600))
    return "\n\n".join(parts)


def _check(record: Record, style: Style) -> str:
    phase = f" {record.phase}" if record.phase else ""
    return style.code(f"{record.case} {record.property}{phase}", 160)
