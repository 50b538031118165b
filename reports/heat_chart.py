"""The heat maps of break-even, as Vega-Lite specifications written with Altair: batches downwards, lengths to the
right, one field of cells for each model. A cell says its ratio, interval and verdict in words; its colour says how far
it is from 1, and is grey where the measurement does not say on which side.
"""

import math
from collections.abc import Sequence
from typing import Any

import altair

from reports.break_even import Cell, Map
from reports.record import Speed
from reports.words import TIMES

__all__ = ["specification"]

# Light enough for black text on either theme; the middle is that of an INCONCLUSIVE cell too.
COLOURS = ["#ec9f88", "#e9ecf1", "#84cd98"]
LEAST = math.log(1.05)
"""Distance from 1 that gets the full colour at least: a map of ratios near 1 stays pale."""


def specification(maps: Sequence[Map]) -> dict[str, Any]:
    """The maps of one kernel, which the caller has bounded."""
    values = [_value(each, cell) for each in maps for cell in each.cells]
    most = max([LEAST, *(abs(value["shade"]) for value in values)])
    base = altair.Chart().encode(
        x=altair.X("tokens:O", sort="x", title="tokens of each row", axis=altair.Axis(labelAngle=0, orient="top")),
        y=altair.Y("rows:O", title="rows (batch)"),
        tooltip=[
            altair.Tooltip("shape:N", title="shape"),
            altair.Tooltip("speedup:N", title="speedup, 95 % interval"),
            altair.Tooltip("verdict:N", title="verdict"),
            altair.Tooltip("why:N", title="because"),
            altair.Tooltip("times:N", title=f"PyTorch {chr(0x2192)} kernel"),
        ],
    )
    colour = altair.Color(
        "shade:Q",
        scale=altair.Scale(domain=[-most, 0, most], range=COLOURS, clamp=True, interpolate="rgb"),
        legend=None,
    )
    cells = base.mark_rect(stroke="#fff", strokeWidth=2).encode(color=colour)
    words = base.mark_text(lineBreak="\n", lineHeight=14, dy=-12, fontSize=11, color="#14181d").encode(text="text:N")
    data: altair.Data = altair.Data(values=values)  # type: ignore[no-untyped-call]  # Altair leaves it untyped.
    chart = (
        altair.layer(cells, words)
        .properties(width={"step": 118}, height={"step": 54})
        .facet(
            data=data,
            facet=altair.Facet("map:N", sort=[each.label for each in maps], title=None),
            columns=2,
        )
        .resolve_axis(x="independent", y="independent")
        .properties(background="transparent")
        .configure_view(stroke=None)
    )
    found: dict[str, Any] = chart.to_dict()
    # The page gives fonts and colours by its theme; Altair's own would override them.
    found.get("config", {}).pop("font", None)
    return found


def _value(each: Map, cell: Cell) -> dict[str, Any]:
    unclear = cell.verdict is Speed.INCONCLUSIVE
    return {
        "map": each.label,
        "rows": cell.rows,
        "tokens": cell.tokens,
        "shape": f"{cell.shape} tokens",
        "shade": 0.0 if unclear else math.log(cell.ratio.value),
        "text": f"{cell.ratio.value:.2f}{TIMES}\n{cell.ratio.interval}\n{cell.verdict}",
        "speedup": str(cell.ratio),
        "verdict": cell.verdict.value,
        "why": cell.unmet,
        "times": f"{1e3 * cell.pytorch_seconds:.3g} ms {chr(0x2192)} {1e3 * cell.kernel_seconds:.3g} ms",
    }
