"""When to stop: warming an arm up, and measuring two. Both rules are pure: times or ratios go in, an answer comes out.

Sampling until the interval looks good and then computing it at the usual 95 % would find differences where there are
none. So the interval is computed only at looks that are fixed beforehand, and each look pays its share of alpha.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.statistics import ALPHA, INDIFFERENCE, LOOKS, Interval, decide, estimate

__all__ = ["SIGN_OFF_LOOKS", "Stopping", "WarmUp"]

SIGN_OFF_LOOKS = (*LOOKS, 128)
"""One look more, for a run whose numbers are published."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How often an arm is called before it counts.

    At least ``calls`` calls, and ``seconds`` or ``enough`` calls; then up to ``more`` calls until it has settled.
    """

    calls: int = 3
    seconds: float = 0.5
    enough: int = 10
    more: int = 20
    group: int = 5
    """Calls in each of the two groups that are compared."""
    tolerance: float = 0.05
    """Difference of the groups' sums up to which the arm counts as settled."""

    def warm(self, times: Sequence[float]) -> bool:
        """Whether the calls that are due in any case were made. ``times`` are the seconds of each call so far."""
        return len(times) >= self.calls and (sum(times) >= self.seconds or len(times) >= self.enough)

    def settled(self, times: Sequence[float]) -> bool:
        """Whether the last two groups of calls took the same time."""
        if len(times) < 2 * self.group:
            return False
        last, before = sum(times[-self.group :]), sum(times[-2 * self.group : -self.group])
        return before > 0 and abs(last / before - 1) < self.tolerance

    def exhausted(self, times: Sequence[float], before: int, patience: float) -> bool:
        """Whether to go on unsettled: ``more`` calls or ``patience`` seconds after the ``before`` calls that were due.

        The time limit is for calls of seconds, where twenty more would be the larger part of a run.
        """
        return len(times) - before >= self.more or sum(times[before:]) >= patience


@dataclass(frozen=True, slots=True)
class Stopping:
    """At which numbers of pairs to look, and what a look says."""

    looks: tuple[int, ...] = LOOKS
    indifference: float = INDIFFERENCE
    alpha: float = ALPHA

    def next_look(self, pairs: int) -> int | None:
        """The first look at more than ``pairs`` pairs; None after the last."""
        return next((look for look in self.looks if look > pairs), None)

    def look(self, logs: Sequence[float]) -> tuple[Interval, str | None]:
        """The interval at its share of alpha, and the verdict; None while the interval does not decide."""
        interval = estimate(logs, self.alpha / len(self.looks))
        return interval, decide(interval, self.indifference)

    def unmet(self, interval: Interval, pairs: int, budget: float) -> str:
        """For a measurement that ended without a verdict: the condition that was not met."""
        why = "at the last look" if pairs >= self.looks[-1] else f"within the budget of {budget:g} s"
        return (
            f"after {pairs} pairs, {why}, the interval {interval.low:.3f} to {interval.high:.3f} lies neither wholly "
            f"inside nor wholly outside {1 - self.indifference:g} to {1 + self.indifference:g}"
        )
