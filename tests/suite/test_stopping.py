"""The two rules when to stop, on made-up times and ratios."""

import math
import random

import pytest

from suite.statistics import LOOKS
from suite.stopping import SIGN_OFF_LOOKS, Stopping, WarmUp


@pytest.mark.parametrize(
    ("times", "warm"),
    [
        ([], False),
        ([9.0, 9.0], False),
        ([0.2, 0.2, 0.2], True),
        ([0.01] * 9, False),
        ([0.01] * 10, True),
    ],
)
def test_warm_is_three_calls_and_half_a_second_or_ten_calls(times: list[float], warm: bool) -> None:
    """Fault: one slow call taken for a warm-up, or a short call warmed up for minutes."""
    assert WarmUp().warm(times) is warm


def test_settled_compares_two_groups_of_five() -> None:
    """Fault: an arm that still gets faster taken for settled."""
    rule = WarmUp()
    assert not rule.settled([1.0] * 9)
    assert rule.settled([5.0, *[1.0] * 10])
    assert not rule.settled([*[1.1] * 5, *[1.0] * 5])
    assert rule.settled([*[1.04] * 5, *[1.0] * 5])


def test_an_arm_that_never_settles_is_given_up_after_twenty_more_calls_or_its_time() -> None:
    """Fault: a warm-up without end."""
    rule = WarmUp()
    assert not rule.exhausted([0.01] * 29, 10, patience=1.0)
    assert rule.exhausted([0.01] * 30, 10, patience=1.0)
    assert rule.exhausted([0.5] * 13, 10, patience=1.0)


def test_looks_come_in_order_and_end() -> None:
    """Fault: a look that is taken twice, or one after the last."""
    rule = Stopping()
    assert [rule.next_look(pairs) for pairs in (0, 7, 8, 63, 64)] == [8, 8, 16, 64, None]
    assert Stopping(SIGN_OFF_LOOKS).next_look(64) == 128


@pytest.mark.parametrize(("ratio", "verdict"), [(1.1, "FASTER"), (1.0, "SAME"), (0.9, "SLOWER")])
def test_a_look_says_what_the_whole_interval_says(ratio: float, verdict: str) -> None:
    """Fault: a verdict by the estimate alone."""
    draw = random.Random(3)
    logs = [math.log(ratio) + draw.gauss(0, 0.005) for _ in range(LOOKS[0])]
    assert Stopping().look(logs)[1] == verdict
    assert Stopping().look([*logs[:-3], 0.5, -0.5, 0.4])[1] is None


def test_each_look_pays_its_share_of_alpha() -> None:
    """Fault: five looks with the alpha of one, which finds differences where there are none."""
    draw = random.Random(5)
    logs = [draw.gauss(0, 0.01) for _ in range(16)]
    few, many = Stopping((8, 16)).look(logs)[0], Stopping((8, 16, 32, 64)).look(logs)[0]
    assert many.low < few.low
    assert few.high < many.high


def test_an_undecided_end_names_the_condition() -> None:
    """Fault: INCONCLUSIVE without a reason."""
    rule = Stopping()
    interval, _ = rule.look([0.1, -0.1] * 32)
    assert "at the last look" in rule.unmet(interval, 64, 2.0)
    assert "within the budget of 2 s" in rule.unmet(interval, 40, 2.0)
    assert "0.98 to 1.02" in rule.unmet(interval, 64, 2.0)
