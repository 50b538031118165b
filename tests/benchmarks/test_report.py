"""How long a report of a large run takes to read and render. No time is asserted: machines differ."""

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from reports.html import render_html
from reports.store import read_run
from tests.reports.synthetic import records, write_run


@pytest.mark.parametrize("number", [10_000, 100_000])
def test_a_report_of_many_records(benchmark: BenchmarkFixture, tmp_path: Path, number: int) -> None:
    """Shows a step that became quadratic."""
    if benchmark.disabled and number > 10_000:
        pytest.skip("only worth its time where it is measured: pytest tests/benchmarks --benchmark-only")
    write_run(tmp_path, list(records(number)))

    def report() -> str:
        return render_html(read_run(tmp_path))

    document = benchmark.pedantic(report, rounds=3 if number <= 10_000 else 1)
    benchmark.extra_info["bytes"] = len(document)
    assert len(document) < 60 * 2**20
