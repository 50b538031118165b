"""``python -m reports``: reports of a run that is on disk, made on any machine, without torch.

Exit status: 0, or for ``summary`` 0 only if the verdict is PASS and else 1, for ``compare`` 1 if anything is worse; 2
if a run cannot be read.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reports.compare import compare
from reports.compare_text import comparison_markdown, comparison_text
from reports.html import render_html
from reports.kernel_config import configuration
from reports.requirements import requirements_text
from reports.store import Run, RunError, read_run, write_whole
from reports.summary import markdown_summary, text_summary
from reports.waivers import InUse, Waiver, WaiverError, apply, judge_run
from reports.waivers import read as read_waivers

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "compare":
            found = compare(read_run(options.before), read_run(options.after))
            _print(comparison_markdown(found) if options.markdown else comparison_text(found))
            return 1 if found.worse else 0
        run = read_run(options.run)
        if options.waivers:
            run = _under(run, read_waivers(options.waivers))
        if options.command == "html":
            target: Path = options.output or options.run / "report.html"
            if not target.parent.is_dir():
                raise RunError(f"-o {target}: there is no folder {target.parent}; make it, or choose another file")
            write_whole(target, render_html(run))
        elif options.command == "config":
            _print(configuration(run))
        elif options.command == "requirements":
            _print(requirements_text(run))
        elif options.command == "markdown":
            _print(markdown_summary(run))
        else:
            _print(text_summary(run))
            return 1 if judge_run(run).fails else 0
    except (RunError, WaiverError) as error:
        print(f"python -m reports: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"python -m reports: {error.filename or 'a run'}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


def _under(run: Run, waivers: tuple[Waiver, ...]) -> Run:
    """The run as it would have been with other waivers."""
    packages = dict(run.environment.packages) if run.environment else {}
    device = run.environment.device if run.environment else ""
    return replace(run, records=apply(run.records, waivers, packages, device), waivers=InUse(waivers))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description="Reports of a run of `pytest suite`.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    helps = {
        "config": "a KernelConfig of the kernels that were faster and never slower, as a Python file",
        "html": "one self-contained HTML file",
        "markdown": "a short report for the step summary of a CI",
        "requirements": "the documented statements, and what came of each on the device of the run",
        "summary": "the summary for the terminal; exit status 0 only if the verdict is PASS",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=f"Write {text}.")
        command.add_argument("run", type=Path, metavar="RUN", help="folder of a run, with results.jsonl")
        command.add_argument(
            "--waivers",
            type=Path,
            action="append",
            metavar="FILE",
            help="apply these known faults instead of the run's",
        )
        if name == "html":
            command.add_argument(
                "-o", "--output", type=Path, metavar="FILE", help="file to write (default: report.html in the folder)"
            )
    text = "what is different in a later run, and whether anything is worse (exit status 1)"
    compared = commands.add_parser("compare", help=text, description=f"Write {text}.")
    compared.add_argument("before", type=Path, metavar="BEFORE", help="folder of the earlier run")
    compared.add_argument("after", type=Path, metavar="AFTER", help="folder of the later run")
    compared.add_argument("--markdown", action="store_true", help="for the step summary of a CI")
    return parser


def _print(text: str) -> None:
    # A terminal of another encoding must not end in a traceback over a multiplication sign.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


if __name__ == "__main__":
    sys.exit(main())
