"""The fresh process of ``suite.first_change``: checks commit after commit of a kernel, as the searches ask for them.

Each commit is loaded as a revision of a ladder is. The records go to a folder of their own, beside those of the run.
"""

import pickle
import sys
import time
from pathlib import Path

from cases.axes import Property
from cases.case import Case
from cases.repositories import in_use
from reports.ladder import Aspect, observed
from suite import fresh
from suite.bench import Bench
from suite.first_change import FOLDER, READY, Question, next_question
from suite.options import Options
from suite.recorder import Recorder
from suite.setup import make_shelf, make_timing


def main() -> None:
    """Answer until the searches ask no more, or time is up."""
    options, facts, searches, known, limit = pickle.load(sys.stdin.buffer)
    start = time.monotonic()
    folder = Path(facts["folder"]) / FOLDER
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    shelf = make_shelf(options, facts)
    timing = make_timing(options, {**facts, "timing": False}, shelf)
    # No waivers: what they make of an outcome depends on the name of a revision.
    recorder = Recorder(folder, facts["rerun"], (), facts["device"])
    bench = Bench(shelf, recorder, timing=timing, embedded=bool(facts["embedded"]))
    fresh.say(READY)
    while (question := next_question(searches, known)) is not None and time.monotonic() - start < limit:
        try:
            known[question] = _answer(bench, options, question)
        except Exception as error:  # a fault of the suite must not look like one of the commit
            finding = recorder.harness_error(error)
            known[question] = {Aspect.OUTCOME.value: f"{finding.outcome} {finding.reason}", Aspect.OUTPUT.value: None}
        fresh.say([question, known[question]])
    bench.close()


def _answer(bench: Bench, options: Options, question: Question) -> dict[str, str | None]:
    identity, checked, commit = question
    if checked == Property.REPOSITORY:
        record = bench.inspect(*in_use((), options.own, [f"{identity}@{commit}"]))
    else:
        case = Case.from_id(f"{identity}@{commit}")
        # What a check rests on is asked first, as in a run.
        records = {each: bench.run(case, each) for each in (Property.LOAD, Property.ENGAGE)}
        record = records.get(Property(checked)) or bench.run(case, Property(checked))
    return {aspect.value: observed(record, aspect) for aspect in (Aspect.OUTCOME, Aspect.OUTPUT)}


if __name__ == "__main__":
    main()
