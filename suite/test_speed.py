"""How long does a call take, next to PyTorch?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_speed(case: Case, bench: "Bench") -> None:
    """How long does a call take, next to PyTorch?"""
    raise_for(bench.run(case, Property.SPEED))
