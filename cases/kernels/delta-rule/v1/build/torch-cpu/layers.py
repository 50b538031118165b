"""Gated delta rules: one decay per head (Qwen3-Next, Qwen3.5) or one per channel of the key (Kimi), in chunks for a
prompt and step by step for a token.

All are functions of Transformers, so each class has a forward and nothing else. Work is done in float32 (float64 where
the input is). A chunk here is as short as the sequence allows or as the memory of its pairs asks: the size changes
the order of the sums, not the result.
"""

import torch
from torch import nn
from torch.nn import functional

__all__ = ["ChunkedChannelDelta", "ChunkedDelta", "RecurrentChannelDelta", "RecurrentDelta"]


def prepare(
    query: torch.Tensor, key: torch.Tensor, normalised: bool, *others: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Heads first, in float32, the query scaled, and query and key of unit length where asked."""
    wide = torch.promote_types(query.dtype, torch.float32)
    query, key, *rest = (tensor.transpose(1, 2).to(wide) for tensor in (query, key, *others))
    if normalised:
        query, key = (
            tensor * torch.rsqrt(torch.linalg.vecdot(tensor, tensor).unsqueeze(-1) + 1e-6) for tensor in (query, key)
        )
    return query * query.shape[-1] ** -0.5, key, *rest


def refuse_packed(options: dict[str, object]) -> None:
    """Raise where a caller asks to keep packed sequences apart."""
    for name in ("seq_idx", "cu_seqlens"):
        if options.get(name) is not None:
            raise ValueError(f"embedded/delta-rule can't keep packed sequences apart, and {name} was given")


def initial(key: torch.Tensor, value: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
    """The state to begin with, ``[batch, heads, key, value]``."""
    if state is not None:
        return state.to(value.dtype)
    return value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])


def recur(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Step by step over ``[batch, heads, length, ...]``; ``decay`` is a factor per key channel, or one for all."""
    results = []
    # Unbinding beats indexing: the gradient of an index is a zero tensor of the whole length, each time.
    for parts in zip(*(part.unbind(2) for part in (query, key, value, decay, beta)), strict=True):
        reading, writing, wanted, factor, rate = parts
        kept = state * factor.unsqueeze(-1)
        change = (wanted - (writing.unsqueeze(-2) @ kept).squeeze(-2)) * rate.unsqueeze(-1)
        state = torch.addcmul(kept, writing.unsqueeze(-1), change.unsqueeze(-2))
        results.append((reading.unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(results, dim=1), state


def sweep(
    query: torch.Tensor,
    keys_in: torch.Tensor,
    values: torch.Tensor,
    corrections: torch.Tensor,
    weights: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Carry the state from chunk to chunk: all arguments but the state have the chunks third."""
    results = []
    for parts in zip(*(part.unbind(2) for part in (query, keys_in, values, corrections, weights, decay)), strict=True):
        reading, writing, value, correction, weight, factor = parts
        fresh = value - correction @ state
        results.append(reading @ state + weight @ fresh)
        state = state * factor + writing.transpose(-1, -2) @ fresh
    return torch.stack(results, dim=2), state


def chunked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    longest: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Chunk by chunk over ``[batch, heads, length, ...]``; ``decay`` is a logarithm, per key channel or one."""
    length = query.shape[2]
    chunk = min(longest, length)
    # Padding by nothing keeps the strides, and torch.compile with dynamic sizes takes it not to (torch 2.13), so there
    # must be nothing to keep.
    query, key, value, decay, beta = (
        torch.unflatten(functional.pad(part.contiguous(), (0, 0, 0, -length % chunk)), 2, (-1, chunk))
        for part in (query, key, value, decay, beta.unsqueeze(-1))
    )
    total = decay.cumsum(3)
    above = torch.ones(chunk, chunk, dtype=torch.bool, device=query.device).triu(1)
    # From each place to each later one. Differences, never exp(total) times exp(-total), which overflows.
    between = (total.unsqueeze(4) - total.unsqueeze(3)).masked_fill(above.unsqueeze(-1), float("-inf")).exp()
    if decay.shape[-1] == 1:
        between = between.squeeze(-1)
        scores, overlaps = (side @ key.transpose(-1, -2) * between for side in (query, key))
    else:
        weighed = between * key.unsqueeze(3)
        scores, overlaps = ((weighed @ side.unsqueeze(-1)).squeeze(-1) for side in (query, key))
    # One solve for the values and for what the state already knows of them.
    sides = torch.cat((value, key * total.exp()), dim=-1) * beta
    solved = torch.linalg.solve_triangular(overlaps * beta, sides, upper=False, unitriangular=True)
    values, corrections = solved.split((value.shape[-1], key.shape[-1]), dim=-1)
    last = total[..., -1:, :]
    results, state = sweep(
        query * total.exp(),
        key * (last - total).exp(),
        values,
        corrections,
        scores,
        last.exp().transpose(-1, -2),
        state,
    )
    return results.flatten(2, 3)[:, :, :length].transpose(1, 2), state


class ChunkedDelta(nn.Module):
    """``chunk_gated_delta_rule``."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        chunk_size: int = 64,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queries and keys ``[batch, length, heads, key]``, values ``[..., value]``, log-decay ``g`` and ``beta``
        ``[batch, length, heads]``. Returns the result and, if asked, the state ``[batch, heads, key, value]``.
        """
        refuse_packed(kwargs)
        wide_query, wide_key, wide_value, decay, rate = prepare(query, key, use_qk_l2norm_in_kernel, value, g, beta)
        state = initial(wide_key, wide_value, initial_state)
        result, state = chunked(wide_query, wide_key, wide_value, decay.unsqueeze(-1), rate, state, chunk_size)
        return result.to(query.dtype).contiguous(), state if output_final_state else None


class ChunkedChannelDelta(nn.Module):
    """``chunk_kda``: as ``ChunkedDelta``, with a decay for each channel of the key."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        chunk_size: int = 64,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As ``ChunkedDelta``, with ``g`` ``[batch, length, heads, key]``."""
        refuse_packed(kwargs)
        wide_query, wide_key, wide_value, decay, rate = prepare(query, key, use_qk_l2norm_in_kernel, value, g, beta)
        state = initial(wide_key, wide_value, initial_state)
        # Pairs of places times channels: a quarter of the chunk takes a quarter of the memory.
        result, state = chunked(wide_query, wide_key, wide_value, decay, rate, state, max(chunk_size // 4, 1))
        return result.to(query.dtype).contiguous(), state if output_final_state else None


class RecurrentDelta(nn.Module):
    """``fused_recurrent_gated_delta_rule``."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As ``ChunkedDelta``."""
        refuse_packed(kwargs)
        wide_query, wide_key, wide_value, decay, rate = prepare(query, key, use_qk_l2norm_in_kernel, value, g, beta)
        state = initial(wide_key, wide_value, initial_state)
        result, state = recur(wide_query, wide_key, wide_value, decay.unsqueeze(-1).exp(), rate, state)
        return result.to(query.dtype), state if output_final_state else None


class RecurrentChannelDelta(nn.Module):
    """``fused_recurrent_kda``: as ``RecurrentDelta``, with a decay for each channel of the key."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor | None,
        output_final_state: bool,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As ``RecurrentDelta``, with ``g`` ``[batch, length, heads, key]``."""
        refuse_packed(kwargs)
        wide_query, wide_key, wide_value, decay, rate = prepare(query, key, use_qk_l2norm_in_kernel, value, g, beta)
        state = initial(wide_key, wide_value, initial_state)
        result, state = recur(wide_query, wide_key, wide_value, decay.exp(), rate, state)
        return result.to(query.dtype), state if output_final_state else None
