"""The break-even map on made-up figures."""

import math

import pytest

from suite.breakeven import Cell, first_win, heat_map, payback


def cell(rows: int, tokens: int, verdict: str, ratio: float = 1.0) -> Cell:
    return Cell(rows, tokens, ratio, ratio * 0.99, ratio * 1.01, verdict, 0.010 * ratio, 0.010)


def test_a_kernel_wins_from_the_shape_on_after_which_it_never_loses() -> None:
    """Fault: one lucky small shape taken for the break-even."""
    lucky, loses = cell(1, 1, "FASTER", 1.1), cell(1, 16, "SLOWER", 0.9)
    wins, same = cell(4, 16, "FASTER", 1.2), cell(4, 64, "SAME")
    assert first_win([same, wins, loses, lucky]) == wins
    assert first_win([lucky, loses]) is None
    assert first_win([same]) is None


def test_what_was_paid_comes_back_call_by_call() -> None:
    """Fault: a payback by the ratio instead of by the time saved."""
    assert payback(cell(1, 64, "FASTER", 2.0), 1.0) == pytest.approx(100)
    assert payback(cell(1, 64, "SAME", 1.01), 1.0) == math.inf


def test_the_map_shows_each_shape_with_its_verdict() -> None:
    """Fault: rows and columns exchanged."""
    text = heat_map([cell(1, 16, "FASTER", 1.5), cell(4, 16, "SLOWER", 0.5), cell(4, 64, "INCONCLUSIVE")])
    lines = text.splitlines()
    assert "16 tokens" in lines[0]
    assert "1.50× +" in lines[2]
    assert "0.50× -" in lines[3]
    assert "1.00× ?" in lines[3]
