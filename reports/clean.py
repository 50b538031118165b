"""Makes a string from a result file fit to be shown. Such strings are untrusted: a kernel's error message may hold
terminal escapes that rewrite the screen, bidirectional overrides that reorder what is read, or a megabyte of one line.
Every string passes through here once before it meets a terminal, Markdown or HTML; HTML is escaped again by Jinja2.
"""

import re

__all__ = ["clean", "code_span", "markdown", "one_line"]

_TERMINAL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# Controls, bidirectional marks and overrides, zero-width and tag characters, line separators, lone surrogates. Newline
# and tab stay: messages have several lines.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKDOWN_SIGNS = re.compile(r"[\\`*_\[\]|~$]|^[#+-]|^\d+[.)](?=\s|$)|:(?=//)")
"""What Markdown would read as markup: emphasis, code, links, tables, formulas; at the start also headings and lists."""


def _visible(match: re.Match[str]) -> str:
    point = ord(match.group())
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def clean(text: str, limit: int = 2_000) -> str:
    """The text without terminal colours, with other invisible characters spelled out, and at most ``limit`` long.

    A longer text ends in a note of how many characters were left out.
    """
    if len(text) > limit:
        # Cut first: the patterns need not walk through a megabyte.
        text = f"{text[:limit]}… ({len(text) - limit:,} more characters in results.jsonl)"
    if text.isprintable():
        return text
    return _INVISIBLE.sub(_visible, _TERMINAL_SEQUENCE.sub("", text))


def one_line(text: str, limit: int = 200) -> str:
    """The cleaned text on one line, cut to ``limit`` characters with an ellipsis."""
    line = " ".join(clean(text, 4 * limit).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def markdown(text: str, limit: int = 300) -> str:
    """One line that reads as plain text in Markdown, also inside a table."""
    line = one_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Of the number of a list it is the sign behind it that can be escaped.
    return _MARKDOWN_SIGNS.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", line)


def code_span(text: str, limit: int = 300) -> str:
    """One line as a Markdown code span. In a table the caller still escapes the bar, which would end the cell."""
    line = one_line(text, limit)
    if not line:
        return ""
    # A fence longer than any run of backticks inside; a space apart, where the text begins or ends with one.
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"
