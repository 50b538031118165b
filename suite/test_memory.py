"""How much memory does a call need, next to PyTorch?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_memory(case: Case, bench: "Bench") -> None:
    """How much memory does a call need, next to PyTorch?"""
    raise_for(bench.run(case, Property.MEMORY))
