"""What an outcome is in pytest's words, and what a lost worker is in ours."""

import re

import pytest

from cases.axes import Property
from reports.record import Outcome, Reason, Record
from suite.finding import Finding

__all__ = ["CrashedItem", "lost_worker", "parse_item", "raise_for"]

SKIPPED = frozenset({Outcome.NOT_RUN, Outcome.NOT_SUPPORTED})

CrashedItem = tuple[str, Property]


def raise_for(record: Record) -> None:
    """Return for a PASS, skip for what was not checked, fail for the rest, in one line and without a traceback."""
    text = f"{record.outcome}{f' {record.reason}' if record.reason else ''}: {record.message}"
    if record.outcome is Outcome.PASS:
        return
    if record.outcome in SKIPPED:
        pytest.skip(text)
    if record.outcome is Outcome.WAIVED:
        pytest.xfail(text)
    pytest.fail(f"{record.case} {record.property}: {text}\n  again: {record.repro}", pytrace=False)


def parse_item(nodeid: str) -> CrashedItem | None:
    """The case id and property of a test item; None for an item that is no check of a case."""
    match = re.search(r"::test_(\w+?)\[(.+)\](?:@[^@]*)?$", nodeid)
    if match is None or match[1] not in set(Property):
        return None
    checked = Property(match[1])
    return (f"statement/{match[2]}" if checked is Property.STATEMENT else match[2]), checked


def lost_worker(seconds: float, limit: float) -> Finding:
    """A worker died in a check: after its time limit it was killed for hanging, before that it crashed by itself."""
    if seconds >= limit - 0.5:
        return Finding(Outcome.TIMEOUT, Reason.INTERRUPTED, f"did not end within {limit:g} s; the process was killed")
    return Finding(
        Outcome.CRASH, Reason.INTERRUPTED, f"the process died after {seconds:.1f} s; what it wrote last is in logs/"
    )
