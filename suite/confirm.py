"""A speed is repeated in a fresh process before it is reported where it is SLOWER, and where its verdict is another
than that of an earlier run (``--baseline``): which records are, and what becomes of them.

Where code and memory happen to lie, and what a process did before, can make one arm slower all along, and no interval
sees it. So what is a claim about somebody's kernel must hold in two processes (``suite.fresh``). Runs in the
controller and imports no torch.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cases.axes import Property, Tier
from reports.record import DECIDED, Record, Speed

__all__ = ["SECONDS", "awaiting", "changed", "judged"]

SECONDS = {Tier.SMOKE: 15.0, Tier.CORE: 60.0, Tier.FULL: 1800.0}
"""Time for all confirmations of a run. What is not reached stays INCONCLUSIVE and says so."""

AWAITS = "not yet repeated in a fresh process"
"""In ``unmet`` of a SLOWER that awaits its confirmation."""


def awaiting(records: Sequence[Record]) -> list[Record]:
    """The speeds that are claims of SLOWER and have not been repeated."""
    return [
        record
        for record in records
        if record.property is Property.SPEED
        and record.phase is not None
        and AWAITS in str(record.measures.get("unmet", ""))
    ]


def changed(records: Iterable[Record], baseline: Iterable[Record]) -> list[Record]:
    """The speeds that were decided in both runs, and otherwise in the baseline."""
    before = {(r.case, r.phase): r.speed for r in baseline if r.property is Property.SPEED}
    return [
        record
        for record in records
        if record.property is Property.SPEED
        and record.speed in DECIDED
        and before.get((record.case, record.phase), record.speed) in DECIDED - {record.speed}
    ]


def judged(record: Record, answer: dict[str, Any]) -> Record:
    """The record of a claim after its repetition: as claimed if the fresh process says so too, else INCONCLUSIVE."""
    figures = "ratio", "low", "high"
    claimed = Speed(str(record.measures["claimed"]))
    here = "{:.3f}× ({:.3f} to {:.3f})".format(*(float(str(record.measures[name])) for name in figures))
    again: dict[str, Any] = {}
    if "error" in answer:
        unmet = f"{claimed} at {here}, and no answer from a fresh process: {answer['error']}"[:2000]
    else:
        again = {f"again_{name}": answer[name] for name in figures} | {"again": answer["claimed"]}
        there = "{:.3f}× ({:.3f} to {:.3f})".format(*(answer[name] for name in figures))
        unmet = f"{claimed} at {here}, and in a fresh process {answer['claimed']} at {there}"
    holds = again.get("again") == claimed
    return msgspec.structs.replace(
        record,
        speed=claimed if holds else Speed.INCONCLUSIVE,
        message=f"{here}, in a fresh process {there}" if holds else f"{here}: {unmet}",
        measures={**record.measures, **again, "unmet": "" if holds else unmet},
    )
