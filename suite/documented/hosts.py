"""The worker's side of the processes that check documented statements: it starts them, asks them, and outlives them.

They have a Hub of their own: the checks count its requests and break it on purpose, which must touch nobody else.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec
from transformers import modeling_flash_attention_utils as flash

from cases.statements import Statement, Where
from reports.record import Outcome, Reason
from suite import hub
from suite.device import Backend
from suite.documented import repositories
from suite.documented.answer import Answer
from suite.finding import Finding
from suite.mapping import default_mapping

__all__ = ["Hosts"]

ROOT = Path(__file__).resolve().parents[2]

SETTINGS: dict[Where, dict[str, str]] = {
    Where.APART: {},
    Where.OFF: {"USE_HUB_KERNELS": "0"},
    Where.BARE: {},
    Where.QUIET: {"HF_HUB_DISABLE_TELEMETRY": "1", "DISABLE_TELEMETRY": "1"},
}
"""Environment variables of each kind of process, set before it imports anything."""

LIMIT = 120.0
"""Seconds a check may take: the slowest compiles a tiny model, which takes a few."""


SPARES = 3
"""Processes that are kept ready where each serves once: importing the libraries takes longer than a check."""


class Hosts:
    """The processes of one worker. They start when first asked, one of each kind that is going to be needed.

    Where the device lets a process be copied, one of each kind serves all checks, each in a copy. Elsewhere each check
    gets a process of its own, and the next ones start meanwhile. ``planned`` has the kind of every check to come.
    ``mend`` is a Python file that each runs before anything else: to see what a change of the libraries would change.
    """

    def __init__(
        self,
        backend: Backend,
        models: Path,
        folder: Path,
        log: Path,
        planned: Iterable[Where],
        mend: Path | None = None,
    ) -> None:
        self._backend, self._models, self._folder, self._log, self._mend = backend, models, folder, log, mend
        self._left = Counter(where for where in planned if where in SETTINGS)
        self._open = ExitStack()
        self._ready: dict[Where, deque[subprocess.Popen[bytes]]] = {where: deque() for where in SETTINGS}
        self._endpoint = ""

    def ask(self, statement: Statement) -> Answer:
        """Check one statement. Whatever becomes of the process, there is an answer."""
        if not self._endpoint:
            self._start_hub()
            for where in self._left:
                self._fill(where)
        where = statement.where
        process = self._take(where)
        answer = self._put(process, statement)
        self._left[where] -= 1
        if self._backend.survives_fork and process.poll() is None:
            self._ready[where].appendleft(process)
        else:
            _end(process)
        self._fill(where)
        return answer

    def close(self) -> None:
        """End the processes and their Hub."""
        for ready in self._ready.values():
            while ready:
                _end(ready.pop())
        self._open.close()

    def _take(self, where: Where) -> subprocess.Popen[bytes]:
        ready = self._ready[where]
        while ready:
            process = ready.popleft()
            if process.poll() is None:
                return process
            _end(process)
        return self._start(where)

    def _fill(self, where: Where) -> None:
        wanted = min(1 if self._backend.survives_fork else SPARES, self._left[where])
        while len(self._ready[where]) < wanted:
            self._ready[where].append(self._start(where))

    def _put(self, process: subprocess.Popen[bytes], statement: Statement) -> Answer:
        questions, answers = _pipes(process)
        try:
            questions.write(f"{statement.id}\n".encode())
            questions.flush()
        except OSError:
            return _lost(process, Outcome.CRASH, f"the process died before it was asked; see {self._log}")
        ready, _, _ = select.select([answers], [], [], LIMIT)
        line = answers.readline() if ready else b""
        if line:
            return msgspec.json.decode(line, type=Answer)
        if not ready:
            return _lost(process, Outcome.TIMEOUT, f"no answer within {LIMIT:g} s; the process was killed")
        return _lost(process, Outcome.CRASH, f"the process of the check died; what it said is in {self._log}")

    def _start_hub(self) -> None:
        defaults = default_mapping()
        versions = getattr(flash, "FLASH_ATTN_KERNEL_VERSIONS", {})
        fallbacks = {
            repository: versions.get(repository, 1) for repository in flash.FLASH_ATTN_KERNEL_FALLBACK.values()
        }
        content = repositories.served(self._folder, self._backend.device.value, defaults, fallbacks)
        repositories.local_repositories(self._folder)
        trusted = {repository.id.partition("/")[0]: True for repository in content}
        publishers = {**trusted, **hub.PUBLISHERS}
        self._endpoint = self._open.enter_context(hub.EmbeddedHub(content, publishers)).endpoint

    def _start(self, where: Where) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **hub.environment_for(self._endpoint, self._folder / f"cache-{where}")}
        for name in ("USE_HUB_KERNELS", "LOCAL_KERNELS", "DISABLE_KERNEL_MAPPING", "HF_HUB_USER_AGENT_ORIGIN"):
            environment.pop(name, None)
        environment |= SETTINGS[where]
        command = [sys.executable, "-m", "suite.documented", "--where", where, "--device", self._backend.device]
        command += ["--models", str(self._models), "--scratch", str(self._folder), "--endpoint", self._endpoint]
        if self._mend is not None:
            command += ["--mend", str(self._mend)]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # so that a copy that hangs can be ended with it
            )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its copies."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in _pipes(process):
        with contextlib.suppress(OSError):
            pipe.close()


def _lost(process: subprocess.Popen[bytes], outcome: Outcome, text: str) -> Answer:
    _end(process)
    return Answer(Finding(outcome, Reason.INTERRUPTED, text))


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("the process was started with pipes")
    return process.stdin, process.stdout
