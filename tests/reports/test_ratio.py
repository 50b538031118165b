"""Ratios and their intervals, alone and taken together."""

import math
import random

import pytest

from reports.ratio import Ratio, geometric_mean
from reports.verdict import ratio_of


def test_the_interval_of_a_mean_covers_the_mean_of_the_truths_however_the_errors_hang_together() -> None:
    """Fault: an interval that shrinks with the number of cases, though one noise is in all of them."""
    chance, half, runs = random.Random(0), 1.96, 2000
    truths = [math.exp(chance.gauss(0, 0.3)) for _ in range(8)]
    true_mean = math.exp(math.fsum(math.log(truth) for truth in truths) / len(truths))
    for shared in (True, False):
        missed = 0
        for _ in range(runs):
            noise = chance.gauss(0, 0.05)
            ratios = []
            for truth in truths:
                log = math.log(truth) + (noise if shared else chance.gauss(0, 0.05))
                ratios.append(Ratio(*(math.exp(log + side * half * 0.05) for side in (0, -1, 1))))
            mean = geometric_mean(ratios)
            assert mean is not None
            missed += not mean.low <= true_mean <= mean.high
        assert missed / runs < 0.065


def test_a_mean_of_one_is_that_one_and_of_none_is_none() -> None:
    """Fault: a mean of 1 over nothing."""
    one = Ratio(2.0, 1.5, 2.5)
    assert geometric_mean([one]) == pytest.approx(one)
    assert geometric_mean([]) is None


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1e9), (None, None), (1.5, 2.0), ("1", True), (math.nan, math.inf), (-1.0, 0.9)]
)
def test_an_interval_that_is_none_is_not_one_of_no_width(low: object, high: object) -> None:
    """Fault: an unbounded interval, of too few pairs, that is shown as certainty."""
    ratio = ratio_of(1.2, low, high)
    assert ratio is not None
    assert not ratio.bounded
    assert str(ratio) == "1.200\N{MULTIPLICATION SIGN} (no interval)"
    mean = geometric_mean([ratio, Ratio(1.0, 0.9, 1.1)])
    assert mean is not None
    assert not mean.bounded
