"""How speeds come into pytest-benchmark: its switches understood, two entries for what counts, none for the rest."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.record import Outcome, Record, Speed
from suite.benchmarks import entries, take_over


def options(**chosen: bool) -> Namespace:
    names = ("only", "skip", "disable", "enable")
    return Namespace(**{f"benchmark_{name}": chosen.get(name, False) for name in names})


@pytest.mark.parametrize(
    ("chosen", "speed", "others", "timing"),
    [
        ({}, True, True, True),
        ({"only": True}, True, False, True),
        ({"skip": True}, False, True, True),
        ({"disable": True}, True, True, False),
        ({"disable": True, "enable": True}, True, True, True),
        ({"only": True, "skip": True}, True, False, True),
    ],
)
def test_the_switches_mean_what_they_mean_in_pytest_benchmark(
    chosen: dict[str, bool], speed: bool, others: bool, timing: bool
) -> None:
    """Fault: --benchmark-only that skips every benchmark."""
    option = options(**chosen)
    switches = take_over(option)
    assert switches.leaves(Property.SPEED) is speed
    assert switches.leaves(Property.FORWARD) is others
    assert switches.leaves(None) is others
    assert switches.leaves(Property.LADDER), "without it the speeds of its revisions have no place"
    assert switches.timing is timing
    # pytest-benchmark itself must neither skip our items nor refuse to work next to xdist.
    assert not option.benchmark_only
    assert option.benchmark_disable


def test_a_worker_reads_what_the_controller_read() -> None:
    """Fault: workers that plan something else than their controller."""
    option = options(only=True)
    assert take_over(option) == take_over(option)


def test_only_and_disable_together_are_refused() -> None:
    """Fault: a run that measures nothing and is green."""
    with pytest.raises(pytest.UsageError, match="give one of them"):
        take_over(options(only=True, disable=True))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"json": Path("/nowhere/at/all.json")}, "--benchmark-json /nowhere/at/all.json: there is no folder"),
        ({"histogram": True}, "--benchmark-histogram: needs pygal"),
        ({"compare_fail": ["min:5%"]}, "expected --benchmark-compare too"),
        ({"compare_fail": ["min:5%"], "compare": True}, "--benchmark-compare: no such saved run in"),
        ({"compare_fail": ["min:5%"], "compare": "0007"}, "--benchmark-compare 0007: no such saved run in"),
    ],
)
def test_what_cannot_be_written_or_compared_is_refused_before_anything_is_measured(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a night of measuring that ends in a traceback over a folder that is not there."""
    given = {"json": None, "compare": [], "compare_fail": None, "storage": f"file://{tmp_path}", "netrc": "", **changes}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    option = options()
    for name, value in given.items():
        setattr(option, f"benchmark_{name}", value)
    with pytest.raises(pytest.UsageError, match=said):
        take_over(option)


def record(**changes: Any) -> Record:
    fields: dict[str, Any] = {
        "case": "llama-tiny/f32/inference/eager/bundled",
        "property": Property.SPEED,
        "outcome": Outcome.PASS,
        "phase": Phase.DECODE,
        "speed": Speed.FASTER,
        "measures": {
            "ratio": 2.0,
            "low": 1.9,
            "high": 2.1,
            "pairs": 2,
            "inner_calls": 3,
            "pytorch_seconds": [0.2, 0.4],
            "kernel_seconds": [0.1, 0.2],
        },
    }
    return Record(**{**fields, **changes})


def test_both_arms_are_entries_of_one_group_with_their_own_samples() -> None:
    """Fault: a table in which the arms cannot be compared, or are exchanged."""
    pytorch, kernel = entries([record()])
    assert pytorch.group == kernel.group == "llama-tiny/f32/inference/eager/bundled decode"
    assert pytorch.fullname != kernel.fullname
    assert pytorch.stats.median == pytest.approx(0.3)
    assert kernel.stats.data == [0.1, 0.2]
    assert kernel.iterations == 3
    for entry in (pytorch, kernel):
        assert entry.extra_info["ratio"] == 2.0
        assert (entry.extra_info["low"], entry.extra_info["high"]) == (1.9, 2.1)
        assert entry.extra_info["verdict"] == "FASTER"
        assert entry.as_dict()["stats"]["rounds"] == 2
        assert entry.as_dict()["options"]["disable_gc"] is True


def test_what_has_no_samples_has_no_entry() -> None:
    """Fault: an entry for a kernel that was never timed."""
    assert list(entries([record(measures={"ratio": 2.0})])) == []
