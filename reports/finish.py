"""The end of a run: writes reports and ``kernel_config.py`` beside the results and gives the text for the terminal."""

from pathlib import Path

from reports.compare import compare
from reports.compare_text import headline
from reports.html import render_html
from reports.kernel_config import FILE, configuration
from reports.store import read_run, write_whole
from reports.summary import markdown_summary, text_summary
from reports.waivers import judge_run

__all__ = ["HTML", "MARKDOWN", "conclude", "render_all"]

HTML = "report.html"
MARKDOWN = "report.md"


def render_all(run_folder: Path) -> str:
    """Write both reports into the folder of a run and return the summary for the terminal; raises as ``conclude``."""
    return conclude(run_folder)[0]


def conclude(run_folder: Path, baseline: Path | None = None) -> tuple[str, bool]:
    """``render_all``, and whether the verdict fails the run: one reading of the results for both.

    With ``baseline``, the folder of an earlier run, the text says in a line what is different.

    A file that cannot be written, on a disk that is full, costs no verdict: the text says which.

    Raises:
        RunError: there is no readable run in the folder.
    """
    run = read_run(run_folder)
    text = f"{text_summary(run)}\nReport: {run_folder / HTML}\n"
    for name, write in ((HTML, render_html), (MARKDOWN, markdown_summary), (FILE, configuration)):
        try:
            write_whole(run_folder / name, write(run))
        except OSError as error:
            text += (
                f"{name} could not be written: {error.strerror or error}. Later: python -m reports html {run_folder}\n"
            )
    if baseline is not None:
        text += f"{headline(compare(read_run(baseline), run))}\n  python -m reports compare {baseline} {run_folder}\n"
    return text, judge_run(run).fails
