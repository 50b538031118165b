"""One line that says what is running and how much is left; on a terminal rewritten in place, in a log now and then."""

import sys
import time
from typing import TextIO

__all__ = ["Progress"]

LOG_SECONDS = 15.0
"""In a log a line is wanted often enough to see life, and seldom enough to read the rest."""


class Progress:
    """Counts finished checks and estimates the rest from the pace so far."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.__stderr__ or sys.stderr
        self._finished = 0
        self._start = time.monotonic()
        self._last = self._start
        self._terminal = self._stream.isatty()

    def started(self, what: str) -> None:
        """A check begins."""
        self._show(what)

    def finished(self, what: str, outcome: str) -> None:
        """A check ended."""
        self._finished += 1
        self._show(f"{what} {outcome}")

    def close(self) -> None:
        """Remove the line."""
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _show(self, what: str) -> None:
        now = time.monotonic()
        if not self._terminal and now - self._last < LOG_SECONDS:
            return
        self._last = now
        line = f"[{self._finished}/{self._total}{self._left(now)}] {what}"
        self._stream.write(f"\r\x1b[K{line[:118]}" if self._terminal else f"{line}\n")
        self._stream.flush()

    def _left(self, now: float) -> str:
        if not self._finished:
            return ""
        seconds = (now - self._start) / self._finished * (self._total - self._finished)
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
