"""Checks of documented statements that are about the machine or the stack, not about one model.

``cases.statements`` lists them. The first few, and those that only look, are functions of this process; all others are
asked of processes of their own (``suite.documented``).
"""

import importlib.metadata
import os
from collections.abc import Callable, Iterable

import torch
import transformers
from packaging.version import Version
from transformers.utils import import_utils

from cases.axes import DType, Mode
from cases.case import Case
from cases.statements import Statement, Where
from reports.record import Outcome, Reason
from suite.documented.hosts import Hosts
from suite.finding import Finding
from suite.recorder import Recorder
from suite.statements_here import CHECKS, not_yet
from suite.subject import Shelf

__all__ = ["Statements"]


class Statements:
    """Checks statements for one worker."""

    def __init__(self, shelf: Shelf, recorder: Recorder, planned: Iterable[Statement]) -> None:
        self._shelf, self._recorder = shelf, recorder
        self._planned = [statement.where for statement in planned]
        self._hosts: Hosts | None = None

    def check(self, statement: Statement) -> tuple[Finding, tuple[str, ...]]:
        """Check one statement; gives the shims that it took as well."""
        if statement.where is Where.WORKER:
            if statement.id in _CHECKS:
                return _CHECKS[statement.id](self._shelf), ()
            return CHECKS.get(statement.id, not_yet)(self._shelf.loader.backend), ()
        answer = self._processes().ask(statement)
        if answer.trace:
            self._recorder.log(answer.trace)
        return answer.finding, answer.shims

    def close(self) -> None:
        """End the processes."""
        if self._hosts is not None:
            self._hosts.close()
            self._hosts = None

    def _processes(self) -> Hosts:
        if self._hosts is None:
            folder = self._recorder.folder
            scratch = folder / "cache" / f"statements-{os.getpid()}"
            scratch.mkdir(parents=True)
            log = folder / "logs" / "statements.log"
            self._hosts = Hosts(self._shelf.loader.backend, self._shelf.folder, scratch, log, self._planned)
        return self._hosts


def _device_answers(shelf: Shelf) -> Finding:
    """The device is visible, and multiplies two matrices right."""
    backend = shelf.loader.backend
    info = backend.info()
    left = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64) % 7
    product = (left.to(backend.torch_device()) @ left.T.to(backend.torch_device())).cpu()
    if not torch.equal(product.double(), left.double() @ left.T.double()):
        return Finding(
            Outcome.FAIL,
            Reason.TOLERANCE,
            f"{info.name} multiplies small integer matrices wrong, which float32 holds exactly; no result of this "
            "machine can be trusted",
        )
    return Finding(
        Outcome.PASS,
        message=f"{info.count} × {info.name}, driver {info.driver}, {info.memory_bytes / 2**30:.0f} GiB",
        measures={"devices": info.count, "memory_bytes": info.memory_bytes},
    )


def _kernels_supported(shelf: Shelf) -> Finding:
    """The installed kernels package lies in the range that the installed Transformers supports."""
    installed = importlib.metadata.version("kernels")
    low, high = import_utils.KERNELS_MIN_VERSION, import_utils.KERNELS_MAX_VERSION
    text = f"kernels {installed}; transformers {transformers.__version__} supports {low} <= version < {high}"
    inside = Version(low) <= Version(installed) < Version(high)
    if inside != import_utils.is_kernels_available():
        return Finding(Outcome.FAIL, Reason.EXCEPTION, f"{text}, but is_kernels_available() says {not inside}")
    if not inside:
        return Finding(Outcome.FAIL, Reason.REJECTED, f"{text}: pip install 'kernels>={low},<{high}'")
    return Finding(Outcome.PASS, message=text)


def _default_is_sdpa(shelf: Shelf) -> Finding:
    """Without a choice a model uses SDPA, in inference and in training."""
    case = Case("llama-tiny", DType.FLOAT32, Mode.INFERENCE, "sdpa", "pytorch")
    model = transformers.AutoModelForCausalLM.from_pretrained(shelf.path(case))
    chosen = [model.train(training).config._attn_implementation for training in (False, True)]
    outcome = Outcome.PASS if chosen == ["sdpa", "sdpa"] else Outcome.FAIL
    return Finding(outcome, message=f"attn_implementation in inference and training: {chosen[0]}, {chosen[1]}")


_CHECKS: dict[str, Callable[[Shelf], Finding]] = {
    "env.available": _device_answers,
    "trouble.package": _kernels_supported,
    "attn.default": _default_is_sdpa,
}
