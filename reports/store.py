"""A run on disk: the folder with ``results.jsonl``, ``environment.json`` and, at times, ``kernels.lock.json``.

Reading treats the files as untrusted: sizes are bounded, every line is validated, and one that cannot be read (torn by
a crash, or hostile) is kept as a ``BrokenLine`` that the report shows. Writing is one system call per record: a crash
loses at most the line being written, and several worker processes can share the file.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cases.axes import Phase, Property
from reports.record import SCHEMA, Environment, Record, decode_record, encode

__all__ = [
    "ENVIRONMENT",
    "LOCK",
    "MAX_DOCUMENT",
    "RESULTS",
    "BrokenLine",
    "Run",
    "RunError",
    "append",
    "latest",
    "read_run",
    "schema_of",
    "write_whole",
]

RESULTS = "results.jsonl"
ENVIRONMENT = "environment.json"
LOCK = "kernels.lock.json"

MAX_LINE = 2**20
"""Bytes of one record. A record with the raw pairs of 128 timings has about 10 kB."""
MAX_RESULTS = 2**31
"""Bytes of ``results.jsonl``: a million records of ordinary size."""
MAX_DOCUMENT = 4 * 2**20
"""Bytes of ``environment.json``, ``kernels.lock.json`` and ``audit.json``."""
MAX_BROKEN = 100
"""Broken lines that are kept with their reason; more are only counted."""

_LONG_TEXTS = frozenset({"message", "repro", "detail"})


class RunError(Exception):
    """A run cannot be read. The text says what is wrong, where, what was expected and what to do."""


class _OnlySchema(msgspec.Struct):
    schema: int = SCHEMA


_only_schema = msgspec.json.Decoder(_OnlySchema)


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line of ``results.jsonl`` that is no record."""

    number: int
    """Counted from 1, as editors do."""
    problem: str


@dataclass(frozen=True, slots=True)
class Run:
    """All that is known of a run."""

    folder: Path
    records: tuple[Record, ...]
    """The last one of each (case, property, phase), in the order of first appearance."""
    environment: Environment | None
    """None where the run was stopped before it was written."""
    lock: Any = None
    """``kernels.lock.json`` as it is, for display."""
    broken: tuple[BrokenLine, ...] = ()
    broken_count: int = 0
    """All broken lines, also those beyond the ones kept in ``broken``."""
    waivers: Any = None
    """Waivers to judge it by instead of those it was made with (``reports.waivers.InUse``)."""
    replaced: int = 0
    """Records that a later one of the same check replaced: retries, resumed runs."""


def latest(records: Iterable[Record]) -> tuple[Record, ...]:
    """The last record of each (case, property, phase), in the order of first appearance."""
    found: dict[tuple[str, Property, Phase | None], Record] = {}
    for record in records:
        if record.phase is not None:
            # A worker that died or was refused wrote for all phases at once; a later one of a phase stands for it.
            found.pop((record.case, record.property, None), None)
        found[record.case, record.property, record.phase] = record
    return tuple(found.values())


def read_run(folder: Path) -> Run:
    """Read the run in a folder.

    Raises:
        RunError: there is no run there, a file is too large, or it was written by a later version of the suite.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise RunError(
            f"{folder}: {found} there; expected the folder of a run (with {RESULTS}). Give the folder that "
            "`pytest suite` printed at its end, or make a run with `pytest suite --out FOLDER`."
        )
    results = folder / RESULTS
    if not results.is_file():
        raise RunError(
            f"{folder}: no {RESULTS} in this folder; expected one record a line in it. Give the folder that "
            "`pytest suite` printed at its end; if the run stopped before its first check, run it again."
        )
    environment = _read_environment(folder / ENVIRONMENT)
    lines = _Lines()
    lines.read(results)
    if lines.later and not lines.records:
        raise RunError(
            f"{results}: written by a later version of the suite (schema {lines.later}; this one reads up to "
            f"{SCHEMA}). Update this checkout and try again."
        )
    kept = latest(lines.records)
    return Run(
        folder=folder,
        records=kept,
        environment=environment,
        lock=_read_lock(folder / LOCK),
        broken=tuple(lines.broken),
        broken_count=lines.broken_count,
        replaced=len(lines.records) - len(kept),
    )


class _Lines:
    """Collects the records and the broken lines of one file."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.broken: list[BrokenLine] = []
        self.broken_count = 0
        self.later = 0

    def read(self, path: Path) -> None:
        _check_size(path, MAX_RESULTS)
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    self._note(number, f"longer than {MAX_LINE:,} bytes")
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MAX_LINE)
                    continue
                if line := line.strip():
                    self._decode(number, line)

    def _decode(self, number: int, line: bytes) -> None:
        try:
            self.records.append(decode_record(line))
        # RecursionError: a line of a hundred thousand brackets. UnicodeDecodeError is a ValueError.
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problem = str(error) or type(error).__name__
            schema = schema_of(line)
            if schema > SCHEMA:
                self.later = max(self.later, schema)
                problem = f"schema {schema}, later than {SCHEMA}, which this version reads"
            self._note(number, problem)

    def _note(self, number: int, problem: str) -> None:
        self.broken_count += 1
        if len(self.broken) < MAX_BROKEN:
            self.broken.append(BrokenLine(number, problem))


def schema_of(data: bytes) -> int:
    """The schema that a document claims, even where the rest of it is unreadable to this version."""
    try:
        return _only_schema.decode(data).schema
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0


def _check_size(path: Path, limit: int) -> None:
    size = path.stat().st_size
    if size > limit:
        raise RunError(f"{path}: {size:,} bytes; expected at most {limit:,}. This is no file that the suite wrote.")


def _read_environment(path: Path) -> Environment | None:
    if not path.is_file():
        return None
    _check_size(path, MAX_DOCUMENT)
    data = path.read_bytes()
    schema = schema_of(data)
    if schema > SCHEMA:
        raise RunError(
            f"{path}: written by a later version of the suite (schema {schema}; this one reads up to {SCHEMA}). "
            "Update this checkout and try again."
        )
    try:
        return msgspec.json.decode(data, type=Environment)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path}: not readable ({error}); expected what `pytest suite` writes. If it was edited or cut short, "
            "remove it: the report then says that the environment is unknown."
        ) from None


def _read_lock(path: Path) -> Any:
    if not path.is_file():
        return None
    _check_size(path, MAX_DOCUMENT)
    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return {"unreadable": str(error)}


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file as a whole or not at all: no reader sees half of it, a failed write keeps the old one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def append(path: Path, record: Record) -> None:
    """Add one record to a results file, at once and whole, whatever other processes append to it.

    Strings longer than the schema allows are cut, since a reader would refuse them and the check would be lost.

    Raises:
        OSError: the file cannot be written, or only part of the line could be (a full disk).
        ValueError: the record is larger than a reader accepts.
    """
    line = encode(record)
    try:
        decode_record(line)
    except msgspec.ValidationError:
        line = msgspec.json.encode(_fitted(msgspec.to_builtins(record)))
        decode_record(line)
    if len(line) >= MAX_LINE:
        raise ValueError(f"record of {record.case} {record.property}: {len(line):,} bytes; at most {MAX_LINE:,} fit")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o644)
    try:
        # After a crash the file may end in half a line: without a newline first, this record would be lost with it.
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end:
            os.lseek(descriptor, end - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":
                line = b"\n" + line
        line += b"\n"
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"{path}: only {written} of {len(line)} bytes written; is the disk full?")
    finally:
        os.close(descriptor)


def _fitted(value: Any, field: str = "") -> Any:
    """The value with every string cut to what ``reports.record`` allows."""
    if isinstance(value, str):
        limit = 20_000 if field in _LONG_TEXTS else 512
        return value if len(value) <= limit else value[: limit - 1] + "…"
    if isinstance(value, dict):
        return {_fitted(key): _fitted(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fitted(item, field) for item in value]
    return value
