"""What does each revision on the ladder offer, as far as its files say?"""

from typing import TYPE_CHECKING

from cases.ladder import Ladder, Rung
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_ladder(rung: tuple[Ladder, Rung], bench: "Bench") -> None:
    """What does each revision on the ladder offer, as far as its files say?"""
    ladder, revision = rung
    raise_for(bench.look(ladder, revision))
