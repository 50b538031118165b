"""Ties the suite to pytest: options to plan, plan to items, items to workers, workers to records, records to report.

The controller opens the session and imports no torch; each worker has one bench. Without ``-n`` there is one worker,
so that a kernel that dies or hangs costs one check and not the run; ``-n 0`` stays in one process, for debugging.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import break_even, compiled, plan, repositories
from cases.axes import Device, Property
from cases.ladder import Rung
from suite import benchmarks
from suite import session as sessions
from suite.device import BACKENDS, ProbeError
from suite.options import OptionError, Options, read
from suite.outcomes import parse_item
from suite.watcher import Watcher

if TYPE_CHECKING:
    from suite.bench import Bench

TIMEOUT = 180.0
"""Seconds a check may take: far above any honest one here, and one hang must not eat a night."""

STATE = pytest.StashKey["State"]()


class State:
    """What the hooks share in one process."""

    def __init__(self, config: pytest.Config) -> None:
        self.plan(read(config.option))
        self.switches = benchmarks.Switches(only=False, skip=False, timing=True)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.session: sessions.Session | None = None
        self.facts: dict[str, Any] = sessions.facts_for_listing()
        self.done: frozenset[tuple[str, str]] = frozenset()

    def plan(self, options: Options) -> None:
        """Plan the checks; on a ladder once with what is chosen, and again when its revisions are known."""
        self.options = options
        chosen = options.cases()
        self.cases = options.climbed(chosen)
        also = {
            Property.COMPILE: compiled.of_selection(options.selection, chosen),
            Property.BREAK_EVEN: break_even.of_selection(options.selection, chosen),
        }
        self.also = {checked: frozenset(options.climbed(cases)) for checked, cases in also.items()}
        used = {case.mapping for case in self.cases} | set(options.selection.cases)
        self.rungs = [rung for rung in options.rungs if not used.isdisjoint((rung.mapping, rung.id))]
        asked = [text for text in options.selection.cases if text.startswith(repositories.PREFIX)]
        try:
            self.repositories = repositories.in_use(self.cases, options.own, asked)
        except ValueError as error:
            raise OptionError(f"--case: {error}") from None
        self.statements = options.statements()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose the number of workers before xdist looks for it."""
    option = config.option
    if hasattr(config, "workerinput"):
        # A worker has no workers of its own.
        return
    if option.numprocesses is None and not option.collectonly and not option.usepdb:
        option.numprocesses = 1
    if option.numprocesses not in (None, 0):
        if option.maxworkerrestart is None:
            # The default gives up after four deaths per worker, and would lose the rest of the run. No limit at all
            # would restart for ever where a worker dies at its start.
            option.maxworkerrestart = "200"
        if option.dist == "no" and option.numprocesses != 1:
            # All checks of a model on one worker: the model is built once, and its checks build on one another.
            option.dist = "loadgroup"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Understand the options; in the controller open the session."""
    option = config.option
    if option.timeout is None:
        option.timeout = TIMEOUT
    # Only killing ends a kernel that hangs in C, and only a process of its own can be killed.
    option.timeout_method = "thread"
    switches = benchmarks.take_over(option)
    if option.tbstyle == "auto":
        # The summary at the end groups failures and has the command for each; pytest's list would repeat it by case.
        option.tbstyle = "no"
    option.reportchars = option.reportchars.replace("f", "") if option.reportchars == "fE" else option.reportchars
    try:
        state = State(config)
        state.switches = switches
        config.stash[STATE] = state
        if state.worker is not None:
            state.facts = state.worker["facts"]
            if state.options.ladder is not None:
                state.plan(state.options.on(tuple(Rung(*rung) for rung in state.facts["rungs"])))
            state.done = frozenset((case, checked) for case, checked in state.worker["done"])
            _mask_device(state)
        elif not _lists(option):
            workers = option.numprocesses if isinstance(option.numprocesses, int) else os.cpu_count() or 1
            state.session = sessions.open_session(state.options, max(1, workers))
            state.facts, state.done = state.session.facts, state.session.done
            if state.options.ladder is not None:
                state.plan(state.session.options)
            state.facts["timing"] = switches.timing and not switches.skip
            feed = benchmarks.Feed(config, state.session.folder, state.options, state.facts)
            config.pluginmanager.register(feed, "kernel-suite-benchmarks")
            watcher = Watcher(state.session, state.options, float(option.timeout))
            config.pluginmanager.register(watcher, "kernel-suite-watcher")
    except (OptionError, ProbeError) as error:
        raise pytest.UsageError(str(error)) from None


def _lists(option: Any) -> bool:
    """Whether pytest was asked to show something and to run nothing."""
    return any(getattr(option, name, False) for name in ("collectonly", "help", "version", "markers", "showfixtures"))


def _mask_device(state: State) -> None:
    """Give each of several workers a device of its own, before torch is imported."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1 and number.isdecimal():
        count = int(state.facts["device_count"])
        os.environ.update(BACKENDS[Device(state.facts["device"])].masked(int(number) % count, os.environ))
    # What kernels print belongs in the log: in the terminal it would bury the result, and it may hold secrets.
    log = Path(state.facts["folder"]) / "logs" / f"gw{number}.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, sys.__stderr__.fileno() if sys.__stderr__ else 2)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the facts of the session to a worker."""
    state = node.config.stash[STATE]
    node.workerinput["facts"] = state.facts
    node.workerinput["done"] = sorted(state.done)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each case that has the property of the test's module."""
    state = metafunc.config.stash[STATE]
    # Asked of the session: a worker's own options say nothing of its siblings.
    several = state.facts.get("workers", 1) > 1
    if "repository" in metafunc.fixturenames:
        # One worker sees them all: whether an id is unique is a question about all of them.
        marks = pytest.mark.xdist_group("repositories") if several else ()
        metafunc.parametrize("repository", [pytest.param(each, id=each.id, marks=marks) for each in state.repositories])
    if "rung" in metafunc.fixturenames:
        metafunc.parametrize("rung", [pytest.param((state.options.ladder, each), id=each.id) for each in state.rungs])
    if "statement" in metafunc.fixturenames:
        # One worker asks them all: each process that checks them takes seconds to start.
        marks = pytest.mark.xdist_group("statements") if several else ()
        metafunc.parametrize("statement", [pytest.param(each, id=each.id, marks=marks) for each in state.statements])
    if "case" not in metafunc.fixturenames:
        return
    checked = Property(metafunc.module.__name__.rpartition("test_")[2])
    cases = [case for case in state.cases if checked in plan.properties(case) or case in state.also.get(checked, ())]
    metafunc.parametrize(
        "case",
        [pytest.param(case, marks=pytest.mark.xdist_group(case.model) if several else ()) for case in cases],
        ids=[case.id for case in cases],
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Statements first, then repositories, then case by case, each in the order of its properties.

    What is recorded already is left out.
    """
    state = config.stash[STATE]
    rank = {case.id: number for number, case in enumerate(state.cases)}
    order = list(Property)

    def position(item: pytest.Item) -> tuple[int, int]:
        parsed = parse_item(item.nodeid)
        return (-1, 0) if parsed is None else (rank.get(parsed[0], -1), order.index(parsed[1]))

    # A module whose property no case has leaves one empty item behind.
    items[:] = [item for item in items if not item.nodeid.endswith("[NOTSET]")]
    items.sort(key=position)
    left = [
        item
        for item in items
        if (parsed := parse_item(item.nodeid)) not in state.done
        and state.switches.leaves(parsed[1] if parsed else None)
    ]
    if len(left) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(left)))
        items[:] = left


@pytest.fixture(scope="session")
def facts(pytestconfig: pytest.Config) -> dict[str, Any]:
    """What the controller handed to this worker."""
    return pytestconfig.stash[STATE].facts


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config) -> "Iterator[Bench]":
    """The bench of this worker."""
    from suite.setup import make_bench

    state = pytestconfig.stash[STATE]
    made = make_bench(state.options, state.facts, state.repositories)
    yield made
    made.end()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is about to be measured, on what."""
    state = config.stash[STATE]
    if state.session is None:
        each = " for each revision (only the Hub can name them)" if state.options.ladder else ""
        return [f"kernel suite: {len(state.cases)} cases{each}, tier {state.options.selection.tier} (listing only)"]
    environment = state.session.environment
    return [
        f"kernel suite: {len(state.cases)} cases, tier {environment.tier}, on {environment.device} "
        f"({environment.device_name}), kernels from {environment.hub}",
        f"results: {state.session.folder}",
    ]


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """No letter per check: the progress line says more."""
    if report.when == "call" or not report.passed:
        return report.outcome, "", report.outcome.upper()
    return None
