"""The chart of speedups, as a Vega-Lite specification written with Altair: a point and its interval per measurement on
a logarithmic axis with a line at 1. It draws at most ``SHOWN`` measurements: of more, the fastest and the slowest.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair

from reports.clean import one_line
from reports.evidence import case_of
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
    ratio: float
    low: float
    high: float
    verdict: Speed
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
        ratio, low, high = figures
        rows.append(
            SpeedRow(
                case=one_line(record.case, 200),
                phase=record.phase.value if record.phase else "",
                ratio=ratio,
                low=low,
                high=high,
                verdict=record.speed,
                pairs=_figure(record.measures.get("pairs")),
                pytorch_ms=_figure(record.measures.get("pytorch_ms")),
                kernel_ms=_figure(record.measures.get("kernel_ms")),
            )
        )
    rows.sort(key=lambda row: (-row.ratio, row.case, row.phase))
    return rows


def both_ends(rows: Sequence[SpeedRow], limit: int = SHOWN) -> list[SpeedRow]:
    """The fastest and the slowest of rows in order, as many of either; all, if they fit."""
    if len(rows) <= limit:
        return list(rows)
    return [*rows[: limit // 2], *rows[-(limit // 2) :]]


@dataclass(frozen=True, slots=True)
class SpeedGroup:
    """The measurements of one mapping, taken together."""

    mapping: str
    number: int
    mean: float
    """Geometric mean of the ratios."""
    verdicts: dict[Speed, int]


def speed_groups(rows: Sequence[SpeedRow], limit: int = 30) -> list[SpeedGroup]:
    """Geometric mean and verdicts by mapping, the largest groups first."""
    members: defaultdict[str, list[SpeedRow]] = defaultdict(list)
    for row in rows:
        case = case_of(row.case)
        members[case.mapping if case else row.case].append(row)
    groups = [
        SpeedGroup(
            mapping=one_line(mapping, 60),
            number=len(found),
            mean=math.exp(math.fsum(math.log(row.ratio) for row in found) / len(found)),
            verdicts={kind: number for kind in Speed if (number := sum(row.verdict is kind for row in found))},
        )
        for mapping, found in members.items()
    ]
    return sorted(groups, key=lambda group: (-group.number, group.mapping))[:limit]


def _figure(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"


def _inline(values: list[dict[str, Any]]) -> altair.Data:
    data: altair.Data = altair.Data(values=values)  # type: ignore[no-untyped-call]  # Altair leaves it untyped.
    return data


def specification(rows: Sequence[SpeedRow]) -> dict[str, Any]:
    """The Vega-Lite specification for these rows, which the caller has bounded."""
    values = [
        {
            "label": row.label,
            "ratio": row.ratio,
            "low": row.low,
            "high": row.high,
            "verdict": row.verdict.value,
            "speedup": f"{row.ratio:.3f}{TIMES} (95 % interval {row.low:.3f} to {row.high:.3f})",
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
        altair.Tooltip("speedup:N", title="speedup"),
        altair.Tooltip("verdict:N", title="verdict"),
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
    chart = (
        altair.layer(one, interval, point)
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
