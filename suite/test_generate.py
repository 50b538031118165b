"""Do prefill and decode with a cache give what one forward pass gives?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_generate(case: Case, bench: "Bench") -> None:
    """Do prefill and decode with a cache give what one forward pass gives?"""
    raise_for(bench.run(case, Property.GENERATE))
