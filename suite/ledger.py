"""The engagement ledger: by registered name what was promised, what is bound, how often it was called, why not.

``use_kernels=True`` proves nothing, and every fallback of Transformers is silent. The ledger looks at the forwards that
are really bound, traces each to the kernel variant on disk that it comes from, counts calls in one untimed pass, and
asks kernels itself for the reason of each layer that stayed PyTorch.
"""

import functools
import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import kernels
import torch
from kernels import KernelizeFallback
from transformers import modeling_flash_attention_utils as flash

from reports.record import Engagement, Reason
from suite import hub_away, variant_signature
from suite.arms import Site

__all__ = ["Origin", "count_attention", "count_calls", "digest", "fallback_reason", "origin", "write"]

_FLAGS = (
    (KernelizeFallback.NO_LAYER, Reason.NO_LAYER),
    (KernelizeFallback.NO_DEVICE, Reason.NO_DEVICE),
    (KernelizeFallback.NO_COMPATIBLE_PROPERTIES, Reason.NO_COMPATIBLE_PROPERTIES),
    (KernelizeFallback.NO_COMPATIBLE_MODE, Reason.NO_COMPATIBLE_MODE),
    (KernelizeFallback.CANNOT_LOAD, Reason.CANNOT_LOAD),
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a bound forward comes from."""

    repository: str
    revision: str | None
    """Commit; None for a local repository, which the digest identifies."""
    variant: str
    digest: str
    signature: str
    """In the words of ``suite.variant_signature``."""

    def describe(self, name: str) -> str:
        """``org/repo@commit:Name (torch-cpu)``."""
        return f"{self.repository}{f'@{self.revision}' if self.revision else ''}:{name} ({self.variant})"


@functools.cache
def digest(variant: Path) -> str:
    """``sha256:…`` over names and contents of a variant's files, bytecode left out."""
    total = hashlib.sha256()
    for path in sorted(variant.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(variant).as_posix()}\0{content}\n".encode())
    return f"sha256:{total.hexdigest()}"


def origin(function: Callable[..., Any]) -> Origin | None:
    """The loaded kernel variant that a function's source file lies in; None if it is no kernel's.

    The file decides, not the module name: two repositories may carry one id, and then share a name.
    """
    inner = inspect.unwrap(function, stop=lambda candidate: origin_of_file(candidate) is not None)
    return origin_of_file(inner) or _origin_of_module(function)


def origin_of_file(function: Callable[..., Any]) -> Origin | None:
    """The variant that the code of exactly this function lies in."""
    code = getattr(function, "__code__", None)
    return None if code is None else _origin_of_path(code.co_filename)


def _origin_of_path(filename: str) -> Origin | None:
    path = Path(filename)
    for loaded in kernels.get_loaded_kernels():
        variant = _variant_folder(loaded.module)
        if variant in path.parents:
            return _describe(variant, loaded)
    return None


def _origin_of_module(function: Callable[..., Any]) -> Origin | None:
    # Compiled functions have no source file, but carry the module they were defined in.
    name = (getattr(function, "__module__", None) or "").partition(".")[0]
    for loaded in kernels.get_loaded_kernels():
        if loaded.module.__name__ == name:
            return _describe(_variant_folder(loaded.module), loaded)
    return None


def _variant_folder(module: Any) -> Path:
    folder = Path(str(module.__file__)).parent
    return folder if (folder / "metadata.json").exists() else folder.parent


def _describe(variant: Path, loaded: Any) -> Origin:
    info = loaded.repo_info
    root = variant.parent.parent if variant.parent.name == "build" else variant.parent
    # A snapshot folder is named by its commit, which is more exact than the tag or branch that was asked for.
    commit = root.name if root.parent.name == "snapshots" else None
    repository = info.repo_id if info else str(root)
    return Origin(
        repository,
        commit or (info.revision if info else None),
        variant.name,
        digest(variant),
        variant_signature.state(variant),
    )


class _Holder:
    """What ``kernelize`` needs of a model, for one module: the reason of one layer, without touching the others."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """The one module."""
        yield "", self.module


def fallback_reason(
    site: Site, mode: kernels.Mode, device: str, mapping: Mapping[str, Any] | None
) -> tuple[Reason, str]:
    """Why kernels leaves a layer to PyTorch, found by asking it with one fallback flag at a time.

    ``mapping`` is what was in force when the model was kernelized, None for the registered default. Returns the reason
    and what the library said. A layer that would bind now, but is not bound, was re-bound since: REBOUND.
    """
    condition = getattr(type(site.module), "kernel_condition", None)
    if condition is not None and not condition(site.module):
        return Reason.CONDITION, f"kernel_condition of {type(site.module).__name__} is false for this module"
    before = site.module.__dict__.get("forward")
    with ExitStack() as stack:
        if mapping is not None:
            stack.enter_context(kernels.use_kernel_mapping(dict(mapping), inherit_mapping=False))

        def ask(flags: KernelizeFallback) -> Exception | None:
            try:
                kernels.kernelize(_Holder(site.module), mode=mode, device=device, use_fallback=flags)
            except Exception as error:  # any exception is an answer here, also one of the kernel's own
                return error
            finally:
                if before is None:
                    site.module.__dict__.pop("forward", None)
                else:
                    site.module.__dict__["forward"] = before
            return None

        refusal = ask(KernelizeFallback.NONE)
        if refusal is None:
            return Reason.REBOUND, "kernels would bind this layer now, yet its forward is PyTorch's"
        away = hub_away.finding(refusal)
        if away is not None:
            return Reason.HUB_AWAY, away.message
        for flag, reason in _FLAGS:
            if ask(flag) is None:
                return reason, str(refusal)
    return Reason.REJECTED, f"{type(refusal).__name__}: {refusal}"


def _counted(calls: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, adding one under ``name`` for each call."""

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return function(*args, **kwargs)

    return counted


@contextmanager
def count_calls(sites: list[Site]) -> Iterator[Counter[str]]:
    """Count calls of the forwards bound at ``sites``, by registered name, PyTorch's left out."""
    calls: Counter[str] = Counter()
    # A kernel is bound on the instance, so what stands there is what has to stand there again.
    before = [(site, site.forward()) for site in sites if site.has_kernel()]
    for site, forward in before:
        site.module.__dict__["forward"] = _counted(calls, site.name, forward)
    try:
        yield calls
    finally:
        for site, forward in before:
            site.module.__dict__["forward"] = forward


_FLASH_FUNCTIONS = ("_flash_fn", "_flash_varlen_fn", "_flash_with_kvcache_fn")


@contextmanager
def count_attention(implementation: str | None) -> Iterator[Counter[str]]:
    """Count calls of the attention function by its own name: the flash functions in use, or torch's SDPA."""
    calls: Counter[str] = Counter()

    with ExitStack() as stack:
        if implementation == "sdpa":
            real = torch.nn.functional.scaled_dot_product_attention
            counted = _counted(calls, "sdpa", real)
            stack.enter_context(mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", counted))
        elif implementation is not None:
            for attribute in _FLASH_FUNCTIONS:
                function = getattr(flash, attribute, None)
                if function is not None:
                    name = getattr(function, "__name__", attribute)
                    stack.enter_context(mock.patch.object(flash, attribute, _counted(calls, name, function)))
        yield calls


def flash_functions() -> list[Callable[..., Any]]:
    """The flash functions that Transformers would call now."""
    return [function for name in _FLASH_FUNCTIONS if (function := getattr(flash, name, None)) is not None]


def write(
    found: list[Site],
    calls: Mapping[str, int],
    promised: Mapping[str, str],
    why: Callable[[Site], tuple[Reason, str]],
) -> list[Engagement]:
    """One entry for each registered name of the model, sorted by name.

    ``promised`` gives what was asked for, by name; ``why`` is asked for one module that stayed PyTorch.
    """
    entries = []
    for name in sorted({site.name for site in found}):
        group = [site for site in found if site.name == name]
        bound = [site for site in group if site.has_kernel()]
        reason: Reason | None = None
        detail: str | None = None
        if len(bound) < len(group) and (bound or name in promised):
            reason, detail = why(next(site for site in group if not site.has_kernel()))
        elif not bound:
            reason, detail = why(group[0])
        elif not calls.get(name):
            reason, detail = Reason.NOT_CALLED, "bound, and never called in the untimed pass"
        source = origin(bound[0].forward().__func__) if bound else None
        layer = bound[0].forward().__func__.__qualname__.rpartition(".")[0] if bound else ""
        entries.append(
            Engagement(
                name=name,
                promised=promised.get(name, "pytorch"),
                resolved=source.describe(layer) if source else None,
                digest=source.digest if source else None,
                signature=source.signature if source else None,
                modules=len(group),
                bound=len(bound),
                calls=calls.get(name, 0),
                reason=reason,
                detail=detail,
            )
        )
    return entries
