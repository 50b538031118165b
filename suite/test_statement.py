"""Is it there at all, and does it do what is documented? The statements that belong to no case, checked before all."""

from typing import TYPE_CHECKING

from cases.statements import Statement
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_statement(statement: Statement, bench: "Bench") -> None:
    """Does the statement hold on this machine?"""
    raise_for(bench.state(statement))
