"""The process that checks documented statements: it imports the libraries once and runs each check in a copy of itself.

``python -m suite.documented`` reads ids from its input, one a line, and answers each with one line of JSON. Where the
device allows it, a check runs in a fork, so that nothing it changes is there for the next one; elsewhere a process
answers once. Started by ``suite.documented.hosts``; by hand it is good for debugging one check.
"""

import argparse
import importlib
import importlib.machinery
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from cases.axes import Device
from cases.statements import Where
from reports.record import Outcome, Reason
from suite.device import BACKENDS
from suite.documented.answer import Answer
from suite.finding import Finding

MODULES = ("attention", "layers", "modes", "config", "config_faults", "fusion", "local", "trouble")
"""Where the checks are that need the package kernels."""


class _NoKernels(importlib.machinery.PathFinder):
    """Finds every module but ``kernels``."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As the finder of Python, which it takes the place of."""
        return None if fullname.partition(".")[0] == "kernels" else super().find_spec(fullname, path, target)


def main() -> None:
    """Answer until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m suite.documented", description=__doc__)
    for name in ("where", "device", "models", "scratch", "endpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--mend", type=Path, help="Python file to run first, which may change the libraries")
    options = parser.parse_args()
    where, backend = Where(options.where), BACKENDS[Device(options.device)]
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # What libraries print must not get between the answers.
    os.dup2(2, 1)
    if where is Where.BARE:
        sys.meta_path[:] = [
            _NoKernels if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path
        ]
    if options.mend is not None:
        runpy.run_path(str(options.mend))
    stack = _stack(where, options)
    for line in sys.stdin:
        identity = line.strip()
        if not backend.survives_fork:
            # What the check changed stays in this process, so it serves no other.
            answers.write(_answer(identity, stack) + b"\n")
            return
        answers.write(_apart(identity, stack) + b"\n")


def _stack(where: Where, options: argparse.Namespace) -> Any:
    import torch
    import transformers

    # A fork inherits no threads; with one there are none to miss.
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    folder = "suite.documented"
    ground = importlib.import_module(f"{folder}.ground")
    names = {Where.OFF: ("off",), Where.BARE: ("bare",), Where.QUIET: ("quiet",)}.get(where, MODULES)
    for name in names:
        importlib.import_module(f"{folder}.{name}")
    kind = ground.Ground if where is Where.BARE else importlib.import_module(f"{folder}.stack").Stack
    # What every check needs is imported before the first fork, not in each.
    for architecture in ("LlamaForCausalLM", "GptOssForCausalLM", "MistralForCausalLM"):
        getattr(transformers, architecture)
    importlib.import_module("accelerate")
    backend = BACKENDS[Device(options.device)]
    return kind(backend, Path(options.models), Path(options.scratch), options.endpoint)


def _apart(identity: str, stack: Any) -> bytes:
    """The answer of a fork; a CRASH where it died."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_answer(identity, stack))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return answer
    code = os.waitstatus_to_exitcode(status)
    text = f"the process of the check died ({'signal' if code < 0 else 'status'} {abs(code)})"
    return msgspec.json.encode(Answer(Finding(Outcome.CRASH, Reason.INTERRUPTED, text)))


def _answer(identity: str, stack: Any) -> bytes:
    ground = importlib.import_module("suite.documented.ground")
    stack.shims.clear()
    trace = ""
    try:
        finding = Finding(Outcome.PASS, None, ground.CHECKS[identity](stack))
    except ground.DisprovedError as error:
        finding = Finding(Outcome.FAIL, error.reason, str(error))
    except ground.NotHereError as error:
        finding = Finding(Outcome.NOT_RUN, Reason.NOT_APPLICABLE, str(error))
    except Exception as error:  # a fault of the suite, which the worker records as such
        trace = traceback.format_exc()
        finding = Finding(Outcome.HARNESS_ERROR, Reason.EXCEPTION, f"{type(error).__name__}: {error}")
    return msgspec.json.encode(Answer(finding, tuple(stack.shims), trace))


if __name__ == "__main__":
    main()
