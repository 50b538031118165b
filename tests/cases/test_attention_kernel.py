"""The bundled attention against the definition of attention, written out pair by pair, and in Transformers' hands."""

import itertools
from typing import Any

import kernels
import pytest
import torch
from transformers.modeling_flash_attention_utils import _hf_api_to_flash_mapping, _process_flash_attention_kwargs

from cases.kernels import ROOT

ATTENTION: Any = kernels.get_local_kernel(ROOT / "attention" / "v1", backend="cpu")


def by_definition(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float | None,
    causal: bool,
    window: tuple[int, int],
    softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention over ``[batch, length, heads, head]``, every rule of flash-attn 2 stated once and plainly."""
    queries, heads, size = query.shape[1:]
    keys, groups = key.shape[1:3]
    key, value = (part.repeat_interleave(heads // groups, dim=2) for part in (key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * (size**-0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    seen = torch.zeros(queries, keys, dtype=torch.bool)
    for row, column in itertools.product(range(queries), range(keys)):
        distance = column - (row + keys - queries)
        seen[row, column] = (
            not (causal and distance > 0)
            and not (window[0] >= 0 and -distance > window[0])
            and not (window[1] >= 0 and distance > window[1])
        )
    # Far below any score, and finite, so that a row without keys is not a number divided by zero.
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    if sinks is not None:
        scores = torch.cat((scores, sinks.view(1, heads, 1, 1).expand(*scores.shape[:3], 1)), dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :keys] * seen
    return torch.einsum("bhqk,bkhd->bqhd", weights, value)


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("window", [(-1, -1), (2, 2), (2, 0), (-1, 1)], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (1, 7), (3, 7), (7, 3), (1, 1)])
def test_results_and_gradients_are_those_of_the_definition(queries: int, keys: int, window: tuple[int, int]) -> None:
    """Masks aligned top-left (S17), windows a token too wide (S16), scale, cap or sinks dropped (S18, S19), gradients
    wrong when heads share keys (S11).
    """
    for causal, softcap, with_sinks, scale, groups in itertools.product(
        (False, True), (0.0, 1.5), (False, True), (None, 0.7), (1, 2, 4)
    ):
        inputs = [draw(2, queries, 4, 8), draw(2, keys, groups, 8, seed=1), draw(2, keys, groups, 8, seed=2)]
        sinks = draw(4, seed=3) if with_sinks else None
        results = []
        for which in ("kernel", "definition"):
            leaves = [part.clone().requires_grad_() for part in (*inputs, *([sinks] if sinks is not None else []))]
            own_sinks = leaves[3] if with_sinks else None
            if which == "kernel":
                output = ATTENTION.flash_attn_func(
                    *leaves[:3],
                    softmax_scale=scale,
                    causal=causal,
                    window_size=window,
                    softcap=softcap,
                    s_aux=own_sinks,
                )
            else:
                output = by_definition(leaves[0], leaves[1], leaves[2], scale, causal, window, softcap, own_sinks)
            output.backward(draw(*output.shape, seed=4))
            results.append([output.detach(), *(leaf.grad for leaf in leaves)])
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_laid_end_to_end_do_not_see_each_other(causal: bool) -> None:
    """Cumulative lengths ignored, so that padding and packed neighbours leak in (S15)."""
    lengths = [(3, 3), (0, 2), (5, 7), (1, 4)]
    queries, keys = ([pair[place] for pair in lengths] for place in (0, 1))
    query, key, value = draw(sum(queries), 4, 8), draw(sum(keys), 2, 8, seed=1), draw(sum(keys), 2, 8, seed=2)
    bounds = [torch.tensor([0, *itertools.accumulate(each)], dtype=torch.int32) for each in (queries, keys)]
    found = ATTENTION.flash_attn_varlen_func(query, key, value, *bounds, 5, 7, causal=causal, window_size=(2, 2))
    parts = zip(query.split(queries), key.split(keys), value.split(keys), strict=True)
    expected = [
        by_definition(q[None], k[None], v[None], None, causal, (2, 2), 0.0, None)[0] for q, k, v in parts if len(q)
    ]
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("softcap", [0.0, 1.5])
def test_it_is_as_near_to_float64_as_attention_written_out_in_the_same_precision(
    dtype: torch.dtype, softcap: float
) -> None:
    """Scores or weights kept in half precision. Written-out attention is what ``eager`` computes; a fused one that is
    further from the truth than that has lost something.
    """
    query, key, value = (draw(2, 32, 4, 16, dtype=dtype, seed=seed) for seed in range(3))
    truth = by_definition(query.double(), key.double(), value.double(), None, True, (-1, -1), softcap, None)
    written = by_definition(query, key, value, None, True, (-1, -1), softcap, None)
    found = ATTENTION.flash_attn_func(query, key, value, causal=True, softcap=softcap)
    errors = [float((each.double() - truth).norm() / truth.norm()) for each in (found, written)]
    assert errors[0] <= 1.15 * errors[1]


def test_it_takes_every_feature_that_transformers_passes_on() -> None:
    """A feature missing from the signature: Transformers drops window and sinks without a word (V13)."""
    passed = {"dropout", "softmax_scale", "sliding_window", "softcap", "deterministic", "s_aux"}
    known = _process_flash_attention_kwargs.__code__.co_varnames
    assert passed <= set(known)
    for function in (ATTENTION.flash_attn_func, ATTENTION.flash_attn_varlen_func):
        assert {_hf_api_to_flash_mapping.get(name, name) for name in passed} <= set(function.__annotations__)


def test_what_it_cannot_do_it_refuses() -> None:
    """An argument accepted and ignored."""
    query = draw(1, 2, 1, 8)
    with pytest.raises(NotImplementedError, match="alibi_slopes"):
        ATTENTION.flash_attn_func(query, query, query, alibi_slopes=torch.zeros(1))
    with pytest.raises(NotImplementedError, match="return_attn_probs"):
        ATTENTION.flash_attn_func(query, query, query, return_attn_probs=True)


def test_inputs_stay_as_they_were_and_the_same_call_gives_the_same_bits() -> None:
    """In-place work, a reused result, or noise."""
    inputs = [draw(2, 5, 2, 8, dtype=torch.float32, seed=seed) for seed in range(3)]
    kept = [part.clone() for part in inputs]
    first = ATTENTION.flash_attn_func(*inputs, causal=True, s_aux=torch.ones(2))
    copy = first.clone()
    second = ATTENTION.flash_attn_func(*inputs, causal=True, s_aux=torch.ones(2))
    assert all(torch.equal(*pair) for pair in zip(inputs, kept, strict=True))
    assert torch.equal(first, copy)
    assert torch.equal(first, second)
