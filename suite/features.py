"""What a model asks of its attention, and whether the kernel in use can be told of it.

Transformers passes a flash-style kernel only those arguments that its signature names. For a window or for sinks there
is no other sign: a kernel without the parameter is called without it, and the logits are those of another model. So
what the attention interface was asked for in a real pass is held against the signatures.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from transformers import modeling_flash_attention_utils
from transformers.integrations import flash_attention

__all__ = ["Feature", "dropped", "functions", "watch"]


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that an attention may be asked for beyond softmax(QK/√d)V."""

    name: str
    """As a message calls it."""
    parameters: tuple[str, ...]
    """Names of flash-style kernels for it, of which Transformers knows these."""
    asked: Callable[[Mapping[str, Any], int], bool]
    """Whether a call asks for it, given its keyword arguments and the head size."""


def _own_scale(arguments: Mapping[str, Any], head: int) -> bool:
    scale = arguments.get("softmax_scale")
    return scale is not None and abs(float(scale) * head**0.5 - 1) > 1e-6


FEATURES = (
    Feature("a sliding window", ("window_size",), lambda given, _: given.get("sliding_window") is not None),
    Feature("a soft-cap", ("softcap",), lambda given, _: given.get("softcap") is not None),
    Feature("attention sinks", ("s_aux", "learnable_sink"), lambda given, _: given.get("s_aux") is not None),
    Feature("a softmax scale of its own", ("softmax_scale",), _own_scale),
    Feature("causal attention", ("causal",), lambda given, _: bool(given.get("is_causal"))),
)
"""In the order of messages."""


@contextmanager
def watch() -> Iterator[set[Feature]]:
    """Collect what flash-style attention is asked for within the block."""
    seen: set[Feature] = set()
    real = flash_attention._flash_attention_forward  # type: ignore[attr-defined]  # imported there, not exported

    def watched(query: Any, *args: Any, **kwargs: Any) -> Any:
        seen.update(feature for feature in FEATURES if feature.asked(kwargs, int(query.shape[-1])))
        return real(query, *args, **kwargs)

    with mock.patch.object(flash_attention, "_flash_attention_forward", watched):
        yield seen


def functions() -> list[Callable[..., Any]]:
    """The two functions of the flash kernel in use. Transformers reads the second's signature for both."""
    found = (getattr(modeling_flash_attention_utils, name, None) for name in ("_flash_fn", "_flash_varlen_fn"))
    return [function for function in found if function is not None]


def dropped(asked: Iterable[Feature], kernel: Iterable[Callable[..., Any]]) -> list[str]:
    """A sentence for each feature that was asked for and that some function cannot be told of."""
    found = []
    wanted = set(asked)
    for function in kernel:
        parameters = inspect.signature(function).parameters
        for feature in FEATURES:
            if feature in wanted and not set(feature.parameters) & set(parameters):
                found.append(
                    f"the model asks for {feature.name}, and {getattr(function, '__name__', 'the kernel')} has no "
                    f"parameter {' or '.join(feature.parameters)}, so Transformers calls it without (its parameters "
                    f"are {', '.join(parameters)})"
                )
    return found
