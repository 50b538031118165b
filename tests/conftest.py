"""``pytest tests`` uses every core: the tests are many small programs, and most of them wait for imports."""

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """One worker per core unless ``-n`` says otherwise; a file stays on one worker, since its fixtures are shared."""
    option = config.option
    if hasattr(config, "workerinput") or option.numprocesses is not None:
        return
    if option.collectonly or option.usepdb or getattr(option, "benchmark_only", False):
        # Benchmarks are measured by one process alone.
        return
    option.numprocesses = os.cpu_count() or 1
    option.dist = "loadfile"
