"""The kernels that a run has proved to be worth having, as a ``KernelConfig`` that is ready to use.

A kernel is in it only if it was timed alone (no other kernel was called in the same case), was FASTER at least once and
SLOWER never. Everything else stays PyTorch, so that the configuration is never slower than none, as far as the run has
seen. Says too what the installed default mapping costs against the best that was measured.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.clean import one_line
from reports.evidence import Ledger, case_of, kernels_of
from reports.record import Record, Speed
from reports.store import Run
from reports.verdict import judge, speed_figures

__all__ = ["Choice", "choices", "configuration", "regrets"]

_PROMISED = re.compile(r"(?P<repository>/.+|[^@:]+)(?:@(?P<pin>[^:]+))?:(?P<layer>\w+)")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is known of one kernel timed alone."""

    name: str
    """Registered name."""
    promised: str
    """``org/repo@v1:Layer``."""
    mean: float
    """Geometric mean of its ratios."""
    faster: int
    slower: int
    measured: int

    @property
    def pays(self) -> bool:
        """Whether to use it."""
        return self.faster > 0 and self.slower == 0


def choices(measured: Iterable[Record], ledger: Ledger) -> list[Choice]:
    """Every kernel that was timed alone, by name, the quickest first."""
    alone: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in measured:
        called = [entry for entry in kernels_of(ledger.entries(record)) if entry.calls]
        if len(called) == 1 and called[0].name != "attention":
            alone[called[0].name, called[0].promised].append(record)
    found = [
        Choice(
            name,
            promised,
            _mean(records),
            sum(record.speed is Speed.FASTER for record in records),
            sum(record.speed is Speed.SLOWER for record in records),
            len(records),
        )
        for (name, promised), records in alone.items()
    ]
    return sorted(found, key=lambda choice: (choice.name, -choice.mean))


def regrets(measured: Sequence[Record]) -> list[tuple[Record, float]]:
    """For each speed of the default mapping: how much longer it takes than the best that was measured instead.

    0.1 is 10 %. No kernel at all is always among what it is held against.
    """
    groups: defaultdict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in measured:
        case = case_of(record.case)
        if case is not None:
            groups[case.model, case.dtype, case.mode, case.attention, record.phase].append(record)
    found = []
    for members in groups.values():
        best = max(1.0, *(_ratio(record) for record in members))
        for record in members:
            case = case_of(record.case)
            if case is not None and case.mapping == "default":
                found.append((record, best / _ratio(record) - 1))
    return sorted(found, key=lambda item: -item[1])


def configuration(run: Run) -> str:
    """A Python file with the configuration. Without trustworthy speeds it is an empty one, and says why."""
    verdict = judge(run.records, run.environment)
    measured = verdict.speedups.measured
    device = run.environment.device if run.environment else "unknown"
    name = run.environment.device_name if run.environment else "an unknown device"
    warnings = verdict.controls.warnings
    known = choices(measured, Ledger(run.records))
    chosen: dict[str, Choice] = {}
    for choice in known:
        if choice.pays and not warnings:
            chosen.setdefault(choice.name, choice)
    lines = [
        f"# For {one_line(name, 80)} ({one_line(device, 20)}): kernels proved to be faster alone, and never slower.",
        *(f"# No kernel is chosen. {one_line(text, 300)}" for text in warnings),
    ]
    for choice in known:
        state = "used" if chosen.get(choice.name) is choice else "left out"
        lines.append(
            f"# {one_line(choice.name, 60)}: {one_line(choice.promised, 120)}, {choice.mean:.3f} times as fast over "
            f"{choice.measured} ({choice.faster} FASTER, {choice.slower} SLOWER): {state}"
        )
    regret = regrets(measured)
    if regret:
        lines.append(
            f"# The default mapping takes up to {regret[0][1]:.1%} longer than the best measured "
            f"({one_line(regret[0][0].case, 120)}); over all {len(regret)} of its speeds "
            f"{math.exp(math.fsum(math.log1p(value) for _, value in regret) / len(regret)) - 1:.1%}."
        )
    entries = [f"        {choice.name!r}: {_entry(choice)}," for choice in chosen.values()]
    local = any(choice.promised.startswith("/") for choice in chosen.values())
    lines += [
        "from transformers import KernelConfig",
        "",
        "KERNEL_CONFIG = KernelConfig(",
        "    {",
        *entries,
        "    },",
        f"    use_local_kernel={local},",
        "    inherit_mapping=False,",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _entry(choice: Choice) -> str:
    match = _PROMISED.fullmatch(choice.promised)
    if match is None:
        return repr(choice.promised)
    text = f"{match['repository']}:{match['layer']}"
    pin = match["pin"]
    if pin is None:
        return repr(text)
    version = re.fullmatch(r"v(\d+)", pin)
    return repr((text, {"version": int(version[1])} if version else {"revision": pin}))


def _ratio(record: Record) -> float:
    figures = speed_figures(record)
    return figures[0] if figures else 1.0


def _mean(records: Sequence[Record]) -> float:
    return math.exp(math.fsum(math.log(_ratio(record)) for record in records) / len(records))
