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

from cases.model import DECODER, ENCODER, EXPERTS, FLASH, LLAMA_LIKE, NO_SDPA, SLIDING_WINDOW, SPECIAL_TOKENS, Model
from cases.models_recurrent import RECURRENT

__all__ = ["MODELS", "Model"]

ATTENTION = (
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
)
"""Models whose tokens look at one another by attention alone."""

WIDTHS = (
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
"""Real widths with few layers: shapes decide speedups, weights do not."""

MODELS: dict[str, Model] = {model.name: model for model in (*ATTENTION, *RECURRENT, *WIDTHS)}
"""Every record by its name."""
