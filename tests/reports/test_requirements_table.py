"""The table of documented statements: what came of each on the device of a run."""

from pathlib import Path

from cases.axes import Property
from cases.requirements import REQUIREMENTS
from reports.__main__ import main
from reports.record import Outcome, Record
from reports.requirements import requirements_text, rows, totals
from reports.store import RESULTS, Run, append


def record(outcome: Outcome, *requirements: str, case: str = "statement/off.env", message: str = "") -> Record:
    return Record(case=case, property=Property.STATEMENT, outcome=outcome, requirements=requirements, message=message)


def test_a_statement_is_as_good_as_the_worst_of_its_checks_that_ran() -> None:
    """Fault: a failure that a pass elsewhere hides, or a row that is grey since one of its checks did not apply."""
    records = [
        record(Outcome.PASS, "off.env", "layers.default"),
        record(Outcome.WAIVED, "off.env", case="statement/off.env#flag", message="use_kernels is True"),
        record(Outcome.NOT_RUN, "layers.default", "layers.rocm", case="a", message="needs an AMD device"),
        record(Outcome.FAIL, "attn.hub", case="b", message="no kernel ran"),
        record(Outcome.PASS, "attn.hub", case="c"),
    ]
    found = {row.requirement.id: row for row in rows(records)}
    assert list(found) == list(REQUIREMENTS)
    assert found["off.env"].outcome is Outcome.WAIVED
    assert found["off.env"].why == "use_kernels is True"
    assert found["layers.default"].outcome is Outcome.PASS
    assert (found["layers.rocm"].outcome, found["layers.rocm"].why) == (Outcome.NOT_RUN, "needs an AMD device")
    assert found["attn.hub"].outcome is Outcome.FAIL
    assert found["attn.hub"].cases == ("b statement", "c statement")
    assert found["attn.default"].outcome is Outcome.NOT_RUN
    assert found["attn.default"].why == "nothing in this run cites it"
    assert sum(totals(found.values()).values()) == len(REQUIREMENTS)


def test_the_table_has_statement_source_outcome_and_checks(tmp_path: Path) -> None:
    """Fault: a table that only those can read who know the suite."""
    records = tuple(record(Outcome.PASS, "off.env", case=f"statement/{number}") for number in range(5))
    text = requirements_text(Run(tmp_path, records, None))
    assert "off.env (MUST)" in text
    assert "Disable kernels" in text
    assert "… and 2 more" in text
    assert f"{len(REQUIREMENTS)} documented statements: {len(REQUIREMENTS) - 1} NOT_RUN, 1 PASS" in text


def test_the_command_prints_it(tmp_path: Path) -> None:
    """Fault: a subcommand that is listed and does not work."""
    append(tmp_path / RESULTS, record(Outcome.PASS, "off.env"))
    assert main(["requirements", str(tmp_path)]) == 0
    assert main(["requirements", str(tmp_path), "--waivers", str(tmp_path / "none.toml")]) == 2
