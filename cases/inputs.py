"""Input recipes: which tokens a model sees, and in how many pieces. Shapes only: ``suite`` draws tensors from the seed.

Wiring faults are invisible to a layer, so each recipe here brings out what one usage of a model depends on: padding
on either side, sequences packed into one, positions that differ by row, a prompt in chunks, tokens one by one. A
recipe says what a model must be able to do for it (``needs``) and which kernels it can tell anything of (``tells``), so
that it costs nothing where it has no meaning. A new recipe is one record here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cases.models import Model

__all__ = ["ATTENTION", "INPUTS", "SEED", "STEPS", "Inputs", "Steps", "applies"]

SEED = 20_261_130
"""Every draw of a run starts here, so that two machines see the same tokens and weights."""

ATTENTION = "attention"
"""Stands in ``tells`` for an attention kernel, which has no registered name."""

POSITIONS = (ATTENTION, "rotary_pos_emb")
"""What depends on where a token stands in its own row."""

WITH_STATE = (
    *POSITIONS,
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "mamba_chunk_scan_combined",
    "selective_scan_fn",
    "selective_state_update",
    "chunk_gated_delta_rule",
    "chunk_kda",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_kda",
    "Qwen3_5GatedDeltaNet",
)
"""What goes on from an earlier call: attention over a cache, convolutions and recurrences with a state."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A batch of token ids, ``rows`` × ``tokens``, of which row i starts with ``padding[i]`` padded positions."""

    name: str
    rows: int
    tokens: int
    padding: tuple[int, ...]
    reason: str
    padding_right: tuple[int, ...] = ()
    """Padded positions at the end of each row; empty: none."""
    position_steps: tuple[int, ...] = ()
    """Distance between neighbouring positions in each row; empty: positions are the model's own."""
    lengths: tuple[int, ...] = ()
    """Lengths of the sequences packed into the one row; empty: nothing is packed."""
    needs: tuple[str, ...] = ()
    """Properties of ``Model`` without which the recipe has no meaning."""
    tells: tuple[str, ...] = field(default=())
    """Registered names, and ``attention``, of whose kernels it can tell anything; empty: of every one's."""
    without: tuple[str, ...] = ()
    """Names whose kernels are not used in this way, so that the recipe is left out where one is tested."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A batch that is given piece by piece, with a cache; the logits must be those of the whole."""

    name: str
    inputs: str
    """Name of the batch in ``INPUTS``."""
    chunks: tuple[int, ...]
    """Tokens of each call."""
    reason: str
    static: bool = False
    """Whether the cache has all its room from the beginning (``StaticCache``); else it grows, and slides where the
    model has a window."""
    needs: tuple[str, ...] = ("generates",)
    """As in ``Inputs``."""
    tells: tuple[str, ...] = ()
    """As in ``Inputs``."""
    without: tuple[str, ...] = ()
    """As in ``Inputs``."""


INPUTS: dict[str, Inputs] = {
    record.name: record
    for record in (
        Inputs(
            "dense", 2, 48, (0, 0), "no mask, so flash kernels take their dense function; longer than the zoo's windows"
        ),
        Inputs(
            "left-padded",
            2,
            48,
            (0, 7),
            "as for generation: flash kernels take their varlen function, rows begin at different places",
        ),
        Inputs(
            "right-padded",
            2,
            48,
            (0, 0),
            "as for training: the padding follows what counts, so that only a mask that is too wide or a length that "
            "is ignored can reach back",
            padding_right=(11, 0),
            tells=(*WITH_STATE, "SoftmaxTopKRouter", "MegaBlocksMoeMLP"),
        ),
        Inputs(
            "stretched",
            2,
            48,
            (0, 0),
            "rotation sees differences of positions only, so a kernel that takes the first row's positions for all is "
            "right until the distances differ by row",
            position_steps=(1, 3),
            needs=("positions",),
            tells=POSITIONS,
        ),
        Inputs(
            "packed",
            1,
            48,
            (0,),
            "several sequences in one row, told apart by positions that start again: none may see another. PyTorch is "
            "given them one by one",
            lengths=(17, 5, 26),
            needs=("packs",),
            tells=(ATTENTION,),
        ),
    )
}

STEPS: dict[str, Steps] = {
    record.name: record
    for record in (
        Steps("decode", "dense", (40, *8 * (1,)), "a prompt, then token by token: queries are fewer than keys"),
        Steps(
            "chunked",
            "dense",
            (19, 13, 16),
            "a prompt in chunks: several queries over more keys show a causal mask that is aligned at the wrong end",
            needs=("generates", "chunks"),
            tells=WITH_STATE,
        ),
        Steps(
            "padded-decode",
            "left-padded",
            (44, *4 * (1,)),
            "generation for a batch: a mask and positions that differ by row, and one query a row",
            tells=WITH_STATE,
        ),
        Steps(
            "static",
            "dense",
            (44, *4 * (1,)),
            "a cache with room to spare, whose unused end nothing may read",
            static=True,
            needs=("generates", "positions"),
            tells=POSITIONS,
            # Transformers 5.22.2 gives a flash kernel the whole of a static cache with the keys nobody wrote yet, and
            # no length: wrong with any kernel.
            without=(ATTENTION,),
        ),
    )
}


def applies(recipe: Inputs | Steps, model: Model, tested: Iterable[str]) -> bool:
    """Whether a recipe has a meaning for ``model`` and can tell anything of the kernels ``tested``, by their names.

    Real widths are there to be timed, and get only what every case gets: the tiny models show the rest in a hundredth
    of the time.
    """
    if not all(getattr(model, need) for need in recipe.needs) or (model.timing and recipe.tells):
        return False
    names = set(tested)
    return names.isdisjoint(recipe.without) and (not recipe.tells or not names.isdisjoint(recipe.tells))
