"""Is this machine fit to be measured on? Asked before the first check and after the last, in under a second.

Known answers (a product of integers, and NaN that must stay NaN), two clocks against each other, the bandwidth of a
copy, the time of a fixed product, and the load from other processes. A kernel measured on an unfit machine is not at
fault, and its figures are not worth a gate: they are kept and marked QUARANTINED.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from reports.record import Outcome, Reason
from suite.device import Backend
from suite.finding import Finding

__all__ = ["Fitness", "ProcessorTime", "examine", "finding", "foreign_share", "problems", "processor_time"]

MOST_FOREIGN = 0.5
"""Share of all processors that others may keep busy. Pairing copes with load, so only a machine that is mostly
somebody else's is unfit."""
MOST_DRIFT = 1.5
"""Factor between the fixed product's time before and after: more, and it was not one machine that was measured."""
CLOCKS_APART = 0.02
"""Two clocks that differ more over the same wait: one of them is being adjusted, or the process was frozen."""
LEAST_BANDWIDTH = 0.05
"""GB/s of a copy: far below any memory, so that only a device that swaps or hangs falls under it."""

COPIED = 16 * 2**20
"""Bytes of the copy: larger than what caches near the processor hold."""
WAIT = 0.3
"""Seconds over which clocks and load are watched: thirty ticks of the kernel's accounting."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds of processor time: of all processes, of this run's, and how much there was to have."""

    busy: float
    own: float
    total: float


@dataclass(frozen=True, slots=True)
class Fitness:
    """What one examination found."""

    product_right: bool
    nan_stays: bool
    clocks: float
    """Ratio of two clocks over the same wait; 1 is right."""
    bandwidth: float
    """GB/s of a copy on the device, read and written bytes counted."""
    product_seconds: float
    """Median time of a fixed matrix product."""
    foreign: float | None
    """Share of the processors that other processes keep busy; None where it cannot be told."""


def examine(backend: Backend) -> Fitness:
    """Look at the machine now."""
    device = backend.torch_device()
    left = (torch.arange(256 * 256, dtype=torch.float32).reshape(256, 256) % 7).to(device)
    product = (left @ left.T).cpu()
    nan = torch.tensor([float("nan"), 1.0], device=device)
    stays = (nan * 0, nan.max(), torch.outer(nan, nan)[0], torch.softmax(nan, 0), torch.relu(nan)[:1])
    source = torch.ones(COPIED // 4, device=device)
    target = torch.empty_like(source)
    copying = _seconds(backend, lambda: target.copy_(source), 7)
    multiplying = _seconds(backend, lambda: left @ left.T, 15)
    before, monotonic, precise = processor_time(), time.monotonic(), time.perf_counter()
    time.sleep(WAIT)
    after = processor_time()
    ratio = (time.perf_counter() - precise) / max(time.monotonic() - monotonic, 1e-9)
    return Fitness(
        product_right=torch.equal(product.double(), left.cpu().double() @ left.cpu().double().T),
        nan_stays=all(bool(torch.isnan(value).any()) for value in stays),
        clocks=ratio,
        bandwidth=2 * COPIED / max(copying, 1e-9) / 1e9,
        product_seconds=multiplying,
        foreign=foreign_share(before, after),
    )


def _seconds(backend: Backend, call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        backend.synchronize()
        start = time.perf_counter()
        call()
        backend.synchronize()
        times.append(time.perf_counter() - start)
    return median(times)


def problems(found: Fitness, before: Fitness | None = None) -> list[str]:
    """Why a machine is unfit, in words; empty if it is fit. ``before`` is the examination at the start of the run."""
    said = []
    if not found.product_right:
        said.append("it multiplies small integer matrices wrong")
    if not found.nan_stays:
        said.append("NaN does not stay NaN, so that a broken result can look like a number")
    if abs(found.clocks - 1) > CLOCKS_APART:
        said.append(f"two of its clocks differ by a factor of {found.clocks:.3f}")
    if found.bandwidth < LEAST_BANDWIDTH:
        said.append(f"it copies only {found.bandwidth:.3f} GB/s")
    if found.foreign is not None and found.foreign > MOST_FOREIGN:
        said.append(f"other processes keep {found.foreign:.0%} of its processors busy")
    if before is not None:
        drift = found.product_seconds / max(before.product_seconds, 1e-12)
        if not 1 / MOST_DRIFT <= drift <= MOST_DRIFT:
            said.append(f"a fixed product takes {drift:.2f} times as long after the run as before it")
    return said


def finding(found: Fitness, when: str, before: Fitness | None = None) -> Finding:
    """The examination as a finding; ``when`` is before or after."""
    said = problems(found, before)
    foreign = "unknown" if found.foreign is None else f"{found.foreign:.0%}"
    return Finding(
        Outcome.NOT_RUN if said else Outcome.PASS,
        Reason.UNFIT if said else None,
        f"{when} the run: {'; '.join(said)}" if said else f"fit {when} the run, load from others {foreign}",
        measures={
            "clocks": found.clocks,
            "bandwidth_gb_per_second": found.bandwidth,
            "product_ms": 1e3 * found.product_seconds,
            "foreign_load": found.foreign,
        },
    )


def foreign_share(before: ProcessorTime | None, after: ProcessorTime | None) -> float | None:
    """Share of the processor time between two readings that went to processes outside this run."""
    if before is None or after is None or after.total <= before.total:
        return None
    foreign = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, foreign / (after.total - before.total)))


def processor_time() -> ProcessorTime | None:
    """Processor time since boot, by Linux's accounting; None on systems without it."""
    try:
        fields = [int(text) for text in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        own = _own_ticks()
    except (OSError, ValueError, IndexError):
        return None
    idle = fields[3] + fields[4]
    return ProcessorTime(busy=sum(fields) - idle, own=own, total=sum(fields))


def _own_ticks() -> int:
    """Ticks of this process, or in a worker of the controller and of all that it started."""
    root = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                # The name of the program, in parentheses, may hold spaces.
                fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = int(fields[11]) + int(fields[12])
    family = {root}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks.get(member, 0) for member in family)
