"""One case made ready: its model loaded and kernelized, its inputs, its two arms, its float64 truth.

Expensive parts are made when first asked for. Models on disk and truths are kept from case to case, since neighbours
in the plan share them; a subject itself lives for one case and undoes what it changed in the process.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from cases.attention import ATTENTIONS, attention
from cases.axes import DType
from cases.case import Case
from cases.inputs import ATTENTION, INPUTS, STEPS, Steps, applies
from cases.mappings import MAPPINGS
from cases.models import MODELS
from suite import passes, zoo
from suite.arms import Arms
from suite.downloads import Downloads, downloading
from suite.loading import Loaded, Loader
from suite.numerics import RoutingReplay

__all__ = ["Shelf", "Subject"]


class Shelf:
    """What outlives a case: saved models, and the truths of the model and dtype in use."""

    def __init__(self, loader: Loader, folder: Path) -> None:
        self.loader = loader
        self.folder = folder
        self._truth: tuple[tuple[str, DType], passes.Truth] | None = None

    def path(self, case: Case) -> Path:
        """Folder of the saved model."""
        return zoo.build(MODELS[case.model], self.folder)

    def truth(self, case: Case) -> passes.Truth:
        """The float64 model of a case. One is kept: the plan visits each model and dtype once."""
        key = (case.model, case.dtype)
        if self._truth is None or self._truth[0] != key:
            self._truth = key, passes.Truth(self.loader.plain(case, self.path(case)), MODELS[case.model])
        return self._truth[1]


class Subject:
    """A case with everything that its checks need."""

    def __init__(self, case: Case, shelf: Shelf) -> None:
        self.case = case
        self.record = MODELS[case.model]
        self.loader = shelf.loader
        self.backend = shelf.loader.backend
        self._shelf = shelf
        self.load_seconds = 0.0
        """Seconds that loading took, with the download of the kernels; 0 before."""
        self.downloads = Downloads()
        """What of the kernels came from the Hub meanwhile; nothing of those that were in the cache."""
        self.first_pass_seconds = 0.0
        """Seconds of the first pass of the kernelized model: compilation, autotuning and caches are in these."""
        self.first_pass: passes.Pass | None = None
        """What that pass gave, which a kernel that goes wrong once, at its first call, shows only here."""

    @cached_property
    def loaded(self) -> Loaded:
        """The model as the case says. Raises what the libraries raise."""
        path = self._shelf.path(self.case)
        start = perf_counter()
        with downloading() as self.downloads:
            loaded = self.loader.load(self.case, path)
        self.load_seconds = perf_counter() - start
        return loaded

    @property
    def path(self) -> Path:
        """Folder of the saved model."""
        return self._shelf.path(self.case)

    @property
    def first_outputs(self) -> Path:
        """Folder where the first revision on a ladder leaves its outputs."""
        return self._shelf.folder.parent / "ladder"

    @property
    def truth(self) -> passes.Truth:
        """The same weights in float64."""
        return self._shelf.truth(self.case)

    @property
    def reference_attention(self) -> str | None:
        """What the attention of the PyTorch arm is.

        The same as the case's, unless that is what is being tested: then SDPA, or eager where SDPA itself is tested or
        the model has none.
        """
        choice = attention(self.case.attention)
        if not choice.hub and self.case.mapping != "pytorch":
            return choice.implementation
        return "sdpa" if choice.hub and "sdpa" in self.record.attentions else "eager"

    @cached_property
    def arms(self) -> Arms:
        """Kernels and PyTorch on one model."""
        return Arms(self.loaded.model, self.loader.implementation(self.case), self.reference_attention)

    @cached_property
    def batches(self) -> dict[str, passes.Batch]:
        """The input recipes, on the device."""
        device, vocabulary = self.backend.torch_device(), int(self.loaded.model.config.vocab_size)
        return {name: passes.batch(recipe, device, vocabulary) for name, recipe in INPUTS.items()}

    @cached_property
    def tested(self) -> frozenset[str]:
        """Names of the kernels that a difference from PyTorch can come from, by which recipes are chosen.

        With a mapping for one name that name; with any other all names of the model, since kernels act on one another.
        """
        mapping = MAPPINGS.get(self.case.mapping)
        single = mapping is not None and mapping.entries is not None and len(mapping.entries) < 2
        names = set(mapping.entries or {}) if single and mapping else set(self.record.carries)
        return frozenset(names | ({ATTENTION} if attention(self.case.attention).hub else set()))

    @cached_property
    def recipes(self) -> tuple[str, ...]:
        """Names of the input recipes that mean something for the model and can tell something of its kernels."""
        return tuple(name for name, recipe in INPUTS.items() if applies(recipe, self.record, self.tested))

    @cached_property
    def steps(self) -> tuple[Steps, ...]:
        """The same for recipes with a cache."""
        return tuple(steps for steps in STEPS.values() if applies(steps, self.record, self.tested))

    def ask(
        self,
        call: Callable[[Any, Any, passes.Batch], Any],
        recipe: str,
        routing: list[torch.Tensor] | None = None,
        *,
        reference: bool = False,
    ) -> Any:
        """Put the model, in the arm that is on, through one pass; ``reference`` gives packed sequences one by one."""
        given = self.batches[recipe]
        if routing and given.sequences and not reference:
            routing = passes.routing_of_packed(routing, len(given.sequences))
        with ExitStack() as stack:
            if routing:
                stack.enter_context(RoutingReplay(routing, recording=False, dtype=self.case.dtype))
            start = perf_counter()
            result = call(self.loaded.model, self.record, given.reference if reference else given)
        # What is asked first is the engagement of the kernels; its result comes back to the CPU, so it is complete.
        self.first_pass_seconds = self.first_pass_seconds or perf_counter() - start
        return result

    def dense_pass(self) -> passes.Pass:
        """One pass of the case's mode on the dense batch, in the arm that is on."""
        call = passes.forward_backward if self.case.mode.trains else passes.forward
        found: passes.Pass = self.ask(call, "dense")
        return found

    @property
    def tests_a_kernel(self) -> bool:
        """Whether a Hub kernel was asked for, so that a pass needs proof of calls."""
        return self.case.mapping != "pytorch" or attention(self.case.attention).hub

    @property
    def attention_implementation(self) -> str | None:
        """The ``attn_implementation`` whose calls are counted: SDPA's, a Hub kernel's, or none."""
        choice = attention(self.case.attention)
        return choice.implementation if choice.hub or choice is ATTENTIONS["sdpa"] else None

    def in_pytorch(self) -> "Subject":
        """The same case without any kernel, as a model of its own with the same weights.

        It has no arms to put on, and leaves no trace in the process: function objects are this one's to bind.
        """
        attention = self.reference_attention or self.case.attention
        return Subject(replace(self.case, mapping="pytorch", attention=attention), self._shelf)

    def close(self) -> None:
        """Give the process back as it was: shared function objects become PyTorch's again."""
        if "loaded" in self.__dict__:
            self.arms.release()
