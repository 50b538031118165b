"""Kernels that misbehave are reported as what they are, and the run goes on to its end."""

from pathlib import Path
from typing import Any

import pytest

from cases.axes import Property
from reports import store
from reports.record import Outcome, Reason, Record, Speed
from tests.faults.harness import HARNESS

CASES = {each.id: each.case for each in HARNESS}
TOKEN = "hf_SecretTokenOfNobody0123456789abcde"


@pytest.fixture(scope="module")
def records(ended: Any) -> tuple[Record, ...]:
    assert (ended.folder / store.RESULTS).exists(), ended.output
    found: tuple[Record, ...] = store.read_run(ended.folder).records
    return found


def of(records: tuple[Record, ...], identifier: str) -> list[Record]:
    found = [record for record in records if record.case == CASES[identifier]]
    assert found, f"{identifier} has no record"
    return found


def spoken(records: tuple[Record, ...], identifier: str) -> Record:
    """What was said of a kernel first; what rests on it is NOT_RUN, and may come before it after a worker died."""
    return next(r for r in of(records, identifier) if r.outcome not in (Outcome.PASS, Outcome.NOT_RUN))


def outcomes(records: tuple[Record, ...], identifier: str) -> set[Outcome]:
    return {record.outcome for record in of(records, identifier)}


def test_the_run_ends_with_a_record_for_every_planned_check_and_a_report(
    ended: Any, records: tuple[Record, ...]
) -> None:
    """One broken kernel that costs the rest of the night."""
    run = store.read_run(ended.folder)
    assert run.environment is not None
    assert run.environment.ended
    assert run.environment.exit_status == pytest.ExitCode.TESTS_FAILED
    checks = {(record.case, record.property) for record in records if not record.case.startswith("control/")}
    assert len(checks) == run.environment.planned, ended.output
    assert (ended.folder / "report.html").exists()


def test_a_kernel_that_sleeps_is_slower_and_otherwise_right(records: tuple[Record, ...]) -> None:
    """A slow kernel counted as a fast one, or a right one as wrong."""
    assert outcomes(records, "H01") <= {Outcome.PASS, Outcome.NOT_RUN}
    timed = next(record for record in of(records, "H01") if record.property is Property.SPEED)
    assert timed.speed is Speed.SLOWER
    assert float(str(timed.measures["ratio"])) < 0.5


def test_a_kernel_that_memoises_is_wrong_and_never_fast(records: tuple[Record, ...]) -> None:
    """A speedup for work that was not done."""
    assert Outcome.FAIL in outcomes(records, "H02")
    assert all(record.speed in (None, Speed.NOT_MEASURED) for record in of(records, "H02"))


def test_a_kernel_that_hangs_is_a_timeout(records: tuple[Record, ...]) -> None:
    """A hang that lasts all night, or is taken for a crash."""
    assert spoken(records, "H03").outcome is Outcome.TIMEOUT


def test_a_kernel_that_kills_its_process_is_a_crash(records: tuple[Record, ...]) -> None:
    """A dead worker that leaves no record of why."""
    assert spoken(records, "H04").outcome is Outcome.CRASH


def test_a_kernel_that_eats_all_memory_is_out_of_memory(records: tuple[Record, ...]) -> None:
    """Out of memory taken for a wrong result: on the CPU torch raises a plain RuntimeError."""
    first = spoken(records, "H05")
    assert first.outcome is Outcome.RESOURCE, first.message


def test_a_kernel_that_raises_is_reported_without_its_token_and_its_markup_is_harmless(
    ended: Any, records: tuple[Record, ...]
) -> None:
    """A token in a report that is sent to a vendor, or a script that runs in it."""
    first = spoken(records, "H06")
    assert (first.outcome, first.reason) == (Outcome.FAIL, Reason.EXCEPTION)
    assert "<script>" in first.message  # the record says what was said
    files: list[Path] = [path for path in ended.folder.rglob("*") if path.is_file() and path.suffix != ".py"]
    holding = [path.name for path in files if TOKEN.encode() in path.read_bytes()]
    assert holding == []
    assert TOKEN not in ended.output
    assert "<script>window.owned" not in (ended.folder / "report.html").read_text(encoding="utf-8")
