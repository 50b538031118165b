"""Finds the commit that changed a kernel, where two neighbours on a ladder differ and the Hub has commits between them.

By bisection, as ``git bisect`` does it: of n commits about log2 n are looked at, and the one that is named differs from
the older revision, while the last one looked at before it does not. Builds and forward are read from the Hub. For
outcome and output the check that shows the change is made again in a fresh process (``suite.commits``), which loads
commit after commit. One that takes the process with it has an outcome as well, and another process goes on. Speed is
not looked for: a bisection believes every answer, and those of a clock are sometimes wrong.

Runs in the controller and imports no torch.
"""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cases.axes import Tier
from cases.ladder import Rung
from reports import store
from reports.ladder import Aspect, Change, changes, offered, steps
from reports.record import Outcome, Reason
from suite import fresh, revisions
from suite.options import Options

__all__ = ["FOLDER", "READY", "SECONDS", "Known", "Question", "Search", "first_different", "look", "next_question"]

SECONDS = {Tier.SMOKE: 120.0, Tier.CORE: 300.0, Tier.FULL: 1800.0}
"""Time for all that is looked for in a run. A process takes five seconds to start, a commit about one."""

FOLDER = "ladder"
"""In the folder of a run: the records of the commits that were looked at."""

READY = "ready"
"""The first word of the fresh process. What dies without it says nothing of a commit."""
DIED = {Aspect.OUTCOME.value: f"{Outcome.CRASH} {Reason.INTERRUPTED}", Aspect.OUTPUT.value: None}

Question = tuple[str, str, str]
"""Id of a check without its revision, property, commit."""
Known = dict[Question, dict[str, str | None]]
"""What each check saw at a commit, by aspect."""


class _UnansweredError(Exception):
    """The search needs the answer to a question."""

    def __init__(self, question: Question) -> None:
        super().__init__(*question)
        self.question = question


class _UnknowableError(Exception):
    """The search cannot go on."""


@dataclass(frozen=True, slots=True)
class Search:
    """The search for the commit behind a change that a check shows."""

    change: Change
    commits: tuple[str, ...]
    """From the older revision, which is not among them, to the newer one."""

    def run(self, known: Known) -> tuple[str, int]:
        """The first commit that differs, and how many were looked at."""
        return first_different(self.commits, lambda commit: self.seen(commit, known) == self.change.was)

    def seen(self, commit: str, known: Known) -> str | None:
        """What the check saw at a commit."""
        check = self.change.check
        if commit == self.commits[-1] or check is None:
            return self.change.now
        question = check.case.removesuffix(f"@{self.change.after.name}"), check.property.value, commit
        if question not in known:
            raise _UnansweredError(question)
        saw = known[question]
        if str(saw[Aspect.OUTCOME]).startswith(Outcome.HARNESS_ERROR):
            raise _UnknowableError(f"the suite itself went wrong at {commit}, see {FOLDER}/logs/harness.log")
        return saw[self.change.aspect]


def first_different(commits: Sequence[str], same: Callable[[str], bool]) -> tuple[str, int]:
    """Of commits in order, of which the last is known to differ, the first that does; and how many were asked about."""
    low, high, asked = -1, len(commits) - 1, 0
    while high - low > 1:
        middle, asked = (low + high) // 2, asked + 1
        low, high = (middle, high) if same(commits[middle]) else (low, middle)
    return commits[high], asked


def look(folder: Path, options: Options, facts: dict[str, Any]) -> None:
    """Look for the commit behind each change on the ladder of a run, and add what was found to the later revision."""
    from huggingface_hub import HfApi

    ladder, api, found = options.ladder, HfApi(), steps(store.read_run(folder).records)
    if ladder is None:
        return
    measures: dict[str, dict[str, Any]] = {step.name: {} for step in found}
    searches = []
    for change in changes(found):

        @functools.cache
        def read(commit: str, aspect: Aspect = change.aspect) -> str | None:
            return offered(revisions.offer(api, ladder, commit, facts["device"]).measures, aspect)

        try:
            ends = (str(step.about.measures["commit"]) for step in (change.before, change.after))
            commits = revisions.between(api, ladder.repository, *ends)
            if len(commits) < 2:
                continue  # The revision itself is the first commit that differs, and the table shows how.
            if change.check is not None:
                searches.append(Search(change, commits))
                continue
            commit, tried = first_different(commits, lambda commit: read(commit) == change.was)  # noqa: B023
            measures[change.after.name] |= _named(change, commits, commit, tried, read(commit))
        except Exception as error:  # a Hub that answers no more costs this search, and not the report
            measures[change.after.name] |= _lost(change, f"{type(error).__name__}: {error}")
    known = _ask(folder, options, facts, searches)
    for search in searches:
        change = search.change
        try:
            commit, tried = search.run(known)
            measures[change.after.name] |= _named(change, search.commits, commit, tried, search.seen(commit, known))
        except _UnknowableError as error:
            measures[change.after.name] |= _lost(change, str(error))
        except _UnansweredError:
            limit = SECONDS[options.selection.tier]
            measures[change.after.name] |= _lost(change, f"no answer within {limit:g} s for all; see logs/fresh.log")
    for step in found:
        if measures[step.name]:
            record = msgspec.structs.replace(step.about, measures={**step.about.measures, **measures[step.name]})
            store.append(folder / store.RESULTS, record)


def _named(change: Change, commits: Sequence[str], commit: str, tried: int, seen: str | None) -> dict[str, Any]:
    if change.aspect is Aspect.OUTPUT:
        said = "other bits" if seen is not None else "no output"
    else:
        said = f"was {change.was}, is {seen}"
    where = (
        f"{change.check.case.removesuffix(f'@{change.after.name}')} {change.check.property}: " if change.check else ""
    )
    return {
        f"first_{change.aspect}": commit,
        f"first_{change.aspect}_tried": tried,
        f"first_{change.aspect}_between": len(commits) - 1,
        f"first_{change.aspect}_seen": f"{where}{said}"[:1000],
    }


def _lost(change: Change, why: str) -> dict[str, Any]:
    return {f"first_{change.aspect}": None, f"first_{change.aspect}_seen": " ".join(why.split())[:500]}


def next_question(searches: Iterable[Search], known: Known) -> Question | None:
    """The question that is to be asked next; the controller and the fresh process agree on it."""
    for search in searches:
        try:
            search.run(known)
        except _UnansweredError as unanswered:
            return unanswered.question
        except _UnknowableError:
            continue
    return None


def _ask(folder: Path, options: Options, facts: dict[str, Any], searches: Sequence[Search]) -> Known:
    """Have every question answered that the searches need, as far as time allows."""
    commits = dict.fromkeys(commit for search in searches for commit in search.commits)
    options = replace(options, rungs=tuple(Rung(each, each, number, (each,)) for number, each in enumerate(commits)))
    deadline = time.monotonic() + SECONDS[options.selection.tier]
    known: Known = {}
    while (question := next_question(searches, known)) is not None and (left := deadline - time.monotonic()) > 0:
        job = (options, facts, list(searches), known, left)
        said = list(fresh.answers("suite.commits", job, folder, left))
        known |= {(case, checked, commit): saw for (case, checked, commit), saw in said[1:]}
        question = next_question(searches, known)
        if not said or time.monotonic() > deadline:
            break
        if question is not None:
            known[question] = dict(DIED)
    return known
