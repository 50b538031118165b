"""The check ``break_even``: from which shape on a kernel wins, and after how many calls it has paid back its load.

    python -m suite.breakeven --case qwen3-0.6b-width/f32/inference/eager/only-RMSNorm

The model of the case is put through prefills of growing batches and lengths, by the procedure of every other speed.
As a command it maps one case with time for every shape: bundled kernels come from disk, and ``--kernel LAYER=…`` brings
your own to a case whose mapping is ``user``. The verdicts are those of the intervals; none is repeated in a fresh
process.
"""

import argparse
import json
import math
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch

from cases.axes import Mode, Phase
from cases.break_even import ROWS, TOKENS
from cases.inputs import Inputs
from cases.plan import USER, Selection, build
from reports.break_even import Cell, Map, heat_map, measures_of
from reports.ratio import Ratio
from reports.record import Outcome, Reason
from suite import engagement, memory, model_checks, passes
from suite.control import Control
from suite.device import BACKENDS, ProbeError, probe
from suite.finding import Finding
from suite.loading import Loader
from suite.model_checks import ArmError
from suite.options import OptionError, parse_kernel, seconds
from suite.sampling import Measurement, Sampler
from suite.session import KERNELS, threads
from suite.speed import Timing, arm_of, clock_of, timed
from suite.subject import Shelf, Subject
from suite.work import Work, calls_seen

__all__ = ["Shapes", "check", "measure"]

LEAST_CALLS = 12
"""Calls of either arm that no cell does without: the first, three of warm-up, eight pairs."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """What was measured."""

    cells: tuple[Cell, ...]
    logs: tuple[tuple[float, ...], ...]
    """ln(t_pytorch / t_kernel) of every pair of each cell."""
    left_out: str
    """Which shapes were not measured, and why; empty if all were."""


def check(subject: Subject, timing: Timing) -> Finding:
    """The map of one case. Only for kernels that engaged and are right."""
    if not timing.enabled:
        return Finding(Outcome.NOT_RUN, Reason.DISABLED, "timing is switched off by --benchmark-disable")
    found = measure(subject, timing)
    if not found.cells:
        return Finding(Outcome.NOT_RUN, Reason.NOT_CALLED, "no kernel of this case is called in a prefill of any shape")
    drawn = map_of(subject, found)
    measures = measures_of(drawn.width, drawn.cells, drawn.cost, drawn.left_out)
    measures["pairs"] = [float(len(logs)) for logs in found.logs]
    measures["logs"] = [log for logs in found.logs for log in logs]
    return Finding(Outcome.PASS, message=drawn.sentence, measures=measures)


def map_of(subject: Subject, found: Shapes) -> Map:
    """The map with what is known of its model."""
    width = int(subject.loaded.model.config.get_text_config().hidden_size)
    cost = subject.load_seconds + subject.first_pass_seconds
    return Map(subject.case.id, subject.case.mapping, width, found.cells, cost, found.left_out)


def measure(subject: Subject, timing: Timing) -> Shapes:
    """Measure shape by shape, the smallest first, as far as the time goes; the first is measured in any case."""
    deadline = perf_counter() + timing.map_seconds
    shapes = sorted(((rows, tokens) for rows in ROWS for tokens in TOKENS), key=lambda shape: (math.prod(shape), shape))
    cells: list[Cell] = []
    logs: list[tuple[float, ...]] = []
    why = ""
    for number, (rows, tokens) in enumerate(shapes):
        if cells and _least_seconds(cells[-1], rows * tokens) > deadline - perf_counter():
            why = f"more than is left of the {timing.map_seconds:g} s of a map"
        else:
            try:
                measured = _measurement(subject, timing, rows, tokens, timing.map_seconds / 2 / len(shapes))
            except (torch.OutOfMemoryError, MemoryError, ArmError) as error:
                failed = isinstance(error, ArmError) and error.kernel and not memory.ran_out(str(error))
                if failed or not cells:
                    raise
                why = f"at {rows} × {tokens} not even PyTorch, or no memory: {error}"[:300]
        if why:
            left = ", ".join(f"{more} × {each}" for more, each in shapes[number:])
            return Shapes(tuple(cells), tuple(logs), f"{left}: {why}")
        if measured is not None:
            cells.append(_cell(rows, tokens, measured, timing.control))
            logs.append(measured.logs)
    return Shapes(tuple(cells), tuple(logs), "")


def _least_seconds(last: Cell, tokens: int) -> float:
    """What a cell of so many tokens takes at least, if a call takes as long for each token as in the last one."""
    call = last.pytorch_seconds + last.kernel_seconds
    return LEAST_CALLS * call * tokens / (last.rows * last.tokens)


def _measurement(subject: Subject, timing: Timing, rows: int, tokens: int, budget: float) -> Measurement | None:
    """One shape; None where no kernel is called in it."""
    recipe = Inputs(f"{rows} × {tokens}", rows, tokens, (0,) * rows, "one shape of the map")
    given = passes.batch(recipe, subject.backend.torch_device(), int(subject.loaded.model.config.vocab_size))
    arms = subject.arms

    def call() -> object:
        with torch.no_grad():
            return passes.run(subject.loaded.model, subject.record, given)

    work = Work(Phase.PREFILL, rows * tokens, call)
    seed = zlib.crc32(f"{subject.case.id} {recipe.name}".encode())
    sampler = Sampler(clock_of(subject.backend), budget, seed, throttling=timing.throttling, stopping=timing.stopping)
    pytorch = arm_of(replace(work, prepare=lambda calls: arms.use_pytorch()), kernel=False)
    kernel = arm_of(replace(work, prepare=lambda calls: arms.use_kernels()), kernel=True)
    try:
        # PyTorch first: where it raises too, the kernel is not to blame.
        pytorch.prepare(1)
        pytorch.call()
        if subject.tests_a_kernel and not calls_seen(subject, replace(work, call=kernel.call)):
            return None
        return timed(sampler, pytorch, kernel)
    finally:
        arms.use_kernels()


def _cell(rows: int, tokens: int, measured: Measurement, control: Control) -> Cell:
    (verdict, unmet), interval = control.claimed(measured), measured.interval
    ratio = Ratio(interval.ratio, interval.low, interval.high)
    return Cell(rows, tokens, ratio, verdict, unmet, measured.pytorch_seconds, measured.kernel_seconds)


def _subject(chosen: argparse.Namespace, folder: Path) -> Subject:
    """The case of the command line, proved to run its kernels and to be right."""
    torch.set_num_threads(threads(1))
    loader = Loader(
        BACKENDS[probe(chosen.device).device],
        KERNELS,
        frozenset(chosen.trust),
        {USER: dict(parse_kernel(text) for text in chosen.kernel)},
    )
    if chosen.case.endswith(f"/{USER}") and not chosen.kernel:
        raise OptionError(f"--case {chosen.case}: give the kernel too, --kernel LAYER=ORG/REPO:NAME")
    (case,) = build(Selection(cases=(chosen.case,)))
    if case.mode is not Mode.INFERENCE:
        raise OptionError(f"--case {chosen.case}: expected a case of inference")
    subject = Subject(case, Shelf(loader, folder))
    checks = (lambda of: engagement.load(of, embedded=False), engagement.engage, model_checks.forward)
    for before in checks:
        finding = before(subject)
        if finding.outcome is not Outcome.PASS:
            # What does not run, or is wrong, has no speed.
            raise SystemExit(f"nothing to break even, since the check before says {finding.outcome}: {finding.message}")
    return subject


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the map of one case and print it."""
    parser = argparse.ArgumentParser(prog="python -m suite.breakeven", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", required=True, help="a case in a mode of inference")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kernel", action="append", default=[], metavar="LAYER=REPO[@PIN]:NAME")
    parser.add_argument("--trust", action="append", default=[], metavar="REPO")
    parser.add_argument("--budget", default="600", help="seconds for the map (default: 600)")
    parser.add_argument("--json", action="store_true", help="the measures of a record of this check")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            budget = seconds("--budget", chosen.budget)
            subject = _subject(chosen, Path(folder))
        except (OptionError, ProbeError, ValueError) as error:
            parser.error(str(error))
        drawn = map_of(subject, measure(subject, Timing(budget, subject.backend, map_seconds=budget)))
        subject.close()
    if chosen.json:
        measures = measures_of(drawn.width, drawn.cells, drawn.cost, drawn.left_out)
        print(json.dumps({"case": chosen.case, **measures}))
        return
    print(f"{heat_map(drawn.cells)}\n\nIt {drawn.sentence}.")
    if drawn.left_out:
        print(f"Not measured: {drawn.left_out}.")


if __name__ == "__main__":
    main()
