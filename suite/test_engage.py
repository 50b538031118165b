"""Do the kernels asked for really run?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_engage(case: Case, bench: "Bench") -> None:
    """Do the kernels asked for really run?"""
    raise_for(bench.run(case, Property.ENGAGE))
