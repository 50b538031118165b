"""Whether a pass is proved. On a case that asks for kernels a PASS means nothing unless kernels were called: the model
computes the same in PyTorch. This module reads the ledger in the records and says which passes it does not carry.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cases.attention import attention
from cases.axes import Property
from cases.case import Case
from cases.models import MODELS
from reports.record import Engagement, Outcome, Record

__all__ = ["PLAIN", "Ledger", "Violation", "case_of", "kernel_calls", "kernels_of", "real_widths"]

PLAIN = "pytorch"
"""As a mapping or as a promise: no kernel is asked for."""

EXEMPT = frozenset({Property.STATEMENT, Property.LOAD})
"""Properties that may hold without a kernel call: a statement may be that PyTorch takes over, loading calls none."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A pass, or a speed, that the ledger does not carry."""

    record: Record
    problem: str


def case_of(identity: str) -> Case | None:
    """The case of an id, or None for a check that is about no model (a statement, a control)."""
    try:
        return Case.from_id(identity)
    except ValueError:
        return None


def kernels_of(entries: Iterable[Engagement]) -> tuple[Engagement, ...]:
    """The lines of a ledger that are about a kernel and not about PyTorch as the thing asked for."""
    return tuple(entry for entry in entries if entry.promised != PLAIN)


def kernel_calls(entries: Iterable[Engagement]) -> int:
    """Calls of kernel forwards in a ledger."""
    return sum(entry.calls for entry in kernels_of(entries))


def real_widths(identity: str) -> bool:
    """Whether a case has the widths of a real model, by which its speed means something for one."""
    case = case_of(identity)
    return case is not None and case.model in MODELS and MODELS[case.model].timing


class Ledger:
    """What the records of a run say about the kernels of each case.

    A record without a ledger of its own stands on that of its case: the one of ``engage``, else the first there is.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        """Collect the ledger of every case."""
        self._of_case: dict[str, tuple[Engagement, ...]] = {}
        self._asked: dict[str, bool] = {}
        for record in records:
            if record.property is Property.STATEMENT:
                continue
            if record.evidence and (record.property is Property.ENGAGE or record.case not in self._of_case):
                self._of_case[record.case] = record.evidence
            if not self._asked.get(record.case):
                self._asked[record.case] = bool(kernels_of(record.evidence)) or _names_a_kernel(record.case)

    def cases(self) -> dict[str, tuple[Engagement, ...]]:
        """The ledger of each case that has one."""
        return self._of_case

    def asks(self, case: str) -> bool:
        """Whether a case asks for a kernel: by its ledger, or by the mapping or the attention that its id names."""
        return self._asked.get(case, False)

    def entries(self, record: Record) -> tuple[Engagement, ...]:
        """The ledger that a record stands on."""
        return record.evidence or self._of_case.get(record.case, ())

    def proved(self, record: Record) -> bool:
        """Whether kernels were called for this record."""
        return kernel_calls(self.entries(record)) > 0

    def violation(self, record: Record) -> Violation | None:
        """What is wrong with the evidence of a pass; None if nothing is, or if none is needed."""
        if record.outcome is not Outcome.PASS or record.property in EXEMPT or not self.asks(record.case):
            return None
        entries = self.entries(record)
        if not kernels_of(entries):
            return Violation(record, "the case asks for kernels, and the ledger names none")
        if kernel_calls(entries) == 0:
            return Violation(record, "the case asks for kernels, and none was called")
        if record.property is Property.ENGAGE:
            # A line with a reason is a kernel that was not promised for this device or mode.
            for entry in kernels_of(entries):
                if entry.reason is None and entry.calls == 0:
                    return Violation(record, f"{entry.name} was never called, and no reason is given")
                if entry.reason is None and entry.resolved is None:
                    return Violation(record, f"{entry.name} was called, but not from a known repository and revision")
        return None


def _names_a_kernel(identity: str) -> bool:
    case = case_of(identity)
    return case is not None and (case.mapping != PLAIN or attention(case.attention).hub)
