"""Runs the faults once per session, the harness faults beside them, and prints the table of what caught what.

Under xdist each file of tests is on a worker of its own: one runs the seeded faults, the other those of the harness,
and the verdicts travel to the controller for the table. In one process the second run is started before the first.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tabulate import tabulate

from suite import qualify
from suite.qualify import FaultVerdict
from tests.faults import harness
from tests.faults.alone import NEEDED

VERDICTS = pytest.StashKey[tuple[FaultVerdict, ...]]()


@dataclass(frozen=True)
class Ended:
    """A run of ``pytest suite`` that came to its end."""

    folder: Path
    output: str


def _folder(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    chosen = config.getoption("out")
    return Path(chosen).resolve() if chosen else factory.mktemp("faults")


@pytest.fixture(scope="session")
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[subprocess.Popen[str], Path] | None]:
    """The run with the harness faults, begun: it mostly waits, so the others run meanwhile. None if nobody asks."""
    if not any("test_harness" in item.nodeid for item in request.session.items):
        yield None
        return
    folder = _folder(request.config, tmp_path_factory) / "harness"
    command = [sys.executable, "-m", "pytest", "suite", *harness.options(folder)]
    # Without what this pytest left there for its own workers and tests.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    process = subprocess.Popen(
        command,
        cwd=qualify.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process, folder
    if process.poll() is None:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def verdicts(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FaultVerdict, ...]:
    """What the suite says of every fault and twin, and of each fault without the mechanisms that it needs."""
    if not hasattr(pytestconfig, "workerinput"):
        request.getfixturevalue("started")
    without = [f"--without={mechanism}:{fault}" for mechanism, faults in NEEDED.items() for fault in faults]
    found = qualify.run("cpu", _folder(pytestconfig, tmp_path_factory), *without)
    pytestconfig.stash[VERDICTS] = found
    return found


@pytest.fixture(scope="session")
def ended(started: tuple[subprocess.Popen[str], Path]) -> Ended:
    """The run with the harness faults, at its end."""
    process, folder = started
    output, _ = process.communicate(timeout=400)
    return Ended(folder, output)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its verdicts to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and VERDICTS in session.config.stash:
        output["seeded faults"] = msgspec.json.encode(session.config.stash[VERDICTS]).decode()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The controller keeps them for its table."""
    handed = getattr(node, "workeroutput", {}).get("seeded faults")
    if handed is not None:
        node.config.stash[VERDICTS] = msgspec.json.decode(handed, type=tuple[FaultVerdict, ...])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Fault, caught by, property, figure, twin clean."""
    found = config.stash.get(VERDICTS, ())
    if found:
        terminalreporter.section("seeded faults")
        terminalreporter.write_line(table(found))


def table(found: tuple[FaultVerdict, ...]) -> str:
    """The verdicts for a terminal; the check that is there for a fault first."""
    rows = []
    for verdict in sorted((each for each in found if not each.without), key=lambda each: each.fault):
        alarms = sorted(verdict.alarms, key=lambda alarm: alarm.property not in verdict.expected)
        first = alarms[0] if alarms else None
        others = ", ".join(dict.fromkeys(str(a.property) for a in alarms[1:] if first and a.property != first.property))
        rows.append(
            [
                verdict.fault,
                verdict.sentence[:56],
                str(first.property) if first else "ESCAPED",
                f"{first.reason or ''} {first.figure}".strip() if first else "",
                others,
                "clean" if verdict.twin_clean else "ACCUSED",
            ]
        )
    caught = sum(verdict.caught and not verdict.without for verdict in found)
    clean = sum(verdict.twin_clean for verdict in found)
    headers = ["fault", "what is wrong", "caught by", "reason and figure", "and by", "twin"]
    return (
        f"{tabulate(rows, headers=headers)}\n\n{caught} of {len(rows)} faults found, {len(rows) - clean} false alarms"
    )
