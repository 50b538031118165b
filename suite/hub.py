"""A Hub of our own on loopback, which the unmodified clients of huggingface_hub and kernels talk to.

It serves kernel repositories from folders, with branches, tags and commits, by publishers that are trusted or not, so
that a machine without internet runs the very code that resolves, trusts, downloads and loads a kernel from the real
Hub. It counts requests, which proves what was *not* downloaded, and misbehaves on demand. A server in this process
can be questioned from another one (``requests_of``, ``set_fault``): the suite's workers are such processes.

Nothing here imports torch, transformers, kernels or huggingface_hub: those read their settings when they are
imported, and ``environment_for`` has to come first.
"""

import contextlib
import json
import os
import threading
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from suite.hub_content import Repository, Served, bundled_repositories
from suite.hub_server import Server
from suite.hub_traffic import Fault, FaultKind, Request, Traffic, downloads

__all__ = [
    "PUBLISHERS",
    "EmbeddedHub",
    "Fault",
    "FaultKind",
    "Repository",
    "Request",
    "bundled_repositories",
    "downloads",
    "environment_for",
    "real_hub_answers",
    "requests_of",
    "set_fault",
]

PUBLISHERS: Mapping[str, bool] = {"embedded": True, "stranger": False, "kernels-community": True}
"""Publishers that exist, and whether the Hub vouches for them. ``kernels-community`` has no repository here, but is
known as trusted, so that asking for one of its kernels fails as it should: not for want of trust, but not found."""


class EmbeddedHub(contextlib.AbstractContextManager["EmbeddedHub"]):
    """The server. It listens from the beginning to the end of the ``with`` block, then drops every connection."""

    def __init__(self, repositories: Iterable[Repository], publishers: Mapping[str, bool] = PUBLISHERS) -> None:
        """Read the repositories.

        Raises:
            ValueError: a tag marks nothing, or two repositories have one id.
            OSError: a file cannot be read.
        """
        self.repositories: dict[str, Served] = {}
        for repository in repositories:
            if repository.id in self.repositories:
                raise ValueError(f"two repositories are called {repository.id}; ids must be unique")
            self.repositories[repository.id] = Served(repository)
        # Whoever publishes something exists, and is not trusted unless it says so.
        self.publishers = {name.split("/")[0]: False for name in self.repositories} | dict(publishers)
        self._traffic = Traffic()
        self._server = Server(self.repositories, self.publishers, self._traffic)
        self.endpoint = self._server.endpoint

    def __enter__(self) -> Self:
        """Start to serve."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="embedded-hub", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and cut off the clients that keep a connection open, so that they see a Hub that is gone."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut_off()

    @property
    def requests(self) -> list[Request]:
        """Every request up to now, in order of arrival. A copy."""
        return self._traffic.requests

    @property
    def fault(self) -> Fault | None:
        """What goes wrong at present; None: nothing. Setting it starts its count anew."""
        return self._traffic.fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        self._traffic.fault = fault

    def commit(self, repository: str, revision: str) -> str:
        """The commit that a branch, tag or commit of a repository stands for.

        Raises:
            KeyError: there is no such repository or revision.
        """
        snapshot = self.repositories[repository].at(revision)
        if snapshot is None:
            raise KeyError(f"{repository} has no revision {revision!r}")
        return snapshot.commit


def requests_of(endpoint: str) -> list[Request]:
    """``EmbeddedHub.requests`` of a server in another process."""
    return [Request(method, path) for method, path in json.loads(_call(f"{endpoint}/-/requests"))]


def set_fault(endpoint: str, fault: Fault | None) -> None:
    """Set ``EmbeddedHub.fault`` of a server in another process."""
    _call(f"{endpoint}/-/fault", json.dumps(fault and asdict(fault)).encode())


def _call(url: str, body: bytes | None = None) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, body), timeout=10) as response:
        content: bytes = response.read()
    return content


def environment_for(endpoint: str, cache: Path) -> dict[str, str]:
    """Environment variables that lead Hub clients to ``endpoint``, with a cache of their own.

    They have to be set before huggingface_hub is imported, and win over whatever is set already.
    """
    home = str(cache.resolve())
    hosts = [host for host in (os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or "").split(",") if host]
    no_proxy = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
    return {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": home,
        "HF_HUB_CACHE": f"{home}/hub",
        "HUGGINGFACE_HUB_CACHE": f"{home}/hub",
        "HF_ASSETS_CACHE": f"{home}/assets",
        "HF_MODULES_CACHE": f"{home}/modules",
        "KERNELS_CACHE": f"{home}/kernels",
        # "0" and not absent: TRANSFORMERS_OFFLINE is looked at only where this one is empty.
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
        # In staging mode HF_ENDPOINT is ignored.
        "HUGGINGFACE_CO_STAGING": "0",
        # With telemetry off, kernels sends a user agent that is no legal header, and every load fails.
        "HF_HUB_DISABLE_TELEMETRY": "0",
        "DISABLE_TELEMETRY": "0",
        "DO_NOT_TRACK": "0",
        # The user's token is for the real Hub.
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }


def real_hub_answers(timeout: float = 2.0) -> bool:
    """Whether the Hub that clients would use (``HF_ENDPOINT`` or huggingface.co) answers within ``timeout`` seconds.

    False without asking when ``HF_HUB_OFFLINE`` or ``TRANSFORMERS_OFFLINE`` is set. Never raises.
    """
    offline = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    if offline.upper() in ("1", "ON", "YES", "TRUE"):
        return False
    answered = threading.Event()

    def ask() -> None:
        endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        with contextlib.suppress(Exception):
            request = urllib.request.Request(endpoint, method="HEAD")
            with urllib.request.urlopen(request, timeout=timeout):
                answered.set()

    # In a thread, because looking up the name is not under the timeout of urllib.
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(timeout)
