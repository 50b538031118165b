"""Layer kernels by the default mapping: what ``use_kernels=True`` does, when it downloads, what stays PyTorch."""

import pickle
from itertools import product
from typing import Any

import kernels
import torch
from kernels.layer.globals import _KERNEL_MAPPING
from kernels.layer.repos import _select_repository

from reports.record import Reason
from suite import hub
from suite.documented.ground import DisprovedError, NotHereError, check, works
from suite.documented.stack import Stack

MODELS = ("gpt-oss-tiny", "llama-tiny")
"""Between them they have a layer that the default mapping serves on every device type."""


def promised(stack: Stack, name: str, mode: kernels.Mode = kernels.Mode.INFERENCE) -> str:
    """Repository that the mapping now registered promises for a name on this device; ``pytorch`` if none."""
    devices = _KERNEL_MAPPING.get().get(name, {})
    by_mode = devices[stack.device].repos if stack.device in devices else None
    chosen = _select_repository(by_mode, mode=mode) if by_mode else None
    return f"{chosen[0]._repo_id}@" if chosen else "pytorch"


@check("layers.default")
def default(stack: Stack) -> str:
    """Fault: use_kernels=True that binds nothing, or another kernel than the mapping has for this device."""
    engaged = []
    for name in MODELS:
        reference = stack.logits(stack.load(name))
        with works(f"{name} with use_kernels=True"):
            model = stack.load(name, use_kernels=True)
        for layer in ("RMSNorm", "MegaBlocksMoeMLP", "SiLU", "rotary_pos_emb"):
            if stack.bound(model, layer) != "nothing":
                seen = stack.expect(model, promised(stack, layer), f"use_kernels=True on {name}", layer)
                engaged += [seen] if seen != "pytorch" else []
        stack.same(stack.logits(model), reference, name)
    if not engaged:
        raise NotHereError(f"the default mapping promises nothing on {stack.device} for {' and '.join(MODELS)}")
    return f"bound as the mapping says: {', '.join(dict.fromkeys(engaged))}"


@check("layers.lazy")
def lazy(stack: Stack) -> str:
    """Fault: kernels that nothing needs are fetched, or the same one at every load."""
    name = "embedded/lazy"
    stack.load(use_kernels=True)
    with kernels.use_kernel_mapping(stack.mapping("NoSuchLayer", stack.layer(name))):
        stack.load(use_kernels=True)
    if early := stack.downloads(name):
        raise DisprovedError(
            f"{early[0].path} was fetched, though no layer of the model has a kernel in this repository"
        )
    for _ in range(2):
        stack.configured({"RMSNorm": f"{name}:Norm"})
    fetched = [request.path for request in stack.downloads(name)]
    if len(fetched) != len(set(fetched)):
        raise DisprovedError(f"{len(fetched)} downloads of {len(set(fetched))} files in two loads")
    return f"nothing before it is needed, then each of {len(fetched)} files once in two loads"


@check("layers.lazy#trust")
def cached_needs_no_network(stack: Stack) -> str:
    """Fault V31: a kernel that is in the cache is not loaded when the Hub cannot be asked about its publisher."""
    commit = stack.commit("embedded/cached", "v1")
    entry = {"RMSNorm": ("embedded/cached:Norm", {"revision": commit})}
    stack.configured(entry)
    hub.set_fault(stack.endpoint, hub.Fault(hub.FaultKind.ERROR, matching="/organizations/"))
    try:
        with works("loading a kernel again by its commit, from the cache, while the Hub cannot say who is trusted,"):
            stack.configured(entry)
    finally:
        hub.set_fault(stack.endpoint, None)
    return "a kernel in the cache loads without asking the Hub about its publisher"


@check("layers.fallback")
def fallback(stack: Stack) -> str:
    """Fault: a layer without a kernel ends the run, or changes its result."""
    reference = stack.logits(stack.load())
    with works("use_kernels=True on a model whose layers have no kernel for this device"):
        model = stack.load(use_kernels=True)
        result = stack.logits(model)
    if promised(stack, "RMSNorm") == "pytorch":
        stack.expect(model, "pytorch", "without a kernel for this device")
    stack.same(result, reference)
    return f"RMSNorm is {stack.bound(model)}, and the result is right"


@check("layers.fallback#pickle")
def pickled(stack: Stack) -> str:
    """Fault V21: with the package kernels installed a model that uses none can no longer be pickled."""
    model = stack.load()
    with works("pickle.dumps of a model loaded without kernels"):
        copy = pickle.loads(pickle.dumps(model))
    stack.same(stack.logits(copy), stack.logits(model), "the copy")
    return "a model loaded without kernels can be pickled"


@check("determinism.disable")
def disable(stack: Stack) -> str:
    """Fault V5: no spelling of a KernelConfig leaves one name to PyTorch and the other defaults as they are."""
    name = "MegaBlocksMoeMLP"
    plain = stack.bound(stack.load("gpt-oss-tiny", use_kernels=True), name)
    if plain == "pytorch":
        raise NotHereError(f"the default mapping has no {name} on {stack.device} that could be disabled")
    tried = {}

    def at_load(value: object) -> Any:
        return stack.load("gpt-oss-tiny", use_kernels=True, kernel_config=stack.config({name: value}))

    def later(value: object) -> Any:
        model = stack.load("gpt-oss-tiny")
        model.set_use_kernels(True, stack.config({name: value}))
        return model

    for value, route in product((None, "", False, {}, {stack.device: None}), (at_load, later)):
        try:
            seen = stack.bound(route(value), name)
        except Exception as error:  # refused: the next spelling
            seen = type(error).__name__
        if seen == "pytorch":
            return f"KernelConfig({{{name!r}: {value!r}}}) leaves it to PyTorch"
        tried[f"{value!r} {route.__name__}"] = seen.partition("@")[0]
    said = ", ".join(f"{value}: {what}" for value, what in tried.items())
    raise DisprovedError(f"no value of {name} in a KernelConfig disables its default kernel ({said})", Reason.REJECTED)


@check("determinism.flags")
def flags(stack: Stack) -> str:
    """Fault: a run with kernels that seeds and flags do not make repeatable."""
    torch.use_deterministic_algorithms(True)
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        model = stack.configured(
            {"RMSNorm": "embedded/normalisation:RMSNorm"}, attn_implementation="embedded/attention"
        )
        result = [stack.logits(model)]
        model.train()
        result += [gradient for gradient in stack.gradients(model).values() if gradient is not None]
        results.append(result)
    different = sum(not torch.equal(one, other) for one, other in zip(*results, strict=True))
    if different:
        raise DisprovedError(
            f"{different} of {len(results[0])} results differ between two runs", Reason.NONDETERMINISTIC
        )
    return f"two loads with one seed gave the same bits in the logits and {len(results[0]) - 1} gradients"


def _differences(stack: Stack) -> tuple[float, float, int]:
    """Relative difference, share of equal bits, number of logits, of the bundled RMSNorm against PyTorch."""
    reference = stack.logits(stack.load())
    result = stack.logits(stack.configured({"RMSNorm": "embedded/normalisation:RMSNorm"}))
    equal = float((result == reference).float().mean())
    return float((result - reference).norm() / reference.norm()), equal, reference.numel()


@check("determinism.differs")
def differs(stack: Stack) -> str:
    """Fault: a difference that nobody measured."""
    gap, _, number = _differences(stack)
    if not gap < 1e-4:
        raise DisprovedError(f"{number} logits differ from PyTorch's by {gap:.1e} of their norm", Reason.TOLERANCE)
    return f"{number} logits differ from PyTorch's by {gap:.1e} of their norm"


@check("determinism.match")
def match(stack: Stack) -> str:
    """Fault: a rate that cannot be stated."""
    _, equal, number = _differences(stack)
    return f"{100 * equal:.1f} % of {number} logits have PyTorch's bits"
