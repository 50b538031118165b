"""Bytes and time of downloads, by the real Hub client from the embedded Hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from suite.downloads import Downloads, downloading
from suite.hub import EmbeddedHub, Fault, FaultKind, bundled_repositories, set_fault
from suite.session import KERNELS


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with EmbeddedHub(bundled_repositories(KERNELS)) as server:
        yield server


def fetch(hub: EmbeddedHub, cache: Path) -> tuple[Downloads, int]:
    """Bring one kernel here; what it took, and the bytes of its files."""
    with downloading() as found:
        folder = HfApi(endpoint=hub.endpoint).snapshot_download(
            "embedded/activation", repo_type="kernel", revision="v1", cache_dir=cache
        )
    # Variants of pure Python are the same files, which the cache holds once.
    files = {path.resolve() for path in Path(folder).rglob("*") if path.is_file()}
    return found, sum(path.stat().st_size for path in files)


def test_bytes_and_time_are_those_of_the_files_that_came(hub: EmbeddedHub, tmp_path: Path) -> None:
    """Fault: the time of asking counted as that of bringing, or files of several threads counted once or thrice."""
    found, size = fetch(hub, tmp_path)
    assert found.bytes == size > 0
    assert found.seconds > 0
    assert found.measures == {"download_seconds": found.seconds, "download_bytes": size}


def test_what_is_in_the_cache_costs_nothing(hub: EmbeddedHub, tmp_path: Path) -> None:
    """Fault: a load that only asked whether there is something newer, sold as a download."""
    fetch(hub, tmp_path)
    found, _ = fetch(hub, tmp_path)
    assert found.measures == {"download_seconds": 0.0, "download_bytes": 0}


def test_a_file_that_is_tried_again_is_one_file(
    hub: EmbeddedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a bad line that doubles what a kernel weighs."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    set_fault(hub.endpoint, Fault(FaultKind.BREAK_OFF, matching="layers.py", times=1))
    found, size = fetch(hub, tmp_path)
    assert found.bytes == size
