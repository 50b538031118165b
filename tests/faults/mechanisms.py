"""The mechanisms of the suite that can be switched off, to prove that each is needed.

A whole property is left out by name; a part of one is replaced by something that looks at nothing. Which faults escape
without which is in ``alone.py``, which imports no torch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from cases.axes import Property
from reports.record import Outcome
from suite import engagement, features, numerics, probes, relations
from suite.bench import Bench
from suite.finding import Finding
from suite.perturb import Recipe

__all__ = ["SWITCHES", "switch_off"]


def _ledger(stack: ExitStack) -> None:
    """Nobody counts calls or asks what is bound."""
    blind = Finding(Outcome.PASS, message="nobody looked")
    stack.enter_context(mock.patch.object(engagement, "engage", return_value=blind))
    stack.enter_context(mock.patch.object(Bench, "_with_evidence", staticmethod(lambda subject, checked, found: found)))


def _features(stack: ExitStack) -> None:
    """Nobody asks whether a kernel can be told what the model wants."""
    stack.enter_context(mock.patch.object(features, "dropped", return_value=[]))


def _recipe(words: str) -> Callable[[ExitStack], None]:
    """The recipes whose description holds these words are not cooked."""

    def switch(stack: ExitStack) -> None:
        # What is there now, which another switch may have thinned already.
        every = vars(probes)["recipes"]

        def without(*args: Any, **kwargs: Any) -> Iterator[Recipe]:
            return (recipe for recipe in every(*args, **kwargs) if words not in recipe.words)

        stack.enter_context(mock.patch.object(probes, "recipes", without))

    return switch


def _relation(relation: relations.Relation) -> Callable[[ExitStack], None]:
    """One relation is not asked of anyone."""

    def switch(stack: ExitStack) -> None:
        kept = tuple(each for each in vars(probes)["RELATIONS"] if each is not relation)
        stack.enter_context(mock.patch.object(probes, "RELATIONS", kept))

    return switch


def _writing(stack: ExitStack) -> None:
    """Nobody looks at arguments and incoming gradients after a call."""
    for module in (probes, relations):
        stack.enter_context(mock.patch.object(module, "touched", return_value=()))


def _mean_error(stack: ExitStack) -> None:
    """Only the worst row and the median row count."""
    limit = replace(numerics.LIMITS["probe-mean"], factor=float("inf"))
    stack.enter_context(mock.patch.dict(numerics.LIMITS, {"probe-mean": limit}))


SWITCHES: Mapping[str, Callable[[ExitStack], None]] = {
    "ledger": _ledger,
    "features": _features,
    "epsilon": _recipe("epsilon"),
    "huge rows": _recipe("rows of size 300"),
    "positions": _recipe("positions"),
    "expanded gradients": _relation(relations.repeated_gradient),
    "earlier results": _relation(relations.keeps_results),
    "writing": _writing,
    "mean error": _mean_error,
}
"""Parts of properties, by the name that ``alone.py`` uses."""

MODEL = (Property.FORWARD, Property.GRADIENT, Property.GENERATE, Property.STATE)
"""Everything that compares whole models, by logits and gradients."""


def switch_off(names: str, stack: ExitStack) -> frozenset[Property]:
    """Take mechanisms, joined by +, away until ``stack`` is closed; returns the properties not to be checked."""
    unchecked: set[Property] = set()
    for name in names.split("+"):
        if name in SWITCHES:
            SWITCHES[name](stack)
        else:
            unchecked.update(MODEL if name == "model" else (Property(name),))
    return frozenset(unchecked)
