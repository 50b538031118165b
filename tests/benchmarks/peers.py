"""What people use today, next to this suite, on the same call, machine and wall time: PyTorch against itself.

    python tests/benchmarks/peers.py [--runs 20] [--seconds 2] [--json]

Both sides of every comparison are the same function, so each difference that a method claims is false, and the spread
of its ratios is its own. The methods take turns run by run, so that all of them meet the same machine. Each claims in
the way it is read: torch's Timer by boxes (quartiles) that do not overlap, pytest-benchmark by means whose 95 %
intervals do not overlap, both if more than 2 % lie between; ``kernels benchmark`` by the word it prints.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from kernels.benchmark import Benchmark
from kernels.cli.benchmark import run_benchmark_class
from tabulate import tabulate
from torch.utils.benchmark import Timer

from cases.axes import Device
from suite.calibrate import spread, tiny_prefill
from suite.device import BACKENDS
from suite.sampling import Arm, Clock, Sampler
from suite.statistics import INDIFFERENCE

KERNEL = Path(__file__).resolve().parents[2] / "cases" / "kernels" / "activation" / "v1"
"""Any repository that ``kernels benchmark`` can load; its kernel is not called."""

Answer = tuple[float, bool]
"""Ratio of the two sides, and whether a difference is claimed."""
Method = Callable[[Arm, float, int], Answer]


@dataclass(frozen=True, slots=True)
class Line:
    """One method over all runs."""

    method: str
    false_differences: int
    runs: int
    spread_iqr: float
    lowest: float
    highest: float
    seconds: float
    """Mean wall time of one comparison."""


def suite(work: Arm, seconds: float, seed: int) -> Answer:
    """This suite: counterbalanced pairs, exact interval, a rule when to stop."""
    # What is left of the time goes into the warm-up.
    result = Sampler(Clock(time.perf_counter, lambda: None), 0.6 * seconds, seed).measure(work, work)
    return result.interval.ratio, result.verdict in ("FASTER", "SLOWER")


def timer(work: Arm, seconds: float, seed: int) -> Answer:
    """``torch.utils.benchmark.Timer``, one side after the other."""
    make: Any = Timer
    first, second = (
        make("work()", globals={"work": work.call}).blocked_autorange(min_run_time=seconds / 2) for _ in range(2)
    )
    quartiles = [statistics.quantiles(side.times, n=4) for side in (first, second)]
    apart = quartiles[0][0] > quartiles[1][2] or quartiles[1][0] > quartiles[0][2]
    ratio = float(first.median / second.median)
    return ratio, apart and abs(ratio - 1) > INDIFFERENCE


def rounds(work: Arm, seconds: float, seed: int) -> Answer:
    """As pytest-benchmark does it: warm-up, rounds of one side, then of the other; the table shows means."""
    sides = []
    for _ in range(2):
        for _ in range(10):
            work.call()
        times: list[float] = []
        end = time.perf_counter() + seconds / 2
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            work.call()
            times.append(time.perf_counter() - start)
        sides.append(times)
    means = [statistics.fmean(side) for side in sides]
    margins = [1.96 * statistics.stdev(side) / math.sqrt(len(side)) for side in sides]
    ratio = means[0] / means[1]
    return ratio, abs(means[0] - means[1]) > sum(margins) and abs(ratio - 1) > INDIFFERENCE


def kernels_benchmark(work: Arm, seconds: float, seed: int) -> Answer:
    """``kernels benchmark``: its own timing loop, its own rule for "significant"."""
    start = time.perf_counter()
    for _ in range(5):
        work.call()
    each = (time.perf_counter() - start) / 5

    class Same(Benchmark):  # type: ignore[misc]  # kernels ships no types
        def setup(self) -> None:
            self.out = torch.zeros(1)

        def benchmark_same(self) -> None:
            work.call()

        def verify_same(self) -> torch.Tensor:
            work.call()
            return torch.zeros(1)

    iterations = max(10, int(seconds / each) - 20)
    results, _ = run_benchmark_class(Same, iterations, 10, str(KERNEL), True, "main")
    found = results["same"]
    upper = found.mean_ms + 1.96 * found.std_ms / math.sqrt(found.iterations)
    return found.ref_mean_ms / found.mean_ms, upper < found.ref_mean_ms


METHODS: dict[str, Method] = {
    "this suite": suite,
    "torch.utils.benchmark.Timer": timer,
    "pytest-benchmark, A then B": rounds,
    "kernels benchmark": kernels_benchmark,
}


def compare(work: Arm, runs: int, seconds: float) -> list[Line]:
    """Every method ``runs`` times, by turns."""
    answers: dict[str, list[Answer]] = {name: [] for name in METHODS}
    spent = dict.fromkeys(METHODS, 0.0)
    for run in range(runs):
        for name, method in METHODS.items():
            start = time.perf_counter()
            answers[name].append(method(work, seconds, run))
            spent[name] += time.perf_counter() - start
    lines = []
    for name, found in answers.items():
        ratios = [ratio for ratio, _ in found]
        claimed = sum(claims for _, claims in found)
        lines.append(Line(name, claimed, runs, spread(ratios), min(ratios), max(ratios), spent[name] / runs))
    return lines


def main() -> None:
    """Compare, and print a table for the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="wall time of one comparison (default: 2)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        lines = compare(tiny_prefill(Path(folder), BACKENDS[Device.CPU]), chosen.runs, chosen.seconds)
    if chosen.json:
        print(json.dumps([asdict(line) for line in lines]))
        return
    rows = [
        [
            line.method,
            f"{line.false_differences} of {line.runs}",
            f"{line.spread_iqr:.1%}",
            f"{line.lowest:.2f} to {line.highest:.2f}",
            f"{line.seconds:.1f} s",
        ]
        for line in lines
    ]
    headers = ["method", "false differences", "spread (IQR)", "ratios", "time"]
    print(tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True))


if __name__ == "__main__":
    main()
