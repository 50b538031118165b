"""The summaries are short, true and safe to print; the commands end as they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from cases.axes import Property
from reports import render_all
from reports.__main__ import main
from reports.clean import clean, code_span, markdown, one_line
from reports.finish import conclude
from reports.record import Outcome, Record
from reports.store import read_run
from reports.summary import markdown_summary, text_summary
from tests.reports.synthetic import records, write_run


def test_the_summary_says_verdict_failure_fallback_and_command(tmp_path: Path) -> None:
    """Catches a summary that leaves a reader without the reason or the command."""
    write_run(tmp_path, list(records(4_000)))
    text = text_summary(read_run(tmp_path))
    assert text.startswith("FAIL on Example Accelerator 1100: 4,000 of 4,000 planned checks recorded")
    for piece in (
        "FALLBACK CANNOT_LOAD",
        "pytest suite --device xpu --case",
        "geometric mean speedup",
        "fastest and slowest",
        "9 DEPENDS",
    ):
        assert piece in text


def test_the_summary_has_a_bounded_length(tmp_path: Path) -> None:
    """Catches ten thousand failures that are all printed, each in its own words."""
    names = [
        f"{chr(97 + number % 26)}{chr(97 + number // 26 % 26)}{chr(97 + number // 676)}" for number in range(3_000)
    ]
    write_run(
        tmp_path,
        [Record(case=name, property=Property.LOAD, outcome=Outcome.FAIL, message=f"{name} " * 2_000) for name in names],
    )
    run = read_run(tmp_path)
    for text in (text_summary(run), markdown_summary(run)):
        assert len(text.splitlines()) < 80
        assert len(text) < 20_000
        assert "2,990 more" in text


def test_a_broken_line_is_in_the_summary(tmp_path: Path) -> None:
    """Catches a damaged file that is read without a word."""
    write_run(tmp_path, list(records(10)))
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b'{"case": "half')
    assert "1 unreadable line in results.jsonl" in text_summary(read_run(tmp_path))
    assert "line 11" in markdown_summary(read_run(tmp_path))


def test_cleaning_removes_colours_and_spells_out_the_rest() -> None:
    """Catches a terminal escape that is shown as rubbish or, worse, obeyed."""
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07end") == "red end"
    assert clean("a\u202eb\x00c\ud800") == "a\\u202eb\\x00c\\ud800"
    assert clean("two\nlines\tand tab") == "two\nlines\tand tab"
    assert one_line("two\n\n lines", 100) == "two lines"
    assert clean("é × 日本") == "é × 日本"


def test_markdown_is_neither_table_nor_code_nor_tag() -> None:
    """Catches a message that breaks the table it stands in, or becomes a link or an image."""
    assert markdown("a|b <i> [x](y) `c`") == "a\\|b &lt;i&gt; \\[x\\](y) \\`c\\`"
    assert markdown("1.06× (0.9 to 1.1)") == "1.06× (0.9 to 1.1)", "a figure is no list"
    assert (markdown("1. a"), markdown("2) b"), markdown("- c")) == ("1\\. a", "2\\) b", "\\- c")
    assert code_span("a`b``c") == "```a`b``c```"
    assert code_span("`a") == "`` `a ``"


def test_a_report_that_cannot_be_written_costs_no_verdict(tmp_path: Path) -> None:
    """Catches a full disk at the end of a night, of which a traceback is all that is left."""
    write_run(tmp_path, list(records(20, faults=False)))
    (tmp_path / "report.html").mkdir()
    text, fails = conclude(tmp_path)
    assert text.startswith("PASS" if not fails else "FAIL")
    assert "report.html could not be written: " in text
    assert (tmp_path / "report.md").is_file()


def test_commands_end_with_the_status_of_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a failed run that a script takes for a good one."""
    good = write_run(tmp_path / "good", list(records(200, faults=False)))
    bad = write_run(tmp_path / "bad", list(records(4_000)))
    unfinished = write_run(tmp_path / "unfinished", list(records(200, faults=False)), planned=300)
    assert main(["summary", str(good)]) == 0
    assert capsys.readouterr().out.startswith("PASS")
    assert main(["summary", str(bad)]) == 1
    assert main(["summary", str(unfinished)]) == 1
    assert main(["markdown", str(bad)]) == 0
    assert main(["html", str(good), "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_wrong_input_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback for a folder that is not there or a file that cannot be written."""
    good = write_run(tmp_path / "good", list(records(8)))
    for arguments in (["summary", str(tmp_path / "no")], ["html", str(good), "-o", str(tmp_path / "no" / "x.html")]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("python -m reports: ")
        assert error.count("\n") == 1


def test_the_end_of_a_run_writes_both_reports(tmp_path: Path) -> None:
    """Catches a run whose folder has no report."""
    write_run(tmp_path, list(records(100)))
    text = render_all(tmp_path)
    assert str(tmp_path / "report.html") in text
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "environment.json",
        "kernel_config.py",
        "report.html",
        "report.md",
        "results.jsonl",
    ]


def test_reports_import_no_torch() -> None:
    """Catches an import that would tie reports to the stack they judge."""
    script = (
        "import sys, reports.__main__, reports.finish; "
        "print([name for name in ('torch', 'transformers', 'kernels') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"
