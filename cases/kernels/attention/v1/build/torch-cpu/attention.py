"""Attention with the call signatures of flash-attn 2, on PyTorch's own fused attention.

Every argument is honoured or refused. Masks are aligned bottom-right (the last query sees the last key), as
flash-attn does since 2.1; a query that sees no key gets zeros. Sinks take part in the softmax as one more key, whose
score is the sink and whose value is zero, so that the fused operator serves them too. Only a soft-cap, which no fused
operator knows, is written out, in float32.
"""

import torch
from torch.nn import functional

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]


def visible_keys(
    queries: int, keys: int, causal: bool, window: tuple[int, int], device: torch.device
) -> torch.Tensor | None:
    """Boolean ``[queries, keys]``, true where a query sees a key; None where each sees all."""
    left, right = window
    right = 0 if causal else right
    # A bound that no pair of positions reaches is none: the operator is faster without a mask.
    if not (0 <= left < keys - 1 or 0 <= right < queries - 1):
        return None
    query = torch.arange(queries, device=device).unsqueeze(1) + (keys - queries)
    key = torch.arange(keys, device=device)
    visible = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if left >= 0:
        visible &= key >= query - left
    if right >= 0:
        visible &= key <= query + right
    return visible


def soft_capped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor | None,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None,
    dropout: float,
) -> torch.Tensor:
    """Attention over ``[batch, heads, length, head]`` with scores bent to ``softcap * tanh(score / softcap)``."""
    batch, heads, length, size = query.shape
    groups = key.shape[1]
    wide = torch.promote_types(query.dtype, torch.float32)
    # Heads that share a key-value head are stacked along the length: grouped attention without repeating any key.
    stacked = query.to(wide).reshape(batch, groups, heads // groups * length, size)
    scores = torch.matmul(stacked, key.to(wide).transpose(-1, -2)).reshape(batch, heads, length, -1)
    scores = softcap * torch.tanh(scores * (scale / softcap))
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.to(wide).view(1, heads, 1, 1).expand(batch, heads, length, 1)
        weights = torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
        if visible is not None:
            weights = weights.masked_fill(~visible.any(-1, keepdim=True), 0.0)
    weights = functional.dropout(weights, dropout)
    stacked = weights.reshape(batch, groups, heads // groups * length, -1)
    return torch.matmul(stacked, value.to(wide)).reshape(batch, heads, length, -1).to(query.dtype)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float,
    scale: float | None,
    causal: bool,
    window: tuple[int, int],
    softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention over ``[batch, length, heads, head]``."""
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    batch, heads, queries, size = query.shape
    groups, keys = key.shape[1], key.shape[2]
    scale = size**-0.5 if scale is None else scale
    visible = visible_keys(queries, keys, causal, window, query.device)
    if softcap > 0.0:
        result = soft_capped(query, key, value, visible, scale, softcap, sinks, dropout)
        return result.transpose(1, 2).contiguous()
    mask = visible
    if sinks is not None:
        zero = key.new_zeros(batch, groups, 1, size)
        key, value = torch.cat((key, zero), dim=2), torch.cat((value, zero), dim=2)
        scores = query.new_zeros(queries, keys)
        if visible is not None:
            scores = scores.masked_fill(~visible, float("-inf"))
        column = sinks.to(query.dtype).view(1, heads, 1, 1).expand(1, heads, queries, 1)
        mask = torch.cat((scores.expand(1, heads, queries, keys), column), dim=-1)
    plain = mask is not None and sinks is None and causal and queries == keys and not 0 <= window[0] < keys - 1
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        # The operator's own triangle is faster than the same triangle as a mask.
        attn_mask=None if plain else mask,
        is_causal=plain,
        dropout_p=dropout,
        scale=scale,
        enable_gqa=groups != heads,
    )
    if visible is not None and queries > keys:
        result = result.masked_fill(~visible.any(-1, keepdim=True), 0.0)
    return result.transpose(1, 2).contiguous()


def refuse(**features: bool) -> None:
    """Raise for what was asked and cannot be done, rather than compute something else."""
    for name, asked in features.items():
        if asked:
            raise NotImplementedError(f"embedded/attention does not support {name}")


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over sequences of one length.

    Args:
        q: ``[batch, queries, heads, head]``.
        k: ``[batch, keys, key-value heads, head]``; heads are a multiple of the key-value heads.
        v: As ``k``.
        dropout_p: Share of the attention weights set to zero.
        softmax_scale: Factor of the scores; the default is ``head ** -0.5``.
        causal: Whether a query sees no key after it.
        window_size: How many keys to the left and right of its own a query sees; -1 is no bound.
        softcap: Bend scores to ``softcap * tanh(score / softcap)``; 0 is not to.
        alibi_slopes: Refused.
        deterministic: Accepted: it is always.
        return_attn_probs: Refused.
        s_aux: ``[heads]``: scores of the attention sinks.

    Returns:
        ``[batch, queries, heads, head]``.

    Raises:
        NotImplementedError: an argument is refused.
    """
    refuse(alibi_slopes=alibi_slopes is not None, return_attn_probs=return_attn_probs)
    return attend(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, s_aux)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over sequences of several lengths, laid end to end.

    Args:
        q: ``[all queries, heads, head]``.
        k: ``[all keys, key-value heads, head]``.
        v: As ``k``.
        cu_seqlens_q: ``[sequences + 1]``: where each sequence of queries begins, and the last ends.
        cu_seqlens_k: The same of the keys.
        max_seqlen_q: Length of the longest; the boundaries say all, so it is not used.
        max_seqlen_k: As ``max_seqlen_q``.
        dropout_p: As in ``flash_attn_func``, like the following.
        softmax_scale: See there.
        causal: See there.
        window_size: See there.
        softcap: See there.
        alibi_slopes: Refused.
        deterministic: Accepted: it is always.
        return_attn_probs: Refused.
        block_table: Refused.
        s_aux: See there.

    Returns:
        ``[all queries, heads, head]``.

    Raises:
        NotImplementedError: an argument is refused.
    """
    refuse(
        alibi_slopes=alibi_slopes is not None,
        return_attn_probs=return_attn_probs,
        block_table=block_table is not None,
    )
    queries, keys = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
    parts = zip(*(torch.split_with_sizes(*pair) for pair in ((q, queries), (k, keys), (v, keys))), strict=True)
    pieces = [
        attend(
            query.unsqueeze(0),
            key.unsqueeze(0),
            value.unsqueeze(0),
            dropout_p,
            softmax_scale,
            causal,
            window_size,
            softcap,
            s_aux,
        ).squeeze(0)
        for query, key, value in parts
        if query.shape[0]
    ]
    return torch.cat(pieces) if pieces else torch.empty_like(q)
