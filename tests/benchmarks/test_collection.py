"""How long it takes to list a plan. No test here depends on a time: pytest-benchmark keeps and compares them."""

import subprocess
import sys
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).resolve().parents[2]


def test_the_full_plan_is_listed(benchmark: BenchmarkFixture) -> None:
    """Fault: a listing that grows with more than the number of cases (limit: 10,000 in 3 s beyond imports)."""

    def listing() -> int:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "suite", "--collect-only", "-q", "--tier", "full"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.count("::")

    assert benchmark.pedantic(listing, rounds=1) > 10_000
