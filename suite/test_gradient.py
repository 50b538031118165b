"""Is the gradient of every parameter as good as PyTorch's?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_gradient(case: Case, bench: "Bench") -> None:
    """Is the gradient of every parameter as good as PyTorch's?"""
    raise_for(bench.run(case, Property.GRADIENT))
