"""Does the kernelized model compile, without graph breaks, to the same function?"""

from typing import TYPE_CHECKING

from cases.axes import Property
from cases.case import Case
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_compile(case: Case, bench: "Bench") -> None:
    """Does the kernelized model compile, without graph breaks, to the same function?"""
    raise_for(bench.run(case, Property.COMPILE))
