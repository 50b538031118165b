"""Shows the speeds of a run to pytest-benchmark, so that its table, files and comparisons work as its users expect.

pytest-benchmark cannot time this itself: it switches itself off next to xdist, and it times one arm after the other.
So the controller hands it the raw samples at the end: both arms as two entries of one group, with ratio, interval and
verdict in ``extra_info``. What has no speedup has no entry. Its switches for *whether* to measure are translated into
the suite's own, before it reads them.
"""

import argparse
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.logger import Logger
from pytest_benchmark.session import PerformanceRegression
from pytest_benchmark.stats import Metadata
from pytest_benchmark.utils import get_machine_id, load_storage

from cases.axes import Property
from reports import store
from reports.record import Record
from reports.verdict import judge
from suite.first_change import look
from suite.fresh import repeat
from suite.options import Options

__all__ = ["Feed", "Switches", "entries", "take_over"]

OPTIONS = {"timer": "perf_counter", "disable_gc": True, "warmup": True}
"""How the samples were taken, in pytest-benchmark's words; its own rounds and times are not what ended sampling."""
TIMED = frozenset({Property.SPEED, Property.BREAK_EVEN})
"""The checks that pytest-benchmark's switches are about."""
FEW = 6
"""Groups whose table is shown without being asked for: each takes seven lines of the terminal."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What pytest-benchmark's options ask of the suite."""

    only: bool
    """``--benchmark-only``: nothing but times is recorded."""
    skip: bool
    """``--benchmark-skip``: nothing is timed."""
    timing: bool
    """False with ``--benchmark-disable``: each arm runs once, untimed."""

    def leaves(self, checked: Property | None) -> bool:
        """Whether a check stays in the plan. What a revision is, no figure of it can do without."""
        return checked is Property.LADDER or not (self.skip if checked in TIMED else self.only)


def take_over(option: argparse.Namespace) -> Switches:
    """Read the switches, and set them so that pytest-benchmark neither skips our checks nor refuses xdist.

    The answer is kept in the options, since they are what workers are started with.
    """
    kept = getattr(option, "kernel_suite_switches", None)
    if kept is None:
        # Without pytest-benchmark (-p no:benchmark) there are no such options.
        only, skip, disable, enable = (
            bool(getattr(option, f"benchmark_{name}", False)) for name in ("only", "skip", "disable", "enable")
        )
        if only and disable and not enable:
            raise pytest.UsageError("--benchmark-only and --benchmark-disable: give one of them")
        _refuse(option)
        kept = [only, skip and not only, enable or not disable]
        option.kernel_suite_switches = kept
    option.benchmark_only = option.benchmark_skip = option.benchmark_enable = False
    option.benchmark_disable = True
    return Switches(*kept)


def _refuse(option: argparse.Namespace) -> None:
    """Say at the start what pytest-benchmark says once all is measured, and then by a traceback."""
    written, compared = getattr(option, "benchmark_json", None), getattr(option, "benchmark_compare", None)
    if written is not None and not written.parent.is_dir():
        raise pytest.UsageError(
            f"--benchmark-json {written}: there is no folder {written.parent}; make it, or choose another file"
        )
    if getattr(option, "benchmark_histogram", None) and not importlib.util.find_spec("pygal"):
        raise pytest.UsageError("--benchmark-histogram: needs pygal; pip install 'pytest-benchmark[histogram]'")
    if not getattr(option, "benchmark_compare_fail", None):
        return
    if not compared:
        raise pytest.UsageError(
            "--benchmark-compare-fail: expected --benchmark-compare too, for the saved run to compare with"
        )
    storage = load_storage(
        option.benchmark_storage, logger=Logger(), default_machine_id=get_machine_id(), netrc=option.benchmark_netrc
    )
    if not any(storage.load(*(() if compared is True else (compared,)))):
        name = "" if compared is True else f" {compared}"
        raise pytest.UsageError(
            f"--benchmark-compare{name}: no such saved run in {storage}; make one with --benchmark-save"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """What pytest-benchmark knows of the test behind an entry."""

    name: str
    fullname: str
    group: str
    param: str
    params: dict[str, str]
    extra_info: dict[str, Any]
    cprofile_stats: None = None
    has_error: bool = False


@dataclass
class Feed:
    """A plugin of the controller: fills pytest-benchmark's session before it saves, compares and prints."""

    config: pytest.Config
    folder: Path
    options: Options
    facts: dict[str, Any]
    left_out: int = field(default=0, init=False)
    _session: pytest.Session | None = field(default=None, init=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        """All workers are done: repeat and look for what must be, then fill in, then let pytest-benchmark finish."""
        self._session = session
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            repeat(self.folder, self.options, self.facts)
            look(self.folder, self.options, self.facts)
        self.fill()
        yield

    def fill(self) -> None:
        """Hand over what was measured."""
        session: Any = getattr(self.config, "_benchmarksession", None)
        if session is None:
            return
        run = store.read_run(self.folder)
        # Off while xdist was at work; from here on it is to warn, as ever, where it has nothing to save.
        session.disabled = not self.facts["timing"]
        session.benchmarks.extend(entries(judge(run.records, run.environment).speedups.measured))
        asked = any(str(word).startswith("--benchmark") for word in self.config.invocation_params.args)
        if not asked and len(session.benchmarks) > 2 * FEW:
            self.left_out = len(session.benchmarks) // 2
            session.quiet = True

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Iterator[None]:
        """Say that there is a table; fail, without a traceback, where ``--benchmark-compare-fail`` does."""
        try:
            yield
        except PerformanceRegression as regression:
            terminalreporter.write_line(f"{regression} (--benchmark-compare-fail)", red=True)
            if self._session is not None and self._session.exitstatus == pytest.ExitCode.OK:
                self._session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.left_out:
            terminalreporter.write_line(
                f"pytest-benchmark has {self.left_out} groups of two; --benchmark-enable prints them, "
                "--benchmark-json and --benchmark-save write them."
            )


def entries(measured: Iterable[Record]) -> Iterator[Any]:
    """Two entries for each speed that counts: PyTorch's samples and the kernel's."""
    for record in measured:
        phase = record.phase.value if record.phase else ""
        info = {
            name: record.measures.get(name)
            for name in ("ratio", "low", "high", "pairs", "unmet", "kernel_tokens_per_second")
        } | {"verdict": record.speed.value if record.speed else None}
        for arm in ("pytorch", "kernel"):
            samples = record.measures.get(f"{arm}_seconds")
            if not isinstance(samples, list) or not samples:
                continue
            name = f"test_speed[{record.case}-{phase}-{arm}]"
            source = _Source(
                name=name,
                fullname=f"suite/test_speed.py::{name}",
                group=f"{record.case} {phase}".strip(),
                param=f"{record.case}-{phase}-{arm}",
                params={"case": record.case, "phase": phase, "arm": arm},
                extra_info={**info, "arm": arm},
            )
            yield _metadata(source, samples, int(str(record.measures.get("inner_calls", 1))))


def _metadata(source: _Source, samples: Sequence[float], calls: int) -> Any:
    make: Any = Metadata  # pytest-benchmark leaves it untyped
    entry = make(source, iterations=calls, options=OPTIONS)
    entry.stats.data.extend(samples)
    return entry
