"""Loads a model as a case says, by the routes that users have, and says which kernels were promised.

There are four routes, since no single one of the released stack reaches every mode (design/upstream-facts, V1, V8,
V16): ``from_pretrained(use_kernels=True)`` for the default mapping, ``from_pretrained(kernel_config=…)`` for Hub
kernels in inference, ``set_use_kernels`` after ``train()`` for training and for local kernels, and ``kernelize`` with
an explicit mode under ``use_kernel_mapping`` for the compile modes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kernels
import transformers
from transformers.integrations.hub_kernels import kernelize

from cases.attention import attention
from cases.axes import Mode
from cases.case import Case
from cases.mappings import MAPPINGS, KernelReference
from cases.models import MODELS
from cases.plan import offered
from suite.apart import Apart
from suite.device import Backend
from suite.numerics import torch_dtype
from suite.shim import accept_device

__all__ = ["Loaded", "Loader", "kernel_mode"]

_MODES = {
    Mode.INFERENCE: kernels.Mode.INFERENCE,
    Mode.TRAINING: kernels.Mode.TRAINING,
    Mode.INFERENCE_COMPILE: kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE,
    Mode.TRAINING_COMPILE: kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE,
}


def kernel_mode(mode: Mode) -> kernels.Mode:
    """The mode by which kernels calls it."""
    return _MODES[mode]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model loaded as its case says, in the mode of the case."""

    model: Any
    route: str
    """The call that bound the kernels, for the record."""
    promised: Mapping[str, KernelReference]
    """Registered name → kernel asked for by name; empty with the default mapping, which promises by device."""
    mapping: Mapping[str, Any] | None
    """Mapping in the form of ``kernels.use_kernel_mapping`` that was in force; None for the default one."""
    shims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loader:
    """What stays the same for all cases of a run."""

    backend: Backend
    local_root: Path | None
    """Folder of the bundled kernels, if they are to be loaded from disk because the Hub in use has them not."""
    trusted: frozenset[str] = frozenset()
    """Repositories of unknown publishers whose code the user allowed to run."""
    own: Mapping[str, Mapping[str, KernelReference]] = field(default_factory=dict)
    """The user's own kernels: by mapping, the kernel of each registered name."""
    apart: Apart = field(default_factory=Apart)

    def plain(self, case: Case, path: Path) -> Any:
        """The model in the dtype of the case, PyTorch only, in its simplest implementations, in evaluation mode."""
        implementation = None if self.implementation(case) is None else "eager"
        # Grouped matrix products know no float64, which this model is going to be computed in.
        return self._from_pretrained(case, path, implementation, experts_implementation="eager")

    def load(self, case: Case, path: Path) -> Loaded:
        """Load and kernelize. Exceptions of the libraries pass through: they are what the check is about."""
        mapping = MAPPINGS.get(case.mapping)
        implementation = self.implementation(case)
        if mapping is not None and mapping.entries is None:
            model = self._from_pretrained(case, path, implementation, use_kernels=True)
            if case.mode.trains:
                model.train()
            if case.mode.compiles:
                kernelize(model, mode=kernel_mode(case.mode))
            return Loaded(model, "from_pretrained(use_kernels=True)", {}, None)
        wanted = offered(self.own.get(case.mapping, {}) if mapping is None else mapping.entries or {}, case.mode)
        carried = MODELS[case.model].carries
        promised = {name: self.located(reference) for name, reference in wanted.items() if name in carried}
        if not promised:
            model = self._from_pretrained(case, path, implementation).train(case.mode.trains)
            return Loaded(model, "from_pretrained(attn_implementation=…)", {}, {})
        for reference in promised.values():
            self.apart.enter(reference)
        return self._with_config(case, path, implementation, promised)

    def _with_config(
        self, case: Case, path: Path, implementation: str | None, promised: Mapping[str, KernelReference]
    ) -> Loaded:
        by_device = {name: {self.backend.device.value: self._repository(ref)} for name, ref in promised.items()}
        if case.mode.compiles:
            model = self._from_pretrained(case, path, implementation).train(case.mode.trains)
            with kernels.use_kernel_mapping(by_device, inherit_mapping=False):
                kernelize(model, mode=kernel_mode(case.mode))
            return Loaded(model, "kernelize(mode=…)", promised, by_device)
        shims = accept_device(self.backend.device.value)
        local = any(reference.is_local for reference in promised.values())
        config = transformers.KernelConfig(
            {name: self._entry(reference) for name, reference in promised.items()},
            use_local_kernel=local,
            inherit_mapping=False,
        )
        if case.mode.trains or local or case.mapping not in MAPPINGS:
            model = self._from_pretrained(case, path, implementation).train(case.mode.trains)
            model.set_use_kernels(True, config)
            return Loaded(model, "set_use_kernels(True, kernel_config)", promised, by_device, shims)
        model = self._from_pretrained(case, path, implementation, use_kernels=True, kernel_config=config)
        return Loaded(model, "from_pretrained(kernel_config=…)", promised, by_device, shims)

    def _from_pretrained(self, case: Case, path: Path, implementation: str | None, **options: Any) -> Any:
        architecture = getattr(transformers, MODELS[case.model].architecture)
        if implementation is not None:
            options["attn_implementation"] = implementation
            if implementation.partition("@")[0] in self.trusted:
                options["allow_all_kernels"] = True
        return architecture.from_pretrained(
            path, dtype=torch_dtype(case.dtype), device_map=self.backend.torch_type, **options
        )

    def implementation(self, case: Case) -> str | None:
        """The value of ``attn_implementation`` for a case."""
        return attention(case.attention).implementation

    def located(self, reference: KernelReference) -> KernelReference:
        """A bundled kernel, from disk when the Hub in use has none of ours."""
        if self.local_root is None or not reference.repository.startswith("embedded/"):
            return reference
        folder = self.local_root / reference.repository.partition("/")[2] / f"v{reference.version or 1}"
        return replace(reference, repository=str(folder), version=None)

    def _repository(self, reference: KernelReference) -> Any:
        if reference.is_local:
            return kernels.LocalLayerRepository(Path(reference.repository), layer_name=reference.layer)
        return kernels.LayerRepository(
            reference.repository,
            layer_name=reference.layer,
            version=reference.version,
            revision=reference.revision,
            trust_remote_code=reference.repository in self.trusted,
        )

    def _entry(self, reference: KernelReference) -> Any:
        """A kernel in the notation of KernelConfig."""
        text = f"{reference.repository}:{reference.layer}"
        if reference.is_local:
            return text
        pin = (
            {"revision": reference.revision} if reference.revision is not None else {"version": reference.version or 1}
        )
        return (text, {**pin, "trust_remote_code": reference.repository in self.trusted})
