"""One content in two forms: plain text for a terminal, Markdown for the step summary of a CI. Every string of a record
is made safe by the style it is written in, and no list is longer than its limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

from reports.clean import code_span, markdown, one_line

__all__ = ["MARKDOWN", "TERMINAL", "Style", "more"]


@dataclass(frozen=True, slots=True)
class Style:
    """How content is written: ``text``, ``code`` and ``cell`` (code in a table) make a string safe and cut it to a
    length, and ``table`` is a format of tabulate."""

    text: Callable[[str, int], str]
    code: Callable[[str, int], str]
    cell: Callable[[str, int], str]
    heading: Callable[[str], str]
    table: str
    bullet: str
    line_end: str


def _code_cell(text: str, limit: int) -> str:
    return code_span(text, limit).replace("|", "\\|")


TERMINAL = Style(one_line, one_line, one_line, lambda title: f"{title}:", "simple", "  ", "")
MARKDOWN = Style(markdown, code_span, _code_cell, lambda title: f"### {title}\n", "pipe", "- ", "<br>")


def more(number: int, style: Style) -> list[str]:
    """A line that says how many were left out; none where none were."""
    return [f"{style.bullet}… and {number:,} more"] if number > 0 else []
