"""Which cases of ``smoke`` and ``core`` are put through ``torch.compile`` as well.

A user compiles the model that ``from_pretrained(use_kernels=True)`` gave him, whatever mode its kernels were bound
for, so this is asked of a few ordinary cases and not of the compile modes alone. Tracing takes seconds where a
forward takes milliseconds, hence few: each registered name once in inference, then once in training, the case that
shows most names first. The choice depends on the plan alone, and the plan is the same on every machine.
"""

from collections.abc import Iterable, Mapping

from cases.attention import attention
from cases.axes import DType, Tier
from cases.case import Case
from cases.mappings import MAPPINGS, KernelReference
from cases.models import MODELS
from cases.plan import Selection, called, given, offered

__all__ = ["LIMIT", "choose", "eligible", "of_selection"]

LIMIT = {Tier.SMOKE: 1, Tier.CORE: 6, Tier.FULL: 24}
"""Cases compiled beside those of the compile modes. Three to five seconds each: a tenth of a tier's time."""

SCANS = frozenset({"selective_scan_fn", "mamba_chunk_scan_combined", "chunk_gated_delta_rule", "chunk_kda"})
"""Tracing writes their loops over the tokens out, which takes half a minute for one model."""

EXPERTS = ("num_experts", "num_local_experts")
"""Configuration values of a mixture of experts, whose routing breaks or doubles the graphs of PyTorch itself."""


def eligible(case: Case, tier: Tier) -> bool:
    """Whether compiling the case says something of its layer kernels alone, at a price that the tier can pay.

    Attention kernels claim nothing about ``torch.compile``; timing models are the tiny ones with larger matrices.
    What a user brings is compiled in every tier, whatever it takes.
    """
    model = MODELS[case.model]
    return (
        case.mapping not in ("pytorch", "default")
        and not case.mode.compiles
        and not attention(case.attention).hub
        and not model.timing
        and (tier is Tier.FULL or given(case.mapping) or SCANS.isdisjoint(model.carries))
    )


def of_selection(selection: Selection, cases: Iterable[Case]) -> frozenset[Case]:
    """The cases of a selection that are compiled as well; of cases asked for by id each that can be."""
    if selection.cases:
        return frozenset(case for case in cases if eligible(case, selection.tier))
    return choose(cases, selection.tier, dict(selection.kernels))


def choose(cases: Iterable[Case], tier: Tier, user: Mapping[str, KernelReference]) -> frozenset[Case]:
    """At most ``LIMIT`` cases that together show every registered name that says it compiles."""
    shows = {case: _shown(case, user) for case in cases if eligible(case, tier)}
    chosen: list[Case] = []
    seen: set[tuple[str, bool]] = set()
    while shows and len(chosen) < LIMIT[tier]:
        case = max(shows, key=lambda case: (len(shows[case] - seen), *_preference(case)))
        names = shows.pop(case)
        if not names - seen:
            break
        chosen.append(case)
        seen |= names
    return frozenset(chosen)


def _preference(case: Case) -> tuple[bool, bool, bool, str]:
    """A model that is traced fast; inference before training; float32, where no routing of experts is a near tie."""
    model = MODELS[case.model]
    fast = SCANS.isdisjoint(model.carries) and not any(name in model.overrides for name in EXPERTS)
    return fast, not case.mode.trains, case.dtype is DType.FLOAT32, case.id


def _shown(case: Case, user: Mapping[str, KernelReference]) -> frozenset[tuple[str, bool]]:
    entries = user if given(case.mapping) else MAPPINGS[case.mapping].entries or {}
    claims = {name for name, kernel in offered(entries, case.mode).items() if kernel.compiles}
    names = claims & called(MODELS[case.model], case.mode)
    return frozenset((name, case.mode.trains) for name in names)
