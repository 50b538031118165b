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
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    ladder = options.ladder
    if ladder is None:
        return
    from huggingface_hub import HfApi

    api, found = HfApi(), steps(store.read_run(folder).records)
    commit_of = {rung.name: rung.commit for rung in options.rungs}
    read = functools.cache(lambda commit: revisions.offer(api, ladder, commit, facts["device"]).measures)
    said: list[tuple[Change, dict[str, Any]]] = []
    searches = []
    for change in changes(found):
        try:
            ends = (commit_of[step.name] for step in (change.before, change.after))
            commits = revisions.between(api, ladder.repository, *ends)
            if len(commits) < 2:
                continue  # The revision itself is the first commit that differs, and the table shows how.
            if change.check is None:
                said.append((change, _by_files(change, commits, read)))
            else:
                searches.append(Search(change, commits))
        except Exception as error:  # a Hub that answers no more costs this search, and not the report
            said.append((change, _lost(change, f"{type(error).__name__}: {error}")))
    known = _ask(folder, options, facts, searches)
    said += [(search.change, _by_check(search, known, SECONDS[options.selection.tier])) for search in searches]
    for step in found:
        measures = [measures for change, measures in said if change.after is step]
        if measures:
            whole = dict(ChainMap(*measures, step.about.measures))
            store.append(folder / store.RESULTS, msgspec.structs.replace(step.about, measures=whole))


def _by_files(change: Change, commits: Sequence[str], read: Callable[[str], Mapping[str, object]]) -> dict[str, Any]:
    def seen(commit: str) -> str | None:
        return offered(read(commit), change.aspect)

    commit, tried = first_different(commits, lambda commit: seen(commit) == change.was)
    return _named(change, commits, commit, tried, seen(commit))


def _by_check(search: Search, known: Known, limit: float) -> dict[str, Any]:
    try:
        commit, tried = search.run(known)
    except _UnknowableError as error:
        return _lost(search.change, str(error))
    except _UnansweredError:
        return _lost(search.change, f"no answer within {limit:g} s for all; see logs/fresh.log")
    return _named(search.change, search.commits, commit, tried, search.seen(commit, known))


def _named(change: Change, commits: Sequence[str], commit: str, tried: int, seen: str | None) -> dict[str, Any]:
    if change.aspect is Aspect.OUTPUT:
        said = "other bits" if seen is not None else "no output"
    else:
        said = f"was {change.was}, is {seen}"
    check = change.check
    where = f"{check.case.removesuffix(f'@{change.after.name}')} {check.property}: " if check else ""
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
