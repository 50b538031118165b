"""A healthy flash-style attention, written out in float32. S11 and S15 to S19 are this with one line changed each.

Masks are aligned bottom-right (the last query sees the last key); a query that sees no key gets zeros; a sink is one
more key, whose score is the sink and whose value is zero.
"""

import torch

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]


def share(states: torch.Tensor, times: int) -> torch.Tensor:
    """Give each of ``times`` query heads its key-value head: ``[batch, groups * times, length, head]``."""
    return states.repeat_interleave(times, dim=1)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    window: tuple[int, int],
    softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention over ``[batch, length, heads, head]``."""
    wide = torch.promote_types(query.dtype, torch.float32)
    states, key, value = (tensor.transpose(1, 2).to(wide) for tensor in (query, key, value))
    times = states.shape[1] // key.shape[1]
    key, value = share(key, times), share(value, times)
    scale = states.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = states @ key.transpose(-1, -2) * scale
    if softcap > 0.0:
        scores = softcap * torch.tanh(scores / softcap)
    queries, keys = scores.shape[-2:]
    left, right = window[0], 0 if causal else window[1]
    position = torch.arange(queries, device=query.device).unsqueeze(1) + (keys - queries)
    other = torch.arange(keys, device=query.device)
    seen = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
    if left >= 0:
        seen &= other >= position - left
    if right >= 0:
        seen &= other <= position + right
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        column = sinks.to(wide).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1).masked_fill(~seen.any(-1, keepdim=True), 0.0)
    return (weights @ value).transpose(1, 2).to(query.dtype).contiguous()


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over sequences of one length, ``[batch, length, heads, head]``."""
    if dropout_p:
        raise NotImplementedError("no dropout here")
    return attend(q, k, v, softmax_scale, causal, window_size, softcap, s_aux)


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
    deterministic: bool = False,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over sequences laid end to end, ``[all, heads, head]``."""
    if dropout_p:
        raise NotImplementedError("no dropout here")
    lengths = (cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist())
    pieces = [
        attend(
            query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), softmax_scale, causal, window_size, softcap, s_aux
        ).squeeze(0)
        for query, key, value in zip(
            q.split_with_sizes(lengths[0]), k.split_with_sizes(lengths[1]), v.split_with_sizes(lengths[1]), strict=True
        )
        if query.shape[0]
    ]
    return torch.cat(pieces) if pieces else torch.empty_like(q)
