"""Statistics of paired ratios, as pure functions: an estimate, an exact interval, and a rule when to stop.

Sources: Hodges and Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34 (1963): the median of
the Walsh averages. Wilcoxon signed-rank interval: Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods",
section 3.4: the k-th smallest and k-th largest Walsh average, k from the exact null distribution. Looking several
times at growing data is paid for by Bonferroni: each of L looks uses alpha / L.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

__all__ = ["ALPHA", "INDIFFERENCE", "LOOKS", "Interval", "decide", "estimate", "signed_rank_quantile"]

ALPHA = 0.05
"""Chance that an interval misses the true ratio, over all looks together."""
LOOKS = (8, 16, 32, 64)
"""Numbers of pairs at which the interval is computed. Eight is the least at which alpha / 4 can be reached at all."""
INDIFFERENCE = 0.02
"""Ratios within 1 plus or minus this count as the same: smaller effects drown in layout and clock drift."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate of t_pytorch / t_kernel with its interval."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's width in ln units: the least effect that could have been seen, roughly."""
        return (math.log(self.high) - math.log(self.low)) / 2


@cache
def _signed_rank_counts(pairs: int) -> tuple[int, ...]:
    """Number of sign assignments for each value of the signed-rank sum, by dynamic programming."""
    counts = [1]
    for rank in range(1, pairs + 1):
        grown = counts + [0] * rank
        for total, count in enumerate(counts):
            grown[total + rank] += count
        counts = grown
    return tuple(counts)


@cache
def signed_rank_quantile(pairs: int, alpha: float) -> int:
    """Largest k with P(W < k) <= alpha / 2 under the null; 0 if none. W is the signed-rank sum of ``pairs``."""
    allowed = alpha / 2 * 2**pairs
    below = 0
    for k, count in enumerate(_signed_rank_counts(pairs)):
        if below + count > allowed:
            return k
        below += count
    raise AssertionError("alpha of 2 or more")


def estimate(logs: Sequence[float], alpha: float = ALPHA / len(LOOKS)) -> Interval:
    """Hodges-Lehmann estimate and exact Wilcoxon interval from ln(t_pytorch / t_kernel) of each pair.

    With too few pairs for ``alpha`` the interval is the range of the Walsh averages, stretched to infinity.

    Raises:
        ValueError: no pairs.
    """
    if not logs:
        raise ValueError("no pairs to estimate from")
    walsh = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    middle = len(walsh) // 2
    center = walsh[middle] if len(walsh) % 2 else (walsh[middle - 1] + walsh[middle]) / 2
    k = signed_rank_quantile(len(logs), alpha)
    if k == 0:
        return Interval(math.exp(center), 0.0, math.inf)
    return Interval(math.exp(center), math.exp(walsh[k - 1]), math.exp(walsh[-k]))


def decide(interval: Interval, indifference: float = INDIFFERENCE) -> str | None:
    """``FASTER``, ``SAME`` or ``SLOWER`` when the whole interval says so, else None: measure on."""
    low, high = 1 - indifference, 1 + indifference
    if interval.low > high:
        return "FASTER"
    if interval.high < low:
        return "SLOWER"
    if low <= interval.low and interval.high <= high:
        return "SAME"
    return None
