"""Relations that must hold of any layer, whatever it computes: most need no reference, or only PyTorch's permission.

Each takes a layer and a base call with its three results, and yields what is broken. A relation that PyTorch's own
forward does not keep (a batch normalisation sees its neighbours, a state update writes to its state) is not asked of
the kernel.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from cases.axes import DType
from cases.inputs import SEED
from suite.agreement import Complaint, agree, row_errors
from suite.capture import Call
from suite.numerics import LIMITS, torch_dtype
from suite.perturb import BATCH, Axes, by_keyword, by_position, spoilt
from suite.trial import PARAMETER, Layer, Result, Truth, flattened, replayed, run, same, truth_of

__all__ = ["RELATIONS", "Base", "touched"]

REPEATS = 3
"""Further calls that must give the same bits; the determinism check asks the whole model ten times."""
SUBSETS = 6
"""Combinations of requires_grad that are tried, besides all of them."""


@dataclass(frozen=True, slots=True)
class Base:
    """A call, and what PyTorch, the kernel and float64 make of it."""

    call: Call
    axes: Axes
    asked: frozenset[str]
    pytorch: Result
    kernel: Result
    truth: Truth
    dtype: DType


Relation = Callable[[Layer, Base], Iterator[Complaint]]


def touched(kernel: Result, pytorch: Result) -> Iterator[Complaint]:
    """Arguments and incoming gradients that were written to (S09, S12)."""
    for path in sorted(kernel.written() - pytorch.written()):
        yield Complaint("arguments", f"writes to its argument {path}", 1.0, 0.0)
    for name, (before, after) in kernel.cotangents.items():
        if not same(before, after):
            yield Complaint(
                "incoming gradient", f"its backward pass writes to the incoming gradient of {name}", 1.0, 0.0
            )


def _kernel(layer: Layer, base: Base, call: Call, asked: frozenset[str], **options: Any) -> Result:
    with replayed(base.truth.routing, base.dtype):
        return run(layer.kernel, layer.module, call, asked, base.pytorch.tensors(), **options)


def _pytorch(layer: Layer, base: Base, call: Call, asked: frozenset[str], **options: Any) -> Result:
    with replayed(base.truth.routing, base.dtype):
        return run(layer.pytorch, layer.module, call, asked, base.pytorch.tensors(), **options)


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Relative difference."""
    if same(one, other):
        return 0.0
    wide = other.cpu().double()
    return float((one.cpu().double() - wide).norm() / wide.norm().clamp_min(1e-30))


def _allowed(base: Base, name: str) -> float:
    """PyTorch's own error in a tensor, or half an epsilon where it has none."""
    own = base.pytorch.gradients.get(name, base.pytorch.tensors().get(name))
    exact = base.truth.result.gradients.get(name, base.truth.result.tensors().get(name))
    floor = 0.5 * torch.finfo(torch_dtype(base.dtype)).eps
    return max(_gap(own, exact), floor) if own is not None and exact is not None else floor


def repeats(layer: Layer, base: Base) -> Iterator[Complaint]:
    """The same call gives the same bits (S21). Gradients may vary by less than PyTorch's error: atomic sums do."""
    own = _pytorch(layer, base, base.call, base.asked)
    for _ in range(REPEATS):
        again = _kernel(layer, base, base.call, base.asked)
        for name, value in again.tensors().items():
            if same(own.tensors()[name], base.pytorch.tensors()[name]):
                gap = _gap(value, base.kernel.tensors()[name])
                if gap:
                    text = f"the same call gives another {name}, by {gap:.2e}; PyTorch repeats its bits"
                    yield Complaint("repeat", text, gap, 0.0)
                    return
        for name, value in again.gradients.items():
            if name in base.kernel.gradients:
                gap, allowed = _gap(value, base.kernel.gradients[name]), _allowed(base, name)
                if gap > allowed:
                    text = f"the same call gives another gradient of {name}, by {gap:.2e} (limit {allowed:.2e})"
                    yield Complaint("repeat", text, gap, allowed)
                    return


def keeps_results(layer: Layer, base: Base) -> Iterator[Complaint]:
    """An earlier result does not change when the layer is called again with other numbers (S13)."""
    other = base.call.replaced(
        lambda _, leaf: leaf.flip(0).neg() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
    )
    for asked in {frozenset[str](), base.asked}:
        first = _kernel(layer, base, base.call, asked)
        kept = {name: value.clone() for name, value in (*first.tensors().items(), *first.gradients.items())}
        _kernel(layer, base, other, asked)
        for name, value in (*first.tensors().items(), *first.gradients.items()):
            if not same(value, kept[name]):
                yield Complaint(
                    "earlier results", f"the earlier result {name} changes when the layer is called again", 1.0, 0.0
                )
                return


def without_gradients(layer: Layer, base: Base) -> Iterator[Complaint]:
    """Under ``no_grad`` the result is the same as with gradients, and no argument is written to."""
    if base.asked:
        kernel = _kernel(layer, base, base.call, frozenset())
        yield from agree(kernel, base.pytorch, base.truth.result, base.dtype).complaints
        yield from touched(kernel, base.pytorch)


def subsets(layer: Layer, base: Base) -> Iterator[Complaint]:
    """Every combination of requires_grad gives the gradients asked for, and the right ones."""
    weights = frozenset(name for name in base.pytorch.gradients if name.startswith(PARAMETER))
    units = [frozenset({name}) for name in sorted(set(base.pytorch.gradients) - weights)]
    units += [weights] if weights else []
    chosen = [frozenset().union(*some) for size in range(1, len(units)) for some in combinations(units, size)]
    for asked in chosen[:SUBSETS]:
        kernel = _kernel(layer, base, base.call, asked)
        for complaint in agree(kernel, base.pytorch, base.truth.result, base.dtype).complaints:
            names = ", ".join(sorted(name.removeprefix(PARAMETER) for name in asked))
            text = f"{complaint.text}, when only {names} requires a gradient"
            yield Complaint(complaint.what, text, complaint.figure, complaint.limit)


def spellings(layer: Layer, base: Base) -> Iterator[Complaint]:
    """Arguments may be given by keyword or by position."""
    parameters = list(inspect.signature(layer.pytorch).parameters.values())[1:]
    ordered = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
    for how, call in (
        ("by keyword", by_keyword(base.call, frozenset(ordered))),
        ("by position", by_position(base.call, ordered)),
    ):
        if call is None:
            continue
        try:
            kernel = _kernel(layer, base, call, frozenset())
        except TypeError as error:
            yield Complaint("spelling", f"cannot be called {how}: {error}", 1.0, 0.0)
            continue
        for complaint in agree(kernel, base.pytorch, base.truth.result, base.dtype).complaints:
            yield Complaint(complaint.what, f"{complaint.text}, called {how}", complaint.figure, complaint.limit)


def neighbours(layer: Layer, base: Base) -> Iterator[Complaint]:
    """A row of the batch does not depend on the others: its result stays when they grow a thousandfold."""
    call = spoilt(base.call, base.axes, BATCH)
    if call is None:
        return
    own, its = (form(layer, base, call, frozenset()) for form in (_pytorch, _kernel))
    for name, value in its.tensors().items():
        clean, mine = base.pytorch.tensors()[name], own.tensors()[name]
        if (
            not value.is_floating_point()
            or value.dim() < 2
            or value.shape[0] != base.axes.pairs[base.axes.main[0]][0][0]
        ):
            continue
        if _differs(mine[0], clean[0], base.dtype):
            continue
        gap = _differs(value[0], base.kernel.tensors()[name][0], base.dtype)
        if gap:
            text = (
                f"{name} of the first row of the batch changes by {gap:.2e} when the other rows grow; PyTorch's stays"
            )
            yield Complaint("neighbours", text, gap, LIMITS["probe"].factor * torch.finfo(torch_dtype(base.dtype)).eps)


def _differs(one: torch.Tensor, other: torch.Tensor, dtype: DType) -> float:
    """The largest relative difference of a row, if it is more than rounding."""
    gap = float(row_errors(one, other.cpu().double(), whole=False).nan_to_num(nan=float("inf")).max())
    return gap if gap > LIMITS["probe"].factor * torch.finfo(torch_dtype(dtype)).eps else 0.0


def accumulates(layer: Layer, base: Base) -> Iterator[Complaint]:
    """A second backward pass adds to the weights' gradients what the first one gave, once (S10)."""
    names = [name for name in base.kernel.gradients if name.startswith(PARAMETER)]
    if not names:
        return
    once = {name: value.clone() for name, value in _kernel(layer, base, base.call, base.asked).gradients.items()}
    twice = _kernel(layer, base, base.call, base.asked, keep=True).gradients
    for name in names:
        gap, allowed = _gap(twice[name], 2 * once[name]), 4 * _allowed(base, name)
        if gap > allowed:
            text = f"after two backward passes the gradient of {name} is not twice that of one, by {gap:.2e}"
            yield Complaint("accumulation", f"{text} (limit {allowed:.2e})", gap, allowed)


def fresh_numbers(layer: Layer, base: Base) -> Iterator[Complaint]:
    """Weights and arguments that changed in place are read again: a kernel may keep no copy of either."""
    changed = layer.duplicate()
    # Cloned, not copied in their layout: an expanded argument cannot be written to.
    held = base.call.replaced(lambda _, leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
    with torch.no_grad(), replayed(base.truth.routing, base.dtype):
        changed.kernel(changed.module, *held.args, **held.kwargs)
        halved = base.call.replaced(
            lambda _, leaf: leaf * 0.5 if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
        )
        for path, leaf in held.tensors().items():
            leaf.copy_(halved.tensors()[path])
        for weight, exact in zip(changed.module.parameters(), changed.exact.parameters(), strict=True):
            weight.mul_(1.25)
            exact.copy_(weight)
    truth = truth_of(changed, halved, frozenset(), {})
    with replayed(truth.routing, base.dtype):
        pytorch = run(changed.pytorch, changed.module, halved)
    with torch.no_grad(), replayed(truth.routing, base.dtype):
        kernel = Result(outputs=flattened(changed.kernel(changed.module, *held.args, **held.kwargs)))
    kernel.after = held.tensors()
    for complaint in agree(kernel, pytorch, truth.result, base.dtype).complaints:
        text = f"{complaint.text}, after its arguments and weights changed in place since an earlier call"
        yield Complaint(complaint.what, text, complaint.figure, complaint.limit)


def repeated_gradient(layer: Layer, base: Base) -> Iterator[Complaint]:
    """The incoming gradient may be one row repeated without a copy, as that of a sum is: its strides are zero."""
    if not base.pytorch.gradients:
        return
    like = base.pytorch.tensors()
    truth = truth_of(layer, base.call, base.asked, like, repeated=True).result
    pytorch = _pytorch(layer, base, base.call, base.asked, repeated=True)
    kernel = _kernel(layer, base, base.call, base.asked, repeated=True)
    for complaint in agree(kernel, pytorch, truth, base.dtype).complaints:
        text = f"{complaint.text}, when the incoming gradient is an expanded view"
        yield Complaint(complaint.what, text, complaint.figure, complaint.limit)


def not_a_number(layer: Layer, base: Base) -> Iterator[Complaint]:
    """What is not a number stays so: a kernel that makes a number of it hides that a model has gone wrong."""

    def poisoned(path: str, leaf: Any) -> Any:
        if path not in base.axes.main:
            return leaf
        leaf = leaf.clone()
        leaf[(0,) * (leaf.dim() - 1)] = float("nan")
        return leaf

    call = base.call.replaced(poisoned)
    try:
        own = _pytorch(layer, base, call, frozenset())
    except Exception:  # PyTorch itself refuses such input, so nothing is asked of the kernel
        return
    its = _kernel(layer, base, call, frozenset())
    for name, value in its.tensors().items():
        # The row that was spoilt: what a layer makes of its neighbours depends on the order of its sums.
        row = (0,) * (value.dim() - 1)
        if value.is_floating_point() and bool(own.tensors()[name][row].isnan().all()):
            hidden = int((~value[row].isnan()).sum())
            if hidden:
                text = f"{name} of a row of NaN has {hidden} elements that are numbers; PyTorch's are all NaN"
                yield Complaint("not a number", text, float(hidden), 0.0)


def chance(layer: Layer, base: Base) -> Iterator[Complaint]:
    """The random numbers drawn after a call are those that would have been drawn without it, where PyTorch's are."""
    with torch.random.fork_rng(devices=()):
        # A state of our own: a kernel that seeds has left its own behind by now, and would change nothing any more.
        torch.manual_seed(SEED)
        before = torch.get_rng_state()
        _pytorch(layer, base, base.call, frozenset())
        if not torch.equal(before, torch.get_rng_state()):
            return
        _kernel(layer, base, base.call, frozenset())
        if not torch.equal(before, torch.get_rng_state()):
            text = "changes the state of torch's random generator, which PyTorch leaves alone"
            yield Complaint("chance", text, 1.0, 0.0)


RELATIONS: tuple[Relation, ...] = (
    without_gradients,
    repeats,
    keeps_results,
    subsets,
    spellings,
    neighbours,
    accumulates,
    fresh_numbers,
    repeated_gradient,
    not_a_number,
    chance,
)
"""All relations, each asked of the call as captured."""
