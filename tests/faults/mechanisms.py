"""The mechanisms of the suite that can be switched off, to prove that each is needed.

Which faults escape without which mechanism is in ``alone.py``, which imports no torch.
"""

from contextlib import ExitStack
from unittest import mock

from cases.axes import Property
from reports.record import Outcome
from suite import engagement
from suite.bench import Bench
from suite.finding import Finding
from tests.faults.alone import LEDGER

__all__ = ["switch_off"]


def switch_off(mechanism: str, stack: ExitStack) -> frozenset[Property]:
    """Take a mechanism away until ``stack`` is closed; returns the properties that are not to be checked."""
    if mechanism != LEDGER:
        return frozenset({Property(mechanism)})
    blind = Finding(Outcome.PASS, message="nobody looked")
    stack.enter_context(mock.patch.object(engagement, "engage", return_value=blind))
    stack.enter_context(mock.patch.object(Bench, "_with_evidence", staticmethod(lambda subject, checked, found: found)))
    return frozenset()
