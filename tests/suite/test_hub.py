"""The embedded Hub, driven by the real clients.

Everything about content, refusals and control is asked over plain HTTP in this process. What kernels, Transformers and
huggingface_hub make of it is found out in child processes, because they read ``HF_ENDPOINT`` when they are imported;
each child checks several things, since importing torch takes seconds.
"""

import http.client
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import RevisionNotFoundError

from suite.hub import (
    EmbeddedHub,
    Fault,
    FaultKind,
    Repository,
    Request,
    bundled_repositories,
    downloads,
    environment_for,
    real_hub_answers,
    requests_of,
    set_fault,
)

LAYERS = """
import torch
from torch import nn


class Norm(nn.Module):
    has_backward = True
    can_torch_compile = True
    version = {version}
    eps: float

    def forward(self, x):
        return x
"""

ATTENTION = """
def flash_attn_func(q, k, v, **arguments):
    return v


def flash_attn_varlen_func(q, k, v, **arguments):
    return v
"""


def write_kernel(folder: Path, identity: str, version: int, *, variants: tuple[str, ...] = ("cpu",)) -> Path:
    for variant in variants:
        build = folder / "build" / f"torch-{variant}"
        build.mkdir(parents=True)
        metadata = {
            "id": f"{identity}_{variant}_v{version}",
            "name": "norm",
            "version": version,
            "license": "Apache-2.0",
            "python-depends": [],
            "backend": {"type": variant},
        }
        (build / "metadata.json").write_text(json.dumps(metadata) + "\n")
        (build / "layers.py").write_text(LAYERS.format(version=version))
        (build / "__init__.py").write_text(f"from . import layers\n\nVERSION = {version}\n{ATTENTION}")
    return folder


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    root = tmp_path / "repositories"
    write_kernel(root / "norm" / "v1", "norm", 1)
    write_kernel(root / "norm" / "v2", "norm", 2, variants=("cpu", "xpu"))
    write_kernel(root / "elsewhere" / "v1", "elsewhere", 1, variants=("cuda",))
    write_kernel(root / "grown" / "v1", "grown", 1, variants=("cuda",))
    write_kernel(root / "grown" / "v2", "grown", 2)
    return root


@pytest.fixture
def hub(kernels: Path) -> Iterator[EmbeddedHub]:
    with EmbeddedHub(bundled_repositories(kernels)) as running:
        yield running


def ask(hub: EmbeddedHub, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    host = hub.endpoint.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    try:
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def client(hub: EmbeddedHub, cache: Path, code: str) -> dict[str, Any]:
    """Run code in a process of its own; it fills the dictionary ``seen``, and can call ``outcome(function)``."""
    program = (
        "import json\nseen = {}\n"
        "def outcome(function):\n"
        "    try:\n        return repr(function())\n"
        "    except Exception as error:\n        return type(error).__name__ + ': ' + str(error)\n"
        f"{textwrap.dedent(code)}\nprint('SEEN' + json.dumps(seen))\n"
    )
    paths = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment_for(hub.endpoint, cache), **paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "SEEN" in done.stdout, f"the client died:\n{done.stderr[-3000:]}"
    answer: dict[str, Any] = json.loads(done.stdout.split("SEEN")[1])
    return answer


PREPARE = """
import os
from kernels import LayerRepository, get_kernel, get_loaded_kernels, has_kernel
from suite.hub import Fault, FaultKind, downloads, requests_of, set_fault

endpoint = os.environ["HF_ENDPOINT"]

def asked(function):
    before = len(requests_of(endpoint))
    result = outcome(function)
    return [result, [request.path for request in requests_of(endpoint)[before:]]]
"""


def test_kernels_resolves_every_kind_of_pin_and_loads_what_it_stands_for(hub: EmbeddedHub, tmp_path: Path) -> None:
    """A server that is only nearly a Hub: a pin that is not found, or that loads another version."""
    commit = hub.commit("embedded/norm", "v1")
    seen = client(
        hub,
        tmp_path / "cache",
        PREPARE
        + f"""
pins = [dict(version=1), dict(version=2)]
pins += [dict(revision=name) for name in ("v1.0.0", "v2.0.0", "v1", "main", "{commit}")]
seen["pins"] = [outcome(lambda: get_kernel("embedded/norm", **pin).VERSION) for pin in pins]
seen["layer"] = outcome(lambda: LayerRepository("embedded/norm", layer_name="Norm", version=1).load().version)
seen["origins"] = sorted({{kernel.repo_info.revision for kernel in get_loaded_kernels()}})
before = len(requests_of(endpoint))
get_kernel("embedded/norm", version=1)
seen["again"] = len(downloads(requests_of(endpoint)[before:]))

from transformers.integrations.hub_kernels import load_and_register_attn_kernel
for text in ("embedded/norm", "embedded/norm@v2.0.0", "embedded/norm@main:flash_attn_func"):
    seen[text] = outcome(lambda: load_and_register_attn_kernel(text).VERSION)
""",
    )
    assert seen.pop("pins") == ["1", "2", "1", "2", "1", "2", "1"]
    assert seen.pop("layer") == "1"
    assert commit in seen.pop("origins")
    assert seen.pop("again") == 0, "a kernel in the cache was downloaded again"
    assert seen == {"embedded/norm": "1", "embedded/norm@v2.0.0": "2", "embedded/norm@main:flash_attn_func": "2"}


def test_kernels_refuses_what_the_hub_does_not_vouch_for_or_have(hub: EmbeddedHub, tmp_path: Path) -> None:
    """A trust check that a download precedes, and errors that name another cause than the real Hub's would."""
    seen = client(
        hub,
        tmp_path / "cache",
        PREPARE
        + """
from kernels.hf_hub import _get_hf_api
outcome(lambda: _get_hf_api().get_organization_overview("embedded"))  # Asks once for what no repository is about.
seen["untrusted"] = asked(lambda: get_kernel("stranger/norm", version=1))
seen["consent"] = outcome(lambda: get_kernel("stranger/norm", version=2, trust_remote_code=True).layers.__name__)
seen["listed"] = outcome(lambda: get_kernel("stranger/norm", version=1, trust_remote_code=["stranger/norm"]).VERSION)
seen["original"] = outcome(lambda: get_kernel("embedded/norm", version=2).layers.__name__)
seen["nobody"] = outcome(lambda: get_kernel("nobody/norm", version=1))
seen["repository"] = outcome(lambda: get_kernel("kernels-community/activation", version=1))
seen["version"] = outcome(lambda: get_kernel("embedded/norm", version=7))
seen["revision"] = outcome(lambda: get_kernel("embedded/norm", revision="v9.9.9"))
seen["variant"] = outcome(lambda: get_kernel("embedded/elsewhere", version=1))
seen["newer"] = outcome(lambda: get_kernel("embedded/grown", version=1))
seen["has"] = [has_kernel("embedded/norm", version=1), has_kernel("embedded/elsewhere", version=1)]
seen["file"] = outcome(lambda: _get_hf_api().hf_hub_download("embedded/norm", "build/none", repo_type="kernel"))
""",
    )
    refusal, paths = seen["untrusted"]
    assert "not from a trusted publisher" in refusal
    assert paths == ["/api/organizations/stranger/overview"]
    assert seen["consent"] == "'norm_cpu_v2_stranger.layers'"
    assert seen["listed"] == "1"
    assert seen["original"] == "'norm_cpu_v2.layers'"
    assert "could not verify publisher trust" in seen["nobody"]
    assert seen["repository"].startswith("RepositoryNotFoundError")
    assert seen["version"] == "ValueError: Version 7 not found, available versions: 1, 2"
    assert seen["revision"].startswith("RevisionNotFoundError")
    assert seen["variant"].startswith("FileNotFoundError: Cannot find a build variant")
    assert "version v2 of 'embedded/grown' has a build compatible" in seen["newer"]
    assert seen["has"] == [True, False]
    assert seen["file"].startswith("RemoteEntryNotFoundError")


def test_clients_see_each_fault_as_what_it_is(hub: EmbeddedHub, tmp_path: Path) -> None:
    """A fault that is not injected, or that goes on after its time: later cases would be blamed on the wrong kernel."""
    seen = client(
        hub,
        tmp_path / "cache",
        PREPARE
        + """
import time
from pathlib import Path
load = lambda version: get_kernel("embedded/norm", version=version)
set_fault(endpoint, Fault(FaultKind.ERROR, repository="embedded/norm"))
seen["error"] = outcome(lambda: load(1))
seen["other"] = outcome(lambda: get_kernel("embedded/grown", version=2).VERSION)
set_fault(endpoint, Fault(FaultKind.SLOW, repository="embedded/norm", matching="/refs", seconds=0.7))
start = time.monotonic()
seen["slow"] = outcome(lambda: load(1).VERSION)
seen["seconds"] = time.monotonic() - start
set_fault(endpoint, Fault(FaultKind.BREAK_OFF, matching="layers.py", times=1))
seen["broken once"] = outcome(lambda: load(2).VERSION)
set_fault(endpoint, Fault(FaultKind.CORRUPT))
seen["corrupt"] = outcome(lambda: get_kernel("stranger/norm", version=1, trust_remote_code=True).VERSION)
module = get_kernel("stranger/norm", version=1, trust_remote_code=True)
seen["end"] = Path(module.layers.__file__).read_text()[-2:]
set_fault(endpoint, None)
seen["sound"] = outcome(lambda: get_kernel("stranger/norm", version=2, trust_remote_code=True).VERSION)
""",
    )
    assert "500" in seen["error"], seen["error"]
    assert seen["other"] == "2"
    assert (seen["slow"], seen["seconds"] >= 0.7) == ("1", True)
    assert seen["broken once"] == "2", "the client is expected to recover from one broken connection"
    assert seen["corrupt"] == "1", "the client is expected to load corrupted content without a word"
    assert seen["end"] == "x "
    assert seen["sound"] == "2"


def test_a_fault_strikes_only_what_it_is_meant_for(hub: EmbeddedHub) -> None:
    """One kernel's fault that spoils the downloads of another, or that outlives its count."""
    path = "/kernels/{}/resolve/main/build/torch-cpu/__init__.py"
    hub.fault = Fault(FaultKind.ERROR, repository="embedded/norm", times=2)
    assert ask(hub, path.format("embedded/grown"))[0] == 200
    assert [ask(hub, path.format("embedded/norm"))[0] for _ in range(3)] == [500, 500, 200]
    hub.fault = Fault(FaultKind.BREAK_OFF)
    with pytest.raises(http.client.IncompleteRead):
        ask(hub, path.format("embedded/norm"))
    assert ask(hub, path.format("embedded/norm"), "HEAD")[0] == 200
    hub.fault = Fault(FaultKind.CORRUPT)
    _, headers, corrupted = ask(hub, path.format("embedded/norm"))
    hub.fault = None
    _, sound_headers, sound = ask(hub, path.format("embedded/norm"))
    assert (headers["ETag"], len(corrupted)) == (sound_headers["ETag"], len(sound))
    assert corrupted != sound


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/kernels/embedded/none/refs", "RepoNotFound"),
        ("/api/models/embedded/norm/revision/main", "RepoNotFound"),
        ("/api/kernels/embedded/norm/tree/v9/build?recursive=false", "RevisionNotFound"),
        ("/api/kernels/embedded/norm/tree/v1/nothing", "EntryNotFound"),
        ("/kernels/embedded/norm/resolve/v9/build/torch-cpu/layers.py", "RevisionNotFound"),
        ("/kernels/embedded/norm/resolve/v1/build/torch-cpu/none.py", "EntryNotFound"),
        ("/kernels/embedded/norm/resolve/v1/../v2/build/torch-cpu/layers.py", "EntryNotFound"),
        ("/kernels/embedded/norm/resolve/v1/build/%2e%2e/%2e%2e/v2/build/torch-cpu/layers.py", "EntryNotFound"),
        ("/kernels/embedded/norm/resolve/v1/%2Fetc%2Fpasswd", "EntryNotFound"),
        ("/kernels/embedded/norm/resolve/..%2Fv1/build/torch-cpu/layers.py", "RevisionNotFound"),
    ],
)
def test_a_refusal_carries_the_code_that_chooses_the_exception(hub: EmbeddedHub, path: str, code: str) -> None:
    """A plain 404, which clients take for a broken Hub; and a path that leaves the repository."""
    status, headers, _ = ask(hub, path)
    assert (status, headers["X-Error-Code"]) == (404, code)


def test_a_tree_lists_folders_alone_or_with_all_that_is_below(hub: EmbeddedHub) -> None:
    """Variants are found as folders of a listing that does not recurse; files by one that does."""
    tree = "/api/kernels/embedded/norm/tree/v2"
    variants = json.loads(ask(hub, f"{tree}/build?recursive=false&expand=false")[2])
    assert {(entry["type"], entry["path"]) for entry in variants} == {
        ("directory", "build/torch-cpu"),
        ("directory", "build/torch-xpu"),
    }
    everything = json.loads(ask(hub, f"{tree}?recursive=true&expand=false")[2])
    files = {entry["path"]: entry["size"] for entry in everything if entry["type"] == "file"}
    assert files["build/torch-xpu/layers.py"] == len(LAYERS.format(version=2))
    assert len(files) == 6


def test_a_commit_is_made_from_content_alone(kernels: Path, tmp_path: Path) -> None:
    """A commit that depends on the place, the clock or left-over bytecode: pins would differ between machines."""
    linked = tmp_path / "linked"
    (linked / "build").mkdir(parents=True)
    variant = kernels / "norm" / "v1" / "build" / "torch-cpu"
    (linked / "build" / "torch-cpu").symlink_to(variant, target_is_directory=True)
    written = write_kernel(tmp_path / "written", "norm", 1)
    (written / "build" / "torch-cpu" / "__pycache__").mkdir()
    (written / "build" / "torch-cpu" / "__pycache__" / "layers.pyc").write_bytes(b"left over")
    changed = write_kernel(tmp_path / "changed", "norm", 1)
    (changed / "build" / "torch-cpu" / "layers.py").write_text("")
    places = {"original": kernels / "norm" / "v1", "linked": linked, "written": written, "changed": changed}
    hub = EmbeddedHub([Repository("a/b", places)])
    with hub:
        commits = {branch: hub.commit("a/b", branch) for branch in places}
    assert commits["original"] == commits["linked"] == commits["written"] != commits["changed"]
    assert len(commits["original"]) == 40
    assert set(commits["original"]) <= set("0123456789abcdef")


def test_a_mistake_in_a_repository_is_named_before_anything_is_served(kernels: Path) -> None:
    """A tag that marks nothing, or two repositories of one name: the second would silently hide the first."""
    folder = kernels / "norm" / "v1"
    with pytest.raises(ValueError, match=r"tag 'v1\.0\.0' of a/b marks 'v3'; expected a commit or one of: v1"):
        EmbeddedHub([Repository("a/b", {"v1": folder}, {"v1.0.0": "v3"})])
    with pytest.raises(ValueError, match="two repositories are called a/b"):
        EmbeddedHub([Repository("a/b", {"v1": folder}), Repository("a/b", {"v1": folder})])


def test_a_history_is_listed_from_a_revision_back(tmp_path: Path) -> None:
    """A list that begins with the oldest, or holds commits after the one that was asked for."""
    first, second, third, other = (write_kernel(tmp_path / f"{number}", "norm", number) for number in range(1, 5))
    branches = {"main": third, "v1": third, "v2": other}
    with EmbeddedHub([Repository("a/b", branches, {"v1.0.0": "v1"}, history={"v1": [first, second]})]) as hub:
        api = HfApi(endpoint=hub.endpoint)

        def listed(revision: str) -> list[str]:
            return [commit.commit_id for commit in api.list_repo_commits("a/b", repo_type="kernel", revision=revision)]

        whole = listed("v1")
        assert whole[0] == hub.commit("a/b", "v1")
        assert len(set(whole)) == 3
        assert listed("v1.0.0") == listed("main") == whole
        assert listed(whole[1]) == whole[1:]
        assert listed("v2") == [hub.commit("a/b", "v2")]
        assert hub.commit("a/b", whole[2]) == whole[2], "an earlier commit is served like any other"
        with pytest.raises(RevisionNotFoundError):
            listed("v9")
    with pytest.raises(ValueError, match="two commits on branch 'v1' of a/b hold the same files"):
        EmbeddedHub([Repository("a/b", {"v1": first}, history={"v1": [first]})])


def test_fifty_clients_at_once_are_all_answered_and_counted(hub: EmbeddedHub) -> None:
    """A listen queue that overflows, or a request that is lost from the count."""
    path = "/kernels/embedded/norm/resolve/v1/build/torch-cpu/layers.py"
    start = threading.Barrier(50)

    def fetch(_: int) -> int:
        start.wait()
        return ask(hub, path)[0]

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(fetch, range(50))) == [200] * 50
    assert downloads(hub.requests) == [Request("GET", path)] * 50


def test_the_server_can_be_questioned_from_another_process(hub: EmbeddedHub) -> None:
    """Workers that see no requests would call every refusal a refusal before any download."""
    ask(hub, "/api/kernels/embedded/norm/refs")
    assert requests_of(hub.endpoint) == hub.requests == [Request("GET", "/api/kernels/embedded/norm/refs")]
    fault = Fault(FaultKind.SLOW, repository="embedded/norm", seconds=0.1, times=3)
    set_fault(hub.endpoint, fault)
    assert hub.fault == fault
    set_fault(hub.endpoint, None)
    assert hub.fault is None


def test_a_hub_that_is_gone_does_not_answer_on_open_connections(kernels: Path) -> None:
    """A "Hub unreachable" case that is answered all the same, by a thread that outlived the server."""
    with EmbeddedHub(bundled_repositories(kernels)) as hub:
        connection = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=5)
        connection.request("GET", "/")
        connection.getresponse().read()
    connection.auto_open = 0  # Not another connection: this one.

    def again() -> None:
        connection.request("GET", "/")
        connection.getresponse()

    with pytest.raises((http.client.HTTPException, OSError)):
        again()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(hub.endpoint, timeout=5)


def test_bundled_repositories_are_published_by_a_trusted_and_an_untrusted_owner(kernels: Path) -> None:
    """A version that is not served, or a ``main`` that is not the newest."""
    (kernels / "norm" / "v10").mkdir()  # No build in it: not a version.
    found = {repository.id: repository for repository in bundled_repositories(kernels)}
    assert set(found) == {
        f"{owner}/{name}" for owner in ("embedded", "stranger") for name in ("norm", "elsewhere", "grown")
    }
    norm = found["embedded/norm"]
    assert set(norm.branches) == {"v1", "v2", "main"}
    assert norm.branches["main"] == norm.branches["v2"]
    assert norm.tags == {"v1.0.0": "v1", "v2.0.0": "v2"}
    assert bundled_repositories(kernels / "none") == []


def test_the_environment_wins_over_settings_that_would_keep_clients_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's offline, telemetry or proxy setting that makes every embedded load fail."""
    monkeypatch.setenv("NO_PROXY", "intranet")
    environment = environment_for("http://127.0.0.1:1", tmp_path)
    assert environment["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert environment["HF_HUB_OFFLINE"] == environment["HF_HUB_DISABLE_TELEMETRY"] == "0"
    assert all(Path(environment[name]).is_relative_to(tmp_path) for name in environment if name.endswith("CACHE"))


def test_the_real_hub_is_asked_only_where_that_is_allowed(hub: EmbeddedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that hangs, or dies, because nobody answers; a request that an offline machine must not send."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    assert real_hub_answers()
    hub.fault = Fault(FaultKind.SLOW, seconds=1.0)
    start = time.monotonic()
    assert not real_hub_answers(timeout=0.2)
    assert time.monotonic() - start < 0.9
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert not real_hub_answers()
    monkeypatch.setenv("HF_ENDPOINT", "no address")
    assert not real_hub_answers(timeout=0.2)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    before = len(hub.requests)
    assert not real_hub_answers()
    assert len(hub.requests) == before
