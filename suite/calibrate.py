"""Measures this machine: what the procedure for speed can tell apart on it, and how often it would be wrong.

    python -m suite.calibrate --device cpu [--runs 60] [--json]

PyTorch is measured against itself, where any difference is false, and against itself with a known slowdown, which must
be found. The slowdown is real time: after each call the arm waits for a share of the time that this very call took, so
that the true ratio is known whatever the machine is doing.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from suite.sampling import Arm, Clock, Measurement, Sampler
from suite.statistics import INDIFFERENCE

if TYPE_CHECKING:
    from suite.device import Backend

__all__ = ["SLOWDOWNS", "Calibration", "calibrate", "slowed", "spread", "table", "tiny_prefill"]

SLOWDOWNS = (1.01, 1.02, 1.05, 1.1, 1.2)
"""Factors on the time of the kernel arm. The first two lie within what counts as the same."""

MakeSampler = Callable[[int], Sampler]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a machine can tell apart."""

    aa_runs: int
    """Measurements of PyTorch against itself."""
    false_differences: int
    """How many of them claimed FASTER or SLOWER."""
    half_width: float
    """Median half-width of their intervals: the noise floor. 0.01 is 1 %."""
    spread_iqr: float
    """Interquartile range of their ratios."""
    least_effect: float
    """Effect that nearly every run would find: what counts as the same, and two half-widths."""
    injected_runs: int
    """Measurements of each slowdown."""
    detected: dict[str, float]
    """Share of them that said SLOWER, by slowdown."""
    wrong_sign: int
    """How many of all of them said FASTER."""
    seconds_per_verdict: float
    """Mean wall time of one measurement."""


def slowed(arm: Arm, clock: Clock, factor: float) -> Arm:
    """An arm that takes ``factor`` times as long: each call is timed, and followed by a busy wait for the rest."""

    def call() -> None:
        start = clock.now()
        arm.call()
        clock.synchronize()
        end = start + factor * (clock.now() - start)
        # Also the arm that is not slowed waits for the device, so that both do the same but for the wait.
        while factor > 1 and clock.now() < end:
            pass

    return Arm(call, arm.prepare)


def calibrate(
    work: Arm,
    make: MakeSampler,
    runs: int,
    injected_runs: int,
    slowdowns: Iterable[float] = SLOWDOWNS,
    said: Callable[[str], object] = lambda text: None,
) -> Calibration:
    """Measure ``work`` against itself ``runs`` times, and against each slowdown ``injected_runs`` times.

    ``make`` gives the sampler for a seed. ``said`` is told of the progress.
    """
    seconds: list[float] = []

    def measure(seed: int, factor: float) -> Measurement:
        sampler = make(seed)
        start = sampler.clock.now()
        result = sampler.measure(slowed(work, sampler.clock, 1.0), slowed(work, sampler.clock, factor))
        seconds.append(sampler.clock.now() - start)
        return result

    same = []
    for seed in range(runs):
        same.append(measure(seed, 1.0))
        said(f"A/A {seed + 1} of {runs}: {same[-1].interval.ratio:.3f} {same[-1].verdict}")
    detected: dict[str, float] = {}
    wrong = 0
    for factor in slowdowns:
        verdicts = [measure(seed, factor).verdict for seed in range(injected_runs)]
        detected[f"{factor:g}"] = verdicts.count("SLOWER") / max(1, injected_runs)
        wrong += verdicts.count("FASTER")
        said(f"slowed by {factor - 1:.0%}: {verdicts.count('SLOWER')} of {injected_runs} found")
    half_width = statistics.median(min(result.interval.half_width, 1e9) for result in same)
    return Calibration(
        aa_runs=runs,
        false_differences=sum(result.verdict in ("FASTER", "SLOWER") for result in same),
        half_width=half_width,
        spread_iqr=spread([result.interval.ratio for result in same]),
        least_effect=INDIFFERENCE + 2 * half_width,
        injected_runs=injected_runs,
        detected=detected,
        wrong_sign=wrong,
        seconds_per_verdict=statistics.fmean(seconds),
    )


def spread(values: Sequence[float]) -> float:
    """Interquartile range; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def table(found: Calibration, device: str) -> str:
    """The calibration for a reader."""
    rows = [
        ["false differences", f"{found.false_differences} of {found.aa_runs} A/A runs"],
        ["noise floor (median half-width)", f"{found.half_width:.2%}"],
        ["spread of the ratio (IQR)", f"{found.spread_iqr:.2%}"],
        ["least effect found in nearly every run", f"{found.least_effect:.1%}"],
        *(
            [f"slowed by {float(factor) - 1:.0%}: said SLOWER", f"{share:.0%} of {found.injected_runs}"]
            for factor, share in found.detected.items()
        ),
        ["slowed, and said FASTER", str(found.wrong_sign)],
        ["seconds per verdict", f"{found.seconds_per_verdict:.2f}"],
    ]
    return tabulate(rows, headers=["what", device], tablefmt="simple", disable_numparse=True)


def main() -> None:
    """Calibrate the device of the command line with the prefill of a tiny model."""
    parser = argparse.ArgumentParser(prog="python -m suite.calibrate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="auto", help="as for pytest suite (default: auto)")
    parser.add_argument("--runs", type=_positive, default=60, help="A/A runs; slowdowns get two thirds (default: 60)")
    parser.add_argument("--budget", type=_seconds, default=10.0, help="seconds per verdict after warm-up (default: 10)")
    parser.add_argument("--threads", type=_positive, default=None, help="threads of torch (default: as a run has)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    chosen = parser.parse_args()
    found, device = _calibrate_device(chosen)
    print(json.dumps({"device": device, **asdict(found)}) if chosen.json else table(found, device))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("expected a whole number from 1 on")
    return number


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("expected a number of seconds above 0")
    return value


def _calibrate_device(chosen: argparse.Namespace) -> tuple[Calibration, str]:
    import torch

    from suite.device import BACKENDS, ProbeError, probe
    from suite.session import threads
    from suite.speed import clock_of
    from suite.stopping import SIGN_OFF_LOOKS, Stopping
    from suite.throttling import Throttling

    try:
        info = probe(chosen.device)
    except (ProbeError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    backend = BACKENDS[info.device]
    torch.set_num_threads(chosen.threads or threads(1))
    throttling = Throttling(backend.clock_mhz)

    def make(seed: int) -> Sampler:
        # As with --tier full, which has the time to look once more.
        stopping = Stopping(SIGN_OFF_LOOKS)
        return Sampler(clock_of(backend), chosen.budget, seed, stopping=stopping, throttling=throttling)

    def said(text: str) -> None:
        if not chosen.quiet:
            print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        work = tiny_prefill(Path(folder), backend)
        return calibrate(work, make, chosen.runs, math.ceil(2 * chosen.runs / 3), said=said), info.name


def tiny_prefill(folder: Path, backend: "Backend") -> Arm:
    """One prefill of the zoo's tiny Llama in float32, PyTorch only: short, so that it shows what a clock can do."""
    import torch
    import transformers

    from cases.inputs import INPUTS
    from cases.models import MODELS
    from suite import passes, zoo

    transformers.utils.logging.disable_progress_bar()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    record = MODELS["llama-tiny"]
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(zoo.build(record, folder))
    model.to(backend.torch_device())
    given = passes.batch(INPUTS["dense"], backend.torch_device(), int(model.config.vocab_size))

    def call() -> object:
        with torch.no_grad():
            return passes.run(model, record, given)

    return Arm(call)


if __name__ == "__main__":
    main()
