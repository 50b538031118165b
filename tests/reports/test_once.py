"""The lines on what is paid once."""

from typing import Any

from cases.axes import Property
from reports.once import paid_once
from reports.record import Outcome, Record


def record(kind: Property, case: str = "m/f32/inference/eager/bundled", **measures: Any) -> Record:
    return Record(case=case, property=kind, outcome=Outcome.PASS, measures=measures)


def test_download_load_and_first_pass_stand_apart() -> None:
    """Fault: a download counted once more within the load, or again with each phase that is timed."""
    repositories = [
        record(Property.REPOSITORY, f"repository/{name}", download_seconds=seconds, download_bytes=size)
        for name, seconds, size in (("a", 0.5, 1_000_000), ("b", 0.0, 0), ("c", 0.25, 500_000))
    ]
    cases = [
        record(Property.LOAD, load_seconds=3.0, download_seconds=1.0, download_bytes=500_000),
        record(Property.LOAD, load_seconds=1.0, download_seconds=0.0, download_bytes=0),
        record(Property.ENGAGE, first_pass_seconds=0.25),
        # Speeds hold them again, phase by phase.
        record(Property.SPEED, load_seconds=3.0, first_pass_seconds=0.25, download_seconds=1.0, download_bytes=500_000),
    ]
    lines = dict(paid_once([*repositories, cases[0], cases[2], cases[3]]))
    assert lines == {
        "download of kernels": "1.75 s for 2,000.0 kB in 3 downloads",
        "loading a model with its kernels": "2 s in the middle, 2 s at most, of 1",
        "its first pass": "0.25 s in the middle, 0.25 s at most, of 1",
    }
    assert dict(paid_once(cases[1:]))["download of kernels"] == "0 s, all cached"


def test_where_nothing_was_recorded_nothing_is_said() -> None:
    """Fault: a zero for what nobody measured."""
    assert paid_once([record(Property.LOAD), record(Property.REPOSITORY, download_bytes=[1.0])]) == ()
