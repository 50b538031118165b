"""Checks of documented statements that are about the machine or the stack, not about one model.

Each is a function by the id of its requirement; a new one is an entry here and its id in ``cases.plan.STATEMENTS``.
"""

import importlib.metadata
from collections.abc import Callable

import torch
import transformers
from packaging.version import Version
from transformers.utils import import_utils

from cases.axes import DType, Mode
from cases.case import Case
from reports.record import Outcome, Reason
from suite.finding import Finding
from suite.subject import Shelf

__all__ = ["check"]


def check(requirement: str, shelf: Shelf) -> Finding:
    """Check one statement."""
    return _CHECKS[requirement](shelf)


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
