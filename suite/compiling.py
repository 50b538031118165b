"""Does the kernelized model compile as PyTorch's own does: one graph, few recompiles, right results, kernels inside?

``can_torch_compile`` is a claim that nobody verifies: seven graph breaks in a model of two layers went unseen
(design/upstream-facts, V34). The model is compiled as its user would, and run with sequences of several lengths. What
breaks in PyTorch as well is not held against a kernel, nor what breaks in a kernel that claims nothing. Tracing is
slow, so the PyTorch arm is compiled only when there is something to hold against it.

The backend is ``aot_eager``: it traces, functionalises and partitions as Inductor does, and generates no code.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from inspect import unwrap
from typing import Any

import torch

from cases.axes import DType
from cases.case import Case
from reports.record import Outcome, Reason
from suite import ledger, passes
from suite.arms import Site
from suite.finding import Finding, Measure
from suite.model_checks import ArmError, arm, judge
from suite.numerics import Comparison, compare, compare_named
from suite.subject import Subject
from suite.tracing import Lines, Watch, fresh

__all__ = ["check", "generates"]

LENGTHS = (24, 40)
"""Tokens of the calls before the one with all of them. The first is traced with fixed sizes and the second makes the
length dynamic; from then on any length is served. All are longer than the windows and shorter than the chunks of the
zoo, so that no model takes another way."""

RECIPE = "dense"


@dataclass(frozen=True, slots=True)
class _Traced:
    """One arm, compiled and run."""

    watch: Watch
    first: int
    """Graphs made for the first length."""
    breaks: int
    """Graph breaks counted by torch, also those that end no graph of their own."""
    result: Any

    @property
    def recompiles(self) -> int:
        """Graphs made for the other lengths."""
        return self.watch.graphs - self.first


def check(subject: Subject, *, inductor: bool) -> Finding:
    """Compile and compare; with ``inductor`` once more with generated code, where the case is one of a compile mode."""
    claims, others = _claims(subject)
    if not claims and not subject.case.mode.compiles:
        return Finding(
            Outcome.NOT_RUN, Reason.NOT_APPLICABLE, "no kernel bound here is called and says can_torch_compile"
        )
    finding = _with(subject, "aot_eager", claims, others)
    if inductor and generates(subject.case) and finding.outcome is Outcome.PASS:
        generated = _with(subject, "inductor", claims, others)
        if generated.outcome is not Outcome.PASS:
            return replace(generated, message=f"with Inductor: {generated.message}")
        return replace(finding, message=f"{finding.message}; with Inductor: {generated.message}")
    return finding


def generates(case: Case) -> bool:
    """Whether code is generated for a case where there is time to: a kernel alone compiles as it does among all others,
    and generating takes half a minute."""
    return case.mode.compiles and not case.mapping.startswith("only-")


def _with(subject: Subject, backend: str, claims: Mapping[str, Lines], others: Mapping[str, Lines]) -> Finding:
    """One backend: breaks, recompiles, presence, results, the first that is wrong."""
    try:
        kernel = _trace(subject, backend, kernel=True)
    except ArmError:
        # If PyTorch cannot be compiled here either, this raises the error of that arm.
        _trace(subject, backend, kernel=False)
        raise
    measures: dict[str, Measure] = {
        "graphs": kernel.first,
        "graph_breaks": kernel.breaks,
        "recompiles": kernel.recompiles,
    }
    problem = _own_breaks(kernel, claims, measures)
    excused = any(_breaks_in(kernel, lines) for lines in others.values())
    if problem is None and not excused and (kernel.breaks or kernel.recompiles > kernel.first):
        pytorch = _trace(subject, backend, kernel=False)
        measures |= {"graph_breaks_pytorch": pytorch.breaks, "recompiles_pytorch": pytorch.recompiles}
        problem = _more_than_pytorch(kernel, pytorch, measures)
    return problem or _absent(kernel, claims, measures) or _results(subject, kernel.result, claims, measures)


def _claims(subject: Subject) -> tuple[dict[str, Lines], dict[str, Lines]]:
    """The forwards called in an ordinary pass, by registered name: of kernels that say they compile, and of others."""
    with arm(subject, kernel=True), ledger.count_calls(subject.arms.sites) as calls:
        subject.ask(passes.forward, RECIPE)
    claims: dict[str, Lines] = {}
    others: dict[str, Lines] = {}
    for site in subject.arms.sites:
        if site.has_kernel() and calls[site.name]:
            (claims if _says_it_compiles(site) else others)[site.name] = Lines.of(site.forward())
    return claims, others


def _says_it_compiles(site: Site) -> bool:
    """The flag of the class that the bound forward was taken from; the class is where the function was defined."""
    function = unwrap(getattr(site.forward(), "__func__", site.forward()))
    layer = function.__globals__.get(function.__qualname__.rpartition(".")[0])
    return bool(getattr(layer, "can_torch_compile", False))


def _trace(subject: Subject, backend: str, *, kernel: bool) -> _Traced:
    """Compile one arm and run it over all lengths; leaves nothing compiled behind."""
    call: Callable[..., Any] = passes.forward_backward if subject.case.mode.trains else passes.forward
    given, model = subject.batches[RECIPE], subject.loaded.model
    with ExitStack() as stack:
        stack.enter_context(arm(subject, kernel=kernel))
        stack.callback(fresh)
        # Dynamo warns of each cached helper in Transformers, in both arms: nothing that a reader could act upon.
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        fresh()
        watch = Watch(backend)
        compiled = torch.compile(model, backend=watch)
        first = 0
        for tokens in LENGTHS:
            call(compiled, subject.record, _shortened(given, tokens))
            first = first or watch.graphs
        result = call(compiled, subject.record, given)
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return _Traced(watch, first, breaks, result)


def _shortened(given: passes.Batch, tokens: int) -> passes.Batch:
    arguments = {name: value[:, :tokens].contiguous() for name, value in given.arguments.items()}
    return replace(given, arguments=arguments, kept=given.kept[:, :tokens])


def _breaks_in(traced: _Traced, lines: Lines) -> int:
    return sum(lines.holds(each.frames) for each in traced.watch.breaks)


def _own_breaks(traced: _Traced, claims: Mapping[str, Lines], measures: dict[str, Measure]) -> Finding | None:
    """Breaks on a line of a kernel that says it compiles."""
    for name, lines in claims.items():
        count = _breaks_in(traced, lines)
        if count:
            broken = next(each for each in traced.watch.breaks if lines.holds(each.frames))
            file, line = broken.frames[-1]
            return Finding(
                Outcome.FAIL,
                Reason.GRAPH_BREAK,
                f"{name} says can_torch_compile and breaks the graph {count} times over {len(LENGTHS) + 1} lengths: "
                f"{broken.reason} ({file}:{line}). Remove what depends on the data, or the claim",
                measures=measures,
            )
    return None


def _more_than_pytorch(kernel: _Traced, pytorch: _Traced, measures: dict[str, Measure]) -> Finding | None:
    if kernel.breaks > pytorch.breaks:
        return Finding(
            Outcome.FAIL,
            Reason.GRAPH_BREAK,
            f"{kernel.breaks} graph breaks with kernels and {pytorch.breaks} without: {kernel.watch.first_break()}",
            measures=measures,
        )
    if kernel.recompiles > pytorch.recompiles:
        return Finding(
            Outcome.FAIL,
            Reason.RECOMPILE,
            f"{kernel.recompiles} recompiles over {len(LENGTHS) + 1} lengths with kernels and {pytorch.recompiles} "
            "without: something in a kernel depends on the very length, which makes a new graph for each",
            measures=measures,
        )
    return None


def _absent(traced: _Traced, claims: Mapping[str, Lines], measures: dict[str, Measure]) -> Finding | None:
    """Kernels that ran before compilation and of which no line is in any graph."""
    absent = [name for name, lines in claims.items() if not lines.holds(traced.watch.traced)]
    measures["in_graph"] = ", ".join(name for name in claims if name not in absent)
    if not absent:
        return None
    return Finding(
        Outcome.FALLBACK,
        Reason.REBOUND,
        f"{', '.join(absent)}: the kernel is called without torch.compile, and nothing of it is in the compiled graphs",
        measures=measures,
    )


def _results(subject: Subject, result: Any, claims: Mapping[str, Lines], measures: dict[str, Measure]) -> Finding:
    """The last length, run by the graph that was made for any length, against float64."""
    dtype = subject.case.dtype
    truth, routing = subject.truth.forward(RECIPE)
    inside = f"{measures['graph_breaks']} graph breaks, {measures['recompiles']} recompiles"
    inside += f", in the graph: {', '.join(claims)}" if claims else ""
    if routing and dtype is not DType.FLOAT32:
        # The choice of experts cannot be replayed in a graph, and at a near tie rounding decides it.
        measures["compared"] = False
        return Finding(
            Outcome.PASS, message=f"{inside}; results not compared, since routing is free", measures=measures
        )
    compared: dict[str, Comparison] = {}
    if subject.case.mode.trains:
        exact, routing = subject.truth.gradients(RECIPE)
        with arm(subject, kernel=False):
            pytorch = subject.ask(passes.forward_backward, RECIPE, routing)
        gradients = {name.removeprefix("_orig_mod."): value for name, value in result.by_name.items()}
        lost = sorted(set(pytorch.by_name) - set(gradients))
        if lost:
            return Finding(
                Outcome.FAIL,
                Reason.MISSING_GRADIENT,
                f"{len(lost)} parameters get no gradient when compiled, and one when not: {', '.join(lost[:5])}",
                measures=measures,
            )
        common = {name: exact.by_name[name] for name in gradients if name in exact.by_name}
        compared["gradients"] = compare_named(gradients, pytorch.by_name, common, dtype)
        compared[RECIPE] = compare(result.output, pytorch.output, truth, dtype)
    else:
        with arm(subject, kernel=False):
            pytorch = subject.ask(passes.forward, RECIPE, routing)
        compared[RECIPE] = compare(result, pytorch, truth, dtype)
    finding = judge(compared, "compiled output", measures)
    return replace(finding, message=f"{finding.message}; {inside}")
