"""``--qualify``: does this suite, on this device, find faults that are known to be there?

A green run is worth what its checks can see. So the deliberately broken kernels of ``tests/faults`` are run on the
target device, each with its healthy twin, and what the suite said of them goes into the run as records
``fault/S01``, … A fault that is missed, or a twin that is accused, is a fault of the harness and recorded as such.

The broken kernels run in a process of their own. So this module imports nothing from ``tests``, a run without
``--qualify`` never sees them, and one that takes its process with it costs the qualification and not the run.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

from cases.axes import Property
from reports.qualification import PREFIX
from reports.record import Outcome, Reason
from suite.finding import Finding

__all__ = ["FILE", "PREFIX", "SECONDS", "Alarm", "FaultVerdict", "QualificationError", "finding", "identifiers", "run"]

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 900.0
"""Longest wait for all faults: a minute or two on a CPU; a device may have to compile first."""
FILE = "qualification.jsonl"
"""One ``FaultVerdict`` a line, in the folder of the qualification."""


class QualificationError(Exception):
    """The faults could not be run."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One check that said something against a kernel."""

    property: Property
    outcome: Outcome
    reason: Reason | None
    figure: str
    """The number that said it, as in ``3.27 ×``; empty where it is no number."""
    message: str


class FaultVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the suite made of one fault and of its twin."""

    fault: str
    sentence: str
    target: str
    expected: tuple[Property, ...]
    """The checks that are there for this fault."""
    alarms: tuple[Alarm, ...]
    """Every check that spoke, in order."""
    as_expected: bool
    """Whether the checks that are there for it are among them, with the reason that they are to give."""
    twin_clean: bool
    """Whether nothing was said against the healthy twin, and its kernel was proved to run."""
    twin_alarms: tuple[Alarm, ...] = ()
    seconds: float = 0.0
    repro: str = ""
    """The user's command for it."""
    without: str = ""
    """Name of the mechanism that was switched off for this one; empty in a real qualification."""

    @property
    def caught(self) -> bool:
        """Whether any check said FAIL or FALLBACK."""
        return any(alarm.outcome in (Outcome.FAIL, Outcome.FALLBACK) for alarm in self.alarms)


_decoder = msgspec.json.Decoder(FaultVerdict)


def identifiers() -> tuple[str, ...]:
    """Ids of all faults, in order."""
    # At the call, and only with --qualify: a normal run has nothing to do with the project's tests.
    from tests.faults.records import FAULTS

    return tuple(fault.id for fault in FAULTS)


def run(device: str, folder: Path, *options: str) -> tuple[FaultVerdict, ...]:
    """Run the faults on a device in a process of their own; ``options`` are those of ``python -m tests.faults``.

    Raises:
        QualificationError: the process died or did not end; the message has its last words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.faults", "--device", device, "--out", str(folder), *options]
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        try:
            status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            raise QualificationError(f"the faults did not end within {SECONDS:.0f} s; see {log.name}") from None
    verdicts = read(file)
    if status:
        raise QualificationError(f"the process died with status {status} after {len(verdicts)} faults; see {log.name}")
    return verdicts


def read(file: Path) -> tuple[FaultVerdict, ...]:
    """The verdicts in a file; none if there is no file."""
    if not file.exists():
        return ()
    return tuple(_decoder.decode(line) for line in file.read_bytes().splitlines())


def finding(verdict: FaultVerdict) -> Finding:
    """What a run records of one fault."""
    said = "; ".join(
        f"{alarm.property} {alarm.reason or alarm.outcome}{f' ({alarm.figure})' if alarm.figure else ''}"
        for alarm in verdict.alarms
    )
    measures = {"caught": verdict.caught, "twin_clean": verdict.twin_clean}
    if verdict.caught and verdict.as_expected and verdict.twin_clean:
        text = f"{verdict.sentence}: found by {said}; nothing was said against the healthy twin"
        return Finding(Outcome.PASS, message=text, measures={**measures})
    if not verdict.caught:
        problem = "no check saw it on this device"
    elif not verdict.as_expected:
        problem = f"found by {said}, but not by the check that is there for it ({', '.join(verdict.expected)})"
    else:
        alarms = "; ".join(f"{alarm.property}: {alarm.message}" for alarm in verdict.twin_alarms)
        problem = f"the healthy twin was accused or did not run: {alarms or 'no call was proved'}"
    return Finding(Outcome.HARNESS_ERROR, None, f"{verdict.sentence}: {problem}", measures={**measures})
