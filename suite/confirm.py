"""Repeats in a fresh process what was measured as SLOWER, before it is reported.

Where code and memory happen to lie, and what a process did before, can make one arm slower all along, and no interval
sees it. So a slower kernel must be slower in two processes. The first part here runs in the controller, imports no
torch, and rewrites the records; ``python -m suite.confirm`` is the fresh process, one for all cases, since importing
costs more than measuring.
"""

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cases.axes import Phase, Property, Tier
from cases.case import Case
from reports import store
from reports.record import Record, Speed
from suite.options import Options

__all__ = ["SECONDS", "awaiting", "confirm", "judged"]

SECONDS = {Tier.SMOKE: 15.0, Tier.CORE: 60.0, Tier.FULL: 1800.0}
"""Time for all confirmations of a run. What is not reached stays INCONCLUSIVE and says so."""

AWAITS = "not yet repeated in a fresh process"
"""In ``unmet`` of a SLOWER that awaits its confirmation."""
MARK = "confirmed: "
"""Begins a line of the child that is meant for the parent; kernels print what they like."""


def awaiting(records: Sequence[Record]) -> list[Record]:
    """The speeds that are claims of SLOWER and have not been repeated."""
    return [
        record
        for record in records
        if record.property is Property.SPEED
        and record.phase is not None
        and AWAITS in str(record.measures.get("unmet", ""))
    ]


def confirm(folder: Path, options: Options, facts: dict[str, Any]) -> int:
    """Repeat the claims of a run and rewrite their records; returns how many could not be repeated in time."""
    claims = {(record.case, record.phase): record for record in awaiting(store.read_run(folder).records)}
    if not claims:
        return 0
    limit = SECONDS[options.selection.tier]
    for target, answer in _answers(folder, options, facts, list(claims), limit):
        store.append(folder / store.RESULTS, judged(claims.pop(target), answer))
    for record in claims.values():
        store.append(folder / store.RESULTS, judged(record, {"error": f"not repeated within {limit:g} s for all"}))
    return len(claims)


def judged(record: Record, answer: dict[str, Any]) -> Record:
    """The record of a claim after its repetition: SLOWER if the fresh process says so too, else INCONCLUSIVE."""
    figures = "ratio", "low", "high"
    here = "{:.3f}× ({:.3f} to {:.3f})".format(*(float(str(record.measures[name])) for name in figures))
    again: dict[str, Any] = {}
    if "error" in answer:
        unmet = f"SLOWER at {here}, and no answer from a fresh process: {answer['error']}"[:2000]
    else:
        again = {f"again_{name}": answer[name] for name in figures} | {"again": answer["claimed"]}
        there = "{:.3f}× ({:.3f} to {:.3f})".format(*(answer[name] for name in figures))
        unmet = f"SLOWER at {here}, and in a fresh process {answer['claimed']} at {there}"
    slower = again.get("again") == Speed.SLOWER
    message = f"{here}, in a fresh process {there}" if slower else f"{here}: {unmet}"
    return msgspec.structs.replace(
        record,
        speed=Speed.SLOWER if slower else Speed.INCONCLUSIVE,
        message=message,
        measures={**record.measures, **again, "unmet": "" if slower else unmet},
    )


def _answers(
    folder: Path, options: Options, facts: dict[str, Any], targets: list[tuple[str, Phase | None]], limit: float
) -> Iterator[tuple[tuple[str, Phase | None], dict[str, Any]]]:
    """What the fresh process says of each target, until it ends or is ended."""
    deadline = time.monotonic() + limit
    root = Path(__file__).resolve().parent.parent
    job = pickle.dumps((options, facts, targets, limit))
    log = folder / "logs" / "confirm.log"
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "suite.confirm"],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            # The child watches the time between cases; ending it is for one that hangs in a kernel.
            output, _ = process.communicate(job, timeout=max(1.0, deadline - time.monotonic()) + 30)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    for line in output.decode("utf-8", "replace").splitlines():
        _, mark, text = line.partition(MARK)
        if mark:
            answer = json.loads(text)
            yield (answer.pop("case"), Phase(answer.pop("phase"))), answer


def main() -> None:
    """The fresh process: measure each target and print what came out, a line each."""
    from suite.setup import make_shelf, make_timing
    from suite.speed import speed
    from suite.subject import Subject

    options, facts, targets, limit = pickle.loads(sys.stdin.buffer.read())
    start = time.monotonic()
    shelf = make_shelf(options, facts)
    timing = make_timing(options, facts, shelf)
    subject: Subject | None = None
    for case, phase in targets:
        if time.monotonic() - start > limit:
            break
        if subject is None or subject.case.id != case:
            if subject is not None:
                subject.close()
            subject = Subject(Case.from_id(case), shelf)
        try:
            found = speed(subject, phase, timing)
            answer: dict[str, Any] = dict(found.measures) if "ratio" in found.measures else {"error": found.message}
        except Exception as error:  # the parent records what it was
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
        kept = {name: answer[name] for name in ("ratio", "low", "high", "claimed", "error") if name in answer}
        print(f"\n{MARK}{json.dumps({'case': case, 'phase': phase, **kept})}", flush=True)


if __name__ == "__main__":
    main()
