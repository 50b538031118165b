"""The order of a ladder, what its rungs are called, and how cases climb it."""

import pytest

from cases.axes import DType, Mode
from cases.case import Case
from cases.ladder import Ladder, climb, rung_of, rungs
from cases.mappings import KernelReference
from cases.plan import USER


def commit(number: int) -> str:
    return f"{number:040x}"


def test_versions_are_climbed_in_their_order() -> None:
    """Fault: v10 before v2, a release before its candidate, or a branch before the tags that it has grown from."""
    tags = ["v10.0.0", "v2.0.0", "v1.10.0", "v1.9.1", "1.0.0", "v2.0.0-rc1", "stable"]
    branches = ["v2", "v10", "v1", "main", "v1-fix"]
    found = rungs(
        {tag: commit(number) for number, tag in enumerate(tags)},
        {branch: commit(100 + number) for number, branch in enumerate(branches)},
    )
    ordered = "1.0.0 v1.9.1 v1.10.0 v1 v2.0.0-rc1 v2.0.0 v2 v10.0.0 v10 stable"
    assert [rung.name for rung in found] == ordered.split()
    assert [rung.position for rung in found] == list(range(len(found)))


def test_names_of_one_commit_are_one_rung_called_by_its_tag() -> None:
    """Fault: the same kernel measured twice, or a result under the name of a branch that moves."""
    (one, two) = rungs({"v1.0.0": commit(1)}, {"v1": commit(1), "v2": commit(2)})
    assert (one.name, one.names, one.commit, one.version) == ("v1.0.0", ("v1.0.0", "v1"), commit(1), None)
    assert (two.name, two.names, two.version) == ("v2", ("v2",), 2)


def test_a_name_that_no_id_can_hold_gives_way_to_another_or_to_the_commit() -> None:
    """Fault: a slash or a quote from a Hub in the id of a case, and in a command that is to be run."""
    found = rungs({"release/3": commit(3), "it's": commit(4)}, {"v3": commit(3)})
    assert [(rung.name, rung.names) for rung in found] == [("v3", ("v3", "release/3")), (commit(4), ("it's",))]


def test_a_rung_is_asked_for_as_a_user_pins_it() -> None:
    """Fault: a tag v2 taken for the version 2, which is the branch."""
    ladder = Ladder("RMSNorm", "org/norm", "Norm")
    found = rungs({"v2": commit(2), "a b": commit(4)}, {"v2": commit(9), "v3": commit(3)})
    assert {rung.name: ladder.kernel(rung) for rung in found} == {
        "v2": KernelReference("org/norm", "Norm", revision="v2"),
        "v3": KernelReference("org/norm", "Norm", version=3),
        commit(4): KernelReference("org/norm", "Norm", revision=commit(4)),
    }


def test_the_same_cases_are_on_every_rung_one_rung_after_the_other() -> None:
    """Fault: a revision that is measured on other models than its neighbour."""
    first = Case("llama-tiny", DType.FLOAT32, Mode.INFERENCE, "sdpa", USER)
    second = Case("qwen3-tiny", DType.BFLOAT16, Mode.TRAINING, "eager", USER)
    alone = Case("llama-tiny", DType.FLOAT16, Mode.INFERENCE, "sdpa", f"{USER}@v1")
    found = climb([first, second, alone], rungs({}, {"v1": commit(1), "v2": commit(2)}))
    assert [case.id for case in found] == [
        "llama-tiny/f32/inference/sdpa/user@v1",
        "llama-tiny/f32/inference/sdpa/user@v2",
        "qwen3-tiny/bf16/training/eager/user@v1",
        "qwen3-tiny/bf16/training/eager/user@v2",
        "llama-tiny/f16/inference/sdpa/user@v1",
    ]


@pytest.mark.parametrize(
    ("identity", "rung"),
    [
        ("ladder/v1.0.0", "v1.0.0"),
        ("repository/RMSNorm@v1", "v1"),
        ("llama-tiny/f32/inference/sdpa/user@v2.0.0-rc1", "v2.0.0-rc1"),
        ("llama-tiny/f32/inference/sdpa/user", None),
        ("llama-tiny/f32/inference/org~attention@v1/user", None),
        ("repository/org~attention@v1", None),
        ("statement/config.version", None),
    ],
)
def test_an_id_tells_its_rung(identity: str, rung: str | None) -> None:
    """Fault: the pin of an attention kernel taken for a revision of the ladder."""
    assert rung_of(identity) == rung
