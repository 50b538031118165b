"""A ratio of times with its interval, and several of them taken together. Pure functions.

No ratio is shown without its interval, a mean of ratios neither. The ends of the interval of a geometric mean are the
geometric means of the ends. That needs no assumption on how the errors of the measurements hang together, and those of
one session share its noise: the standard deviation of a mean is at most the mean of the standard deviations, whatever
their correlation (Minkowski's inequality), so that with about normal errors of the logarithms the interval misses the
mean of the true ratios no more often than the intervals miss theirs. It is about the measurements that were made, and
claims nothing of others.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reports.words import TIMES

__all__ = ["Ratio", "geometric_mean"]


class Ratio(NamedTuple):
    """t_pytorch / t_kernel, above 0 and finite, and its 95 % interval; an end that is not known is 0 or infinity."""

    value: float
    low: float = 0.0
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        """Whether both ends are known."""
        return self.low > 0 and math.isfinite(self.high)

    @property
    def interval(self) -> str:
        """The interval in words."""
        return f"{self.low:.3f} to {self.high:.3f}" if self.bounded else "no interval"

    def __str__(self) -> str:
        """As it stands in a sentence: ``1.214× (1.094 to 1.302)``."""
        return f"{self.value:.3f}{TIMES} ({self.interval})"


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio | None:
    """The geometric mean of ratios with its interval; None of none."""
    if not ratios:
        return None

    def mean(end: Callable[[Ratio], float]) -> float:
        ends = [end(ratio) for ratio in ratios]
        if min(ends) == 0 or max(ends) == math.inf:
            return 0.0 if min(ends) == 0 else math.inf
        return math.exp(math.fsum(math.log(value) for value in ends) / len(ends))

    return Ratio(mean(lambda ratio: ratio.value), mean(lambda ratio: ratio.low), mean(lambda ratio: ratio.high))
