"""Do kernels and gradients survive what users do to a model?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_state(case: Case, bench: "Bench") -> None:
    """Do kernels and gradients survive what users do to a model?"""
    raise_for(bench.run(case, Property.STATE))
