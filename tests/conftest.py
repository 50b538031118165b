"""``pytest tests`` uses every core: the tests are many small programs, and most of them wait for imports."""

import gc
import os

import pytest

LONGEST = tuple(
    f"test_{name}.py" for name in ("harness", "faults", "run", "run_stopped", "run_speed", "ladder", "hub_away")
)
"""Files that make whole runs of the suite. Begun last, one of them would keep all workers but its own idle."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A worker for each core and one more unless ``-n`` says otherwise, since a worker often waits for a process.

    A file stays on one worker, since its fixtures are shared.
    """
    option = config.option
    if hasattr(config, "workerinput") or option.numprocesses is not None:
        return
    if option.collectonly or option.usepdb or getattr(option, "benchmark_only", False):
        # Benchmarks are measured by one process alone.
        return
    option.numprocesses = (os.cpu_count() or 1) + 1
    option.dist = "loadfile"
    # Files are begun in the order of their items, and not the one with most tests first.
    option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_collection_finish() -> None:
    """Everything is imported: these objects stay, and each timing would have the collector walk through them all."""
    gc.freeze()
