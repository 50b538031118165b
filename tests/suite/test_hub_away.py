"""A Hub that stops answering while a run goes on: no result is lost, no kernel is blamed, no check takes for ever."""

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from huggingface_hub import HfApi, set_client_factory
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils._http import default_client_factory

from cases.axes import Property
from reports.record import Outcome, Reason, Record
from reports.store import read_run
from suite import hub_away
from suite.hub import EmbeddedHub, Fault, FaultKind, bundled_repositories
from tests.suite.runs import ROOT, suite

FIRST = "llama-tiny/f32/inference/sdpa/bundled"
SLOW = "llama-tiny/f32/inference/sdpa/only-SiLU"
ERROR = "llama-tiny/f32/inference/sdpa/only-rotary_pos_emb"
GONE = "llama-tiny/f32/inference/bundled/pytorch"
IN_MEMORY = "llama-tiny/f32/training/sdpa/bundled"
WITHOUT = "llama-tiny/f32/inference/sdpa/pytorch"
CASES = (FIRST, SLOW, ERROR, GONE, IN_MEMORY, WITHOUT)
ATTENTION = "repository/embedded~attention"

BREAKS: dict[str, Any] = {
    # The first check of a repository brings them all here.
    "test_repository[repository/RMSNorm": {"kind": "break-off", "repository": "embedded/attention"},
    f"test_load[{FIRST}": None,
    f"test_state[{FIRST}": {"kind": "error"},
    f"test_load[{SLOW}": {"kind": "slow", "seconds": 60},
    f"test_load[{ERROR}": {"kind": "error"},
    f"test_load[{GONE}": "gone",
}
"""What is wrong with the Hub, from which check on."""

Run = tuple[CompletedProcess[str], Path]
Found = dict[tuple[str, Property], Record]


def start(breaks: dict[str, Any], *words: str) -> CompletedProcess[str]:
    choices = [word for case in CASES for word in ("--case", case)]
    checks = "repository or load or engage or forward or state"
    settings = {"HUB_BREAKS": json.dumps(breaks), "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    plain = ["-n", "0", "-p", "tests.suite.hub_breaking", "--device", "cpu", "--hub", "embedded", "-k", checks]
    return suite(*plain, *choices, *words, environment=settings)


def records(folder: Path) -> Found:
    return {(record.case, record.property): record for record in read_run(folder).records}


@pytest.fixture
def hub() -> Iterator[EmbeddedHub]:
    with EmbeddedHub(bundled_repositories(ROOT / "cases" / "kernels")) as running:
        yield running
    set_client_factory(default_client_factory)


def test_an_address_without_an_answer_is_left_alone_for_a_while_and_then_tried_again(
    hub: EmbeddedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: every load of a night tries a dead address six times; or a Hub that is back is never asked again."""
    hub_away.limit_waiting()
    hub.fault = Fault(FaultKind.ERROR)

    def ask() -> Exception:
        with pytest.raises((HfHubHTTPError, hub_away.HubAwayError)) as raised:
            HfApi(endpoint=hub.endpoint).list_repo_refs("embedded/rotary", repo_type="kernel")
        return raised.value

    errors = [ask() for _ in range(hub_away.TRIES + 2)]
    assert [isinstance(error, hub_away.HubAwayError) for error in errors] == [False] * hub_away.TRIES + [True, True]
    assert len(hub.requests) == hub_away.TRIES
    assert all(hub.endpoint in (found.message if (found := hub_away.finding(error)) else "") for error in errors)
    monkeypatch.setattr(hub_away, "PAUSE", 0.0)
    ask()
    hub.fault = None
    HfApi(endpoint=hub.endpoint).list_repo_refs("embedded/rotary", repo_type="kernel")
    assert len(hub.requests) == hub_away.TRIES + 2


def test_a_refusal_is_an_answer(hub: EmbeddedHub) -> None:
    """Fault: a kernel that is not there, or not trusted, excused as a Hub that is away."""
    with pytest.raises(RepositoryNotFoundError) as refused:
        HfApi(endpoint=hub.endpoint).list_repo_refs("embedded/none", repo_type="kernel")
    assert hub_away.finding(refused.value) is None
    assert hub_away.finding(ValueError("could not verify publisher trust status")) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose Hub breaks in every way, after the first kernels were loaded and before others are."""
    folder = tmp_path_factory.mktemp("away") / "out"
    return start(BREAKS, "--out", str(folder)), folder


def test_a_check_that_the_hub_left_in_the_lurch_says_so_and_blames_no_kernel(run: Run) -> None:
    """Fault: a Hub that is down for a minute, and a release that is held up by kernels that are called untrusted."""
    found = records(run[1])
    asked = {
        (ATTENTION, Property.REPOSITORY): "/kernels/embedded/attention/resolve/",
        (FIRST, Property.STATE): "/api/",
        (SLOW, Property.LOAD): "/api/",
        (ERROR, Property.LOAD): "/api/",
        (GONE, Property.LOAD): "/api/",
    }
    for key, path in asked.items():
        record = found[key]
        assert (record.outcome, record.reason) == (Outcome.HARNESS_ERROR, Reason.HUB_AWAY), record.message
        assert "the Hub at http://127.0.0.1:" in record.message
        assert f"gave no answer to GET {path}" in record.message
    for case in (SLOW, ERROR, GONE):
        record = found[case, Property.FORWARD]
        assert (record.outcome, record.reason) == (Outcome.NOT_RUN, Reason.DEPENDS)
        assert "the Hub at http://127.0.0.1:" in record.message
    assert {record.reason for record in found.values() if record.outcome is Outcome.HARNESS_ERROR} == {Reason.HUB_AWAY}


def test_what_was_found_before_is_kept_and_what_needs_no_hub_goes_on(run: Run) -> None:
    """Fault: a run that ends with its Hub, or loses what it knew."""
    found = records(run[1])
    assert read_run(run[1]).environment is not None
    for case, checked in ((FIRST, Property.FORWARD), (IN_MEMORY, Property.FORWARD), (WITHOUT, Property.FORWARD)):
        assert found[case, checked].outcome is Outcome.PASS, found[case, checked].message
    assert found["repository/RMSNorm", Property.REPOSITORY].outcome is Outcome.PASS
    environment = read_run(run[1]).environment
    assert environment is not None
    assert environment.planned == len(found)


def test_a_hub_that_hangs_is_not_waited_for(run: Run) -> None:
    """Fault: huggingface_hub waits for the Hub's interface as long as that takes: here a minute, after which the load
    would pass, and with a Hub that never answers until the check is killed."""
    assert "Timeout" in records(run[1])[SLOW, Property.LOAD].message


def test_the_run_is_red_and_says_in_one_line_what_to_do(run: Run) -> None:
    """Fault: a green run in which half was not checked; or one where the reader has to guess that it was the Hub."""
    done, folder = run
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "stopped answering" in line]
    away = sum(record.reason is Reason.HUB_AWAY for record in records(folder).values())
    lost = {record.case for record in records(folder).values() if record.reason is Reason.HUB_AWAY}
    resting = [r for r in records(folder).values() if r.reason is Reason.DEPENDS and r.case in lost]
    assert f": {away + len(resting)} checks affected" in line
    assert f"--resume {folder}" in line
    assert "stopped answering" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_resumed_run_makes_exactly_these_checks_again_and_a_wrong_digest_is_told(run: Run) -> None:
    """Fault: checks that rest on a failed load, and stay unchecked in a run that is green; a kernel whose files are not
    those that were built, from a Hub that is there again and answers wrong."""
    before = records(run[1])
    lost = {record.case for record in before.values() if record.reason is Reason.HUB_AWAY}
    again = {
        key
        for key, record in before.items()
        if record.reason is Reason.HUB_AWAY or (record.reason is Reason.DEPENDS and record.case in lost)
    }
    corrupt = {"test_repository": {"kind": "corrupt", "repository": "embedded/attention"}, "test_": None}
    lines = (run[1] / "results.jsonl").read_text(encoding="utf-8").splitlines()
    done = start(corrupt, "--resume", str(run[1]))
    after = (run[1] / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert after[: len(lines)] == lines
    assert len(after) - len(lines) == len(again)
    found = records(run[1])
    wrong = found.pop((ATTENTION, Property.REPOSITORY))
    assert wrong.outcome is Outcome.FAIL
    assert "the files are not those that the digest names" in wrong.message
    assert done.returncode == 1
    assert {record.outcome for record in found.values()} == {Outcome.PASS}, done.stdout[-3000:]
