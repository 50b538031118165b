"""Renders a run as one self-contained HTML file: styles, scripts, chart library and data are inside, and a content
security policy forbids the page to load anything. What matters is in the HTML itself, so that it reads without scripts;
the script adds filtering, paging and the chart.
"""

import base64
import hashlib
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from cases.axes import Device
from reports import (
    audit_view,
    break_even,
    chart,
    determinism,
    heat_chart,
    hub_away,
    ladder_table,
    qualification,
    requirements,
    views,
)
from reports.audit import read_audit
from reports.clean import clean, one_line
from reports.controls import without_controls
from reports.evidence import Ledger, case_of
from reports.kernel_config import kernel_config
from reports.never_slower import recommend
from reports.once import paid_once
from reports.payload import pack, payload
from reports.record import Determinism, Outcome, Record
from reports.store import Run, RunError
from reports.verdict import FAILING, Overall, severity, speed_figures, worst
from reports.waivers import judge_run, usage_of
from reports.words import DASH, DETERMINISM, OUTCOMES, REASONS, SPEEDS, TIMES

__all__ = ["render_html"]

HERE = Path(__file__).parent
VENDOR = HERE / "static" / "vendor"
CHART_LIBRARY = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")

FIRST_ROWS = 50
"""Rows of the case table that are in the HTML itself, the worst first."""
MAPS = 24
"""Break-even maps that are drawn."""
CHOICES = 60
"""Kernels listed in the best configuration."""
FAILURES = 12
"""Kinds of failure listed under the verdict."""

SIGNS = {
    Outcome.PASS: "✓",
    Outcome.NOT_SUPPORTED: "⊘",
    Outcome.WAIVED: "◐",
    Outcome.NOT_RUN: DASH,
    Outcome.FALLBACK: "↩",
    Outcome.RESOURCE: "▣",
    Outcome.HARNESS_ERROR: "!",
    Outcome.TIMEOUT: "◷",
    Outcome.CRASH: "✹",
    Outcome.FAIL: "✗",
    Outcome.UNKNOWN: "?",
}
"""A sign for each outcome, so that nothing is told by colour alone."""

HEADLINES = {
    Overall.PASS: "Nothing failed, and every pass on a kernel case is proved.",
    Overall.FAIL: "Something failed, or a pass is not proved.",
    Overall.INCOMPLETE: "Nothing failed so far, but part of the plan has no answer.",
    Overall.UNKNOWN: "Nothing was verified. Not tested is never green.",
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script that is inlined, with the digest by which the policy admits it and nothing else."""

    text: Markup
    digest: str

    @classmethod
    def of(cls, text: str) -> "Script":
        """Prepare a trusted script, one of the files in ``static``."""
        if "</script" in text.lower() or "<!--" in text:
            raise ValueError("a script that holds </script or <!-- cannot be inlined")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
        return cls(Markup(text), f"'sha256-{digest}'")


def render_html(run: Run) -> str:
    """The report of a run as one HTML document."""
    verdict = judge_run(run)
    ledger = Ledger(run.records)
    best = recommend(verdict, ledger)
    ordered = views.severest(run.records)
    rows = chart.speed_rows(verdict.speedups.measured)
    shown = chart.both_ends(rows)
    specification = chart.specification(shown, verdict.controls.least_effect) if shown else None
    accuracies, largest_errors = views.accuracy(run.records)
    drawn = views.Bounded.of(break_even.maps(run.records, ledger), MAPS)
    kernel_maps = break_even.of_kernel(drawn.items)
    charts = {"chart": specification} if specification else {}
    charts |= {f"heat-{number}": heat_chart.specification(maps) for number, maps in enumerate(kernel_maps.values(), 1)}
    scripts = [*(_chart_scripts() if charts else ()), _page_script()]
    return (
        _templates()
        .get_template("report.html")
        .render(
            run=run,
            environment=run.environment,
            verdict=verdict,
            headline=HEADLINES[verdict.overall],
            qualified=(*hub_away.sentences(run), *qualification.sentences(run.records)),
            failures=views.failures(run.records, FAILURES),
            ladder=ladder_table.table(run.records, verdict.speedups.measured),
            **_statements(run),
            matrices=[views.matrix(without_controls(run.records), axis) for axis in ("mapping", "attention")],
            ledger=views.ledger_lines(ledger),
            **_audit(run, ledger),
            accuracies=accuracies,
            largest_errors=largest_errors,
            paid_once=paid_once(run.records),
            repeatability=determinism.repeatability(run.records),
            unrepeatable=determinism.notable(run.records),
            speed_rows=shown,
            speed_groups=chart.speed_groups(rows),
            speed_total=len(rows),
            speed_shown=len(shown),
            kernel_maps=kernel_maps,
            maps_left_out=drawn.left_out,
            best=best,
            best_choices=views.Bounded.of(best.choices, CHOICES),
            best_file=kernel_config(run, best),
            first=ordered[:FIRST_ROWS],
            lock=_lock_text(run.lock),
            style=Markup((HERE / "static" / "report.css").read_text(encoding="utf-8")),
            scripts=scripts,
            licences=Markup((VENDOR / "LICENSES.txt").read_text(encoding="utf-8")) if charts else None,
            policy=_policy(scripts),
            data=pack(payload(ordered, charts)),
            cases=len({record.case for record in run.records if case_of(record.case)}),
        )
    )


def _statements(run: Run) -> dict[str, object]:
    """What the section on documented statements and waivers needs."""
    rows = requirements.rows(run.records)
    used = usage_of(run)
    groups = (
        ("expired: look again", used.expired, True),
        ("healed: the check passes, remove them", used.healed, True),
        ("unmatched: no check has such an id", used.unmatched, True),
        ("in use", tuple(waiver for waiver, _ in used.used), False),
    )
    return {
        "statements": sorted(rows, key=lambda row: -severity(row.outcome)),
        "statement_totals": requirements.totals(rows),
        "statement_problems": any(row.outcome in FAILING for row in rows),
        "waivers": [group for group in groups if group[1]],
    }


def _audit(run: Run, ledger: Ledger) -> dict[str, object]:
    """What the section on the default mapping needs; a file that cannot be read is told, and the rest is shown."""
    problem = ""
    try:
        audit = read_audit(run.folder)
    except RunError as error:
        audit, problem = None, one_line(str(error), 400)
    shown = audit and audit_view.view(audit, ledger, run.environment.device if run.environment else "")
    return {"audit": shown, "audit_problem": problem, "DEVICES": list(Device)}


def _policy(scripts: list[Script]) -> str:
    admitted = " ".join(script.digest for script in scripts)
    return (
        f"default-src 'none'; script-src {admitted}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _lock_text(lock: Any) -> str:
    if lock is None:
        return ""
    return clean(msgspec.json.format(msgspec.json.encode(lock), indent=2).decode("utf-8", "replace"), 20_000)


@lru_cache(maxsize=1)
def _page_script() -> Script:
    return Script.of((HERE / "static" / "report.js").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _chart_scripts() -> tuple[Script, ...]:
    found = []
    for name in CHART_LIBRARY:
        lines = (VENDOR / name).read_text(encoding="utf-8").splitlines()
        # A source map would be fetched by developer tools.
        found.append(Script.of("\n".join(line for line in lines if not line.startswith("//# sourceMappingURL="))))
    return tuple(found)


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clean=clean, one_line=one_line, short_commit=_short_commit, figure=_figure, bytes=_bytes, base64=_base64
    )
    environment.globals.update(
        SIGNS=SIGNS,
        OUTCOMES=OUTCOMES,
        REASONS=REASONS,
        DETERMINISM=DETERMINISM,
        SPEEDS=SPEEDS,
        GRADES=list(Determinism),
        worst=worst,
        LADDER=ladder_table.COLUMNS,
        key_figure=key_figure,
    )
    return environment


def key_figure(record: Record) -> str:
    """The one figure that says most about a record: speedup, error against limit, or grade."""
    figures = record.measures
    if record.speed is not None:
        speedup = speed_figures(record)
        return f"{speedup} {record.speed}" if speedup else record.speed.value
    if record.determinism is not None:
        return record.determinism.value
    error, limit = figures.get("error_ratio"), figures.get("limit")
    if isinstance(error, int | float):
        return f"{_figure(error)} of {_figure(limit)}" if isinstance(limit, int | float) else _figure(error)
    ratio = figures.get("ratio")
    return f"{_figure(ratio)}{TIMES}" if isinstance(ratio, int | float) else ""


def _short_commit(text: str) -> str:
    """A text whose commits are cut to twelve digits, which are enough to find them."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", text)


def _figure(value: object) -> str:
    """A number with three significant digits; as it is if it is whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return one_line(str(value), 80)
    if not math.isfinite(value):
        return str(value)
    return f"{int(value):,}" if abs(value) < 10**9 and value == int(value) else f"{float(value):.3g}"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _bytes(value: int) -> str:
    """A size in GiB."""
    return f"{value / 2**30:,.1f} GiB" if value else "unknown"
