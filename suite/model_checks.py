"""The checks of a whole model against float64: logits, gradients, and generation with a cache, on every input recipe.

Faults of wiring show here and nowhere else: a mask of another shape, positions of another row, a window one off, an
argument that is dropped on the way. Which recipes a case is put through follows from what it tests and from what its
model can do (``cases.inputs``); the worst decides, and the message names it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from reports.record import Outcome, Reason
from suite import passes
from suite.drift import drift
from suite.finding import Finding, Measure
from suite.numerics import Comparison, compare, compare_named
from suite.subject import Subject

__all__ = ["ArmError", "arm", "both", "forward", "generate", "gradient", "judge", "lost", "training"]

NAMED = 5
"""Parameters or recipes that a message lists before it says that there are more."""


class ArmError(Exception):
    """One arm raised. ``kernel`` tells whose fault it is."""

    def __init__(self, error: Exception, *, kernel: bool, recipe: str = "") -> None:
        where = f" on {recipe} inputs" if recipe else ""
        super().__init__(f"{type(error).__name__}: {error}{where}")
        self.kernel = kernel


@contextmanager
def arm(subject: Subject, *, kernel: bool, recipe: str = "") -> Iterator[None]:
    """One arm within the block, the kernels after it."""
    if kernel:
        subject.arms.use_kernels()
    else:
        subject.arms.use_pytorch()
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise ArmError(error, kernel=kernel, recipe=recipe) from error
    finally:
        subject.arms.use_kernels()


@contextmanager
def training(model: torch.nn.Module, on: bool) -> Iterator[None]:
    """Training or evaluation mode within the block, without ``train()``, which would bind other kernels."""
    before = [(module, module.training) for module in model.modules()]
    for module, _ in before:
        module.training = on
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


def both(
    subject: Subject, call: Callable[..., Any], recipe: str, routing: list[torch.Tensor], name: str = ""
) -> tuple[Any, Any]:
    """What the kernel arm and the PyTorch arm give for one pass."""
    with arm(subject, kernel=False, recipe=name or recipe):
        pytorch = subject.ask(call, recipe, routing, reference=True)
    with arm(subject, kernel=True, recipe=name or recipe):
        kernel = subject.ask(call, recipe, routing)
    return kernel, pytorch


def _figures(comparison: Comparison, recipe: str) -> dict[str, Measure]:
    return {
        "error_ratio": comparison.ratio,
        "limit": comparison.limit,
        "error_kernel": comparison.error_kernel,
        "error_pytorch": comparison.error_pytorch,
        "worst": comparison.worst,
        "inputs": recipe,
    }


def judge(compared: Mapping[str, Comparison], what: str, extra: Mapping[str, Measure]) -> Finding:
    """PASS when every recipe passes; the figures are those of the worst."""
    recipe, worst = max(compared.items(), key=lambda item: (not item[1].finite, item[1].ratio))
    measures = {**_figures(worst, recipe), **extra, "recipes": len(compared)}
    failed = [name for name, comparison in compared.items() if not comparison.passed]
    if not failed:
        of = f", the worst of {len(compared)} recipes ({recipe})" if len(compared) > 1 else ""
        return Finding(Outcome.PASS, message=f"{what} error {worst.ratio:.2f} × PyTorch's{of}", measures=measures)
    problem = "NaN or infinity where float64 has none" if not worst.finite else f"{worst.ratio:.3g} × PyTorch's own"
    others = f"; also wrong on {_listed([name for name in failed if name != recipe])}" if len(failed) > 1 else ""
    right = [name for name in compared if name not in failed]
    return Finding(
        Outcome.FAIL,
        Reason.TOLERANCE,
        f"{what} on {recipe} inputs: {problem} (limit {worst.limit:g} ×); at {worst.worst}, relative error "
        f"{worst.error_kernel:.2e} against {worst.error_pytorch:.2e} of PyTorch in that dtype, both against float64"
        f"{others}{f'; right on {_listed(right)}' if right else ''}",
        measures=measures,
    )


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:NAMED])}{' …' if len(names) > NAMED else ''}"


def _variants(subject: Subject) -> Iterator[tuple[str, str, bool]]:
    """Name, recipe and mode of each pass: in training also the dense batch in evaluation mode.

    There is no dropout in the zoo, so both modes have one truth, and logits that differ between them differ from it.
    """
    trains = subject.case.mode.trains
    for recipe in subject.recipes:
        yield recipe, recipe, trains
        if trains and recipe == "dense":
            yield "dense (eval mode)", recipe, False


def forward(subject: Subject) -> Finding:
    """Logits of both arms against float64, on every input recipe."""
    compared = {}
    extra: dict[str, Measure] = {}
    for name, recipe, mode in _variants(subject):
        truth, routing = subject.truth.forward(recipe)
        with training(subject.loaded.model, mode):
            kernel, pytorch = both(subject, passes.forward, recipe, routing, name)
        compared[name] = compare(kernel, pytorch, truth, subject.case.dtype, place=_place(subject, recipe, truth))
        if name == "dense":
            same_top = kernel.argmax(-1) == pytorch.argmax(-1)
            extra = {
                "match_bits": float((kernel == pytorch).double().mean()),
                "match_top1": float(same_top.double().mean()),
                **drift(subject.case, kernel, subject.first_outputs),
            }
    return judge(compared, "output", extra)


def gradient(subject: Subject) -> Finding:
    """Gradient of every parameter, of both arms against float64, in training and in evaluation mode."""
    compared = {}
    for name, recipe, mode in _variants(subject):
        truth, routing = subject.truth.gradients(recipe)
        with training(subject.loaded.model, mode):
            kernel, pytorch = both(subject, passes.forward_backward, recipe, routing, name)
        missing = lost(kernel, pytorch)
        if missing:
            return Finding(
                Outcome.FAIL,
                Reason.MISSING_GRADIENT,
                f"on {name} inputs {len(missing)} of {len(truth.by_name)} parameters get no gradient with the kernel, "
                f"and one without it: {_listed(missing)}",
                measures={"missing": len(missing), "inputs": name},
            )
        common = {each: truth.by_name[each] for each in kernel.by_name if each in truth.by_name}
        compared[name] = compare_named(kernel.by_name, pytorch.by_name, common, subject.case.dtype)
    return judge(compared, "gradient", {"parameters": len(common)})


def lost(kernel: passes.Gradients, pytorch: passes.Gradients) -> list[str]:
    """Parameters that have a gradient in PyTorch and none with the kernel."""
    return sorted(set(kernel.missing) - set(pytorch.missing))


def generate(subject: Subject) -> Finding:
    """Prompts in pieces and tokens one by one, with each kind of cache, against the same in float64."""
    compared = {}
    for steps in subject.steps:
        truth, routing = subject.truth.stepwise(steps)
        call = partial(passes.stepwise, steps=steps)
        kernel, pytorch = both(subject, call, steps.inputs, routing, steps.name)
        place = subject.batches[steps.inputs].place
        compared[steps.name] = compare(kernel, pytorch, truth, subject.case.dtype, "generate", place)
    return judge(compared, "stepwise output", {})


def _place(subject: Subject, recipe: str, output: torch.Tensor) -> Callable[[int], str]:
    """What a row of the output is called; a model that gives one vector for a text has no tokens there."""
    given = subject.batches[recipe]
    return given.place if len(output) == int(given.kept.sum()) else "text {}".format
