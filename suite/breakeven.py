"""From which shape on a kernel wins, and after how many calls it has paid back what it cost to load.

    python -m suite.breakeven --case qwen3-0.6b-width/f32/inference/eager/only-RMSNorm

The model of the case is put through prefills of growing batches and lengths, by the procedure of every other speed.
Bundled kernels come from disk; ``--kernel LAYER=…`` brings your own to a case whose mapping is ``user``.
"""

import argparse
import json
import math
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from suite.sampling import Arm, Measurement, Sampler

if TYPE_CHECKING:
    from suite.subject import Subject

__all__ = ["BATCHES", "LENGTHS", "Cell", "first_win", "heat_map", "payback"]

BATCHES = (1, 4, 16)
LENGTHS = (1, 16, 64, 256)
"""Tokens of each row. One token is what decoding asks for."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape."""

    rows: int
    tokens: int
    ratio: float
    low: float
    high: float
    verdict: str
    pytorch_seconds: float
    kernel_seconds: float


def first_win(cells: Sequence[Cell]) -> Cell | None:
    """The smallest shape, by its number of tokens, from which on no shape is slower and this one is faster."""
    ordered = sorted(cells, key=lambda cell: (cell.rows * cell.tokens, cell.rows))
    for place, cell in enumerate(ordered):
        if cell.verdict == "FASTER" and all(later.verdict != "SLOWER" for later in ordered[place:]):
            return cell
    return None


def payback(cell: Cell, cost: float) -> float:
    """Calls after which ``cost`` seconds are paid back; infinity where a call saves nothing for certain."""
    saved = cell.pytorch_seconds - cell.kernel_seconds
    return math.ceil(cost / saved) if cell.verdict == "FASTER" and saved > 0 else math.inf


def heat_map(cells: Sequence[Cell]) -> str:
    """The ratios as a table, batches downwards and lengths to the right, with a sign for the verdict."""
    signs = {"FASTER": "+", "SLOWER": "-", "SAME": "=", "INCONCLUSIVE": "?"}
    lengths = sorted({cell.tokens for cell in cells})
    found = {(cell.rows, cell.tokens): f"{cell.ratio:.2f}× {signs[cell.verdict]}" for cell in cells}
    rows = [[rows, *(found.get((rows, tokens), "") for tokens in lengths)] for rows in sorted({c.rows for c in cells})]
    headers = ["rows", *(f"{tokens} tokens" for tokens in lengths)]
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)


def measure(subject: "Subject", make: Callable[[int], Sampler], rows: int, tokens: int) -> Cell:
    """One shape."""
    import torch

    from cases.inputs import Inputs
    from suite import passes

    recipe = Inputs(f"{rows} × {tokens}", rows, tokens, (0,) * rows, "one shape of the map")
    given = passes.batch(recipe, subject.backend.torch_device(), int(subject.loaded.model.config.vocab_size))

    def call() -> object:
        with torch.no_grad():
            return passes.run(subject.loaded.model, subject.record, given)

    arms = subject.arms
    try:
        result: Measurement = make(zlib.crc32(recipe.name.encode())).measure(
            Arm(call, lambda calls: arms.use_pytorch()), Arm(call, lambda calls: arms.use_kernels())
        )
    finally:
        arms.use_kernels()
    interval = result.interval
    return Cell(
        rows,
        tokens,
        interval.ratio,
        interval.low,
        min(interval.high, 1e9),
        result.verdict,
        result.pytorch_seconds,
        result.kernel_seconds,
    )


def _subject(chosen: argparse.Namespace, folder: Path) -> "Subject":
    """The case of the command line, proved to run its kernels."""
    import torch

    from cases.case import Case
    from cases.plan import USER
    from reports.record import Outcome
    from suite import engagement, model_checks
    from suite.device import BACKENDS, probe
    from suite.loading import Loader
    from suite.options import parse_kernel
    from suite.session import KERNELS, threads
    from suite.subject import Shelf, Subject

    torch.set_num_threads(threads(1))
    loader = Loader(
        BACKENDS[probe(chosen.device).device],
        KERNELS,
        frozenset(chosen.trust),
        {USER: dict(parse_kernel(text) for text in chosen.kernel)},
    )
    subject = Subject(Case.from_id(chosen.case), Shelf(loader, folder))
    checks = (lambda of: engagement.load(of, embedded=False), engagement.engage, model_checks.forward)
    for check in checks:
        finding = check(subject)
        if finding.outcome is not Outcome.PASS:
            # What does not run, or is wrong, has no speed.
            raise SystemExit(f"nothing to break even, since the check before says {finding.outcome}: {finding.message}")
    return subject


def main() -> None:
    """Measure the map of one case and print it."""
    parser = argparse.ArgumentParser(prog="python -m suite.breakeven", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", required=True, help="a case in a mode of inference")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kernel", action="append", default=[], metavar="LAYER=REPO[@PIN]:NAME")
    parser.add_argument("--trust", action="append", default=[], metavar="REPO")
    parser.add_argument("--budget", type=float, default=1.5, help="seconds a shape (default: 1.5)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()

    from suite.speed import clock_of

    with tempfile.TemporaryDirectory() as folder:
        subject = _subject(chosen, Path(folder))
        clock = clock_of(subject.backend)
        cells = [
            measure(subject, lambda seed: Sampler(clock, chosen.budget, seed), rows, tokens)
            for rows in BATCHES
            for tokens in LENGTHS
        ]
        cost = subject.load_seconds + subject.first_pass_seconds
        subject.close()
    win = first_win(cells)
    calls = payback(win, cost) if win else math.inf
    if chosen.json:
        print(
            json.dumps(
                {
                    "case": chosen.case,
                    "cells": [asdict(cell) for cell in cells],
                    "first_win": None if win is None else [win.rows, win.tokens],
                    "cost_seconds": cost,
                    "payback_calls": None if math.isinf(calls) else calls,
                }
            )
        )
        return
    print(heat_map(cells))
    if win is None:
        print("\nIt wins at no shape of this map.")
    else:
        print(
            f"\nIt wins from {win.rows} × {win.tokens} tokens on; {calls:,.0f} such calls pay back the {cost:.1f} s of "
            "loading the model with its kernels and of the first pass."
        )


if __name__ == "__main__":
    main()
