"""What the embedded Hub is asked, and what goes wrong when it is asked to fail.

Requests are written down because "nothing was downloaded" can be proved only where downloads would arrive.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Fault", "FaultKind", "Request", "Traffic", "downloads"]


class FaultKind(StrEnum):
    """The ways in which a Hub fails its clients."""

    SLOW = "slow"
    """Every answer waits ``Fault.seconds`` first."""
    BREAK_OFF = "break-off"
    """The connection closes half-way through a file."""
    ERROR = "error"
    """Every answer is 500."""
    CORRUPT = "corrupt"
    """The last byte of every file becomes a blank: same length, same ETag, another digest. Python and JSON that end in
    a newline still load, so nothing but a check of the digest notices."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and for which requests."""

    kind: FaultKind
    repository: str | None = None
    """``publisher/name``; None: all of them."""
    matching: str = ""
    """Only requests whose path contains this."""
    seconds: float = 1.0
    """Delay of SLOW."""
    times: int | None = None
    """Requests that suffer before the fault is over; None: all."""


class Request(NamedTuple):
    """One request that the server received."""

    method: str
    path: str


def downloads(requests: Iterable[Request]) -> list[Request]:
    """Those that fetched the content of a file."""
    return [request for request in requests if request.method == "GET" and "/resolve/" in request.path]


class Traffic:
    """The requests of one server and its present fault. Safe to use from several threads."""

    def __init__(self) -> None:
        """No request yet, and no fault."""
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._fault: Fault | None = None
        self._suffered = 0

    @property
    def requests(self) -> list[Request]:
        """Every request up to now, in order of arrival. A copy."""
        with self._lock:
            return list(self._requests)

    @property
    def fault(self) -> Fault | None:
        """What goes wrong at present; None: nothing. Setting it starts its count anew."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        with self._lock:
            self._fault, self._suffered = fault, 0

    def receive(self, request: Request, repository: str | None) -> Fault | None:
        """Write a request down, and say what has to go wrong with it."""
        with self._lock:
            self._requests.append(request)
            fault = self._fault
            if (
                fault is None
                or (fault.repository is not None and fault.repository != repository)
                or fault.matching not in request.path
                or (fault.kind in (FaultKind.BREAK_OFF, FaultKind.CORRUPT) and not downloads([request]))
                or (fault.times is not None and self._suffered >= fault.times)
            ):
                return None
            self._suffered += 1
            return fault
