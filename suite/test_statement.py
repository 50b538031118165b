"""Is it there at all? Documented statements about the machine and the stack, checked before any case."""

from typing import TYPE_CHECKING

import pytest

from cases.plan import STATEMENTS
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


@pytest.mark.parametrize("requirement", STATEMENTS, ids=[f"statement/{requirement}" for requirement in STATEMENTS])
def test_statement(requirement: str, bench: "Bench") -> None:
    """Does the statement hold on this machine?"""
    raise_for(bench.state(requirement))
