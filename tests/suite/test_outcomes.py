"""Outcomes in pytest's words, lost workers in ours, and the progress line."""

import io

import pytest

from cases.axes import Property
from reports.record import Outcome, Record
from suite.outcomes import lost_worker, parse_item, raise_for
from suite.progress import Progress


def record(outcome: Outcome) -> Record:
    return Record(
        case="a/f32/inference/sdpa/b", property=Property.FORWARD, outcome=outcome, message="why", repro="again"
    )


@pytest.mark.parametrize(
    "outcome",
    [Outcome.FAIL, Outcome.FALLBACK, Outcome.CRASH, Outcome.TIMEOUT, Outcome.RESOURCE, Outcome.HARNESS_ERROR],
)
def test_whatever_is_no_pass_and_no_skip_fails_with_the_command_to_run_it_again(outcome: Outcome) -> None:
    """Fault: a new outcome that falls through to green."""
    with pytest.raises(pytest.fail.Exception, match="again"):
        raise_for(record(outcome))


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.NOT_SUPPORTED])
def test_what_was_not_checked_is_a_skip_with_the_reason(outcome: Outcome) -> None:
    """Fault: a skip recorded as pass."""
    with pytest.raises(pytest.skip.Exception, match="why"):
        raise_for(record(outcome))


def test_a_pass_returns() -> None:
    """Fault: a suite that cannot be green."""
    raise_for(record(Outcome.PASS))


def test_a_lost_worker_hung_or_crashed_by_its_time() -> None:
    """Fault: a hang reported as a crash, so that its reader looks for a signal."""
    assert lost_worker(180.2, 180.0).outcome is Outcome.TIMEOUT
    assert lost_worker(3.0, 180.0).outcome is Outcome.CRASH


@pytest.mark.parametrize("group", ["", "@llama-tiny"])
def test_an_item_is_read_back_with_and_without_its_group(group: str) -> None:
    """Fault: a crash under several workers that is recorded for no case."""
    nodeid = f"suite/test_forward.py::test_forward[llama-tiny/f32/inference/sdpa/bundled]{group}"
    assert parse_item(nodeid) == ("llama-tiny/f32/inference/sdpa/bundled", Property.FORWARD)
    assert parse_item("suite/test_statement.py::test_statement[env.available]") == (
        "statement/env.available",
        Property.STATEMENT,
    )
    assert parse_item("tests/test_other.py::test_other[x]") is None


def test_a_log_gets_a_line_now_and_then_and_not_one_per_check() -> None:
    """Fault: ten thousand lines of progress in a CI log."""
    stream = io.StringIO()
    progress = Progress(1000, stream)
    for _ in range(1000):
        progress.started("forward x")
        progress.finished("forward x", "passed")
    progress.close()
    assert stream.getvalue().count("\n") <= 2
