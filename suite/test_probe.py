"""Does every kernel agree with its layer's own PyTorch forward, on captured and perturbed calls?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_probe(case: Case, bench: "Bench") -> None:
    """Does every kernel agree with its layer's own PyTorch forward, on captured and perturbed calls?"""
    raise_for(bench.run(case, Property.PROBE))
