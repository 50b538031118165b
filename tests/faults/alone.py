"""What each fault needs: without these mechanisms it escapes, and a test takes them away and looks.

Most faults are seen twice, at the layer and in the model: then it takes both to be blind. A mechanism that stands here
alone is the only one to see its faults; deleting it is deleting them from what the suite can find.
"""

from collections.abc import Mapping

__all__ = ["NEEDED"]

NEEDED: Mapping[str, tuple[str, ...]] = {
    "ledger": ("S22", "S25"),
    "epsilon": ("S01",),
    "mean error": ("S02",),
    "huge rows": ("S03",),
    "writing": ("S12",),
    "earlier results": ("S13",),
    "compile": ("S20",),
    "writing+expanded gradients": ("S09",),
    "positions+model": ("S14",),
    "probe+model": ("S04", "S05", "S07", "S08", "S10", "S11", "S15", "S16", "S17", "S19", "S24"),
    "probe+model+repository": ("S06",),
    "probe+model+features": ("S18",),
    "probe+model+determinism": ("S21",),
    "probe+model+determinism+repository+load+engage": ("S23",),
}
"""Mechanisms, joined by +, to the faults that escape when all of them are switched off. Names are those of
properties, or of ``mechanisms.SWITCHES``; ``model`` is all that compares whole models."""
