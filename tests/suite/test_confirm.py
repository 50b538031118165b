"""What becomes of a claim of SLOWER once a fresh process has answered. No process is started and nothing is timed."""

from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.record import Outcome, Record, Speed
from suite.confirm import AWAITS, awaiting, changed, judged


def claim(**changes: Any) -> Record:
    fields: dict[str, Any] = {
        "case": "llama-tiny/f32/inference/eager/bundled",
        "property": Property.SPEED,
        "outcome": Outcome.PASS,
        "phase": Phase.DECODE,
        "speed": Speed.INCONCLUSIVE,
        "measures": {"ratio": 0.8, "low": 0.75, "high": 0.85, "claimed": "SLOWER", "unmet": f"SLOWER, {AWAITS}"},
    }
    return Record(**{**fields, **changes})


def answer(claimed: str, ratio: float) -> dict[str, Any]:
    return {"claimed": claimed, "ratio": ratio, "low": ratio - 0.05, "high": ratio + 0.05}


def test_slower_in_both_processes_is_slower() -> None:
    """Fault: a slow kernel that is never called one."""
    record = judged(claim(), answer("SLOWER", 0.79))
    assert record.speed is Speed.SLOWER
    assert record.measures["unmet"] == ""
    assert record.measures["again_ratio"] == 0.79
    assert awaiting([record]) == []


@pytest.mark.parametrize("claimed", ["SAME", "FASTER", "INCONCLUSIVE"])
def test_processes_that_disagree_are_inconclusive_with_both_figures(claimed: str) -> None:
    """Fault: the layout of one process blamed on a kernel."""
    record = judged(claim(), answer(claimed, 1.01))
    assert record.speed is Speed.INCONCLUSIVE
    assert "0.800×" in record.message
    assert "1.010×" in record.message
    assert claimed in str(record.measures["unmet"])


def test_without_an_answer_it_is_inconclusive_and_says_why() -> None:
    """Fault: a claim that was never repeated, reported all the same."""
    record = judged(claim(), {"error": "not repeated within 60 s for all"})
    assert record.speed is Speed.INCONCLUSIVE
    assert "not repeated within 60 s" in record.message
    assert awaiting([record]) == []


def test_only_claims_of_slower_are_repeated() -> None:
    """Fault: minutes spent on what nobody doubts."""
    faster = claim(speed=Speed.FASTER, measures={"ratio": 2.0, "unmet": ""})
    noisy = claim(measures={"ratio": 0.8, "claimed": "SLOWER", "unmet": "the session is NOISY"})
    assert awaiting([faster, noisy, claim(), claim(property=Property.MEMORY)]) == [claim()]


def test_a_verdict_that_changed_since_the_baseline_is_repeated() -> None:
    """Fault: the layout of one process reported as progress, or as a step back, between two releases."""
    before = claim(speed=Speed.SAME)
    now = claim(speed=Speed.FASTER, measures={"ratio": 1.2, "low": 1.1, "high": 1.3, "claimed": "FASTER", "unmet": ""})
    assert changed([now], [before]) == [now]
    for baseline in ([], [now], [claim()], [claim(speed=Speed.SAME, phase=Phase.PREFILL)]):
        assert changed([now], baseline) == []
    assert judged(now, answer("FASTER", 1.2)).speed is Speed.FASTER
    doubted = judged(now, answer("SAME", 1.0))
    assert doubted.speed is Speed.INCONCLUSIVE
    assert str(doubted.measures["unmet"]).startswith("FASTER at 1.200×")
