"""From which shape on do the kernels win, and when have they paid for themselves?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_break_even(case: Case, bench: "Bench") -> None:
    """From which shape on do the kernels win, and when have they paid for themselves?"""
    raise_for(bench.run(case, Property.BREAK_EVEN))
