"""Whether a fresh process makes the same bits: which records are repeated, and what becomes of them.

One process can agree with itself on a seed that it drew at its start, on an address, or on the order of a set, and the
next one does not. So the digest that a determinism record holds is made again by ``suite.fresh``, of both arms: where
PyTorch's is another one too, nothing is said against the kernel. Runs in the controller and imports no torch.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cases.axes import Property, Tier
from cases.case import Case
from reports.record import Determinism, Outcome, Reason, Record

__all__ = ["AWAITS", "SECONDS", "awaiting", "judged"]

SECONDS = {Tier.SMOKE: 0.0, Tier.CORE: 25.0, Tier.FULL: 1800.0}
"""Time for all digests of a run. Smoke has half a minute for everything, and a process takes five seconds to start."""

AWAITS = "not repeated: smoke starts no process for it, core for as few cases as show every kernel, mode and dtype"
"""In ``fresh_process`` of a record, true until somebody repeats it."""


def awaiting(records: Sequence[Record], tier: Tier) -> list[Record]:
    """The records to repeat: none in smoke, all in full; in core few that cover every kernel in every mode, and every
    dtype."""
    open_ones = [
        record
        for record in records
        if record.property is Property.DETERMINISM and record.measures.get("fresh_process") == AWAITS
    ]
    if tier is not Tier.CORE:
        return open_ones if SECONDS[tier] else []
    shown = {record.case: _shown(record) for record in open_ones}
    left = set().union(*shown.values())
    chosen = []
    while left:
        # What shows most comes first, so that running out of time costs least.
        best = max(open_ones, key=lambda record: len(shown[record.case] & left))
        chosen.append(best)
        left -= shown[best.case]
    return chosen


def _shown(record: Record) -> set[tuple[str, str]]:
    """What a record shows something of."""
    case = Case.from_id(record.case)
    kernels = {(entry.resolved, case.mode.value) for entry in record.evidence if entry.resolved and entry.calls}
    return kernels | {("dtype", case.dtype.value), ("mode", case.mode.value)}


def judged(record: Record, answer: dict[str, Any]) -> Record:
    """The record after its repetition. ``answer`` holds ``digest`` and ``digest_pytorch``, and where the first is
    another one than the record's, ``tolerated``: whether the fresh result is within the forward check's limits; or
    ``error``."""

    def changed(word: str, said: str, **fields: Any) -> Record:
        measures = {**record.measures, "fresh_process": word}
        return msgspec.structs.replace(record, message=f"{record.message}; {said}", measures=measures, **fields)

    if "error" in answer:
        said = f"not repeated in a fresh process: {answer['error']}"[:500]
        return changed(said, said)
    if answer["digest"] == record.measures["digest"]:
        return changed("same", "a fresh process gives the same bits")
    said = "a fresh process gives other bits"
    if answer["digest_pytorch"] != record.measures["digest_pytorch"]:
        return changed("other", f"{said}, and so does PyTorch in one", determinism=Determinism.REFERENCE_VARIES)
    said += ", and PyTorch in it the same: something is drawn once a process"
    if answer["tolerated"]:
        return changed("other", f"{said}; within the limits of the forward check", determinism=Determinism.TOLERANT)
    fields = {"determinism": Determinism.VARIES, "outcome": Outcome.FAIL, "reason": Reason.NONDETERMINISTIC}
    return changed("other", f"{said}; beyond the limits of the forward check", **fields)
