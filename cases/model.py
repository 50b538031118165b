"""What a record of the model zoo is, and the settings that several of them share. The records are in ``models``."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "DECODER",
    "ENCODER",
    "EXPERTS",
    "FLASH",
    "GATED_DELTA",
    "LLAMA_LIKE",
    "NO_ATTENTION",
    "NO_SDPA",
    "SLIDING_WINDOW",
    "SPECIAL_TOKENS",
    "Model",
]


@dataclass(frozen=True, slots=True)
class Model:
    """How to build one model, and what is known to happen in it."""

    name: str
    """First coordinate of a case id."""
    architecture: str
    """Class of Transformers to load it with."""
    model_type: str
    """What ``AutoConfig.for_model`` is asked for."""
    overrides: Mapping[str, object]
    """Configuration values that differ from the architecture's own defaults."""
    registers: tuple[str, ...]
    """Registered kernel names that one forward pass over a prompt calls in inference, sorted."""
    attentions: tuple[str, ...]
    """Ways to compute attention that the class accepts: ``eager``, ``sdpa``, ``bundled``; or ``none`` alone."""
    reason: str
    """Why it is in the zoo: what would go untested without it."""
    training: tuple[str, ...] | None = None
    """Names called by a forward pass in training, where they differ from ``registers``."""
    decode: tuple[str, ...] | None = None
    """Names called by one token with a filled cache, where they differ from ``registers``."""
    idle: tuple[str, ...] = ()
    """Names that the model carries and that no phase calls: a kernel bound there is never seen at work."""
    generates: bool = True
    """Whether ``generate`` works."""
    causal: bool = True
    """Whether a token sees earlier tokens only."""
    positions: bool = True
    """Whether ``position_ids`` are taken and mean something."""
    packs: bool = True
    """Whether a flash attention keeps packed sequences apart, told so by ``position_ids`` alone."""
    chunks: bool = True
    """Whether a call of several tokens goes on from a filled cache."""
    mask_with_cache: bool = True
    """Whether the mask of padding is given once the cache is filled; ``generate`` leaves it out where it is not."""
    routes: bool = False
    """Whether tokens are sent to experts by their top scores. A near tie falls either way in any precision, PyTorch's
    own too, and a row for which it fell otherwise than in float64 says nothing about a kernel."""
    timing: bool = False
    """Whether it has the widths of a real model, so that its speed means something."""

    @property
    def called_in_training(self) -> tuple[str, ...]:
        """Names called by a forward pass in training."""
        return self.registers if self.training is None else self.training

    @property
    def called_in_decode(self) -> tuple[str, ...]:
        """Names called by one token with a filled cache; empty where the model does not generate."""
        if not self.generates:
            return ()
        return self.registers if self.decode is None else self.decode

    @property
    def carries(self) -> tuple[str, ...]:
        """Every registered name that some module of the model has, called or not; sorted."""
        return tuple(sorted({*self.registers, *self.called_in_training, *self.called_in_decode, *self.idle}))


FLASH = ("eager", "sdpa", "bundled")
"""The three ways to compute attention that most classes offer; ``bundled`` stands for a flash-style Hub kernel."""

NO_SDPA = ("eager", "bundled")
"""Soft-capped scores and attention sinks: the class refuses SDPA, which can do neither."""

NO_ATTENTION = ("none",)
"""There is no attention to choose."""

# The ids must lie within the small vocabulary; the defaults (32000 and the like) would index past the embedding.
SPECIAL_TOKENS: Mapping[str, object] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

DECODER: Mapping[str, object] = {
    **SPECIAL_TOKENS,
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
"""Shared by the Llama-like records."""

ENCODER: Mapping[str, object] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
"""Shared by the encoders, which have neither key-value heads nor a head size of their own."""

EXPERTS: Mapping[str, object] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
"""Few experts, and two of four at a time, so that routing is a choice and every expert still gets tokens."""

GATED_DELTA: Mapping[str, object] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
"""One linear and one full attention layer, with fewer key heads than value heads in the linear one."""

SLIDING_WINDOW = 16
"""Shorter than the 48 tokens of a case, so that the window cuts something off."""

LLAMA_LIKE = ("RMSNorm", "SiLU", "rotary_pos_emb")
