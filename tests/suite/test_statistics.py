"""The statistics of paired ratios, against scipy and against what they promise."""

import math
import random

import pytest
from scipy import stats

from suite.statistics import LOOKS, Interval, decide, estimate, signed_rank_quantile


def test_the_estimate_is_the_median_of_the_walsh_averages() -> None:
    """Fault: an estimate that is pulled by one outlier, as a mean is."""
    calm = estimate([0.1] * 15 + [5.0])
    assert calm.ratio == pytest.approx(math.exp(0.1), rel=1e-6)


@pytest.mark.parametrize("pairs", [8, 12, 16, 20])
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_the_quantile_is_that_of_the_exact_signed_rank_distribution(pairs: int, alpha: float) -> None:
    """Fault: an interval off by one rank, or from the normal approximation."""
    k = signed_rank_quantile(pairs, alpha)
    # Twice the tail below k, by scipy's exact test on data whose signed-rank sum is k - 1, stays within alpha.
    assert _two_sided(pairs, k - 1) <= alpha if k else _two_sided(pairs, 0) > alpha
    assert _two_sided(pairs, k) > alpha


def _two_sided(pairs: int, total: int) -> float:
    """P of a two-sided exact test on ``pairs`` values whose positive ranks sum to ``total``."""
    positive, rest = set(), total
    for rank in range(pairs, 0, -1):
        if rank <= rest:
            positive.add(rank)
            rest -= rank
    data = [rank if rank in positive else -rank for rank in range(1, pairs + 1)]
    return float(stats.wilcoxon(data, method="exact").pvalue)


def test_the_interval_misses_the_truth_as_seldom_as_it_says() -> None:
    """Fault: an interval that is too narrow for the number of looks taken."""
    draw = random.Random(1)
    misses = 0
    for _ in range(400):
        logs = [draw.gauss(0.0, 0.05) for _ in range(16)]
        interval = estimate(logs, alpha=0.05)
        misses += not interval.low <= 1.0 <= interval.high
    assert misses <= 32, "5 % of 400 are 20; 32 is the 99.5 % point"


def test_too_few_pairs_give_an_unbounded_interval() -> None:
    """Fault: a verdict from three pairs."""
    assert estimate([0.1, 0.1, 0.1]).high == math.inf
    with pytest.raises(ValueError, match="no pairs"):
        estimate([])


def test_the_first_look_can_already_decide() -> None:
    """Fault: a plan of looks whose first ones can never come to a verdict."""
    assert signed_rank_quantile(LOOKS[0], 0.05 / len(LOOKS)) >= 1


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.03, 1.2, "FASTER"),
        (0.8, 0.97, "SLOWER"),
        (0.985, 1.015, "SAME"),
        (0.95, 1.01, None),
        (1.01, 1.2, None),
        (0.5, 2.0, None),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, verdict: str | None) -> None:
    """Fault: FASTER because the estimate is above 1 while the interval is not."""
    assert decide(Interval((low * high) ** 0.5, low, high)) == verdict
