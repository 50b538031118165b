"""Turns findings into records on disk, at once and in one write each, so that a crash loses nothing already known."""

import traceback
from dataclasses import dataclass
from pathlib import Path

from cases.axes import Phase, Property
from reports import store
from reports.record import Outcome, Reason, Record
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

    def harness_error(self, error: Exception) -> Finding:
        """The finding for a fault of the suite itself; its traceback goes to ``logs/harness.log``."""
        log = self.folder / "logs" / "harness.log"
        with log.open("a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)) + "\n")
        text = f"a fault of the suite, not of the kernel: {type(error).__name__}: {error} (traceback in {log})"
        return Finding(Outcome.HARNESS_ERROR, Reason.EXCEPTION, text)

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
