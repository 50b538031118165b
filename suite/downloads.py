"""How long the Hub client moves files within a block, and how many bytes: what is paid once for a kernel, and not at
all where it is in the cache.

Every file of the Hub comes through one of two functions of its client, by HTTP or by Xet, which is not called for what
is there already. Several files come at the same time, so what counts is the time while any is on its way.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from unittest import mock

from huggingface_hub import file_download

from suite.finding import Measure

__all__ = ["Downloads", "downloading"]


@dataclass
class Downloads:
    """What came from the Hub."""

    seconds: float = 0.0
    bytes: int = 0
    _under_way: set[int] = field(default_factory=set)
    """Threads that are moving a file."""
    _began: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def measures(self) -> dict[str, Measure]:
        """As records hold it; zeros where everything was there already."""
        return {"download_seconds": self.seconds, "download_bytes": self.bytes}

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the client, with its time and its bytes added here."""

        def transfer(*args: Any, expected_size: int | None = None, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            if thread in self._under_way:
                # The client calls itself to try again: that is the same file.
                return real(*args, expected_size=expected_size, **kwargs)
            with self._lock:
                self._began = self._began if self._under_way else perf_counter()
                self._under_way.add(thread)
            try:
                return real(*args, expected_size=expected_size, **kwargs)
            finally:
                with self._lock:
                    self._under_way.remove(thread)
                    self.bytes += expected_size or 0
                    self.seconds += 0.0 if self._under_way else perf_counter() - self._began

        return transfer


@contextmanager
def downloading() -> Iterator[Downloads]:
    """Watch the Hub client within the block."""
    found = Downloads()
    with ExitStack() as stack:
        for name in ("http_get", "xet_get"):
            real = getattr(file_download, name)
            stack.enter_context(mock.patch.object(file_download, name, found.counted(real)))
        yield found
