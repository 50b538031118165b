"""A Hub that stops answering while a run goes on: how that is told from a fault of a kernel, and why it takes no hours.

The libraries wrap what the HTTP client raised ("could not verify publisher trust status"), so the whole chain of an
exception is looked through. A refusal is an answer: not found, not trusted and not allowed stay what they are.

Left alone, huggingface_hub asks six times, waits up to a minute for a file's header, and for ever for an answer of the
Hub's interface. ``limit_waiting`` gives it HF_HUB_DOWNLOAD_TIMEOUT for every request, and a few tries for each address.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import constants, set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils._http import default_client_factory

from reports.record import Outcome, Reason
from suite.finding import Finding

__all__ = ["HubAwayError", "chain", "finding", "limit_waiting"]

TRIES = 3
"""Times that one address is asked in a row without an answer. The client's own pauses between them are 1 s and 2 s."""
PAUSE = 20.0
"""Seconds until an address that gave no answer is tried again: a Hub that comes back serves the rest of the run."""
TOO_MANY = 429
"""The one refusal that is about the Hub's own state."""


class HubAwayError(ConnectionError):
    """A request that was not made, since the same one was left without an answer several times just before."""

    def __init__(self, request: Any) -> None:
        super().__init__(f"not asked again, after {TRIES} tries just before")
        self._request = request


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and all that led to it, the last one first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def finding(error: BaseException) -> Finding | None:
    """The finding for a check that the Hub left in the lurch; None where something else is to blame."""
    for link in chain(error):
        request = _unanswered(link)
        if request is not None:
            url = urlsplit(str(request.url))
            hub = f"{url.scheme}://{url.netloc}"
            said = f"{type(link).__name__}: {' '.join(str(link).split())}"[:300]
            return Finding(
                Outcome.HARNESS_ERROR,
                Reason.HUB_AWAY,
                f"the Hub at {hub} gave no answer to {request.method} {url.path} ({said}); "
                "this says nothing of the kernel, and --resume tries again",
                measures={"hub": hub, "hub_away_at": datetime.now(UTC).isoformat(timespec="seconds")},
            )
    return None


def _unanswered(error: BaseException) -> Any:
    """The request that an exception says was not answered; None if it says something else."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return error.response.request if status >= 500 or status == TOO_MANY else None
    # By name: one release of huggingface_hub has httpx below it, another one httpx2.
    transport = any(each.__name__ == "TransportError" and "httpx" in each.__module__ for each in type(error).__mro__)
    return getattr(error, "_request", None) if transport or isinstance(error, HubAwayError) else None


def limit_waiting() -> None:
    """Let no request of this process wait for ever, nor an address without an answer be asked again and again."""
    patience = _Patience()

    def client() -> Any:
        made = default_client_factory()
        hooks = made.event_hooks
        made.event_hooks = {
            "request": [*hooks["request"], patience.before],
            "response": [*hooks["response"], patience.after],
        }
        return made

    set_client_factory(client)


class _Patience:
    """Hooks of the HTTP client. The threads of a download share it, and ask for different addresses."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, float]] = {}
        """By address: how often it was asked since its last answer, and when last."""

    def before(self, request: Any) -> None:
        """Called before a request is made."""
        tries, last = self._waiting.get(str(request.url), (0, 0.0))
        if tries >= TRIES and time.monotonic() - last < PAUSE:
            raise HubAwayError(request)
        self._waiting[str(request.url)] = tries + 1, time.monotonic()
        limits = request.extensions.get("timeout") or {}
        longest = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
        request.extensions["timeout"] = {
            each: min(limits.get(each) or longest, longest) for each in ("connect", "read", "write", "pool")
        }

    def after(self, response: Any) -> None:
        """Called when the header of an answer is there."""
        if response.status_code < 500 and response.status_code != TOO_MANY:
            self._waiting.pop(str(response.request.url), None)
