"""Checks made once more in a fresh process, one for the whole run at its end, since importing costs more than checking.

Where code and memory happen to lie, what a process did before, and what it drew at its start stay the same for all
repeats in one process, so no number of them shows what comes of these. Two claims depend on it: a speed that is held
against a kernel (``suite.confirm``), and that it gives the same bits (``suite.digests``). The first part here runs in
the controller and imports no torch; ``python -m suite.fresh`` is the fresh process. The job goes in by standard input,
and answers come back as lines of JSON.
"""

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.axes import Property
from cases.case import Case
from reports import store
from reports.record import Record
from reports.waivers import installed, waived
from suite import confirm, digests
from suite.options import Options

if TYPE_CHECKING:
    from suite.speed import Timing
    from suite.subject import Subject

__all__ = ["answers", "ask", "repeat", "say"]

MARK = "fresh process: "
"""Begins a line of the child that is meant for the parent; kernels print what they like."""
GRACE = 30.0
"""Seconds after its limits until the child is ended: it watches the time itself, between two checks, and this is for
one that hangs in a kernel."""

_JUDGES: Mapping[Property, Callable[[Record, dict[str, Any]], Record]] = {
    Property.SPEED: confirm.judged,
    Property.DETERMINISM: digests.judged,
}


def repeat(folder: Path, options: Options, facts: dict[str, Any]) -> None:
    """Repeat what a run claims and rewrite the records; one that is not reached says so."""
    tier = options.selection.tier
    records = store.read_run(folder).records
    left = confirm.awaiting(records)
    if options.baseline is not None:
        left += confirm.changed(records, store.read_run(options.baseline).records)
    # Speeds come first, in a process that has done nothing else.
    left += digests.awaiting(records, tier)
    limits = {Property.SPEED: confirm.SECONDS[tier], Property.DETERMINISM: digests.SECONDS[tier]}

    def write(record: Record, answer: dict[str, Any]) -> None:
        judged = _JUDGES[record.property](record, answer)
        store.append(folder / store.RESULTS, waived(judged, options.waivers, installed(), facts["device"]))

    for record, answer in ask(folder, options, facts, tuple(left), limits) if left else ():
        left.remove(record)
        write(record, answer)
    for record in left:
        write(record, {"error": f"not reached within {limits[record.property]:g} s for all, or the process died"})


def ask(
    folder: Path, options: Options, facts: dict[str, Any], records: Sequence[Record], limits: Mapping[Property, float]
) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Make the checks of these records again: each that is reached within its property's seconds, with its answer.

    An answer holds figures, or ``error`` in words. The process's own errors go to ``logs/fresh.log`` of the run.
    """
    seconds = sum(limits[each] for each in {record.property for record in records})
    for number, answer in answers("suite.fresh", (options, facts, list(records), dict(limits)), folder, seconds):
        yield records[number], answer


def answers(module: str, job: object, folder: Path, seconds: float) -> Iterator[Any]:
    """What ``python -m module`` says (``say``) of a job that it unpickles from its standard input, in order.

    Ended a little after ``seconds``; what it said until then counts, also where it died.
    """
    root = Path(__file__).resolve().parent.parent
    with (folder / "logs" / "fresh.log").open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            output, _ = process.communicate(pickle.dumps(job), timeout=seconds + GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    for line in output.decode("utf-8", "replace").splitlines():
        _, mark, text = line.partition(MARK)
        if mark:
            yield json.loads(text)


def say(answer: object) -> None:
    """Answer the parent from a fresh process."""
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)


def main() -> None:
    """The fresh process: make each check and print what came out, a line each."""
    from suite import hub_away
    from suite.setup import make_shelf, make_timing
    from suite.subject import Subject

    options, facts, records, limits = pickle.loads(sys.stdin.buffer.read())
    shelf = make_shelf(options, facts)
    timing = make_timing(options, facts, shelf)
    subject: Subject | None = None
    began: dict[Property, float] = {}
    for number, record in enumerate(records):
        if time.monotonic() - began.setdefault(record.property, time.monotonic()) > limits[record.property]:
            continue
        if subject is None or subject.case.id != record.case:
            if subject is not None:
                subject.close()
            subject = Subject(Case.from_id(record.case), shelf)
        try:
            answer = _check(subject, record, timing)
        except Exception as error:  # the parent records what it was
            away = hub_away.finding(error)
            answer = {"error": (away.message if away else f"{type(error).__name__}: {error}")[:1000]}
        say([number, answer])


def _check(subject: "Subject", record: Record, timing: "Timing") -> dict[str, Any]:
    from suite import determinism
    from suite.speed import speed

    if record.property is Property.DETERMINISM:
        return determinism.again(subject, record)
    assert record.phase is not None
    found = speed(subject, record.phase, timing)
    if "ratio" not in found.measures:
        return {"error": found.message}
    return {name: found.measures[name] for name in ("ratio", "low", "high", "claimed")}


if __name__ == "__main__":
    main()
