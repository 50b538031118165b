"""Does the model load as the case says?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_load(case: Case, bench: "Bench") -> None:
    """Does the model load as the case says?"""
    raise_for(bench.run(case, Property.LOAD))
