"""The records of a run as one compact block for the script in the page: strings stored once, columns of indices,
compressed and in base64. A report of 100,000 records stays a few megabytes, and no string of a record can end the
element that holds the block.
"""

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import msgspec

from reports.clean import clean
from reports.record import Engagement, Record
from reports.verdict import severity
from reports.words import OUTCOMES, REASONS

__all__ = ["pack", "payload"]

LIST_LIMIT = 12
"""Numbers of a list-valued measure that are carried; raw samples stay in results.jsonl."""

LEFT_OUT = frozenset({"digest", "digest_pytorch"})
"""Measures that say nothing to a reader, and hold nothing that could be compressed."""


class _Table:
    """Gives each distinct string a number."""

    def __init__(self) -> None:
        self.strings: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def __call__(self, text: str | None) -> int:
        if not text:
            return 0
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.strings)
            self.strings.append(clean(text))
        return number


def payload(records: Sequence[Record], charts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Everything the script needs, as plain data: the records in their order, and a chart by the id of its element."""
    text = _Table()
    ledgers: list[list[list[int]]] = [[]]
    numbers: dict[tuple[Engagement, ...], int] = {(): 0}

    def ledger(entries: tuple[Engagement, ...]) -> int:
        number = numbers.get(entries)
        if number is None:
            number = numbers[entries] = len(ledgers)
            ledgers.append([_entry(entry, text) for entry in entries])
        return number

    columns = {
        "case": [text(record.case) for record in records],
        "property": [text(record.property) for record in records],
        "phase": [text(record.phase) for record in records],
        "outcome": [text(record.outcome) for record in records],
        "reason": [text(record.reason) for record in records],
        "message": [text(record.message) for record in records],
        "speed": [text(record.speed) for record in records],
        "determinism": [text(record.determinism) for record in records],
        "evidence": [ledger(record.evidence) for record in records],
        "measures": [_measures(record, text) for record in records],
        "requirements": [[text(item) for item in record.requirements] for record in records],
        "shims": [[text(item) for item in record.shims] for record in records],
        "repro": [text(record.repro) for record in records],
        "seconds": [round(record.seconds, 3) for record in records],
    }
    return {
        "strings": text.strings,
        "ledgers": ledgers,
        "columns": columns,
        "reasons": {reason.value: sentence for reason, sentence in REASONS.items()},
        "outcomes": {outcome.value: sentence for outcome, sentence in OUTCOMES.items()},
        "severity": {outcome.value: severity(outcome) for outcome in OUTCOMES},
        "charts": charts,
    }


def _entry(entry: Engagement, text: _Table) -> list[int]:
    return [
        text(entry.name),
        text(entry.promised),
        text(entry.resolved),
        entry.modules,
        entry.bound,
        entry.calls,
        text(entry.reason),
        text(entry.detail),
        text(entry.digest),
    ]


def _measures(record: Record, text: _Table) -> list[Any]:
    """Name and value by turns. A string value is a list of its one index, to tell it from a number."""
    found: list[Any] = []
    for name, value in record.measures.items():
        if name in LEFT_OUT:
            continue
        found.append(text(name))
        if isinstance(value, str):
            found.append([text(value)])
        elif isinstance(value, list):
            shown = ", ".join(f"{number:.5g}" for number in value[:LIST_LIMIT])
            more = f" … ({len(value)} in results.jsonl)" if len(value) > LIST_LIMIT else ""
            found.append([text(shown + more)])
        elif isinstance(value, int) and abs(value) > 2**53:
            # The script's numbers would round it.
            found.append([text(str(value))])
        else:
            found.append(value)
    return found


def pack(data: dict[str, Any]) -> str:
    """The data as base64 of its gzipped JSON. The same data give the same text."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(data), compresslevel=6, mtime=0)).decode("ascii")
