"""The check ``state``: what becomes of the kernels when a user goes on using the model.

A model is loaded afresh, and put through what users do to one: switched between training and evaluation, kernelized
again, moved, copied, trained in part. After each step three questions are asked. Does every parameter get its gradient
in training, and the right one? Are the logits right in evaluation? And is every bound forward PyTorch's or a promised
kernel's?

What is judged is what the kernels and the route of the case can be blamed for, or what would spoil a training without
a word. Whether the *right* kernel is active in each mode is Transformers' business, and known to be broken on several
routes: it is written down among the figures (``bound after …``) and is the subject of the documented statements
``mode.*``, not of every kernel's verdict.
"""

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch

from reports.record import Outcome, Reason
from suite import ledger, model_checks, passes
from suite.arms import Site, sites
from suite.finding import Finding, Measure
from suite.numerics import RoutingReplay, compare, compare_named
from suite.subject import Subject

__all__ = ["SWITCHES", "Binding", "bindings", "check", "claims_backward", "foreign", "functions_untouched"]


@dataclass(frozen=True, slots=True)
class Binding:
    """What is bound at one place of a model."""

    name: str
    path: str
    is_function: bool
    origin: str
    """``pytorch``, or the repository that the kernel comes from."""
    function: Any
    """The plain function, by which bindings of a model and of its copy can be compared."""


def bindings(model: torch.nn.Module) -> tuple[Binding, ...]:
    """What is bound at every place where kernels can be."""
    return tuple(_binding(site) for site in sites(model))


def _binding(site: Site) -> Binding:
    forward = site.forward()
    function = getattr(forward, "__func__", forward)
    source = ledger.origin(function) if site.has_kernel() else None
    origin = source.repository if source else "a forward of unknown origin" if site.has_kernel() else "pytorch"
    return Binding(site.name, site.path, site.is_function, origin, function)


def foreign(model: torch.nn.Module) -> list[str]:
    """Layers of a model that was never kernelized whose forward is a kernel's all the same: of the module or its class.

    Function objects are left out. One process has one of each, so they follow whichever model was kernelized last.
    """
    found = [f"{each.path} ({each.name})" for each in bindings(model) if not each.is_function and _is_kernel(each)]
    classes = {type(module) for module in model.modules()}
    return found + sorted(f"class {each.__name__}" for each in classes if ledger.origin(each.forward) is not None)


def _is_kernel(binding: Binding) -> bool:
    return binding.origin != "pytorch"


def functions_untouched(model: torch.nn.Module) -> bool:
    """Whether no function object of the model has a kernel."""
    return not any(each.is_function and _is_kernel(each) for each in bindings(model))


def claims_backward(binding: Binding) -> bool:
    """Whether the kernel says that it has a backward pass; PyTorch always has one."""
    if not _is_kernel(binding):
        return True
    names = binding.function.__qualname__.split(".")[:-1]
    layer = reduce(lambda owner, name: getattr(owner, name, None), names, sys.modules.get(binding.function.__module__))
    return bool(getattr(layer, "has_backward", True))


def _there_and_back(model: Any) -> Any:
    """Float64 holds every value of a smaller type, so nothing but a binding can change."""
    dtype = model.dtype
    return model.to(torch.float64).to(dtype)


SWITCHES: dict[str, Callable[[Any], Any]] = {
    "train()": lambda model: model.train(),
    "eval()": lambda model: model.eval(),
    "set_use_kernels(True) again": lambda model: model.set_use_kernels(True) or model,
    "to(float64) and back": _there_and_back,
    "to(device)": lambda model: model.to(model.device),
    "deepcopy": copy.deepcopy,
}
"""What users do to a model, by name; each returns the model to go on with."""


@dataclass(slots=True)
class _Course:
    """A fresh model on its way through the switches, and what was found."""

    subject: Subject
    model: Any
    problems: list[tuple[Reason, str]] = field(default_factory=list)
    measures: dict[str, Measure] = field(default_factory=dict)

    def _blame(self, after: str, reason: Reason, text: str) -> None:
        self.problems.append((reason, f"after {after} {text}"))

    def note(self, after: str) -> None:
        """Write down how many places have a kernel."""
        bound = bindings(self.model)
        self.measures[f"bound after {after}"] = f"{sum(map(_is_kernel, bound))} of {len(bound)}"

    def expect_bound(self, after: str, before: tuple[Binding, ...]) -> None:
        """The same forwards as before, which were those of the same mode."""
        pairs = zip(before, bindings(self.model), strict=True)
        changed = [(old, new) for old, new in pairs if old.function is not new.function]
        if changed:
            old, new = changed[0]
            self._blame(
                after,
                Reason.REBOUND,
                f"{len(changed)} of {len(before)} places have another forward, first {old.path} ({old.name}): "
                f"{old.origin} before, {new.origin} now",
            )

    def expect_right(self, after: str, reference: "_Reference") -> None:
        """Logits in evaluation, gradients in training, as near to float64 as PyTorch's."""
        given, record = self.subject.batches["dense"], self.subject.record
        try:
            if not self.model.training:
                with reference.routing(self.subject):
                    output = passes.forward(self.model, record, given)
                found = compare(output, reference.output, reference.true_output, self.subject.case.dtype)
                what = "logits"
            else:
                with reference.routing(self.subject):
                    gradients = passes.forward_backward(self.model, record, given)
                missing = model_checks.lost(gradients, reference.gradients)
                if missing:
                    self._blame(
                        after,
                        Reason.MISSING_GRADIENT,
                        f"{len(missing)} of {len(reference.gradients.by_name)} parameters get no gradient: "
                        f"{', '.join(missing[:5])}",
                    )
                    return
                true = reference.true_gradients
                found = compare_named(
                    gradients.by_name, reference.gradients.by_name, true, self.subject.case.dtype, "gradient"
                )
                what = "gradients"
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # whatever a kernel raises in a state that PyTorch does not mind
            self._blame(after, Reason.EXCEPTION, f"the model raises {type(error).__name__}: {error}")
            return
        self.measures[f"error_ratio after {after}"] = found.ratio
        if not found.passed:
            self._blame(
                after,
                Reason.TOLERANCE,
                f"{what} are off: {found.ratio:.3g} × PyTorch's own error (limit {found.limit:g} ×), at {found.worst}",
            )


@dataclass(frozen=True, slots=True)
class _Reference:
    """The dense pass in PyTorch and in float64."""

    output: torch.Tensor
    gradients: passes.Gradients
    true_output: torch.Tensor
    true_gradients: dict[str, torch.Tensor]
    experts: list[torch.Tensor]

    def routing(self, subject: Subject) -> AbstractContextManager[Any]:
        """Lets ties in a mixture of experts fall as in float64."""
        return RoutingReplay(self.experts, recording=False, dtype=subject.case.dtype) if self.experts else nullcontext()


def _reference(subject: Subject) -> _Reference:
    truth, routing = subject.truth.gradients("dense")
    with model_checks.arm(subject, kernel=False):
        pytorch = subject.ask(passes.forward_backward, "dense", routing)
    return _Reference(pytorch.output, pytorch, truth.output, truth.by_name, routing)


@contextmanager
def _inner_training(model: Any) -> Iterator[None]:
    """The decoder inside the model in training, by its own ``train()``, while the model as a whole is not."""
    inner = model.base_model
    inner.train()
    model.training = True
    try:
        yield
    finally:
        inner.eval()
        model.training = False


def check(subject: Subject) -> Finding:
    """Put a fresh model of the case through the switches that its kernels and its route answer for."""
    reference = _reference(subject)
    loader, case, path = subject.loader, subject.case, subject.path
    other = loader.plain(case, path)
    try:
        course = _Course(subject, loader.load(case, path).model)
        first = bindings(course.model)
        course.note("load")
        touched = foreign(other)
        if touched:
            course.problems.append(
                (Reason.REBOUND, f"another model, never kernelized, runs kernels: {', '.join(touched[:5])}")
            )
        course.measures["functions of another model untouched"] = functions_untouched(other)
        there, back = ("eval()", "train()") if case.mode.trains else ("train()", "eval()")
        for switch in (there, back, "set_use_kernels(True) again", "to(float64) and back", "to(device)"):
            course.model = SWITCHES[switch](course.model)
            course.note(switch)
            if switch is not there:
                course.expect_bound(switch, first)
            if switch in (there, back):
                course.expect_right(switch, reference)
        if not case.mode.trains and all(map(claims_backward, first)):
            with _inner_training(course.model):
                course.expect_right("train() of the inner model", reference)
        course.model = SWITCHES["deepcopy"](course.model)
        course.note("deepcopy")
        course.expect_right("deepcopy", reference)
    finally:
        # Switching binds function objects anew, which this subject's model shares.
        subject.arms.use_kernels()
    if not course.problems:
        text = f"right after {there}, {back}, kernelizing again, to(), deepcopy; another model untouched"
        return Finding(Outcome.PASS, message=text, measures=course.measures)
    return Finding(
        Outcome.FAIL,
        course.problems[0][0],
        "; ".join(text for _, text in course.problems),
        measures={**course.measures, "problems": len(course.problems)},
    )
