"""Attention by its definition, as the reference of attention kernels; and the inputs on which those go wrong.

An attention kernel replaces a function of an interface, ``(module, query, key, value, mask, scaling=…, …)``, and no
layer. So its PyTorch counterpart is written here, from what the arguments mean: causal masks are aligned to the last
query and key, a window of w reaches w - 1 places, soft-capped scores are capped after scaling, a sink is one more
score without a value, and sequences that are packed do not see each other. In the dtype of the case it rounds where
eager attention does, so that its own error is eager attention's; in float64 it is the truth.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from transformers.integrations.flash_attention import flash_attention_forward

from suite.capture import Call
from suite.perturb import Recipe

__all__ = ["attend", "attention_recipes", "takes_packed"]

SHORT = 5
"""Queries of a chunk that comes after a cache: fewer than keys, and more than one."""


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of ``[batch, heads, queries, head]`` over ``[batch, key-value heads, keys, head]``.

    ``attention_mask`` is ``[batch, keys]``, zero for padding, or whole (``[batch, 1, queries, keys]``). Returns
    ``[batch, queries, heads, head]``, zero for padded queries, and None in place of weights.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    scores = torch.matmul(query, key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    whole = attention_mask is not None and attention_mask.dim() == 4
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if whole and attention_mask is not None:
        added = attention_mask.dtype is not torch.bool
        scores = scores + attention_mask if added else scores.masked_fill(~attention_mask, float("-inf"))
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
    else:
        seen = _visible(query, key, causal, sliding_window).expand(query.shape[0], 1, -1, -1)
        for boundaries in (_boundaries(cu_seq_lens_q), _restarts(position_ids, query)):
            if boundaries is not None:
                number = torch.bucketize(torch.arange(query.shape[2], device=query.device), boundaries, right=True)
                seen = seen & (number.unsqueeze(1) == number.unsqueeze(0))
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None, :].bool()
        scores = scores.masked_fill(~seen, float("-inf"))
    if s_aux is not None:
        column = s_aux.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, column), dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    # A padded query may see no key at all.
    weights = weights.nan_to_num(nan=0.0)[..., : key.shape[2]]
    result = torch.matmul(weights, value).transpose(1, 2)
    if attention_mask is not None and not whole:
        result = result * attention_mask[:, -query.shape[2] :, None, None].bool()
    return result.contiguous(), None


def _visible(query: torch.Tensor, key: torch.Tensor, causal: bool, window: int | None) -> torch.Tensor:
    """Boolean ``[queries, keys]``."""
    queries, keys = query.shape[2], key.shape[2]
    ahead = torch.arange(keys, device=query.device) - torch.arange(queries, device=query.device).unsqueeze(1)
    ahead = ahead - (keys - queries)
    seen = torch.ones_like(ahead, dtype=torch.bool)
    if causal:
        seen &= ahead <= 0
    if window is not None and keys > window:
        seen &= ahead.abs() <= window - 1
    return seen


def _boundaries(lengths: torch.Tensor | None) -> torch.Tensor | None:
    return None if lengths is None else lengths[1:-1].long()


def _restarts(positions: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """Where positions begin again: one row that holds several sequences."""
    if positions is None or query.shape[0] != 1 or positions.shape[-1] != query.shape[2]:
        return None
    places = torch.nonzero(positions.reshape(-1)[1:] <= positions.reshape(-1)[:-1]).flatten() + 1
    return places if places.numel() else None


def takes_packed(function: Any) -> bool:
    """Whether an implementation is a flash function behind Transformers' wrapper, which has a contract for packing."""
    return getattr(function, "func", function) is flash_attention_forward


def attention_recipes(call: Call, *, causal: bool) -> Iterator[Recipe]:
    """Masks, chunks and packing, made of a captured prompt. ``causal`` is the module's own word, if the call has none.

    Only for functions behind Transformers' flash wrapper: others have no contract for masks of two dimensions.
    """
    given = {**dict(zip(call.names, call.args, strict=True)), **call.kwargs}
    query, key = given.get("query"), given.get("key")
    if query is None or key is None or query.shape[2] != key.shape[2] or query.shape[2] <= 4 * SHORT:
        return
    batch, length = query.shape[0], query.shape[2]
    plain = Call((), (), {**given, "attention_mask": None, "position_ids": None})
    asked = given.get("is_causal")
    causal = causal if asked is None else bool(asked)
    for side, leading in (("left", True), ("right", False)):
        mask = torch.ones(batch, length, dtype=torch.long, device=query.device)
        for row in range(batch):
            hidden = 3 + 4 * row
            mask[row, :hidden] = 0 if leading else 1
            mask[row, length - hidden :] = 1 if leading else 0
        yield _with(f"{side} padding, another length in each row", plain, attention_mask=mask)
    if causal:
        for count in (1, SHORT):
            words = f"{count} quer{'y' if count == 1 else 'ies'} after a cache of {length - count} keys"
            yield _with(words, plain, query=query[:, :, -count:])
    first = {name: given[name][:1] for name in ("query", "key", "value")}
    ends = torch.tensor([0, 3, length // 2, length], dtype=torch.int32, device=query.device)
    longest = int(ends.diff().max())
    yield _with(
        "three sequences packed in one row, by their cumulative lengths",
        plain,
        **first,
        cu_seq_lens_q=ends,
        cu_seq_lens_k=ends,
        max_length_q=longest,
        max_length_k=longest,
    )
    positions = torch.cat([torch.arange(size, device=query.device) for size in ends.diff().tolist()]).unsqueeze(0)
    yield _with("three sequences packed in one row, by their positions", plain, **first, position_ids=positions)


def _with(words: str, call: Call, **changed: Any) -> Recipe:
    return Recipe(words, replace(call, kwargs={**call.kwargs, **changed}))
