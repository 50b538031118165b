"""What a qualification says: a fault that was missed, or a twin that was accused, is a fault of the harness."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from cases.axes import Property
from reports.qualification import PREFIX, sentences
from reports.record import Outcome, Reason, Record
from suite import qualify
from suite.qualify import Alarm, FaultVerdict, QualificationError

ALARM = Alarm(
    property=Property.PROBE, outcome=Outcome.FAIL, reason=Reason.TOLERANCE, figure="3 × PyTorch's error", message="off"
)
FOUND = FaultVerdict(
    fault="S01",
    sentence="eps fixed",
    target="RMSNorm",
    expected=(Property.PROBE,),
    alarms=(ALARM,),
    as_expected=True,
    twin_clean=True,
)


def recorded(verdict: FaultVerdict) -> Record:
    found = qualify.finding(verdict)
    return Record(
        case=f"{PREFIX}{verdict.fault}",
        property=Property.STATEMENT,
        outcome=found.outcome,
        message=found.message,
        measures=found.measures,
    )


def test_a_fault_that_is_found_passes_and_says_by_what() -> None:
    """A qualification that is green and gives no figure to check it by."""
    found = qualify.finding(FOUND)
    assert found.outcome is Outcome.PASS
    assert "probe TOLERANCE (3 × PyTorch's error)" in found.message


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (replace(FOUND, alarms=(), as_expected=False), "no check saw it"),
        (replace(FOUND, as_expected=False), "not by the check that is there for it (probe)"),
        (replace(FOUND, twin_clean=False, twin_alarms=(ALARM,)), "twin was accused or did not run: probe: off"),
        (replace(FOUND, twin_clean=False), "no call was proved"),
        (replace(FOUND, alarms=(replace(ALARM, outcome=Outcome.HARNESS_ERROR),)), "no check saw it"),
    ],
)
def test_a_miss_and_a_false_alarm_are_faults_of_the_harness(verdict: FaultVerdict, words: str) -> None:
    """A blind harness that is green, or a broken one whose own error counts as having found the fault."""
    found = qualify.finding(verdict)
    assert found.outcome is Outcome.HARNESS_ERROR
    assert words in found.message


def test_the_report_says_in_one_sentence_how_many_are_found() -> None:
    """A report from which a reader cannot tell what its green is worth."""
    missed = replace(FOUND, fault="S02", alarms=(), as_expected=False)
    accused = replace(FOUND, fault="S03", twin_clean=False)
    assert sentences([]) == ()
    assert sentences([recorded(FOUND)]) == (
        "This harness, on this device, finds 1 of 1 seeded faults, with 0 false alarms on their healthy twins.",
    )
    (text,) = sentences([recorded(each) for each in (FOUND, missed, accused)])
    assert "finds 2 of 3 seeded faults, with 1 false alarms; not as it should be: S02, S03." in text


def test_a_resumed_run_counts_the_last_try_of_a_fault() -> None:
    """A fault counted twice, so that 26 of 25 are found."""
    missed = recorded(replace(FOUND, alarms=(), as_expected=False))
    assert "finds 1 of 1" in sentences([missed, recorded(FOUND)])[0]


@pytest.mark.parametrize("status", [1, -9])
def test_a_process_that_dies_is_an_error_and_no_short_list_of_faults(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken kernel that kills the qualification half way, and ten found of ten."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=status))
    with pytest.raises(QualificationError, match=f"status {status} after 0 faults"):
        qualify.run("cpu", tmp_path)


def test_the_suite_never_imports_the_tests_by_itself() -> None:
    """A normal run that loads broken kernels, or fails where the tests are not installed."""
    code = (
        "import sys, suite.qualify, suite.session, suite.options\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'tests'], sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=qualify.ROOT, check=False)
    assert done.returncode == 0


def test_every_fault_of_the_list_has_an_id_of_its_own() -> None:
    """A fault dropped from the list without anybody noticing."""
    assert qualify.identifiers() == tuple(f"S{number:02}" for number in range(1, 26))
