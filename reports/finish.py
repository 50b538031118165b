"""The end of a run: writes ``report.html`` and ``report.md`` beside the results and gives the text for the terminal."""

from pathlib import Path

from reports.html import render_html
from reports.store import read_run, write_whole
from reports.summary import markdown_summary, text_summary
from reports.waivers import judge_run

__all__ = ["HTML", "MARKDOWN", "conclude", "render_all"]

HTML = "report.html"
MARKDOWN = "report.md"


def render_all(run_folder: Path) -> str:
    """Write both reports into the folder of a run and return the summary for the terminal; raises as ``conclude``."""
    return conclude(run_folder)[0]


def conclude(run_folder: Path) -> tuple[str, bool]:
    """``render_all``, and whether the verdict fails the run: one reading of the results for both.

    Raises:
        RunError: there is no readable run in the folder.
        OSError: a report cannot be written.
    """
    run = read_run(run_folder)
    write_whole(run_folder / HTML, render_html(run))
    write_whole(run_folder / MARKDOWN, markdown_summary(run))
    return f"{text_summary(run)}\nReport: {run_folder / HTML}\n", judge_run(run).fails
