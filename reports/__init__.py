"""JUDGE AND SHOW: reads the records of a run and renders them. Nothing here imports torch."""

from pathlib import Path

__all__ = ["render_all"]


def render_all(run_folder: Path) -> str:
    """Write ``report.html`` and ``report.md`` into the folder of a run; see ``reports.finish.render_all``."""
    # Imported at the call: whoever only needs the schema of a record must not wait for the chart library.
    from reports.finish import render_all as render

    return render(run_folder)
