"""Are the logits as good as PyTorch's?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_forward(case: Case, bench: "Bench") -> None:
    """Are the logits as good as PyTorch's?"""
    raise_for(bench.run(case, Property.FORWARD))
