"""Documented statements against a run: for each what came of it on this device, and which checks say so.

A statement is as good as the worst of its checks that ran. Checks that did not run say nothing of it, unless there are
no others. A statement that no record cites is NOT_RUN: a part of the plan was left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tabulate import tabulate

from cases.requirements import Requirement, load_requirements
from reports.clean import one_line
from reports.record import Outcome, Record
from reports.store import Run
from reports.verdict import count, severity, worst

__all__ = ["Row", "requirements_text", "rows", "totals"]

SHOWN = 3
"""Checks that a row names: the gravest first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One statement and what came of it."""

    requirement: Requirement
    outcome: Outcome
    counts: Mapping[Outcome, int]
    """Of all records that cite it, worst first."""
    cases: tuple[str, ...]
    """Checks that cite it, those that decided first."""
    why: str
    """What the deciding record says, where the statement was not simply met."""


def rows(records: Iterable[Record], requirements: Mapping[str, Requirement] | None = None) -> tuple[Row, ...]:
    """One row for each statement, in the order of ``requirements.toml``."""
    citing: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        for name in record.requirements:
            citing[name].append(record)
    return tuple(_row(each, citing[each.id]) for each in (requirements or load_requirements()).values())


def _row(requirement: Requirement, records: list[Record]) -> Row:
    ran = [record for record in records if record.outcome is not Outcome.NOT_RUN]
    ranked = sorted(ran or records, key=lambda record: -severity(record.outcome))
    outcome = worst(record.outcome for record in ranked)
    if not records:
        outcome = Outcome.NOT_RUN
    why = "" if outcome is Outcome.PASS else ranked[0].message if ranked else "nothing in this run cites it"
    cases = tuple(dict.fromkeys(f"{record.case} {record.property}" for record in ranked))
    return Row(requirement, outcome, count(record.outcome for record in records), cases, why)


def totals(found: Iterable[Row]) -> dict[Outcome, int]:
    """How many statements there are of each outcome."""
    return count(row.outcome for row in found)


def requirements_text(run: Run) -> str:
    """The table for a terminal: statement, source, outcome on this device, checks."""
    found = rows(run.records)
    device = run.environment.device if run.environment else "an unknown device"
    cells = []
    for row in found:
        shown = [one_line(case, 60) for case in row.cases[:SHOWN]]
        if len(row.cases) > SHOWN:
            shown.append(f"… and {len(row.cases) - SHOWN:,} more")
        statement = f"{row.requirement.id} ({row.requirement.level})\n{row.requirement.statement}"
        said = one_line(row.why, 200)
        cells.append(
            [
                f"{statement}\n→ {said}" if said else statement,
                "\n".join(row.requirement.sources),
                row.outcome.value,
                "\n".join(shown),
            ]
        )
    headers = ["statement", "source", f"on {device}", "checks"]
    table = tabulate(cells, headers=headers, tablefmt="grid", maxcolwidths=[70, 40, None, 62])
    summary = ", ".join(f"{number} {outcome}" for outcome, number in totals(found).items())
    return f"{table}\n\n{len(found)} documented statements: {summary}.\n"
