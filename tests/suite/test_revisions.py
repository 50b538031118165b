"""What a Hub says of a ladder, asked by the real client over loopback: its revisions, their files, their history."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import HfApi, constants

from cases.ladder import Ladder, rungs
from reports.record import Outcome, Reason
from suite import revisions
from suite.documented.repositories import INIT, PLAIN, write
from suite.hub import EmbeddedHub, Fault, FaultKind, Repository, downloads
from suite.hub_content import Snapshot
from suite.kernel_options import OptionError

LADDER = Ladder("RMSNorm", "embedded/norm", "Norm")
OTHER = PLAIN.replace("hidden_states: torch.Tensor)", "hidden_states: torch.Tensor, scale: float = 1.0)").replace(
    "has_backward = True", "has_backward = False"
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedHub]:
    files = [PLAIN, f"{PLAIN}# second\n", OTHER]
    first, second, third = (
        write(tmp_path / f"{number}", "norm", {"__init__.py": INIT, "layers.py": text}, ["cpu", "xpu"])
        for number, text in enumerate(files)
    )
    cuda = write(tmp_path / "cuda", "norm", {"__init__.py": INIT, "layers.py": PLAIN}, ["cuda"])
    bare = write(tmp_path / "bare", "norm", {}, ["cpu"])
    tags = {"v1.0.0": Snapshot(first, "").commit, "v2.0.0": "v2"}
    history = {"v1": [first, second], "v2": [first]}
    branches = {"v1": third, "v2": cuda, "main": cuda}
    repositories = [
        Repository("embedded/norm", branches, tags, history=history),
        Repository("stranger/norm", branches, tags, history=history),
        Repository("embedded/nameless", {"main": first}),
        Repository("embedded/apart", {"v1": first, "v2": cuda}),
        Repository("embedded/empty", {"v1": bare}),
    ]
    with EmbeddedHub(repositories) as running:
        monkeypatch.setattr(huggingface_hub, "HfApi", partial(HfApi, endpoint=running.endpoint))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield running


def find(text: str, *trusted: str) -> list[str]:
    repository, _, name = text.partition(":")
    found = revisions.find(Ladder("RMSNorm", repository, name), frozenset(trusted), "cpu", "embedded")
    return [rung.name for rung in found]


def test_every_revision_with_a_name_is_found(hub: EmbeddedHub) -> None:
    """Fault: a branch that is left out, or a working branch that is taken for a release."""
    assert find("embedded/norm:Norm") == ["v1.0.0", "v1", "v2.0.0"]


def test_a_publisher_who_is_not_trusted_is_refused_before_any_download(hub: EmbeddedHub) -> None:
    """Fault: foreign code on the disk, or in the process, before anybody consented."""
    with pytest.raises(OptionError, match=r"not from a trusted publisher.*give --trust stranger/norm"):
        find("stranger/norm:Norm")
    assert hub.requests
    assert downloads(hub.requests) == []
    assert find("stranger/norm:Norm", "stranger/norm") == ["v1.0.0", "v1", "v2.0.0"]
    assert downloads(hub.requests) != []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("embedded/none:Norm", "there is no such kernel repository on the Hub in use .embedded.; .* try --hub online"),
        ("embedded/nameless:Norm", "no tag and no version branch .* --kernel RMSNorm=embedded/nameless@main:Norm"),
        ("embedded/norm:Nrom", "no revision has a Nrom; the newest has Norm$"),
        ("embedded/empty:Norm", "no revision has a Norm; none has any class$"),
    ],
)
def test_what_cannot_be_climbed_is_refused_in_a_line(hub: EmbeddedHub, text: str, message: str) -> None:
    """Fault: a misspelt name that fails on every revision in turn, or a traceback of the client."""
    with pytest.raises(OptionError, match=message) as refusal:
        find(text)
    assert str(refusal.value).startswith(f"--ladder RMSNorm={text}: ")
    assert "\n" not in str(refusal.value)


def test_a_hub_that_fails_is_named(hub: EmbeddedHub) -> None:
    """Fault: a traceback, or a Hub in trouble reported as a repository that is not there."""
    hub.fault = Fault(FaultKind.ERROR, repository="embedded/norm")
    with pytest.raises(OptionError, match=r"the Hub in use \(embedded\) was asked for its revisions: .*500") as refusal:
        find("embedded/norm:Norm")
    assert "\n" not in str(refusal.value)


def test_what_a_revision_offers_is_read_from_its_files(hub: EmbeddedHub) -> None:
    """Fault: a changed signature or a lost build that the table does not show."""
    api = HfApi(endpoint=hub.endpoint)
    branches = hub.repositories["embedded/norm"].branches
    one = revisions.offer(api, LADDER, hub.commit("embedded/norm", "v1.0.0"), "cpu").measures
    assert one == {
        "builds": "torch-cpu, torch-xpu",
        "parameters": "hidden_states",
        "has_backward": "True",
        "can_torch_compile": "True",
    }
    other = revisions.offer(api, LADDER, branches["v1"], "xpu")
    assert (other.parameters, other.flags["has_backward"]) == (("hidden_states", "scale"), "False")
    assert revisions.offer(api, LADDER, branches["v2"], "cpu").fitting == ()


def test_a_revision_without_a_build_for_the_device_is_a_row_and_no_failure(hub: EmbeddedHub) -> None:
    """Fault: a harness error, or a pass, for a revision that cannot run here."""
    first, _, last = rungs(hub.repositories["embedded/norm"].tags, hub.repositories["embedded/norm"].branches)
    found = revisions.finding(LADDER, last, "cpu")
    assert (found.outcome, found.reason) == (Outcome.NOT_RUN, Reason.CANNOT_LOAD)
    assert "no build for cpu; there are torch-cuda" in found.message
    assert found.measures["position"] == 2
    assert found.measures["parameters"] == "hidden_states"
    assert revisions.finding(LADDER, first, "cpu").outcome is Outcome.PASS
    missing = revisions.finding(Ladder("RMSNorm", "embedded/norm", "Absent"), first, "cpu")
    assert (missing.outcome, missing.reason) == (Outcome.NOT_RUN, Reason.CANNOT_LOAD)
    assert "has no Absent; there are Norm" in missing.message


def test_the_way_between_two_commits_begins_where_they_part(hub: EmbeddedHub) -> None:
    """Fault: a search among commits that neither revision holds, or that leaves out the one that made the change."""
    api, served = HfApi(endpoint=hub.endpoint), hub.repositories["embedded/norm"]
    first, second, third = served.histories["v1"]
    other = served.branches["v2"]
    assert revisions.between(api, "embedded/norm", first, third) == (second, third)
    assert revisions.between(api, "embedded/norm", second, third) == (third,)
    assert revisions.between(api, "embedded/norm", third, other) == (first, other)
    apart = hub.repositories["embedded/apart"].branches
    assert revisions.between(api, "embedded/apart", apart["v1"], apart["v2"]) == (apart["v2"],)
