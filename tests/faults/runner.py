"""Runs faults and twins in this process by the path of ``pytest suite``: command line, options, plan, bench, records.

Only pytest itself is left out, whose part is to choose which check is next. Time and memory are not checked: neither
says that a kernel is wrong. A case that is no compile case is compiled only for a fault that shows there: a run of the
suite compiles few cases, since tracing takes longer than all other checks together.
"""

import argparse
import importlib.util
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from cases import compiled, plan
from cases import repositories as used
from cases.axes import Device, Property
from reports import store
from reports.record import Outcome, Record
from suite import options as suite_options
from suite.session import ROOT
from suite.setup import make_bench
from tests.faults import repositories, set_ups
from tests.faults.records import ATTENTION, Fault, SetUp

__all__ = ["CAUGHT", "Result", "command", "parsed", "run"]

CAUGHT = frozenset({Outcome.FAIL, Outcome.FALLBACK})
"""What a check says of a kernel that is wrong or did not run."""

UNCHECKED = frozenset({Property.MEMORY, Property.SPEED})


@dataclass(frozen=True, slots=True)
class Result:
    """What the suite said of one fault, or of its twin."""

    fault: Fault
    broken: bool
    records: tuple[Record, ...]
    seconds: float

    @property
    def alarms(self) -> tuple[Record, ...]:
        """Records that are neither a pass nor a proper reason not to check."""
        return tuple(
            record
            for record in self.records
            if record.outcome not in (Outcome.PASS, Outcome.NOT_RUN, Outcome.NOT_SUPPORTED, Outcome.WAIVED)
        )

    @property
    def caught(self) -> tuple[Record, ...]:
        """Records that say that the kernel is wrong, or did not run."""
        return tuple(record for record in self.records if record.outcome in CAUGHT)

    @property
    def clean(self) -> bool:
        """Whether nothing was said against it, and its calls were proved."""
        engaged = any(r.property is Property.ENGAGE and r.outcome is Outcome.PASS for r in self.records)
        return engaged and not self.alarms


def command(fault: Fault, repository: Path, device: Device, *, broken: bool) -> list[str]:
    """What follows ``pytest suite`` where a user runs this fault."""
    words = ["--device", device.value, "--hub", "embedded", "--case", fault.case(broken=broken)]
    if fault.target != ATTENTION:
        words += ["--kernel", f"{fault.target}={repository}:{fault.layer(broken=broken)}"]
    return words


def run(
    fault: Fault, folder: Path, device: Device, *, broken: bool, unchecked: frozenset[Property] = frozenset()
) -> Result:
    """Check everything of one fault or twin but ``unchecked``. ``folder`` is shared by all of them."""
    start = time.perf_counter()
    repository = repositories.make(folder / "repositories", fault, device, broken=broken)
    options = suite_options.read(parsed(command(fault, repository, device, broken=broken)))
    own = folder / "runs" / f"{fault.id}-{'broken' if broken else 'healthy'}"
    shutil.rmtree(own, ignore_errors=True)
    (own / "logs").mkdir(parents=True)
    (own / store.RESULTS).touch()
    _share_models(own, folder / "models")
    facts: dict[str, Any] = {
        "folder": str(own),
        "device": device.value,
        "device_count": 1,
        "local_root": None,
        "embedded": True,
        "threads": torch.get_num_threads(),
        "rerun": options.rerun,
        "timing": False,
    }
    with set_ups.applied(fault.set_up if broken else SetUp.NONE):
        cases = options.cases()
        found = used.in_use(cases, options.own)
        compiling = compiled.of_selection(options.selection, cases) if Property.COMPILE in fault.by else frozenset()
        bench = make_bench(options, facts, found)
        try:
            records = [bench.inspect(each) for each in found if Property.REPOSITORY not in unchecked]
            for case in cases:
                wanted = {*plan.properties(case), *([Property.COMPILE] if case in compiling else [])}
                records += [
                    bench.run(case, checked)
                    for checked in Property
                    if checked in wanted and checked not in UNCHECKED | unchecked
                ]
        finally:
            bench.close()
    return Result(fault, broken, tuple(records), time.perf_counter() - start)


def _share_models(own: Path, models: Path) -> None:
    """Let a run find the models that another one saved."""
    models.mkdir(parents=True, exist_ok=True)
    (own / "cache").mkdir(parents=True, exist_ok=True)
    (own / "cache" / "models").symlink_to(models, target_is_directory=True)


class _Words(argparse.Namespace):
    """The options given; those of pytest itself, which this parser does not know, are not."""

    def __getattr__(self, name: str) -> None:
        return None


def parsed(words: list[str]) -> argparse.Namespace:
    """The options of ``pytest suite``, from the one place where they are, without pytest around them."""
    specification = importlib.util.spec_from_file_location("suite_command_line", ROOT / "conftest.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    parser = argparse.ArgumentParser()
    group = SimpleNamespace(addoption=parser.add_argument)
    module.pytest_addoption(SimpleNamespace(getgroup=lambda *_: group))
    return _Words(**vars(parser.parse_args(words)))
