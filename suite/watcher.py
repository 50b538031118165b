"""Hooks of the pytest controller while a run goes on: progress, workers that are lost, and the end of the run."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cases import plan
from cases.axes import Property
from cases.case import Case
from cases.statements import PREFIX, STATEMENTS
from reports.record import Outcome, Reason, Record
from suite.finding import Finding
from suite.options import Options
from suite.outcomes import lost_worker, parse_item
from suite.progress import Progress
from suite.recorder import Recorder
from suite.session import Session

__all__ = ["Watcher"]


class Watcher:
    """Hooks of the controller alone: progress, lost workers, the end."""

    def __init__(self, session: Session, options: Options, timeout: float) -> None:
        self._session, self._options, self._timeout = session, options, timeout
        self._progress: Progress | None = None
        self._started: dict[str, float] = {}
        self._text = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A worker begins a check."""
        self._started[nodeid] = time.monotonic()
        if self._progress:
            self._progress.started(_short(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A check ended."""
        if self._progress and (report.when == "call" or (report.when == "setup" and not report.passed)):
            self._progress.finished(_short(report.nodeid), report.outcome)
        if report.when == "setup" and report.failed:
            # The worker could not even begin: a library that cannot be imported, a bench that cannot be made.
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash else report.longreprtext or "no text"
            where = self._recorder().log(report.longreprtext)
            text = f"a fault of the suite, not of the kernel: the worker could not begin: {said} (traceback in {where})"
            self._record(report.nodeid, Finding(Outcome.HARNESS_ERROR, Reason.EXCEPTION, text))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """A worker knows what it is going to check; all workers know the same."""
        self._planned(len(ids))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The same with ``-n 0``."""
        if session.items:
            self._planned(len(session.items))

    def _planned(self, number: int) -> None:
        if self._progress is None:
            self._session.plan(number)
            self._progress = Progress(number)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Record what a dead worker could not."""
        seconds = time.monotonic() - self._started.get(crashitem, time.monotonic())
        record = self._record(crashitem, lost_worker(seconds, self._timeout), seconds)
        if record is not None:
            report.longrepr = (
                f"{record.case} {record.property}: {record.outcome}: {record.message}\n  again: {record.repro}"
            )

    def _record(self, nodeid: str, finding: Finding, seconds: float = 0.0) -> Record | None:
        """Record a check in the place of its worker; None for an item that is no check."""
        parsed = parse_item(nodeid)
        if parsed is None:
            return None
        case, checked = parsed
        return self._recorder().write(case, checked, finding, requirements=_cited(case, checked), seconds=seconds)

    def _recorder(self) -> Recorder:
        options, session = self._options, self._session
        return Recorder(session.folder, options.rerun, options.waivers, session.device.device)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Close the run; a run that pytest likes and the report does not is red all the same.

        After the other plugins, whatever becomes of them: only then have all workers stopped, also those of a run that
        was interrupted.
        """
        if self._progress:
            self._progress.close()
        try:
            yield
        finally:
            self._conclude(session)

    def _conclude(self, session: pytest.Session) -> None:
        opened = self._session
        # Imported here: only the end of a run has to wait for the chart library.
        from reports.finish import conclude

        try:
            opened.close(int(session.exitstatus))
            self._text, fails = conclude(opened.folder, self._options.baseline)
            if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and opened.done:
                # Resumed with nothing left to do.
                session.exitstatus = pytest.ExitCode.OK
            if session.exitstatus == pytest.ExitCode.OK and fails:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            opened.left(int(session.exitstatus))
        except OSError as error:
            self._text = (
                f"The end of the run could not be written to {opened.folder}: {error.strerror or error}.\n"
                f"Its results so far are there. Later: python -m reports html {opened.folder}\n{self._text}"
            )
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The short table, and where the long one is."""
        terminalreporter.write_line("")
        terminalreporter.write_line(self._text)


def _cited(case: str, checked: Property) -> tuple[str, ...]:
    """The requirements of a check whose worker died."""
    if checked is Property.STATEMENT:
        statement = STATEMENTS.get(case.removeprefix(PREFIX))
        return statement.requirements if statement else ()
    try:
        return plan.requirements(Case.from_id(case), checked)
    except ValueError:
        # About a repository, not about a case.
        return ()


def _short(nodeid: str) -> str:
    parsed = parse_item(nodeid)
    return f"{parsed[1]} {parsed[0]}" if parsed else nodeid.rpartition("::")[2]
