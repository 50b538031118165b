"""Turns findings into records on disk, at once and in one write each, so that a crash loses nothing already known."""

import os
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from cases.axes import Phase, Property
from reports import controls, store
from reports.qualification import PREFIX
from reports.record import Outcome, Reason, Record
from reports.waivers import Waiver, installed, waived
from suite.finding import Finding

__all__ = ["Recorder", "redacted"]

_SECRET = re.compile(r"\bhf_[A-Za-z0-9]{16,}|(?<=Bearer )[^\s'\"]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
"""Hub tokens, authorisation headers, and user:password before the host of an address."""
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY")


def redacted(text: str) -> str:
    """The text without secrets: what a library says in an error goes into a report, and a report is sent around.

    Secrets are known by their form, and by being the value of an environment variable with a telling name.
    """
    for name, value in os.environ.items():
        # Shorter values are flags and numbers, and would tear words out of the text.
        if _SECRET_NAME.search(name.upper()) and len(value) >= 12:
            text = text.replace(value, "[secret]")
    return _SECRET.sub("[secret]", text)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Appends to ``results.jsonl`` of one run."""

    folder: Path
    rerun: str
    """Command that re-runs cases of this run, up to ``--case``."""
    waivers: tuple[Waiver, ...] = ()
    """Known faults: a failure that one of them knows is recorded as WAIVED."""
    device: str = ""
    """Device type of the run, which a waiver may be limited to."""

    def repro(self, case: str) -> str:
        """The exact command that re-runs one case."""
        if case.startswith(PREFIX):
            return f"{self.rerun} --qualify -k test_fault"  # they are run together
        if case.startswith(controls.PREFIX):
            return self.rerun  # they belong to every run
        return f"{self.rerun} --case '{case}'"

    def harness_error(self, error: Exception) -> Finding:
        """The finding for a fault of the suite itself; its traceback goes to ``logs/harness.log``."""
        log = self.log("".join(traceback.format_exception(error)))
        text = f"a fault of the suite, not of the kernel: {type(error).__name__}: {error} (traceback in {log})"
        return Finding(Outcome.HARNESS_ERROR, Reason.EXCEPTION, text)

    def log(self, trace: str) -> Path:
        """Write a traceback of the suite into its log, and return where that is."""
        log = self.folder / "logs" / "harness.log"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{trace}\n")
        return log

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
            message=redacted(finding.message)[:20_000],
            speed=finding.speed,
            determinism=finding.determinism,
            evidence=finding.evidence,
            measures=finding.measures,
            shims=shims,
            repro=self.repro(case),
            seconds=round(seconds, 4),
        )
        record = waived(record, self.waivers, installed(), self.device)
        store.append(self.folder / store.RESULTS, record)
        return record
