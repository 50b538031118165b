"""Turns findings into records on disk, at once and in one write each, so that a crash loses nothing already known."""

from dataclasses import dataclass
from pathlib import Path

from cases.axes import Phase, Property
from reports import store
from reports.record import Record
from suite.finding import Finding

__all__ = ["Recorder"]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Appends to ``results.jsonl`` of one run."""

    folder: Path
    rerun: str
    """Command that re-runs cases of this run, up to ``--case``."""

    def repro(self, case: str) -> str:
        """The exact command that re-runs one case."""
        return f"{self.rerun} --case '{case}'"

    def write(
        self,
        case: str,
        checked: Property,
        finding: Finding,
        *,
        requirements: tuple[str, ...] = (),
        shims: tuple[str, ...] = (),
        phase: Phase | None = None,
        seconds: float = 0.0,
    ) -> Record:
        """Append one record and return it."""
        record = Record(
            case=case[:512],
            property=checked,
            outcome=finding.outcome,
            phase=phase,
            requirements=requirements,
            reason=finding.reason,
            message=finding.message[:20_000],
            speed=finding.speed,
            determinism=finding.determinism,
            evidence=finding.evidence,
            measures=finding.measures,
            shims=shims,
            repro=self.repro(case),
            seconds=round(seconds, 4),
        )
        store.append(self.folder / store.RESULTS, record)
        return record
