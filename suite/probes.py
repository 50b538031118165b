"""The check ``probe``: every kernel against its layer's own PyTorch forward, on captured and perturbed calls.

Capture, perturb, compare (design: layer probes). While it runs PyTorch's forwards are bound everywhere and the kernel
under test is called by itself, so that a fault is found in the layer that has it and not in a neighbour. One call of
each kind gets all recipes and relations; further kinds of the same layer get the call as it was captured.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cases.attention import attention
from cases.axes import DType
from reports.record import Outcome, Reason
from suite.agreement import Agreement, Complaint, agree
from suite.arms import Site
from suite.attending import attend, attention_recipes, takes_packed
from suite.capture import Call, Captured, capture
from suite.finding import Finding, Measure
from suite.memory import ran_out
from suite.numerics import LIMITS, torch_dtype
from suite.perturb import BATCH, LENGTH, Axes, Recipe, axes_of, recipes, spoilt
from suite.relations import RELATIONS, Base, touched
from suite.subject import Subject
from suite.trial import Layer, Result, Truth, duplicate, exact_copy, gradients_of, replayed, run, same, truth_of

__all__ = ["probe"]

BRIEF = 2
"""Further kinds of call of one layer that are compared as captured (norms of other widths, other ranks)."""
TIED = 1e-9
"""Relative margin of a choice in float64 that is none: a saturated softmax leaves several experts at zero."""
SHOWN = 4
"""Complaints that a message spells out for one layer."""


@dataclass(slots=True)
class Tally:
    """What the probes of one case found."""

    probes: int = 0
    skipped: int = 0
    ratio: float = 0.0
    """The error ratio that comes nearest to its limit."""
    limit: float = LIMITS["probe"].factor
    mean_ratio: float = 0.0
    worst: str = ""
    """Where ``ratio`` was seen."""
    complaints: dict[str, list[Complaint]] = field(default_factory=dict)
    """By layer."""
    by_name: dict[str, float] = field(default_factory=dict)
    """Largest error ratio of each registered name."""
    unprobed: list[str] = field(default_factory=list)
    """Names with a kernel of which no call could be probed: never made, or not without the model's cache."""


def probe(subject: Subject) -> Finding:
    """Probe every kernel that is bound, and the attention if it is one from the Hub."""
    arms = subject.arms
    arms.use_kernels()
    bound = {id(site.module): (site, site.forward()) for site in arms.sites if site.has_kernel()}
    implementation = subject.loader.implementation(subject.case) if attention(subject.case.attention).hub else None
    tally = Tally()
    with arms.pytorch():
        if implementation is not None:
            # The wrapper around a flash kernel reads its own name there, and masks are made for it.
            subject.loaded.model.config._attn_implementation = implementation
        chosen = None if implementation is None else (implementation, attend)
        found, unusable = capture(subject, [site for site, _ in bound.values()], chosen)
        tally.skipped += unusable
        seen: Counter[tuple[str, str]] = Counter()
        for captured in found:
            kind = (captured.name, type(captured.module).__name__)
            if seen[kind] > BRIEF:
                continue
            layer = _layer(subject, captured, bound, implementation)
            _probe_layer(subject, layer, captured, tally, brief=seen[kind] > 0)
            seen[kind] += 1
    tally.unprobed = sorted({site.name for site, _ in bound.values()} - tally.by_name.keys())
    return _finding(tally, len(found))


def _layer(
    subject: Subject, captured: Captured, bound: dict[int, tuple[Site, Any]], implementation: str | None
) -> Layer:
    if captured.name == "attention" and implementation is not None:
        function = ALL_ATTENTION_FUNCTIONS[implementation]

        def kernel(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(module, *args, **kwargs)
            return (result[0], None) if isinstance(result, tuple) else (result, None)

        pytorch: Callable[..., Any] = attend
        differentiable = subject.case.mode.trains
    else:
        forward = bound[id(captured.module)][1]
        kernel, pytorch = forward.__func__, type(captured.module).forward
        differentiable = subject.case.mode.trains or _claims_backward(kernel)
    module, exact = duplicate(captured.module), exact_copy(captured.module)
    states = run(pytorch, module, captured.call).written()
    # Nobody goes backward through a decoded token.
    learned = captured.learned if differentiable and captured.phase == "prompt" else None
    return Layer(captured.name, captured.path, pytorch, kernel, module, exact, learned, states)


def _claims_backward(forward: Callable[..., Any]) -> bool:
    """What the kernel's class says of its backward pass; like kernels itself, silence is a yes."""
    function = inspect.unwrap(forward)
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(getattr(getattr(function, "__globals__", {}).get(owner), "has_backward", True))


def _probe_layer(subject: Subject, layer: Layer, captured: Captured, tally: Tally, *, brief: bool) -> None:
    axes = axes_of(captured)
    base = _try(subject, layer, Recipe("as captured", captured.call), tally, axes)
    if base is None or brief:
        return
    for recipe in _recipes(layer, captured, axes, by_row=_row_by_row(layer, base)):
        if recipe.call is captured.call:
            continue
        with layer.epsilon(recipe.epsilon):
            _try(subject, layer, recipe, tally, axes)
    for relation in RELATIONS:
        _relate(layer, base, relation, tally)


def _recipes(layer: Layer, captured: Captured, axes: Axes, *, by_row: bool) -> Iterator[Recipe]:
    yield from recipes(captured, axes, by_row=by_row, sized=layer.pytorch is not attend)
    if layer.pytorch is attend and takes_packed(_innermost(layer.kernel)):
        yield from attention_recipes(captured.call, causal=bool(getattr(layer.module, "is_causal", True)))


def _innermost(kernel: Callable[..., Any]) -> Any:
    cells = getattr(kernel, "__closure__", None) or ()
    return next((cell.cell_contents for cell in cells if callable(cell.cell_contents)), kernel)


def _reference(layer: Layer, call: Call, dtype: DType) -> tuple[frozenset[str], Result, Truth] | None:
    """What gradients to ask for, PyTorch's result and float64's; None where these say nothing about the call."""
    try:
        asked = gradients_of(layer, call)
        pytorch = run(layer.pytorch, layer.module, call, asked)
        truth = truth_of(layer, call, asked, pytorch.tensors())
        if truth.closest < TIED:
            return None
        if truth.routing:
            with replayed(truth.routing, dtype):
                pytorch = run(layer.pytorch, layer.module, call, asked, pytorch.tensors())
    except Exception as error:  # whatever PyTorch's own forward refuses is no input for a kernel
        if _is_memory(error):
            raise
        return None
    return asked, pytorch, truth


def _try(subject: Subject, layer: Layer, recipe: Recipe, tally: Tally, axes: Axes) -> Base | None:
    """Run one recipe and note what is wrong. None where there is nothing to compare with, or the kernel raised."""
    dtype = subject.case.dtype
    reference = _reference(layer, recipe.call, dtype)
    if reference is None:
        tally.skipped += 1
        return None
    asked, pytorch, truth = reference
    before = {name: weight.detach().clone() for name, weight in layer.module.named_parameters()}
    tally.probes += 1
    try:
        with replayed(truth.routing, dtype) as replay:
            kernel = run(layer.kernel, layer.module, recipe.call, asked, pytorch.tensors())
    except Exception as error:
        if _is_memory(error):
            raise
        agreement = Agreement([_raised(error)])
        if asked:
            # Where the fault lies may show without the backward pass, which is what raises most often.
            agreement.complaints += _without_gradients(layer, recipe.call, pytorch, truth, dtype)
        _note(tally, layer, recipe, agreement)
        return None
    if replay and not replay.position and truth.closest < replay.TIE * torch.finfo(torch_dtype(dtype)).eps:
        # A near tie that could not be replayed, since the kernel chooses by means of its own.
        tally.probes, tally.skipped = tally.probes - 1, tally.skipped + 1
        return None
    agreement = agree(kernel, pytorch, truth.result, dtype, many=recipe.many)
    agreement.complaints += touched(kernel, pytorch)
    for name, weight in layer.module.named_parameters():
        if not same(weight.detach(), before[name]):
            agreement.complaints.append(Complaint("weights", f"writes to the weight {name}", 1.0, 0.0))
    _note(tally, layer, recipe, agreement)
    return Base(recipe.call, axes, asked, pytorch, kernel, truth, dtype)


def _without_gradients(layer: Layer, call: Call, pytorch: Result, truth: Truth, dtype: DType) -> Iterator[Complaint]:
    try:
        with replayed(truth.routing, dtype):
            kernel = run(layer.kernel, layer.module, call)
    except Exception:  # it raises with gradients, which is reported, and without, which says no more
        return
    yield from agree(kernel, pytorch, truth.result, dtype).complaints
    yield from touched(kernel, pytorch)


def _is_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or ran_out(str(error))


def _raised(error: Exception) -> Complaint:
    return Complaint(
        "exception", f"raises {type(error).__name__}: {str(error)[:300]}, where PyTorch does not", 1.0, 0.0
    )


def _relate(layer: Layer, base: Base, relation: Callable[[Layer, Base], Iterator[Complaint]], tally: Tally) -> None:
    tally.probes += 1
    try:
        complaints = list(relation(layer, base))
    except Exception as error:  # the kernel's, since PyTorch took this call already
        if _is_memory(error):
            raise
        complaints = [_raised(error)]
    words = next(iter((relation.__doc__ or "").splitlines()), "")
    _note(tally, layer, Recipe(f"relation: {words.split(' (S')[0].rstrip('.')}", base.call), Agreement(complaints))


def _note(tally: Tally, layer: Layer, recipe: Recipe, agreement: Agreement) -> None:
    if agreement.ratio / agreement.limit > tally.ratio / tally.limit:
        tally.ratio, tally.limit = agreement.ratio, agreement.limit
        tally.worst = f"{layer.where}, {recipe.words}"
    tally.mean_ratio = max(tally.mean_ratio, agreement.mean_ratio)
    tally.by_name[layer.name] = max(tally.by_name.get(layer.name, 0.0), agreement.ratio)
    for complaint in agreement.complaints:
        words = f"{recipe.words} ({_describe(recipe)}): {complaint.text}"
        found = Complaint(complaint.what, words, complaint.figure, complaint.limit)
        tally.complaints.setdefault(layer.where, []).append(found)


def _describe(recipe: Recipe) -> str:
    """The first tensors of a call: name, dtype, shape, and strides where they are not those of a fresh tensor."""
    parts = []
    for path, leaf in list(recipe.call.tensors().items())[:3]:
        text = f"{path} {str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
        parts.append(text if leaf.is_contiguous() else f"{text} strides {list(leaf.stride())}")
    return ", ".join(parts)


def _row_by_row(layer: Layer, base: Base) -> bool:
    """Whether PyTorch's forward treats positions one by one, as a norm does and a scan does not."""
    main = base.axes.main
    if not main or not base.pytorch.tensors():
        return False
    for kind in (BATCH, LENGTH):
        # The last is what a recurrence would betray, the first what a look ahead would.
        for kept in (0, -1):
            call = spoilt(base.call, base.axes, kind, kept)
            if call is None:
                continue
            spoiled = run(layer.pytorch, layer.module, call)
            axis, size = base.axes.of_kind(main[0], kind)[0], base.call.tensors()[main[0]].shape
            for name, value in spoiled.tensors().items():
                if value.dim() <= axis or value.shape[axis] != size[axis]:
                    return False
                if not torch.equal(value.select(axis, kept), base.pytorch.tensors()[name].select(axis, kept)):
                    return False
    return True


def _finding(tally: Tally, sites: int) -> Finding:
    measures: dict[str, Measure] = {
        "error_ratio": min(tally.ratio, 1e9),
        "limit": tally.limit,
        "mean_ratio": min(tally.mean_ratio, 1e9),
        "mean_limit": LIMITS["probe-mean"].factor,
        "probes": tally.probes,
        "skipped": tally.skipped,
        "calls": sites,
        "worst": tally.worst[:400],
        "unprobed": ", ".join(tally.unprobed)[:400],
        **{f"error_ratio {name}": min(ratio, 1e9) for name, ratio in tally.by_name.items()},
    }
    if not tally.complaints:
        if not tally.probes:
            return Finding(Outcome.NOT_RUN, Reason.NOT_APPLICABLE, "no call of a kernel could be captured", measures)
        error = f"error at most {tally.ratio:.2f} × PyTorch's (limit {tally.limit:g} ×)"
        text = f"{tally.probes} probes of {sites} kinds of call, {error}"
        if tally.unprobed:
            text += f"; no call to probe of {', '.join(tally.unprobed)}"
        return Finding(Outcome.PASS, message=text, measures=measures)
    measures["complaints"] = sum(len(each) for each in tally.complaints.values())
    lines = []
    for where, complaints in tally.complaints.items():
        worst = sorted(complaints, key=lambda each: -each.weight)
        lines.append(f"{where}: " + "; ".join(each.text for each in worst[:SHOWN]))
        if len(worst) > SHOWN:
            lines[-1] += f"; and {len(worst) - SHOWN} more"
    return Finding(Outcome.FAIL, _reason(tally), " | ".join(lines)[:8000], measures=measures)


def _reason(tally: Tally) -> Reason:
    every = [complaint for complaints in tally.complaints.values() for complaint in complaints]
    if any("is missing" in complaint.text for complaint in every):
        return Reason.MISSING_GRADIENT
    if all(complaint.what == "exception" for complaint in every):
        return Reason.EXCEPTION
    if all(complaint.what == "repeat" for complaint in every):
        return Reason.NONDETERMINISTIC
    return Reason.TOLERANCE
