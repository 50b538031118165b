"""Which cases get a map of the shapes from which on their kernels win, and how long that may take.

Shapes decide speedups, so only models of real width are mapped, in inference. A map costs as much as a dozen speeds:
smoke makes none, core one of each model for what users have (the default mapping) and for all kernels together, full
one of each kernel in each dtype. What attention is beside layer kernels makes no difference to their shapes, so one
way to compute it is enough. A case that is asked for by id gets its map in every tier.
"""

from collections.abc import Iterable

from cases.attention import attention
from cases.axes import Mode, Tier
from cases.case import Case
from cases.models import MODELS
from cases.plan import USER, Selection

__all__ = ["ROWS", "SECONDS", "TOKENS", "eligible", "of_selection"]

ROWS = (1, 4, 16)
"""Batch sizes of a map."""
TOKENS = (1, 16, 64, 256)
"""Tokens of each row. One token is what decoding asks for."""
SECONDS = {Tier.SMOKE: 8.0, Tier.CORE: 8.0, Tier.FULL: 60.0}
"""Seconds for a map, well below the time limit of a check. Shapes that would take longer are left out, and named."""

TOGETHER = ("default", "bundled", USER)
"""The mappings that are mapped in core."""


def eligible(case: Case) -> bool:
    """Whether a map of the case says something of a kernel."""
    binds = case.mapping != "pytorch" or attention(case.attention).hub
    return MODELS[case.model].timing and case.mode is Mode.INFERENCE and binds


def of_selection(selection: Selection, cases: Iterable[Case]) -> frozenset[Case]:
    """The cases of a selection that are mapped; of cases asked for by id each that can be."""
    able = [case for case in cases if eligible(case)]
    if selection.cases:
        return frozenset(able)
    chosen: dict[tuple[object, ...], Case] = {}
    # SDPA first: that is the attention of whoever chooses none.
    for case in sorted(able, key=lambda case: (case.attention != "sdpa", attention(case.attention).hub)):
        of_attention = case.mapping == "pytorch"
        if selection.tier is Tier.FULL:
            chosen.setdefault((case.model, case.dtype, case.mapping, of_attention and case.attention), case)
        elif selection.tier is Tier.CORE and case.mapping in TOGETHER:
            chosen.setdefault((case.model, case.mapping), case)
    return frozenset(chosen.values())
