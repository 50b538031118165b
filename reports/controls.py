"""What the controls of a run say: how small an effect its machine could show, and whether it was fit to show any.

Their records have cases ``control/aa-1``, … (PyTorch against itself, by the procedure of every speed) and
``control/fitness-before`` and ``-after`` (known answers, clocks, bandwidth, foreign load). They are no checks of a
kernel, so they count neither as passes nor as failures.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cases.axes import Property
from reports.clean import one_line
from reports.record import Outcome, Record, Speed

__all__ = ["PREFIX", "Controls", "controls", "is_control", "without_controls"]

PREFIX = "control/"
"""How the cases of these records begin."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The controls of a run, taken together."""

    number: int = 0
    """Comparisons of PyTorch with itself."""
    floor: float | None = None
    """Largest half-width of their intervals: what this machine cannot tell apart. 0.01 is 1 %."""
    least_effect: float | None = None
    """Largest of their least effects: what would have been found in nearly every run."""
    noisy: str = ""
    """What a control said that claimed a difference; empty if none did."""
    quarantined: str = ""
    """Why the machine was not fit; empty if it was, or if nobody asked."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What takes trust from the speeds of the run. Holds text from records, so it is still to be escaped."""
        found = []
        if self.quarantined:
            found.append(f"QUARANTINED, speeds are shown and do not count: {self.quarantined}")
        if self.noisy:
            found.append(f"NOISY, verdicts on speed after it are INCONCLUSIVE: {self.noisy}")
        return tuple(found)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The warnings, and how small an effect the machine could show. To be escaped like the warnings."""
        found = list(self.warnings)
        if self.floor is not None and self.least_effect is not None:
            controls = f"{self.number} control{'s' * (self.number > 1)}"
            found.append(
                f"PyTorch against itself ({controls}) is told apart to \N{PLUS-MINUS SIGN}{self.floor:.1%} (the noise "
                f"floor); an effect from {self.least_effect:.1%} on is found in nearly every run."
            )
        return tuple(found)


def is_control(record: Record) -> bool:
    """Whether a record is about the machine and not about a kernel."""
    return record.case.startswith(PREFIX)


def without_controls(records: Sequence[Record]) -> list[Record]:
    """The records that are checks."""
    return [record for record in records if not is_control(record)]


def controls(records: Iterable[Record]) -> Controls:
    """Take the controls among the records together."""
    found = [record for record in records if is_control(record)]
    compared = [record for record in found if record.property is Property.SPEED]
    unfit = [record for record in found if record.property is not Property.SPEED and record.outcome is not Outcome.PASS]
    claims = [record for record in compared if record.speed in (Speed.FASTER, Speed.SLOWER)]
    return Controls(
        number=len(compared),
        floor=_largest(compared, "half_width"),
        least_effect=_largest(compared, "least_effect"),
        noisy=one_line(claims[0].message, 200) if claims else "",
        quarantined=one_line("; ".join(dict.fromkeys(record.message for record in unfit)), 400),
    )


def _largest(records: Iterable[Record], name: str) -> float | None:
    values = [record.measures.get(name) for record in records]
    numbers = [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    ]
    return max(numbers, default=None)
