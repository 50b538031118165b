"""What is timed and weighed: the pieces of work of a case, each with what has to be set up before it, untimed.

In inference that is a prefill and one decoded token with a filled cache; in training a step. A decoded token changes
its cache, so each call gets a copy of its own, made outside the timing; gradients are dropped there too.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cases.attention import attention
from cases.axes import Phase
from suite import ledger, passes
from suite.subject import Subject

__all__ = ["Work", "calls_seen", "works"]


@dataclass(frozen=True, slots=True)
class Work:
    """One phase of a case. Results stay on the device."""

    phase: Phase
    tokens: int
    """Tokens that one call handles: of the prompts, or one a row in decode."""
    call: Callable[[], object]
    prepare: Callable[[int], object] = lambda calls: None
    """Untimed set-up for the given number of calls, with the arm that is about to run already on."""


def works(subject: Subject, renew: Callable[[], object] = lambda: None, model: Any = None) -> tuple[Work, ...]:
    """The phases of a case, the first of which is the one that is weighed.

    ``renew`` puts on the arm that is measured: each arm needs works of its own, since its cache is its own. ``model``
    is the subject's, or what ``torch.compile`` made of it.
    """
    model = subject.loaded.model if model is None else model
    if subject.case.mode.trains:
        return (_train_step(subject, renew, model),)
    if subject.record.generates and not subject.case.mode.compiles:
        return _prefill(subject, renew, model), _decode(subject, renew)
    # A token with a cache that grows is not what is compiled: its users give the cache all its room before.
    return (_prefill(subject, renew, model),)


def calls_seen(subject: Subject, work: Work) -> int:
    """Calls of kernels in one untimed call of ``work``, which has no ``renew``, since that would undo the counting."""
    # Torch's own attention proves no kernel.
    counted = subject.attention_implementation if attention(subject.case.attention).hub else None
    subject.arms.use_kernels()
    with (
        ledger.count_calls(subject.arms.sites) as calls,
        ledger.count_attention(counted) as attention_calls,
    ):
        work.prepare(1)
        # Preparing may fill a cache, and a kernel that is called only there is not what is timed.
        calls.clear()
        attention_calls.clear()
        work.call()
    return sum(calls.values()) + sum(attention_calls.values())


def _tokens(subject: Subject) -> torch.Tensor:
    ids: torch.Tensor = subject.batches["dense"].arguments["input_ids"]
    return ids


def _prefill(subject: Subject, renew: Callable[[], object], model: Any) -> Work:
    record, given = subject.record, subject.batches["dense"]

    def call() -> object:
        with torch.no_grad():
            return passes.run(model, record, given)

    return Work(Phase.PREFILL, _tokens(subject).numel(), call, lambda calls: renew())


def _train_step(subject: Subject, renew: Callable[[], object], model: Any) -> Work:
    record, given = subject.record, subject.batches["dense"]

    def call() -> object:
        return passes.run(model, record, given).float().mean().backward()

    def prepare(calls: int) -> None:
        renew()
        model.zero_grad(set_to_none=True)

    return Work(Phase.TRAIN_STEP, _tokens(subject).numel(), call, prepare)


def _decode(subject: Subject, renew: Callable[[], object]) -> Work:
    model, ids = subject.loaded.model, _tokens(subject)
    token = ids[:, -1:]
    filled: dict[str, Any] = {}
    copies: list[dict[str, Any]] = []

    def prepare(calls: int) -> None:
        renew()
        if not filled:
            with torch.no_grad():
                result = model(input_ids=ids[:, :-1], use_cache=True)
            filled.update(
                (name, getattr(result, name))
                for name in ("past_key_values", "cache_params")
                if getattr(result, name, None) is not None
            )
        copies[:] = [copy.deepcopy(filled) for _ in range(calls)]

    def call() -> object:
        with torch.no_grad():
            return model(input_ids=token, use_cache=True, **copies.pop()).logits

    return Work(Phase.DECODE, token.numel(), call, prepare)
