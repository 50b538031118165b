"""Which kernels a run has proved to be worth having, and what the default mapping costs next to the best measured.

A kernel is used only if it was FASTER at least once and SLOWER never, at the widths of a real model, since shapes
decide speedups. What it was in alone counts; where it was not timed alone, what it was in together with kernels that
are used too. So nothing is used that was ever SLOWER in such company, and the configuration is never slower than
PyTorch as far as the run has seen. What the run has not seen is said.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cases.axes import Phase
from cases.case import Case
from reports.clean import one_line
from reports.evidence import Ledger, case_of, kernel_calls, kernels_of, real_widths
from reports.ratio import Ratio, geometric_mean
from reports.record import Record, Speed
from reports.verdict import Verdict, speed_figures

__all__ = ["ATTENTION", "Choice", "Recommendation", "Regret", "recommend"]

ATTENTION = "attention"
"""The registered name that the ledger gives to attention kernels."""
PYTORCH = Ratio(1.0, 1.0, 1.0)
"""PyTorch against itself, exactly."""

SHOWN = 12
"""Kernels that are named in a sentence."""

Kernel = tuple[str, str]
"""Registered name, and what was promised: ``org/repo@v1:Layer``."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is known of one kernel, and what follows."""

    name: str
    promised: str
    used: bool
    why: str
    mean: Ratio | None = None
    """Geometric mean of the ratios that it is judged by; None without any."""
    faster: int = 0
    slower: int = 0
    measured: int = 0


@dataclass(frozen=True, slots=True)
class Regret:
    """What the default mapping costs in one case and phase."""

    case: str
    phase: Phase | None
    times: Ratio
    """Its time over that of the best measured, no kernel at all among them: 1 is no regret."""
    plain: bool
    """Whether it bound no kernel, so that it is PyTorch."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The best configuration for the device of a run."""

    choices: tuple[Choice, ...]
    """Every kernel that was timed at real widths, by name."""
    unknown: tuple[str, ...]
    """Names of kernels that ran and were not timed at real widths."""
    together: Ratio | None
    """Geometric mean of all that was timed with used kernels only, several at once; None where nothing was."""
    regrets: tuple[Regret, ...]
    """The worst first; empty where the default mapping was not seen next to anything that was timed."""
    warnings: tuple[str, ...]
    """Why the speeds of the run do not count, so that nothing is used; still to be escaped."""

    @property
    def used(self) -> tuple[Choice, ...]:
        """The kernels of the configuration."""
        return tuple(choice for choice in self.choices if choice.used)

    @property
    def headline(self) -> str:
        """What to use, in a sentence. Holds text from records, so it is still to be escaped."""
        names = ", ".join(one_line(choice.name, 60) for choice in self.used[:SHOWN])
        if self.used:
            more = f" and {len(self.used) - SHOWN} more" if len(self.used) > SHOWN else ""
            return f"Faster here, and never slower: {names}{more}."
        if self.warnings:
            return "No kernel is recommended, since the machine was in no state to be measured on."
        if not self.choices:
            return "No kernel was timed at the widths of a real model, so none is recommended."
        return "No kernel was proved to be faster here and never slower: PyTorch is the best that was measured."

    @property
    def regret(self) -> str:
        """What the default mapping costs, in a sentence. Still to be escaped."""
        if self.warnings:
            return ""
        mean = geometric_mean([regret.times for regret in self.regrets])
        if mean is None:
            return "What the default mapping costs is unknown: it was not seen where another one was timed."
        worst, number = self.regrets[0], len(self.regrets)
        is_it = "binds no kernel here, so it is PyTorch, and" if all(each.plain for each in self.regrets) else ""
        phase = f" {worst.phase}" if worst.phase else ""
        return (
            f"The default mapping {is_it} takes {mean} as long as the best that was measured, over {number} "
            f"speeds, and at worst {worst.times} ({one_line(worst.case, 120)}{phase})."
        ).replace("  ", " ")


def recommend(verdict: Verdict, ledger: Ledger) -> Recommendation:
    """Decide kernel by kernel."""
    seen = [
        (record, frozenset((entry.name, entry.promised) for entry in kernels_of(ledger.entries(record)) if entry.calls))
        for record in verdict.speedups.measured
        if real_widths(record.case)
    ]
    timings = _Timings(seen)
    warnings = verdict.controls.warnings
    used = frozenset[Kernel]() if warnings else timings.used()
    timed = {name for name, _ in timings.kernels}
    ran = {entry.name for entries in ledger.cases().values() for entry in kernels_of(entries) if entry.calls}
    regrets = () if warnings else _regrets([record for record, _ in seen], ledger)
    several = [record for record, called in seen if len(called) > 1 and called <= used]
    return Recommendation(
        choices=tuple(_choice(kernel, used, timings, bool(warnings)) for kernel in sorted(timings.kernels)),
        unknown=tuple(sorted(ran - timed)),
        together=_mean(several),
        regrets=tuple(sorted(regrets, key=lambda regret: regret.times, reverse=True)),
        warnings=warnings,
    )


class _Timings:
    """The speeds of a run by the kernels that were called."""

    def __init__(self, seen: Sequence[tuple[Record, frozenset[Kernel]]]) -> None:
        self.seen = seen
        self.kernels = frozenset(kernel for _, called in seen for kernel in called)

    def of(self, kernel: Kernel, company: frozenset[Kernel]) -> list[Record]:
        """What a kernel is judged by: its speeds alone; without any, its speeds with no other than ``company``."""
        alone = [record for record, called in self.seen if called == {kernel}]
        return alone or [record for record, called in self.seen if kernel in called and called <= company | {kernel}]

    def company(self, kernel: Kernel) -> tuple[str, ...]:
        """Names of the kernels that a kernel was timed with; empty if it was timed alone."""
        if any(called == {kernel} for _, called in self.seen):
            return ()
        return tuple(sorted({name for _, called in self.seen if kernel in called for name, _ in called - {kernel}}))

    def used(self) -> frozenset[Kernel]:
        """The largest set that the rule at the head of this module allows."""
        nobody = frozenset[Kernel]()
        used = frozenset(kernel for kernel in self.kernels if self.company(kernel) or _pays(self.of(kernel, nobody)))
        while out := self._out(used):
            used -= out
        return used

    def _out(self, used: frozenset[Kernel]) -> frozenset[Kernel]:
        """Kernels that cannot stay in a set, the plainest reason first."""
        failing = frozenset(kernel for kernel in used if not _pays(self.of(kernel, used)))
        if failing:
            return failing

        def gain(kernel: Kernel) -> tuple[float, Kernel]:
            mean = _mean(self.of(kernel, used))
            return (mean.value if mean else 0.0), kernel

        for name in {name for name, _ in used}:
            twins = [kernel for kernel in used if kernel[0] == name]
            if len(twins) > 1:
                return frozenset([min(twins, key=gain)])
        local = frozenset(kernel for kernel in used if kernel[1].startswith("/"))
        remote = frozenset(kernel for kernel in used - local if kernel[0] != ATTENTION)
        if local and remote:
            # A KernelConfig holds either the one or the other.
            return min(local, remote, key=lambda kernels: max(map(gain, kernels)))
        for record, called in self.seen:
            if called <= used and record.speed is Speed.SLOWER:
                # Faster one by one, and slower together.
                return frozenset([min(called, key=gain)])
        return frozenset()


def _pays(records: Sequence[Record]) -> bool:
    return any(record.speed is Speed.FASTER for record in records) and not any(
        record.speed is Speed.SLOWER for record in records
    )


def _choice(kernel: Kernel, used: frozenset[Kernel], timings: _Timings, unfit: bool) -> Choice:
    records, company = timings.of(kernel, used), timings.company(kernel)
    faster = sum(record.speed is Speed.FASTER for record in records)
    slower = sum(record.speed is Speed.SLOWER for record in records)
    where = f"together with {', '.join(company)}, never timed alone" if company else "alone"
    if unfit:
        why = "the machine was in no state to be measured on"
    elif kernel in used:
        why = f"FASTER and never SLOWER {where}"
    elif not records:
        why = f"unknown: {where}, and not all of these are used"
    elif slower or not faster:
        why = f"{'SLOWER' if slower else 'never FASTER'} {where}"
    else:
        why = "another kernel of its name is faster, or those that are used are slower together with it"
    return Choice(kernel[0], kernel[1], kernel in used, why, _mean(records), faster, slower, len(records))


def _regrets(measured: Iterable[Record], ledger: Ledger) -> Iterator[Regret]:
    """The default mapping against the best of the same model, dtype, mode, attention and phase."""
    groups: defaultdict[tuple[Case | None, Phase | None], list[Record]] = defaultdict(list)
    for record in measured:
        groups[_default_of(record.case), record.phase].append(record)
    bound = ledger.cases()
    for (case, phase), members in groups.items():
        best = max([PYTORCH, *map(_ratio, members)])
        own = [record for record in members if case is not None and record.case == case.id]
        for record in own:
            yield Regret(record.case, phase, _over(best, _ratio(record)), plain=False)
        if case is not None and not own and case.id in bound and not kernel_calls(bound[case.id]):
            yield Regret(case.id, phase, best, plain=True)


def _default_of(identity: str) -> Case | None:
    """The case that differs in nothing but that its mapping is the default one."""
    case = case_of(identity)
    return case and replace(case, mapping="default")


def _over(best: Ratio, own: Ratio) -> Ratio:
    if best == own:
        return PYTORCH
    return Ratio(best.value / own.value, best.low / own.high, best.high / own.low if own.low else math.inf)


def _ratio(record: Record) -> Ratio:
    return speed_figures(record) or PYTORCH


def _mean(records: Sequence[Record]) -> Ratio | None:
    return geometric_mean([_ratio(record) for record in records])
