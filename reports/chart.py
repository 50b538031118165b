"""The chart of speedups, as a Vega-Lite specification written with Altair: a point and its interval per measurement on
a logarithmic axis with a line at 1. It draws at most ``SHOWN`` measurements: of more, the fastest and the slowest.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair

from reports.clean import one_line
from reports.evidence import case_of, real_widths
from reports.ratio import Ratio, geometric_mean
from reports.record import Record, Speed
from reports.verdict import speed_figures
from reports.words import TIMES

__all__ = ["SHOWN", "SpeedGroup", "SpeedRow", "both_ends", "specification", "speed_groups", "speed_rows"]

SHOWN = 60
"""Measurements that fit a chart whose labels can still be read."""

COLOURS = {Speed.FASTER: "#1a9850", Speed.SAME: "#4a7fb5", Speed.SLOWER: "#d6552b", Speed.INCONCLUSIVE: "#8a8f98"}
"""Readable on white and on black. Shapes say the same, for readers who do not tell the colours apart."""
SHAPES = {
    Speed.FASTER: "triangle-right",
    Speed.SAME: "circle",
    Speed.SLOWER: "triangle-left",
    Speed.INCONCLUSIVE: "diamond",
}


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One measurement as the chart and the table beneath it show it."""

    case: str
    phase: str
    ratio: Ratio
    verdict: Speed
    unmet: str
    """What an INCONCLUSIVE one lacks; else empty."""
    pairs: str
    pytorch_ms: str
    kernel_ms: str

    @property
    def label(self) -> str:
        """Case and phase in one line, with dots for slashes."""
        return one_line(f"{self.case.replace('/', ' · ')}{f' · {self.phase}' if self.phase else ''}", 110)


def speed_rows(records: Sequence[Record]) -> list[SpeedRow]:
    """The measurements, fastest first."""
    rows = []
    for record in records:
        figures = speed_figures(record)
        if figures is None or record.speed is None:
            continue
        rows.append(
            SpeedRow(
                case=one_line(record.case, 200),
                phase=record.phase.value if record.phase else "",
                ratio=figures,
                verdict=record.speed,
                unmet=_unmet(record),
                pairs=_figure(record.measures.get("pairs")),
                pytorch_ms=_figure(record.measures.get("pytorch_ms")),
                kernel_ms=_figure(record.measures.get("kernel_ms")),
            )
        )
    rows.sort(key=lambda row: (-row.ratio.value, row.case, row.phase))
    return rows


def both_ends(rows: Sequence[SpeedRow], limit: int = SHOWN) -> list[SpeedRow]:
    """The fastest and the slowest of rows in order, as many of either; all, if they fit."""
    if len(rows) <= limit:
        return list(rows)
    return [*rows[: limit // 2], *rows[-(limit // 2) :]]


@dataclass(frozen=True, slots=True)
class SpeedGroup:
    """The measurements of one mapping at widths of one kind, taken together: shapes decide speedups."""

    mapping: str
    real: bool
    """Whether the widths are those of real models."""
    number: int
    mean: Ratio
    """Geometric mean of the ratios."""
    verdicts: dict[Speed, int]


def speed_groups(rows: Sequence[SpeedRow], limit: int = 30) -> list[SpeedGroup]:
    """Geometric mean and verdicts by mapping, those of real widths first, then the largest."""
    members: defaultdict[tuple[str, bool], list[SpeedRow]] = defaultdict(list)
    for row in rows:
        case = case_of(row.case)
        members[case.mapping if case else row.case, real_widths(row.case)].append(row)
    groups = [
        SpeedGroup(
            mapping=one_line(mapping, 60),
            real=real,
            number=len(found),
            mean=mean,
            verdicts={kind: number for kind in Speed if (number := sum(row.verdict is kind for row in found))},
        )
        for (mapping, real), found in members.items()
        if (mean := geometric_mean([row.ratio for row in found]))
    ]
    return sorted(groups, key=lambda group: (not group.real, -group.number, group.mapping))[:limit]


def _unmet(record: Record) -> str:
    if record.speed is not Speed.INCONCLUSIVE:
        return ""
    return one_line(str(record.measures.get("unmet") or record.message or "no condition recorded"), 300)


def _figure(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"


def _inline(values: list[dict[str, Any]]) -> altair.Data:
    data: altair.Data = altair.Data(values=values)  # type: ignore[no-untyped-call]  # Altair leaves it untyped.
    return data


def specification(rows: Sequence[SpeedRow], least_effect: float | None = None) -> dict[str, Any]:
    """The Vega-Lite specification for these rows, which the caller has bounded.

    ``least_effect`` is what the session finds in nearly every run, 0.05 for 5 %: a band on either side of 1.
    """
    values = [
        {
            "label": row.label,
            "ratio": row.ratio.value,
            # An end that is not known is not drawn.
            "low": row.ratio.low if row.ratio.bounded else row.ratio.value,
            "high": row.ratio.high if row.ratio.bounded else row.ratio.value,
            "verdict": row.verdict.value,
            "why": row.unmet,
            "speedup": str(row.ratio),
            "times": f"{row.pytorch_ms} ms → {row.kernel_ms} ms" if row.kernel_ms else "not recorded",
            "pairs": row.pairs,
        }
        for row in rows
    ]
    order = [row.label for row in rows]
    present = [verdict for verdict in SHAPES if any(row.verdict is verdict for row in rows)]
    names = [verdict.value for verdict in present]
    x_scale = altair.Scale(type="log", nice=False, padding=12)
    y = altair.Y("label:N", sort=order, title=None, axis=altair.Axis(ticks=False, domain=False, grid=True))
    colour = altair.Color(
        "verdict:N",
        scale=altair.Scale(domain=names, range=[COLOURS[verdict] for verdict in present]),
        legend=altair.Legend(orient="top", title=None),
    )
    shape = altair.Shape("verdict:N", scale=altair.Scale(domain=names, range=[SHAPES[verdict] for verdict in present]))
    tooltip = [
        altair.Tooltip("label:N", title="case"),
        altair.Tooltip("speedup:N", title="speedup, 95 % interval"),
        altair.Tooltip("verdict:N", title="verdict"),
        altair.Tooltip("why:N", title="because"),
        altair.Tooltip("times:N", title="PyTorch → kernel"),
        altair.Tooltip("pairs:N", title="pairs"),
    ]
    base = altair.Chart(_inline(values)).encode(y=y, color=colour, tooltip=tooltip)
    x_axis = altair.Axis(format="~g", labelExpr=f"datum.label + '{TIMES}'", orient="bottom", tickCount=8)
    interval = base.mark_rule(strokeWidth=2.5, strokeCap="round").encode(
        x=altair.X("low:Q", scale=x_scale, axis=x_axis, title="speedup: time of PyTorch / time of the kernel"),
        x2="high:Q",
    )
    point = base.mark_point(size=95, filled=True, opacity=1).encode(x=altair.X("ratio:Q", scale=x_scale), shape=shape)
    one = (
        altair.Chart(_inline([{"one": 1}]))
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color="#888")
        .encode(x=altair.X("one:Q", scale=x_scale))
    )
    # A band that is wider than the chart would hide it.
    band = [_band(least_effect, x_scale)] if least_effect is not None and least_effect < 1 else []
    chart = (
        altair.layer(*band, one, interval, point)
        .properties(
            width="container",
            # Not a step per row: a width that follows the page and a height by steps do not go together.
            height=19 * len(rows) + 10,
            background="transparent",
            autosize=altair.AutoSizeParams(type="fit-x", contains="padding"),
        )
        .configure_view(stroke=None)
    )
    found: dict[str, Any] = chart.to_dict()
    # The page gives fonts and colours by its theme; Altair's own would override them.
    found.get("config", {}).pop("font", None)
    return found


def _band(effect: float, scale: altair.Scale) -> altair.Chart:
    ends = _inline([{"from": 1 / (1 + effect), "to": 1 + effect}])
    drawn: altair.Chart = altair.Chart(ends).mark_rect(color="#888", opacity=0.13)
    return drawn.encode(x=altair.X("from:Q", scale=scale), x2="to:Q")
