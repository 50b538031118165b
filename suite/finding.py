"""What a check found: the part of a record that the check itself knows. The recorder adds the rest."""

from dataclasses import dataclass, field

from reports.record import Determinism, Engagement, Measure, Outcome, Reason, Speed

__all__ = ["Finding", "Measure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check, with its figures."""

    outcome: Outcome
    reason: Reason | None = None
    message: str = ""
    measures: dict[str, Measure] = field(default_factory=dict)
    evidence: tuple[Engagement, ...] = ()
    speed: Speed | None = None
    determinism: Determinism | None = None
