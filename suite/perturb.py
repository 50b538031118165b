"""Makes of one captured call the inputs on which kernels are known to go wrong.

Nothing here knows a layer: a recipe looks only at dtypes, shapes, strides and at which dimensions are axes. What a
recipe makes may be no sensible input for some layer; then PyTorch's own forward raises, or is far from float64, and
whoever runs the recipe skips it. Each recipe names a fault that a plain comparison has missed.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from suite.capture import SMALL, WIDE, Call, Captured

__all__ = ["EPSILON", "Axes", "Recipe", "axes_of", "by_keyword", "by_position", "recipes", "spoilt"]

EPSILON = re.compile(r"(^|_)eps(ilon)?(_|$)")
"""Names of attributes and arguments that hold the small number in a denominator."""
LARGE_EPSILON = 0.01
"""Far above every default, so that one written into a kernel shows; rows of size 1e-4 then vanish in it."""
TINY, HUGE = 1e-4, 300.0
"""Row sizes: below the root of any usual epsilon; and above 256, whose square no half precision number can hold."""
MANY = 1024
"""Rows of which the mean error is taken: it is known within some percent then."""
MANY_ELEMENTS = 2**17
"""Where rows are wide fewer will do, down to a quarter: each is a mean over its own elements already."""
FAR = 5003
"""Rows beyond a usual limit of a grid or a tile table (1024, 2048, 4096), and no multiple of anything."""
FAR_ELEMENTS = 2**20
"""Not where rows are so wide that this takes longer than everything else together."""
COUNTS = (1, 3, 127, 129)
"""Numbers of rows that no block of a kernel divides, on both sides of a usual block."""
FEW_COUNTS = (1, 3, 65)
"""The same for recurrences, which PyTorch computes step by step: one more than a usual chunk."""

BATCHES = (3, 17)
"""Sequences in a batch: an odd number, and one that is also more than a usual table of them holds. The last has to do
for recurrences."""
SHORT = 19
"""Tokens of each of these: what counts is how many sequences there are. Of a few tokens the worst error is luck."""

Pair = tuple[int, int]
"""A size at the first and at the second capture; unequal for an axis."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Which dimensions of each tensor, and which integer arguments, follow the size of the input."""

    pairs: dict[str, tuple[Pair, ...]]
    """By path, one pair for each dimension; integers have one."""
    main: tuple[str, ...]
    """The first floating-point tensor that has an axis, and those with the same axes."""

    def is_axis(self, path: str, axis: int) -> bool:
        """Whether a dimension follows the size of the input."""
        first, second = self.pairs[path][axis]
        return first != second

    def of_kind(self, path: str, kind: Pair) -> list[int]:
        """Dimensions of one kind, such as the batch."""
        return [axis for axis, pair in enumerate(self.pairs[path]) if pair == kind]

    def moves(self) -> bool:
        """Whether there is any axis at all."""
        return bool(self.main)


BATCH: Pair = (WIDE.rows, SMALL.rows)
LENGTH: Pair = (WIDE.tokens, SMALL.tokens)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One perturbed call, and in words what was done to it."""

    words: str
    call: Call
    epsilon: float | None = None
    """To be set on attributes that hold one, for this call."""
    many: bool = False
    """Whether the mean error counts: there are enough rows."""


def axes_of(captured: Captured) -> Axes:
    """Compare the two sizes at which a call was captured."""
    first = captured.call.leaves()
    second = captured.small.leaves() if captured.small else first
    pairs: dict[str, tuple[Pair, ...]] = {}
    for path, leaf in first.items():
        if isinstance(leaf, torch.Tensor):
            pairs[path] = tuple(zip(leaf.shape, second[path].shape, strict=True))
        elif isinstance(leaf, int) and not isinstance(leaf, bool):
            pairs[path] = ((leaf, second[path]),)
    tensors = {path: leaf for path, leaf in captured.call.tensors().items() if leaf.is_floating_point()}
    patterns = {path: tuple(a != b and (a, b) for a, b in pairs[path]) for path in tensors}
    moving = [path for path, pattern in patterns.items() if any(pattern)]
    main = tuple(path for path in moving if patterns[path] == patterns[moving[0]])
    return Axes(pairs, main)


def resized(call: Call, axes: Axes, batch: int, length: int) -> Call:
    """The call at another size: every axis is cut, or filled by going round its elements again."""

    def target(pair: Pair) -> int:
        if pair == BATCH:
            return batch
        return length if pair == LENGTH else batch * length

    def change(path: str, leaf: Any) -> Any:
        pairs = axes.pairs.get(path, ())
        if isinstance(leaf, torch.Tensor):
            for axis, pair in enumerate(pairs):
                if pair[0] != pair[1]:
                    index = torch.arange(target(pair), device=leaf.device) % pair[0]
                    leaf = leaf.index_select(axis, index)
            return leaf
        return target(pairs[0]) if pairs and pairs[0][0] != pairs[0][1] else leaf

    return call.replaced(change)


def sequences(call: Call, axes: Axes, batch: int) -> Call:
    """The call with so many short sequences, no two alike: each goes on a token later than the one before it.

    They begin with the captured first token: what a recurrence makes of that is one product, which may cancel by
    chance, and then its error is luck.
    """

    def change(path: str, leaf: Any) -> Any:
        if path not in axes.main:
            return leaf
        rows, tokens = (axes.of_kind(path, kind)[0] for kind in (BATCH, LENGTH))
        captured = call.tensors()[path].movedim((rows, tokens), (0, 1))
        places = torch.arange(batch).unsqueeze(1) + torch.arange(SHORT)
        places[:, 0] = 0
        chosen = captured[torch.arange(batch).unsqueeze(1) % len(captured), places]
        return chosen.movedim((0, 1), (rows, tokens)).contiguous()

    return resized(call, axes, batch, SHORT).replaced(change)


def rows_of(axes: Axes, count: int) -> tuple[int, int]:
    """Batch and length with which the main tensor has ``count`` rows: in the length where there is one."""
    lengthwise = any(pair == LENGTH or pair[0] > pair[1] for pair in axes.pairs[axes.main[0]])
    unknown = any(pair[0] != pair[1] and pair != BATCH for pair in axes.pairs[axes.main[0]])
    return (1, count) if lengthwise or unknown else (count, 1)


def _scaled(size: float, every: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    """Give rows a root mean square of ``size``; only each ``every``-th, counted over all leading dimensions."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.float()
        root = wide.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-12)
        chosen = torch.arange(prod(tensor.shape[:-1]), device=tensor.device).reshape(*tensor.shape[:-1], 1) % every == 0
        return torch.where(chosen, wide * (size / root), wide).to(tensor.dtype)

    return change


def _on(call: Call, paths: tuple[str, ...], change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    return call.replaced(lambda path, leaf: change(leaf) if path in paths else leaf)


def _slice_of_wider(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers between others: rows lie further apart, and do not begin where the memory does."""
    width = tensor.shape[-1]
    wider = torch.full((*tensor.shape[:-1], 2 * width + 1), 7.0, dtype=tensor.dtype, device=tensor.device)
    view = wider[..., 1 : width + 1]
    return view.copy_(tensor)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers with the last two dimensions swapped in memory."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() > 1 else tensor


def stretched(call: Call, axes: Axes) -> Call:
    """Tensors beside the main ones (cosines, steps, masks): each row of the batch takes them at a pace of its own.

    Those that one row serves all (a leading size of 1) get a row for each.
    """
    batch = call.tensors()[axes.main[0]].shape[0]

    def change(path: str, leaf: Any) -> Any:
        if path in axes.main or not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.dim() < 2:
            return leaf
        lengths = axes.of_kind(path, LENGTH)
        if len(lengths) != 1 or lengths[0] == 0 or leaf.shape[0] not in (1, batch):
            return leaf
        rows = leaf.expand(batch, *leaf.shape[1:]).unbind(0)
        places = torch.arange(leaf.shape[lengths[0]], device=leaf.device)
        picked = [
            row.index_select(lengths[0] - 1, (places * (number + 2) + number) % len(places))
            for number, row in enumerate(rows)
        ]
        return torch.stack(picked)

    return call.replaced(change)


def spoilt(call: Call, axes: Axes, kind: Pair, kept: int = 0) -> Call | None:
    """Everything but one element of one kind of axis made a thousand times larger; None without such an axis."""
    if not any(axes.of_kind(path, kind) for path in axes.main):
        return None

    def change(tensor_path: str, leaf: Any) -> Any:
        if tensor_path not in axes.main:
            return leaf
        (axis,) = axes.of_kind(tensor_path, kind)[:1]
        factor = torch.full((leaf.shape[axis],), 1000.0, dtype=leaf.dtype, device=leaf.device)
        factor[kept] = 1.0
        return leaf * factor.reshape(-1, *[1] * (leaf.dim() - axis - 1))

    return call.replaced(change)


def by_keyword(call: Call, known: frozenset[str]) -> Call | None:
    """Every argument by its name; None where one has none, or all are already."""
    if not call.names or not set(call.names) <= known:
        return None
    return Call((), (), {**dict(zip(call.names, call.args, strict=True)), **call.kwargs})


def by_position(call: Call, order: tuple[str, ...]) -> Call | None:
    """As many arguments by position as follow each other without a gap; None where none is added."""
    given = {**dict(zip(call.names, call.args, strict=True)), **call.kwargs}
    names = []
    for name in order:
        if name not in given:
            break
        names.append(name)
    if len(names) <= len(call.names):
        return None
    rest = {name: value for name, value in given.items() if name not in names}
    return Call(tuple(names), tuple(given[name] for name in names), rest)


def _with_epsilon(call: Call) -> Call:
    return call.replaced(lambda path, leaf: LARGE_EPSILON if isinstance(leaf, float) and EPSILON.search(path) else leaf)


def recipes(captured: Captured, axes: Axes, *, by_row: bool, sized: bool) -> Iterator[Recipe]:
    """The call as captured, and its perturbations.

    ``by_row``: the layer treats positions one by one. Then a mean over many rows means something, and so do huge rows;
    in a softmax or a recurrence they leave nothing but amplified rounding. ``sized``: the size of rows matters at all.
    """
    call = captured.call
    yield Recipe("as captured", call)
    if not axes.moves():
        return
    if by_row:
        main = call.tensors()[axes.main[0]]
        width = prod(size for axis, size in enumerate(main.shape) if not axes.is_axis(axes.main[0], axis))
        rows = min(MANY, max(MANY // 4, MANY_ELEMENTS // width))
        yield Recipe(f"{rows} rows", _fresh(resized(call, axes, 8, rows // 8), axes), many=True)
        if FAR * width <= FAR_ELEMENTS:
            yield Recipe(f"{FAR} rows", _fresh(resized(call, axes, *rows_of(axes, FAR)), axes))
    for count in COUNTS if by_row or not sized else FEW_COUNTS:
        words = f"{count} row{'s' if count > 1 else ''}"
        yield Recipe(words, resized(call, axes, *rows_of(axes, count)))
    # Without a length the counts above are batches.
    if all(axes.of_kind(axes.main[0], kind) for kind in (BATCH, LENGTH)):
        for batch in BATCHES if by_row or not sized else BATCHES[-1:]:
            yield Recipe(f"a batch of {batch}", sequences(call, axes, batch))
    if len(axes.pairs) > len(axes.main):
        moved = stretched(call, axes)
        if any(moved.leaves()[path] is not leaf for path, leaf in call.tensors().items()):
            yield Recipe("different positions in each row of the batch", moved)
    yield Recipe("views: slices of wider tensors", _on(call, _viewable(call), _slice_of_wider))
    yield Recipe("views: transposed in memory", _on(call, _viewable(call), _transposed))
    yield Recipe("every other row zero", _on(call, axes.main, _scaled(0.0, every=2)))
    if not sized:
        return
    tiny = Recipe(f"rows of size {TINY:g} and an epsilon of {LARGE_EPSILON:g}", _on(call, axes.main, _scaled(TINY)))
    yield replace(tiny, call=_with_epsilon(tiny.call), epsilon=LARGE_EPSILON)
    if by_row:
        yield Recipe(f"rows of size {HUGE:g}", _on(call, axes.main, _scaled(HUGE)))


def _viewable(call: Call) -> tuple[str, ...]:
    return tuple(path for path, leaf in call.tensors().items() if leaf.is_floating_point() and leaf.dim() > 1)


def _fresh(call: Call, axes: Axes) -> Call:
    """New numbers of the same spread in the main tensors, so that rows gone round again are no repetition."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(tensor.numel())
        noise = torch.randn(tensor.shape, generator=generator).to(tensor.device, torch.float32)
        wide = tensor.float()
        return (wide.mean() + noise * wide.std()).to(tensor.dtype)

    return _on(call, axes.main, change)
