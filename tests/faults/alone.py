"""Which faults are found by one mechanism alone: without it they escape, and a test takes each away and looks.

A check that is never the only one to find something may be one check too many, or may have gone blind unnoticed.
"""

from collections.abc import Mapping

__all__ = ["ALONE", "LEDGER"]

LEDGER = "ledger"

ALONE: Mapping[str, tuple[str, ...]] = {
    LEDGER: ("S22", "S25"),
    "compile": ("S20",),
    "generate": ("S17",),
}
"""Mechanism (a property by name, or ``ledger``) to faults that nothing else finds."""
