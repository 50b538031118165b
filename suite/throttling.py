"""Pairs that were measured while the device ran slowly: dropped as pairs by its clock, never by a measured time.

Dropping what took long would make any kernel look better than it is. The clock of the device is independent of which
arm ran. Where it cannot be read nothing is dropped, and the result says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

__all__ = ["MOST_DROPPED", "SLOW", "Throttling"]

SLOW = 0.75
"""A pair below this share of the session's median clock is dropped."""
MOST_DROPPED = 0.10
"""With a larger share dropped, what is left is no fair sample of the machine."""


@dataclass
class Throttling:
    """The clocks of a session. ``read`` gives the clock in MHz, or None where there is none to be read."""

    read: Callable[[], float | None] = lambda: None
    seen: list[float] = field(default_factory=list)

    def note(self) -> float | None:
        """Read the clock now, and remember it for the median of the session."""
        clock = self.read()
        if clock is not None:
            self.seen.append(clock)
        return clock

    def kept(self, clocks: Sequence[float | None]) -> list[bool]:
        """For each pair, by the clock noted after it, whether it stays."""
        limit = SLOW * median(self.seen) if self.seen else 0.0
        return [clock is None or clock >= limit for clock in clocks]
