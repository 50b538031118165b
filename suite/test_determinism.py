"""Does the same call give the same bits?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_determinism(case: Case, bench: "Bench") -> None:
    """Does the same call give the same bits?"""
    raise_for(bench.run(case, Property.DETERMINISM))
