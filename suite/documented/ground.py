"""What every check of a documented statement stands on, with the package ``kernels`` or without it.

A check ends in one of three ways: it returns a sentence, or raises ``DisprovedError`` or ``NotHereError``. Any other
exception is a fault of the suite.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from cases.models import MODELS
from reports.record import Reason
from suite import zoo
from suite.device import Backend

__all__ = ["CHECKS", "DisprovedError", "Ground", "NotHereError", "check", "refusal", "refused", "works"]


class DisprovedError(Exception):
    """The documented statement does not hold; the text says what was documented and what was seen."""

    def __init__(self, text: str, reason: Reason = Reason.EXCEPTION) -> None:
        super().__init__(text)
        self.reason = reason


class NotHereError(Exception):
    """This device or environment cannot answer; the text says what is missing."""


Check = Callable[[Any], str]

CHECKS: dict[str, Check] = {}
"""Every check by its id in ``cases.statements``, as far as its module is imported."""


def check(identity: str) -> Callable[[Check], Check]:
    """Enter a function under an id of ``cases.statements``."""

    def enter(function: Check) -> Check:
        CHECKS[identity] = function
        return function

    return enter


@contextmanager
def works(what: str) -> Iterator[None]:
    """Within the block the documented thing is done: an exception of the libraries disproves the statement."""
    try:
        yield
    except (DisprovedError, NotHereError):
        raise
    except Exception as error:  # whatever the libraries raise is what is being checked
        raise DisprovedError(f"{what} raised {type(error).__name__}: {error}") from error


def refused(what: str, call: Callable[[], object], *words: str) -> str:
    """The text of the refusal that ``call`` must end in, which must have each of ``words``.

    Raises:
        DisprovedError: it was accepted, or the text lacks a word.
    """
    try:
        call()
    except Exception as error:  # a refusal may be of any type
        text = f"{type(error).__name__}: {error}"
        missing = [word for word in words if word.lower() not in text.lower()]
        if missing:
            raise DisprovedError(
                f"{what} is refused, but the message does not have {', '.join(map(repr, missing))}: {text}"
            ) from error
        return text
    raise DisprovedError(f"{what} is accepted without a word")


def refusal(what: str, error: Exception, *words: str) -> str:
    """The text of a refusal that need not come, but if it comes must be for the right reason: it has one of ``words``.

    Raises:
        DisprovedError: it has none, so something else went wrong.
    """
    text = f"{type(error).__name__}: {error}"
    if not any(word.lower() in text.lower() for word in words):
        raise DisprovedError(f"{what} fails, and not for that reason: {text}") from error
    return f"refused: {text}"


@dataclass(slots=True)
class Ground:
    """One device, a folder of models, a Hub."""

    backend: Backend
    models: Path
    """Folder of the saved models."""
    scratch: Path
    """Folder of what the checks have on disk; local kernel repositories lie in ``scratch/local``."""
    endpoint: str
    """Address of the embedded Hub."""
    shims: list[str] = field(default_factory=list)
    """Recorded shims that were used."""

    @property
    def device(self) -> str:
        """The device type by the name that kernels and KernelConfig give it."""
        return self.backend.device.value

    def saved(self, model: str = "llama-tiny") -> Path:
        """Folder of a model of the zoo."""
        return zoo.build(MODELS[model], self.models)

    def load(self, model: str = "llama-tiny", **options: Any) -> Any:
        """A model of the zoo through ``from_pretrained``, in float32, on the device. Options as there."""
        architecture = getattr(transformers, MODELS[model].architecture)
        options.setdefault("device_map", self.backend.torch_type)
        return architecture.from_pretrained(self.saved(model), dtype=torch.float32, **options)

    def local(self, name: str) -> Path:
        """A local kernel repository."""
        return self.scratch / "local" / name

    def ids(self, model: Any, length: int = 24) -> torch.Tensor:
        """Token ids ``[2, length]``, the same in every call."""
        generator = torch.Generator().manual_seed(0)
        size = int(model.config.get_text_config().vocab_size)
        return torch.randint(3, size, (2, length), generator=generator).to(self.backend.torch_device())

    def logits(self, model: Any, length: int = 24) -> torch.Tensor:
        """Logits of one forward pass, in float32 on the CPU."""
        with torch.no_grad():
            output: torch.Tensor = model(self.ids(model, length)).logits
        return output.float().cpu()

    def gradients(self, model: Any) -> dict[str, torch.Tensor | None]:
        """Gradient of every parameter after one backward pass over the mean of the squared logits."""
        model.zero_grad(set_to_none=True)
        model(self.ids(model)).logits.float().square().mean().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    def without_gradient(self, model: Any) -> list[str]:
        """Names of the parameters that a backward pass gives no gradient."""
        return [name for name, gradient in self.gradients(model).items() if gradient is None]

    def same(self, one: torch.Tensor, other: torch.Tensor, what: str = "the result", limit: float = 1e-4) -> float:
        """Relative difference of two results of the same float32 model.

        Raises:
            DisprovedError: it is above ``limit``, a hundred times what rounding does to a model of two layers.
        """
        gap = float((one - other).norm() / other.norm())
        if not gap <= limit:
            raise DisprovedError(
                f"{what} differs from PyTorch's by {gap:.2e} of its norm; rounding makes about 1e-6", Reason.TOLERANCE
            )
        return gap
