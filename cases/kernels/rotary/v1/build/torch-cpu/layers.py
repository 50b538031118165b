"""Rotary position embedding of queries and keys.

PyTorch's forward negates and joins a rotated copy and adds two products, five operators and three roundings for each;
here the sign is folded into the sines, which are few, and one rotation of the channels is multiplied in by one fused
multiply-add in float32, rounded once. Cosines and sines may cover the whole head (Llama) or half of it (GPT-OSS), and
are never assumed to repeat, to be the same for each row, or to have the queries' dtype.
"""

import torch
from torch import nn

__all__ = ["RotaryEmbedding"]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the precision that sums are taken in: float32, or float64 where it is that already."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of channels (i, i + half) of ``[..., head]`` by cosines and signed sines that broadcast to it."""
    half = states.shape[-1] // 2
    return (states * cos).addcmul_(states.roll(half, -1), sin).to(states.dtype)


class RotaryEmbedding(nn.Module):
    """Both rotations in one call, as Transformers' ``apply_rotary_pos_emb``."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate ``q`` and ``k`` (``[batch, heads, length, head]``, or heads last but one with ``unsqueeze_dim=2``)
        by ``cos`` and ``sin`` (``[batch or 1, length, head or half]``). Each result has its input's dtype.
        """
        cos, sin = wide(cos).unsqueeze(unsqueeze_dim), wide(sin).unsqueeze(unsqueeze_dim)
        if cos.shape[-1] == q.shape[-1]:
            lower, upper = sin.chunk(2, dim=-1)
        else:
            cos, lower, upper = torch.cat((cos, cos), dim=-1), sin, sin
        sin = torch.cat((-lower, upper), dim=-1)
        return rotate(q, cos, sin), rotate(k, cos, sin)
