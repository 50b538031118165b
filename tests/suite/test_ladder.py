"""Ladders climbed by ``pytest suite`` as a user starts it: the table, the evidence, the commits that are found."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cases.axes import Property
from reports.ladder_table import Row, table
from reports.record import Outcome, Reason, Record, Speed
from reports.store import read_run
from reports.verdict import judge
from suite.documented.repositories import INIT, PLAIN, write
from suite.first_change import first_different
from suite.hub import EmbeddedHub, Repository, environment_for
from suite.hub_content import Snapshot
from tests.suite.runs import suite

ONE_CASE = (
    *("--device", "cpu", "--model", "llama-tiny", "--dtype", "f32", "--mode", "inference"),
    *("--attention", "sdpa", "-k", "ladder or repository or load or engage or forward or determinism or speed"),
)
CASE = "llama-tiny/f32/inference/sdpa/user"

WRONG = PLAIN.replace("return (result", "return (1.01 * result")
LONGER = WRONG.replace("hidden_states: torch.Tensor)", "hidden_states: torch.Tensor, scale: float)")
DEADLY = LONGER.replace("import torch", "import os\n\nos.abort()")

STEPS: tuple[tuple[str, str], ...] = (
    *((PLAIN, "cpu"), (PLAIN, "cpu"), (PLAIN, "cpu"), (WRONG, "cpu"), (WRONG, "cpu"), (WRONG, "cpu")),
    *((WRONG, "cpu"), (LONGER, "cpu"), (LONGER, "cpu"), (LONGER, "cpu")),
    *((LONGER, "cpu"), (DEADLY, "cpu"), (LONGER, "cuda"), (LONGER, "cuda")),
)
"""The commits of a repository in order: source and device of each. All of its builds have one id."""
TAGS = {"v1.0.0": 0, "v1.1.0": 5, "v1.2.0": 9, "v1.3.0": 13}


class Climbed:
    """A run of the suite, once its ladder is climbed."""

    def __init__(self, folder: Path, words: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.done = suite(*words, "--out", str(folder), environment=environment)
        run = read_run(folder)
        self.folder = folder
        self.records: dict[tuple[str, Property], Record] = {(r.case, r.property): r for r in run.records}
        self.speeds = judge(run.records, run.environment).speedups.measured
        self.rows: dict[str, Row] = {row.name: row for row in table(run.records, self.speeds).items}


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("commits")
    return [
        write(root / str(number), "norm", {"__init__.py": INIT, "layers.py": f"{text}\n# {number}\n"}, [device])
        for number, (text, device) in enumerate(STEPS)
    ]


@pytest.fixture(scope="module")
def climbed(commits: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Climbed]:
    """The ladder of that repository, on a Hub that the suite takes for the real one."""
    tags = {name: Snapshot(commits[number], "").commit for name, number in TAGS.items()}
    repository = Repository("org/norm", {"v1": commits[-1]}, tags, history={"v1": commits[:-1]})
    folder = tmp_path_factory.mktemp("climbed")
    words = [*ONE_CASE, "--hub", "online", "--benchmark-skip", "--ladder", "RMSNorm=org/norm:Norm"]
    with EmbeddedHub([repository], {"org": True}) as hub:
        yield Climbed(folder / "out", words, environment_for(hub.endpoint, folder / "cache"))


def test_each_revision_is_what_was_asked_for_loaded_and_called(climbed: Climbed, commits: list[Path]) -> None:
    """Fault: all rungs measured on the code of the first, since their builds share an id."""
    for name in ("v1.0.0", "v1.1.0"):
        commit = Snapshot(commits[TAGS[name]], "").commit
        (entry,) = climbed.records[f"{CASE}@{name}", Property.ENGAGE].evidence
        assert entry.promised == f"org/norm@{name}:Norm"
        assert entry.resolved == f"org/norm@{commit}:Norm (torch-cpu)"
        assert entry.calls > 0
        assert climbed.rows[name].commit == commit


def test_a_rung_that_fails_fails_the_run_and_one_without_a_build_says_so(climbed: Climbed) -> None:
    """Fault: a ladder that is green whatever it finds, or a missing build taken for a fault of the suite."""
    assert climbed.done.returncode == 1, climbed.done.stdout[-3000:] + climbed.done.stderr[-2000:]
    outcomes = {name: row.cells["outcome"].text for name, row in climbed.rows.items()}
    assert outcomes == {
        "v1.0.0": "PASS",
        "v1.1.0": "FAIL TOLERANCE",
        "v1.2.0": "FAIL REJECTED",
        "v1.3.0, v1": "FALLBACK CANNOT_LOAD",
    }
    assert climbed.records["ladder/v1.3.0", Property.LADDER].reason is Reason.CANNOT_LOAD
    assert not any(record.outcome is Outcome.HARNESS_ERROR for record in climbed.records.values())


def test_what_changed_is_said_in_words(climbed: Climbed) -> None:
    """Fault: a table in which a reader has to find the difference himself."""
    wrong, longer, gone = list(climbed.rows.values())[1:]
    assert wrong.cells["difference"].change == "other bits than v1.0.0, as llama-tiny f32 inference shows"
    assert float(wrong.cells["difference"].text) == pytest.approx(0.02, rel=0.9)
    assert wrong.cells["digest"].change == "another build than v1.0.0"
    assert longer.cells["forward"].text.startswith("(hidden_states, scale)")
    assert longer.cells["forward"].change.startswith("was (hidden_states),")
    assert gone.cells["builds"].change == "new: torch-cuda; gone: torch-cpu"


def test_exactly_the_commit_that_made_each_change_is_named(climbed: Climbed, commits: list[Path]) -> None:
    """Fault: the commit beside it, or one that is named without having been looked at."""

    def named(row: str) -> dict[str, str]:
        return {sentence.partition(" ")[0]: sentence for sentence in climbed.rows[row].found}

    short = [Snapshot(folder, "").commit[:10] for folder in commits]
    wrong, longer, gone = (named(row) for row in list(climbed.rows)[1:])
    assert wrong["outcome"] == (
        f"outcome first differs at {short[3]} (between v1.0.0 and v1.1.0; 2 of 4 commits tried): "
        f"{CASE} forward: was PASS, is FAIL TOLERANCE"
    )
    assert wrong["output"].startswith(f"output first differs at {short[3]} ")
    assert longer["forward"].startswith(f"forward first differs at {short[7]} ")
    assert longer["outcome"].endswith(f"{CASE} load: was PASS, is FAIL REJECTED")
    assert f" {short[7]} " in longer["outcome"]
    assert gone["builds"] == (
        f"builds first differs at {short[12]} (between v1.2.0 and v1.3.0; 2 of 3 commits tried): "
        "was torch-cpu, is torch-cuda"
    )


def test_a_commit_that_kills_the_process_is_named_and_the_search_goes_on(climbed: Climbed, commits: list[Path]) -> None:
    """Fault: a crash that ends the search, or that is looked for in the same process again and again."""
    found = next(sentence for sentence in list(climbed.rows.values())[3].found if sentence.startswith("outcome"))
    assert f" {Snapshot(commits[11], '').commit[:10]} " in found
    assert found.endswith("is CRASH INTERRUPTED")


def test_the_table_is_in_all_reports(climbed: Climbed) -> None:
    """Fault: a result that is in one of the reports only."""
    for text in (climbed.done.stdout, *((climbed.folder / name).read_text() for name in ("report.md", "report.html"))):
        assert "Pin ladder" in text
        assert "outcome first differs at" in text


def test_the_bundled_norm_is_climbed_from_its_first_version_to_its_second(tmp_path: Path) -> None:
    """Fault: a ladder that works in a workshop only; here the default choices, in one process, with speeds."""
    words = [*ONE_CASE, "--hub", "embedded", "-n", "0", "--budget", "0.05"]
    run = Climbed(tmp_path / "out", [*words, "--ladder", "RMSNorm=embedded/normalisation:RMSNorm"])
    assert run.done.returncode == 0, run.done.stdout[-3000:] + run.done.stderr[-2000:]
    first, second = run.rows.values()
    assert (first.name, second.name) == ("v1.0.0, v1", "v2.0.0, v2")
    assert [row.worst for row in (first, second)] == [Outcome.PASS, Outcome.PASS]
    assert first.cells["forward"].text == second.cells["forward"].text
    assert second.cells["digest"].change == "another build than v1.0.0"
    # Both work in float32 and round once.
    assert float(second.cells["difference"].text) < 1e-5
    assert all(row.cells["speed"].text.endswith(" of 2") for row in (first, second))
    assert {record.speed for record in run.speeds} <= set(Speed) - {Speed.NOT_MEASURED}
    assert second.found == (), "one commit follows the other: there is nothing to look for"


def test_a_repository_that_is_not_there_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Fault: an empty run, or a traceback, for a misspelt repository."""
    ladder = ["--ladder", "RMSNorm=embedded/normalization:RMSNorm"]
    done = suite("--device", "cpu", "--hub", "embedded", *ladder, "--out", str(tmp_path / "out"))
    assert done.returncode == 4
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert "there is no such kernel repository on the Hub in use (embedded)" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [1, 2, 3, 8, 100])
def test_a_bisection_finds_each_first_commit_by_few_questions(number: int) -> None:
    """Fault: one commit off at an end, or every commit asked about."""
    commits = [str(each) for each in range(number)]
    for first in range(number):
        asked: list[str] = []

        def same(commit: str, first: int = first, asked: list[str] = asked) -> bool:
            asked.append(commit)
            return int(commit) < first

        assert first_different(commits, same) == (str(first), len(asked))
        assert len(asked) <= max(0, number - 1).bit_length()
        assert len(set(asked)) == len(asked)
