"""A run is read with validation and written without loss."""

import multiprocessing
from pathlib import Path

import msgspec
import pytest

from cases.axes import Phase, Property
from reports import store
from reports.record import Engagement, Outcome, Record, encode
from reports.store import RunError, append, read_run
from tests.reports.synthetic import environment, records, write_run


def simple(case: str = "llama/f32/inference/sdpa/pytorch", **more: object) -> Record:
    return msgspec.convert({"case": case, "property": "forward", "outcome": "PASS", **more}, Record)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    """Catches a field that is lost or changed between writing and reading."""
    written = list(records(60))
    for record in written:
        append(tmp_path / "results.jsonl", record)
    assert read_run(tmp_path).records == tuple(written)


def test_a_torn_line_is_reported_and_costs_no_other(tmp_path: Path) -> None:
    """Catches a crash in mid-write that hides the records before or after it."""
    path = tmp_path / "results.jsonl"
    append(path, simple("a"))
    with path.open("ab") as file:
        file.write(encode(simple("torn"))[:40])
    append(path, simple("b"))
    run = read_run(tmp_path)
    assert [record.case for record in run.records] == ["a", "b"]
    assert [line.number for line in run.broken] == [2]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"case": "x"}',
        b'{"case": "x", "property": "forward", "outcome": "GREAT"}',
        b'{"case": "' + b"x" * 600 + b'", "property": "forward", "outcome": "PASS"}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b'{"case": "' + b"x" * (store.MAX_LINE + 10) + b'"}',
    ],
    ids=["no-json", "fields-missing", "unknown-outcome", "long-string", "deep", "no-utf8", "huge"],
)
def test_a_hostile_line_is_counted_with_its_number(tmp_path: Path, line: bytes) -> None:
    """Catches a line that ends the reading, or disappears without a word."""
    (tmp_path / "results.jsonl").write_bytes(encode(simple("a")) + b"\n" + line + b"\n" + encode(simple("b")) + b"\n")
    run = read_run(tmp_path)
    assert [record.case for record in run.records] == ["a", "b"]
    assert run.broken_count == 1
    assert run.broken[0].number == 2
    assert run.broken[0].problem


def test_the_last_record_of_a_check_wins(tmp_path: Path) -> None:
    """Catches a retried check that still shows its first outcome, and two phases taken for one."""
    path = tmp_path / "results.jsonl"
    append(path, simple(outcome="CRASH"))
    append(path, simple())
    append(path, simple(property="speed", phase="prefill"))
    append(path, simple(property="speed", phase="decode"))
    run = read_run(tmp_path)
    found = [(record.property, record.phase, record.outcome) for record in run.records]
    assert found == [
        (Property.FORWARD, None, Outcome.PASS),
        (Property.SPEED, Phase.PREFILL, Outcome.PASS),
        (Property.SPEED, Phase.DECODE, Outcome.PASS),
    ]
    assert run.replaced == 1


def test_a_string_that_is_too_long_is_cut_when_written(tmp_path: Path) -> None:
    """Catches a check that is lost since its error message is longer than a reader accepts."""
    entry = Engagement(name="n" * 600, promised="p", detail="d" * 30_000)
    append(
        tmp_path / "results.jsonl",
        Record(case="c", property=Property.LOAD, outcome=Outcome.FAIL, message="m" * 50_000, evidence=(entry,)),
    )
    run = read_run(tmp_path)
    assert run.broken_count == 0
    assert len(run.records[0].message) == 20_000
    assert len(run.records[0].evidence[0].name) == 512


def _write_many(path: Path, worker: int) -> None:
    for number in range(200):
        append(path, simple(f"worker-{worker}/{number}", message="x" * 3_000))


def test_several_processes_append_without_mixing_lines(tmp_path: Path) -> None:
    """Catches lines of two workers that are written into each other."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_many, args=(tmp_path / "results.jsonl", number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    run = read_run(tmp_path)
    assert (len(run.records), run.broken_count) == (600, 0)


def test_a_missing_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Catches a bare FileNotFoundError for a misspelt folder."""
    with pytest.raises(RunError, match=r"nowhere.*expected the folder of a run.*--out"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"no results\.jsonl in this folder"):
        read_run(tmp_path)


def test_a_later_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Catches a report that reads tomorrow's results by yesterday's meaning."""
    write_run(tmp_path, [simple()])
    (tmp_path / "environment.json").write_bytes(b'{"schema": 99, "new": true}')
    with pytest.raises(RunError, match=r"environment\.json.*schema 99.*Update this checkout"):
        read_run(tmp_path)
    (tmp_path / "environment.json").unlink()
    (tmp_path / "results.jsonl").write_bytes(b'{"schema": 99, "case": "x", "outcome": "NEW"}\n')
    with pytest.raises(RunError, match=r"results\.jsonl.*schema 99.*Update this checkout"):
        read_run(tmp_path)


def test_an_unreadable_environment_is_named(tmp_path: Path) -> None:
    """Catches a traceback over a file that was cut short."""
    write_run(tmp_path, [simple()])
    (tmp_path / "environment.json").write_bytes(encode(environment(1))[:-30])
    with pytest.raises(RunError, match=r"environment\.json: not readable"):
        read_run(tmp_path)


def test_a_file_over_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a hostile file that fills the memory."""
    write_run(tmp_path, [simple()])
    monkeypatch.setattr(store, "MAX_RESULTS", 10)
    with pytest.raises(RunError, match="expected at most 10"):
        read_run(tmp_path)
