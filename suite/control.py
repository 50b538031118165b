"""The control of every number: PyTorch against PyTorch by the same procedure, at the start and now and then after it.

There is no difference to be found, so the interval shows what this machine cannot tell apart (the noise floor), and a
verdict of FASTER or SLOWER shows that the procedure is being deceived: from then on the session is NOISY and claims
nothing.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from reports.controls import PREFIX
from reports.record import Outcome, Speed
from suite.finding import Finding, Measure
from suite.sampling import Measurement
from suite.statistics import INDIFFERENCE

__all__ = ["EVERY", "Control", "finding", "identity"]

EVERY = 50
"""Speed cases between two controls."""

CLAIMS = (Speed.FASTER, Speed.SLOWER)


def identity(name: str) -> str:
    """The id of a control of this worker; of several workers each has its own device, and its own controls."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return f"{PREFIX}{name}{'' if worker == 'gw0' else f'-{worker}'}"


def finding(result: Measurement) -> Finding:
    """What one control says."""
    interval, speed = result.interval, Speed(result.verdict)
    half_width = interval.half_width
    measures: dict[str, Measure] = {
        "ratio": interval.ratio,
        "low": interval.low,
        "high": min(interval.high, 1e9),
        "pairs": len(result.logs),
        "half_width": min(half_width, 1e9),
        # The interval lies beyond the indifference zone in nearly every run when the effect is two half-widths away.
        "least_effect": min(INDIFFERENCE + 2 * half_width, 1e9),
        "logs": list(result.logs),
    }
    text = f"PyTorch against itself: {interval.ratio:.3f}× ({interval.low:.3f} to {interval.high:.3f}), {speed}"
    return Finding(Outcome.PASS, message=text, measures=measures, speed=speed)


@dataclass
class Control:
    """When the next control is due, and whether one has claimed a difference."""

    number: int = 0
    noisy: str = ""
    """What the control that claimed a difference said; empty while none has."""
    _since: int = EVERY

    def before_case(self, measure: Callable[[], Measurement]) -> tuple[str, Finding] | None:
        """Called before each speed case: id and finding of the control, if one is due."""
        self._since += 1
        if self._since <= EVERY:
            return None
        found = finding(measure())
        # Only now: a control that raises, because PyTorch itself does, is due again with the next case.
        self._since, self.number = 1, self.number + 1
        self.heard(found.speed, found.message)
        return identity(f"aa-{self.number}"), found

    def claimed(self, result: Measurement) -> tuple[Speed, str]:
        """The verdict of a measurement as far as this session may claim it, and the condition that is not met."""
        speed = Speed(result.verdict)
        if not self.noisy or speed is Speed.INCONCLUSIVE:
            return speed, result.unmet
        why = "the session is NOISY, since a control found a difference where there is none"
        return Speed.INCONCLUSIVE, f"{why} ({self.noisy})"

    def heard(self, speed: Speed | None, message: str) -> None:
        """Take note of a control, this worker's or that of the one it replaces."""
        if speed in CLAIMS and not self.noisy:
            self.noisy = message
