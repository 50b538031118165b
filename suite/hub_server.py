"""The HTTP side of the embedded Hub: the part of the Hub's interface that kernels and huggingface_hub use.

Content is served from a map of enumerated files and never from a path, so a request cannot reach anything else.
"""

import contextlib
import json
import socket
import socketserver
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from suite.hub_content import Served, Snapshot
from suite.hub_traffic import Fault, FaultKind, Request, Traffic

__all__ = ["Server"]


class Server(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1 as soon as it is made."""

    daemon_threads = True
    request_queue_size = 256  # The default of 5 refuses clients that come many at once.

    def __init__(self, repositories: Mapping[str, Served], publishers: Mapping[str, bool], traffic: Traffic) -> None:
        """Serve ``repositories`` by id. ``publishers`` says who exists, and whether the Hub vouches for them."""
        self.repositories = repositories
        self.publishers = publishers
        self.traffic = traffic
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without looking up a name for 127.0.0.1, as HTTPServer does: that can take seconds without a network."""
        socketserver.TCPServer.server_bind(self)

    @property
    def endpoint(self) -> str:
        """Address for ``HF_ENDPOINT``."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and remember it for ``cut_off``."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_off(self) -> None:
        """Close what clients keep open, so that they see a Hub that is gone."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news; the default prints a traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        """Describe something, or send a file."""
        self._answer()

    def do_HEAD(self) -> None:
        """The same without the body."""
        self._answer()

    def do_POST(self) -> None:
        """Take a fault from another process; the clients under test post nothing."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/-/fault":
            return self._refuse("", f"{self.path} takes no POST")
        fault = json.loads(body)
        self.server.traffic.fault = fault and Fault(**fault | {"kind": FaultKind(fault["kind"])})
        self._send(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept, not printed."""

    def _answer(self) -> None:
        server = self.server
        if self.path == "/-/requests":
            return self._json(server.traffic.requests)
        url = urlsplit(self.path)
        # Split first, unquote then: a revision or a folder may contain an encoded slash.
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        name = _repository_in(parts)
        fault = server.traffic.receive(Request(self.command, self.path), name)
        if fault is not None and fault.kind is FaultKind.SLOW:
            time.sleep(fault.seconds)
        if fault is not None and fault.kind is FaultKind.ERROR:
            return self._send(b'{"error": "Internal Error"}', 500)
        match parts:
            case [""]:
                self._send(b"{}")
            case ["api", "agent-harnesses"]:  # huggingface_hub asks for it once in a day and per cache.
                self._json({"standardEnvVars": [], "harnesses": {}})
            case ["api", "organizations", publisher, "overview"] if publisher in server.publishers:
                trusted = server.publishers[publisher]
                self._json({"name": publisher, "fullname": publisher, "trustedKernelPublisher": trusted})
            case ["api", "organizations", publisher, "overview"]:
                self._refuse("", f"no organization {publisher}")
            case _ if name is None or name not in server.repositories:
                self._refuse("RepoNotFound", "Repository not found")
            case ["api", "kernels", _, _, *rest]:
                self._describe(server.repositories[name], rest, "recursive=true" in url.query.lower())
            case [_, _, _, "resolve", revision, *path]:
                self._file(server.repositories[name].at(revision), "/".join(path), fault)
            case _:
                self._refuse("EntryNotFound", "Entry not found")

    def _describe(self, repository: Served, rest: list[str], recursive: bool) -> None:
        match rest:
            case ["refs"]:
                references = {"branches": ("heads", repository.branches), "tags": ("tags", repository.tags)}
                answer: dict[str, Any] = {
                    kind: [{"name": n, "ref": f"refs/{where}/{n}", "targetCommit": c} for n, c in named.items()]
                    for kind, (where, named) in references.items()
                }
                return self._json(answer | {"converts": [], "pullRequests": []})
            case [] | ["revision", _]:
                snapshot = repository.at(rest[1] if rest else "main")
                if snapshot is not None:
                    publisher = repository.id.split("/")[0]
                    answer = {"id": repository.id, "author": publisher, "sha": snapshot.commit, "private": False}
                    return self._json(answer | {"siblings": [{"rfilename": path} for path in snapshot.files]})
            case ["commits", revision]:
                commits = repository.commits(revision)
                if commits is not None:
                    about = {"title": "a commit", "message": "", "authors": [], "date": "2026-01-01T00:00:00.000Z"}
                    return self._json([{"id": commit, **about} for commit in commits])
            case ["tree", revision, *path]:
                snapshot = repository.at(revision)
                if snapshot is not None:
                    entries = snapshot.tree("/".join(path), recursive)
                    return self._refuse("EntryNotFound", "Entry not found") if entries is None else self._json(entries)
            case _:
                return self._refuse("EntryNotFound", "Entry not found")
        self._refuse("RevisionNotFound", "Invalid rev id")

    def _file(self, snapshot: Snapshot | None, path: str, fault: Fault | None) -> None:
        if snapshot is None:
            return self._refuse("RevisionNotFound", "Invalid rev id")
        headers = {"X-Repo-Commit": snapshot.commit}
        content = snapshot.files.get(path)
        if content is None:
            return self._refuse("EntryNotFound", "Entry not found", headers)
        if fault is not None and fault.kind is FaultKind.CORRUPT and content:
            content = content[:-1] + b" "
        headers |= {"ETag": f'"{snapshot.blobs[path]}"', "Content-Type": "application/octet-stream"}
        self._send(content, headers=headers, broken=fault is not None and fault.kind is FaultKind.BREAK_OFF)

    def _json(self, value: Any) -> None:
        self._send(json.dumps(value).encode())

    def _refuse(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        # huggingface_hub chooses the exception by this header.
        named = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
        self._send(json.dumps({"error": message}).encode(), 404, named | dict(headers or {}))

    def _send(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, broken: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | dict(headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if broken else body)
        self.close_connection = self.close_connection or broken


def _repository_in(parts: list[str]) -> str | None:
    """The repository that a request is about, as ``publisher/name``, be it there or not."""
    match parts:
        case ["api", "kernels", publisher, name, *_] | ["kernels", publisher, name, "resolve", *_]:
            return f"{publisher}/{name}"
    return None
