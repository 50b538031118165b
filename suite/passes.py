"""The passes that a model is put through: inputs, forward, forward and backward, prefill and decode.

One vocabulary for both arms and for the float64 truth, so that what is compared is the same work. Tensors come back
as float64 on the CPU, rows of padded positions left out.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import transformers

from cases.inputs import INPUTS, SEED, Inputs, Steps
from cases.models import Model
from suite.arms import pytorch_forwards
from suite.numerics import InDouble, RoutingReplay

__all__ = [
    "Batch",
    "Gradients",
    "Pass",
    "Truth",
    "batch",
    "decode_step",
    "forward",
    "forward_backward",
    "routing_of_packed",
    "stepwise",
]

END_TOKEN = 2
"""End-of-text of the zoo's configurations: CLIP reads its output where this stands."""
FIRST_TOKEN = 3
"""Ids below are special."""
PREFILL = 40
"""Tokens of the prompt in the pass of one decoded token."""
ROOM = 64
"""Positions of a static cache: more than any recipe has tokens, and no multiple of their number."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids of one recipe, on the device."""

    name: str
    arguments: dict[str, torch.Tensor]
    """``input_ids`` (rows × tokens), ``attention_mask`` where there is padding, ``position_ids`` where the recipe sets
    them."""
    kept: torch.Tensor
    """rows × tokens, True where the output counts; on the CPU."""
    sequences: tuple["Batch", ...] = ()
    """The sequences packed into the one row, each as a batch of its own."""
    apart: bool = False
    """Whether ``sequences`` are given to the model one by one."""

    @property
    def reference(self) -> "Batch":
        """What PyTorch is given: packed sequences one by one, which needs no faith in anybody's mask."""
        return replace(self, apart=bool(self.sequences))

    def row(self, number: int) -> "Batch":
        """One row by itself, of a batch in which nothing is packed."""
        one = slice(number, number + 1)
        return Batch(
            f"{self.name}, row {number}",
            {name: value[one] for name, value in self.arguments.items()},
            self.kept[one],
        )

    def place(self, row: int) -> str:
        """Where row number ``row`` of the output rows stands, where there is one for each kept token."""
        batch_row, token = self.kept.nonzero()[row].tolist()
        return f"row {batch_row}, token {token}"


@dataclass(frozen=True, slots=True)
class Gradients:
    """Output and gradients of one training pass."""

    output: torch.Tensor
    loss: torch.Tensor
    """What the gradients are of: one number, in float64 on the CPU."""
    by_name: dict[str, torch.Tensor]
    missing: tuple[str, ...]
    """Parameters without a gradient."""


Pass = torch.Tensor | Gradients
"""What one pass gives: output rows in inference, in training the gradients with them."""


def batch(recipe: Inputs, device: torch.device, vocabulary: int) -> Batch:
    """Draw the token ids of a recipe, the same on every machine."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(FIRST_TOKEN, vocabulary, (recipe.rows, recipe.tokens), generator=generator)
    kept = torch.ones_like(ids, dtype=torch.bool)
    for row in range(recipe.rows):
        right = recipe.padding_right[row] if recipe.padding_right else 0
        kept[row, : recipe.padding[row]] = False
        kept[row, recipe.tokens - right :] = False
        ids[row, recipe.tokens - right - 1] = END_TOKEN
    ids[~kept] = 0
    arguments = {"input_ids": ids.to(device)}
    if not bool(kept.all()):
        arguments["attention_mask"] = kept.long().to(device)
    sequences: tuple[Batch, ...] = ()
    if recipe.position_steps:
        steps = torch.tensor(recipe.position_steps).unsqueeze(1)
        arguments["position_ids"] = (torch.arange(recipe.tokens) * steps).to(device)
        # Without a mask Transformers takes a step in the positions for the begin of another packed sequence.
        arguments["attention_mask"] = kept.long().to(device)
    if recipe.lengths:
        arguments["position_ids"] = torch.cat([torch.arange(length) for length in recipe.lengths])[None].to(device)
        sequences = tuple(
            Batch(f"{recipe.name}, sequence {number}", {"input_ids": part.to(device)}, torch.ones_like(part).bool())
            for number, part in enumerate(ids.split(list(recipe.lengths), dim=1))
        )
    return Batch(recipe.name, arguments, kept, sequences)


def _output(record: Model, result: Any) -> torch.Tensor:
    for name in ("logits", "text_embeds", "last_hidden_state"):
        value = getattr(result, name, None)
        if isinstance(value, torch.Tensor):
            return value
    raise TypeError(f"{record.name}: the output {type(result).__name__} has no logits, text_embeds or hidden state")


def run(model: Any, record: Model, given: Batch) -> torch.Tensor:
    """Output of one forward pass as the model gives it."""
    if given.apart:
        return torch.cat([run(model, record, sequence) for sequence in given.sequences], dim=1)
    options = {"use_cache": False} if record.generates else {}
    return _output(record, model(**given.arguments, **options))


def _rows(output: torch.Tensor, given: Batch) -> torch.Tensor:
    kept = output.detach().double().cpu()
    return kept[given.kept] if kept.dim() == 3 else kept


def forward(model: Any, record: Model, given: Batch) -> torch.Tensor:
    """Rows × width in float64 of one forward pass without gradients."""
    with torch.no_grad():
        return _rows(run(model, record, given), given)


def forward_backward(model: Any, record: Model, given: Batch) -> Gradients:
    """One training pass: the gradients of a fixed random projection of the output, which reaches every logit."""
    model.zero_grad(set_to_none=True)
    output = run(model, record, given)
    kept = output[given.kept.to(output.device)] if output.dim() == 3 else output
    generator = torch.Generator().manual_seed(SEED + 1)
    direction = torch.randn(kept.shape, generator=generator, dtype=torch.float64)
    exact = torch.float64 if kept.dtype is torch.float64 else torch.float32
    loss = (kept.to(exact) * direction.to(kept.device, exact)).sum().div(direction.numel() ** 0.5)
    loss.backward()
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    gradients = {name: p.grad.detach().double().cpu() for name, p in named if p.grad is not None}
    missing = tuple(name for name, parameter in named if parameter.grad is None)
    model.zero_grad(set_to_none=True)
    return Gradients(_rows(output, given), loss.detach().double().cpu(), gradients, missing)


def _cached(
    model: Any, record: Model, arguments: dict[str, torch.Tensor], cache: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, Any]]:
    result = model(**arguments, use_cache=True, **cache)
    for name in ("past_key_values", "cache_params"):
        if getattr(result, name, None) is not None:
            cache = {name: getattr(result, name)}
    return _output(record, result), cache


def stepwise(model: Any, record: Model, given: Batch, steps: Steps) -> torch.Tensor:
    """A batch in the pieces of ``steps``, with a cache; rows × width in float64 of all of them, as of one pass.

    Padded rows get the positions that ``generate`` gives them: counted from the first token that is none of padding.
    """
    ids, mask = given.arguments["input_ids"], given.arguments.get("attention_mask")
    cache: dict[str, Any] = {}
    if steps.static:
        cache["past_key_values"] = transformers.StaticCache(config=model.config, max_cache_len=ROOM)
    outputs, begin = [], 0
    with torch.no_grad():
        for length in steps.chunks:
            end = begin + length
            arguments = {"input_ids": ids[:, begin:end]}
            if mask is not None and (record.mask_with_cache or begin == 0):
                arguments["attention_mask"] = mask[:, :end]
                if record.positions:
                    arguments["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)[:, begin:end]
            output, cache = _cached(model, record, arguments, cache)
            outputs.append(output)
            begin = end
    return torch.cat(outputs, dim=1).double().cpu()[given.kept[:, :begin]]


def decode_step(model: Any, record: Model, given: Batch) -> None:
    """A prefill and one decoded token: the least that calls every kernel of generation."""
    ids = given.arguments["input_ids"]
    with torch.no_grad():
        _, cache = _cached(model, record, {"input_ids": ids[:, :PREFILL]}, {})
        _cached(model, record, {"input_ids": ids[:, PREFILL : PREFILL + 1]}, cache)


def routing_of_packed(routing: list[torch.Tensor], sequences: int) -> list[torch.Tensor]:
    """The routing of one pass over packed sequences, from that of one pass over each."""
    layers = len(routing) // sequences
    return [torch.cat(routing[layer::layers]) for layer in range(layers)]


class Truth:
    """The same model with the same weights in float64, PyTorch only, eager attention, on the CPU.

    Answers are computed when first asked for and kept. ``routing`` are the experts it chose, pass by pass.
    """

    def __init__(self, model: Any, record: Model) -> None:
        self._model = model.double().cpu()
        self._record = record
        self._kept: dict[tuple[str, str], tuple[Any, list[torch.Tensor]]] = {}
        cpu, vocabulary = torch.device("cpu"), int(model.config.vocab_size)
        self._batches = {name: batch(recipe, cpu, vocabulary) for name, recipe in INPUTS.items()}

    def _ask(self, kind: str, recipe: str, call: Callable[..., Any]) -> tuple[Any, list[torch.Tensor]]:
        if (kind, recipe) not in self._kept:
            recorded: list[torch.Tensor] = []
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            try:
                with ExitStack() as stack:
                    stack.enter_context(pytorch_forwards(self._model))
                    stack.enter_context(RoutingReplay(recorded, recording=True))
                    stack.enter_context(InDouble())
                    answer = call(self._model, self._record, self._batches[recipe].reference)
            finally:
                torch.set_default_dtype(before)
            self._kept[kind, recipe] = answer, recorded
        return self._kept[kind, recipe]

    def forward(self, recipe: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Output rows, and the routing to replay."""
        return self._ask("forward", recipe, forward)

    def gradients(self, recipe: str) -> tuple[Gradients, list[torch.Tensor]]:
        """Output and gradients, and the routing to replay."""
        return self._ask("gradients", recipe, forward_backward)

    def stepwise(self, steps: Steps) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Output rows of all pieces, and the routing to replay."""
        return self._ask(steps.name, steps.inputs, partial(stepwise, steps=steps))
