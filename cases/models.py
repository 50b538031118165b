"""The model zoo: one record per model, each the smallest configuration that really runs the code it is here for.

No weights are downloaded. ``suite`` builds a model from its record, draws weights that are not neutral, saves it, and
loads it back through ``from_pretrained``, so that the loading code is the real one. The tiny records share four rules:
hidden size 64 and two layers, so that forward and backward over 2 x 48 tokens take some 5 to 20 ms on one CPU core;
fewer key-value heads than heads wherever the architecture has them, since kernels go wrong there; head sizes that are
multiples of 8, since real flash kernels take no others; and no dropout, so that a training pass can be compared.

What a record lists as called was found by running the model, not by reading it, and ``tests/cases/test_models.py``
runs it again: carrying a registered name and calling it are two things (Jamba carries ``rotary_pos_emb`` and has no
positions; Mamba carries ``SiLU`` and convolves with its own). When Transformers moves a name, that test says which
record to change.

A new model is one record here and no code. Run that test, and it tells the names to list.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["MODELS", "Model"]

FLASH = ("eager", "sdpa", "bundled")
"""The three ways to compute attention that most classes offer; ``bundled`` stands for a flash-style Hub kernel."""

NO_SDPA = ("eager", "bundled")
"""Soft-capped scores and attention sinks: the class refuses SDPA, which can do neither."""

NO_ATTENTION = ("none",)
"""There is no attention to choose."""


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

_RECORDS = (
    Model(
        name="llama-tiny",
        architecture="AutoModelForCausalLM",
        model_type="llama",
        overrides=DECODER,
        registers=LLAMA_LIKE,
        attentions=FLASH,
        reason="The plainest decoder: what fails here fails nearly everywhere.",
    ),
    Model(
        name="qwen3-tiny",
        architecture="AutoModelForCausalLM",
        model_type="qwen3",
        overrides=DECODER,
        registers=LLAMA_LIKE,
        attentions=FLASH,
        reason="Query and key are normalised too: RMSNorm over the head size, on a four-dimensional view that is not "
        "the hidden state.",
    ),
    Model(
        name="gemma2-tiny",
        architecture="AutoModelForCausalLM",
        model_type="gemma2",
        # Neither 1/sqrt(head_dim) nor a soft-cap too high to bend scores of this size may hide a dropped argument.
        overrides={
            **DECODER,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 1.0,
            "sliding_window": SLIDING_WINDOW,
        },
        registers=("GeluTanh", "rotary_pos_emb"),
        attentions=NO_SDPA,
        reason="Soft-capped scores, a softmax scale of its own, windows in every other layer, GeGLU. Its norm, whose "
        "weight is an offset from 1, is registered under no name: an RMSNorm mapping must leave it alone.",
    ),
    Model(
        name="mistral-tiny",
        architecture="AutoModelForCausalLM",
        model_type="mistral",
        overrides={**DECODER, "sliding_window": SLIDING_WINDOW},
        registers=LLAMA_LIKE,
        attentions=FLASH,
        reason="A sliding window that is shorter than the sequence: an attention kernel one token off shows nowhere "
        "else.",
    ),
    Model(
        name="gpt-oss-tiny",
        architecture="AutoModelForCausalLM",
        model_type="gpt_oss",
        overrides={**DECODER, "sliding_window": SLIDING_WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2},
        registers=("MegaBlocksMoeMLP", "RMSNorm", "rotary_pos_emb"),
        attentions=NO_SDPA,
        routes=True,
        reason="Attention sinks, and a mixture of experts that is one registered layer and returns two values. Its "
        "rotary function takes half of the frequencies; its RMSNorm multiplies before it rounds, and keeps its "
        "weight in float32 when the model is loaded in float16.",
    ),
    Model(
        name="qwen3-moe-tiny",
        architecture="AutoModelForCausalLM",
        model_type="qwen3_moe",
        overrides={**DECODER, **EXPERTS, "decoder_sparse_step": 1, "norm_topk_prob": True},
        registers=LLAMA_LIKE,
        attentions=FLASH,
        routes=True,
        reason="A mixture of experts of which no part but the activation is registered; the activation sees rows in "
        "the order of the experts.",
    ),
    Model(
        name="phi-tiny",
        architecture="AutoModelForCausalLM",
        model_type="phi",
        overrides={
            **{key: value for key, value in DECODER.items() if key != "head_dim"},
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "partial_rotary_factor": 0.5,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
        },
        registers=("NewGELU", "rotary_pos_emb"),
        attentions=FLASH,
        reason="Rotates half of each head, so that the rotary function gets a strided slice; and one key-value head "
        "for all.",
    ),
    Model(
        name="gpt2-tiny",
        architecture="AutoModelForCausalLM",
        model_type="gpt2",
        overrides={
            **SPECIAL_TOKENS,
            "vocab_size": 256,
            "n_embd": 64,
            "n_inner": 128,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 256,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
        registers=("NewGELU",),
        # The class claims flash attention, but in float32 Transformers looks for a Linear layer to read the dtype of,
        # finds Conv1D only, and dies of StopIteration (get_target_dtype in integrations/flash_attention.py, 5.22.2).
        attentions=("eager", "sdpa"),
        reason="Learned positions, LayerNorm and Conv1D weights: an architecture that shares one kernel with no "
        "Llama, and proves that a mapping for others does no harm.",
    ),
    Model(
        name="gpt-neox-tiny",
        architecture="AutoModelForCausalLM",
        model_type="gpt_neox",
        overrides={
            **{key: value for key, value in DECODER.items() if key not in ("num_key_value_heads", "head_dim")},
            "hidden_act": "gelu_fast",
        },
        registers=("FastGELU",),
        attentions=FLASH,
        reason="The one way to reach FastGELU, which no architecture has by default. Has a rotary function of its own "
        "that is not registered.",
    ),
    Model(
        name="bert-tiny",
        architecture="AutoModelForMaskedLM",
        model_type="bert",
        overrides={**ENCODER, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        registers=("GeLU",),
        attentions=FLASH,
        generates=False,
        causal=False,
        packs=False,
        reason="An encoder: attention in both directions, no cache.",
    ),
    Model(
        name="modernbert-tiny",
        architecture="AutoModelForMaskedLM",
        model_type="modernbert",
        overrides={
            **ENCODER,
            **SPECIAL_TOKENS,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "global_attn_every_n_layers": 2,
            "local_attention": 2 * SLIDING_WINDOW,
        },
        registers=("GeLU", "rotary_pos_emb"),
        attentions=FLASH,
        generates=False,
        causal=False,
        packs=False,
        reason="A window that reaches to both sides, and another rotation frequency in each kind of layer.",
    ),
    Model(
        name="clip-text-tiny",
        architecture="CLIPTextModelWithProjection",
        model_type="clip_text_model",
        overrides={**ENCODER, **SPECIAL_TOKENS, "projection_dim": 32},
        registers=("QuickGELU",),
        attentions=FLASH,
        generates=False,
        packs=False,
        reason="QuickGELU; causal without being a language model: the output is one vector per text (text_embeds), "
        "taken at the first end token.",
    ),
    Model(
        name="mamba-tiny",
        architecture="AutoModelForCausalLM",
        model_type="mamba",
        overrides={**SPECIAL_TOKENS, "vocab_size": 256, "hidden_size": 64, "state_size": 8, "num_hidden_layers": 2},
        registers=("causal_conv1d_fn", "selective_scan_fn"),
        training=("causal_conv1d_fn", "mamba_inner_fn", "selective_scan_fn"),
        decode=("causal_conv1d_update", "selective_state_update"),
        idle=("SiLU",),
        attentions=NO_ATTENTION,
        # A call of several tokens starts its state anew in 5.22.2 (MambaMixer.slow_forward).
        chunks=False,
        mask_with_cache=False,
        positions=False,
        packs=False,
        reason="Functions instead of layers, and other ones for prompt, token and training. In training "
        "mamba_inner_fn is asked first and the others run only because PyTorch's answers None.",
    ),
    Model(
        name="mamba2-tiny",
        architecture="AutoModelForCausalLM",
        model_type="mamba2",
        overrides={
            **SPECIAL_TOKENS,
            "vocab_size": 256,
            "hidden_size": 64,
            "state_size": 16,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": 2,
            "chunk_size": 16,
            "num_hidden_layers": 2,
        },
        registers=("causal_conv1d_fn", "mamba_chunk_scan_combined"),
        training=("causal_conv1d_fn", "mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined"),
        decode=("causal_conv1d_update", "selective_state_update"),
        idle=("SiLU",),
        attentions=NO_ATTENTION,
        positions=False,
        packs=False,
        reason="The chunked scan, with a chunk shorter than the sequence and fewer groups than heads.",
    ),
    Model(
        name="jamba-tiny",
        architecture="AutoModelForCausalLM",
        model_type="jamba",
        overrides={
            **{key: value for key, value in DECODER.items() if key != "head_dim"},
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "mamba_d_state": 8,
        },
        registers=("RMSNorm", "SiLU", "causal_conv1d_fn", "selective_scan_fn"),
        decode=("RMSNorm", "SiLU", "causal_conv1d_update", "selective_state_update"),
        idle=("mamba_inner_fn", "rotary_pos_emb"),
        attentions=FLASH,
        routes=True,
        # As Mamba's: several tokens start the state anew in 5.22.2.
        chunks=False,
        positions=False,
        packs=False,
        reason="A hybrid: state-space and attention layers with one cache, and RMSNorm on the scan's inputs (of sizes "
        "4 and 8). Carries rotary_pos_emb without ever rotating.",
    ),
    Model(
        name="qwen3-next-tiny",
        architecture="AutoModelForCausalLM",
        model_type="qwen3_next",
        overrides={**DECODER, **EXPERTS, **GATED_DELTA, "shared_expert_intermediate_size": 32},
        registers=("RMSNormGated", "SiLU", "causal_conv1d_fn", "chunk_gated_delta_rule"),
        decode=("RMSNormGated", "SiLU", "causal_conv1d_update", "fused_recurrent_gated_delta_rule"),
        attentions=FLASH,
        routes=True,
        packs=False,
        reason="The gated delta rule in chunks and step by step. Neither its zero-centred norm nor its rotary function "
        "is registered, although Qwen3.5's norm is.",
    ),
    Model(
        name="qwen3.5-moe-tiny",
        architecture="AutoModelForCausalLM",
        model_type="qwen3_5_moe_text",
        overrides={**DECODER, **EXPERTS, **GATED_DELTA, "shared_expert_intermediate_size": 32},
        registers=(
            "Qwen3_5GatedDeltaNet",
            "RMSNormGated",
            "RMSNormZeroCentered",
            "SiLU",
            "SoftmaxTopKRouter",
            "causal_conv1d_fn",
            "chunk_gated_delta_rule",
        ),
        decode=(
            "Qwen3_5GatedDeltaNet",
            "RMSNormGated",
            "RMSNormZeroCentered",
            "SiLU",
            "SoftmaxTopKRouter",
            "causal_conv1d_update",
            "fused_recurrent_gated_delta_rule",
        ),
        attentions=FLASH,
        routes=True,
        packs=False,
        reason="Nests registered names: a kernel for Qwen3_5GatedDeltaNet hides the four names inside it, which then "
        "are bound and never called. The zero-centred norm and the router are registered and have no default kernel.",
    ),
    Model(
        name="kimi-linear-tiny",
        architecture="AutoModelForCausalLM",
        model_type="kimi_linear",
        overrides={
            **{key: value for key, value in DECODER.items() if key != "head_dim"},
            "num_key_value_heads": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
            "layer_types": ["linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse"],
        },
        registers=("RMSNorm", "RMSNormGated", "SiLU", "causal_conv1d_fn", "chunk_kda"),
        decode=("RMSNorm", "RMSNormGated", "SiLU", "causal_conv1d_update", "fused_recurrent_kda"),
        attentions=FLASH,
        routes=True,
        positions=False,
        packs=False,
        reason="Kimi delta attention, a gated norm that gates with a sigmoid, and latent attention whose values are "
        "narrower than its keys. Needs a full attention layer: without one its cache has no length.",
    ),
    Model(
        name="qwen3-0.6b-width",
        architecture="AutoModelForCausalLM",
        model_type="qwen3",
        overrides={
            **DECODER,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
            "max_position_embeddings": 4096,
        },
        registers=LLAMA_LIKE,
        attentions=FLASH,
        timing=True,
        reason="The widths of Qwen3-0.6B with two layers: shapes decide speedups, weights do not.",
    ),
    Model(
        name="llama-3.2-1b-width",
        architecture="AutoModelForCausalLM",
        model_type="llama",
        overrides={
            **DECODER,
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "intermediate_size": 8192,
            "max_position_embeddings": 4096,
            # One layer has every shape of the sixteen, and a CPU takes a quarter of a second for it.
            "num_hidden_layers": 1,
        },
        registers=LLAMA_LIKE,
        attentions=FLASH,
        timing=True,
        reason="The widths of Llama-3.2-1B with one layer.",
    ),
)

MODELS: dict[str, Model] = {model.name: model for model in _RECORDS}
"""Every record by its name."""
