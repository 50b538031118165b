"""``python -m reports``: reports of a run that is on disk, made on any machine, without torch.

Exit status: 0, or for ``summary`` 0 only if the verdict is PASS and else 1; 2 if the run cannot be read.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.finish import write_text
from reports.html import render_html
from reports.store import RunError, read_run
from reports.summary import markdown_summary, text_summary
from reports.verdict import judge

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        run = read_run(options.run)
        if options.command == "html":
            write_text(options.output or options.run / "report.html", render_html(run))
        elif options.command == "markdown":
            _print(markdown_summary(run))
        else:
            _print(text_summary(run))
            return 1 if judge(run.records, run.environment).fails else 0
    except RunError as error:
        print(f"python -m reports: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"python -m reports: {error.filename or options.run}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description="Reports of a run of `pytest suite`.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    helps = {
        "html": "one self-contained HTML file",
        "markdown": "a short report for the step summary of a CI",
        "summary": "the summary for the terminal; exit status 0 only if the verdict is PASS",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=f"Write {text}.")
        command.add_argument("run", type=Path, metavar="RUN", help="folder of a run, with results.jsonl")
        if name == "html":
            command.add_argument(
                "-o", "--output", type=Path, metavar="FILE", help="file to write (default: report.html in the folder)"
            )
    return parser


def _print(text: str) -> None:
    # A terminal of another encoding must not end in a traceback over a multiplication sign.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


if __name__ == "__main__":
    sys.exit(main())
