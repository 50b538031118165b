"""What a Hub that stopped answering took from a run, in one sentence: which checks have to be made again, and how."""

from reports.clean import one_line
from reports.record import Outcome, Reason, Record
from reports.store import Run

__all__ = ["sentences"]


def sentences(run: Run) -> tuple[str, ...]:
    """The sentence for the head of a report; none if the Hub always answered. To be escaped, as it quotes records."""
    away = [r for r in run.records if r.reason is Reason.HUB_AWAY and r.outcome is Outcome.HARNESS_ERROR]
    if not away:
        return ()
    cases = {record.case for record in away}
    affected = len(away) + sum(r.reason is Reason.DEPENDS and r.case in cases for r in run.records)
    known = min((record for record in away if record.measures.get("hub")), key=_when, default=None)
    which = f" at {one_line(str(known.measures['hub']), 100)}" if known else ""
    when = f" at {one_line(_when(known), 40)}" if known else ""
    return (
        f"The Hub{which} stopped answering{when}: {affected:,} check{'s' * (affected > 1)} affected, which says nothing"
        f" of a kernel; run again with --resume {run.folder}",
    )


def _when(record: Record) -> str:
    return str(record.measures.get("hub_away_at", ""))
