"""Starts ``pytest suite`` as a user does, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from cases.axes import Property
from reports.record import Record
from reports.store import read_run

__all__ = ["ROOT", "records", "suite"]

ROOT = Path(__file__).resolve().parents[2]


def suite(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``pytest suite`` with the embedded Hub, so that no test depends on the network."""
    command = [sys.executable, "-m", "pytest", "suite", *words]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def records(folder: Path) -> dict[tuple[str, Property], Record]:
    return {(record.case, record.property): record for record in read_run(folder).records}
