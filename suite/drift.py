"""How far the output of a kernel has come from that of the first revision on its ladder.

The tensors stay in the cache of the run, which ends with it; the figures go into the records.
"""

from pathlib import Path

import torch

from cases.case import Case
from cases.ladder import rung_of
from suite.finding import Measure
from suite.numerics import row_errors

__all__ = ["drift"]


def drift(case: Case, output: torch.Tensor, folder: Path) -> dict[str, Measure]:
    """The measures of an output, rows x width in float64; none for a case that is on no ladder.

    ``difference`` is the largest relative difference of a row from the same row of ``first``, the revision whose
    output came first. That one is kept in ``folder``.
    """
    rung = rung_of(case.id)
    if rung is None:
        return {}
    kept = folder / f"{case.id.removesuffix(rung).replace('/', '~')}.pt"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.save((rung, output), kept)
    first, earliest = torch.load(kept, weights_only=True)
    return {"difference": float(row_errors(output, earliest).max()), "first": str(first)}
