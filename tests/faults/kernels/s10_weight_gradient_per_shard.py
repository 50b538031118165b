"""S10: the rows are worked through in shards, and each shard adds the sum over all of them up to it, not its own."""

from typing import Any

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

SHARD = 64
"""Rows of one shard: with no more rows than that, nothing is wrong."""


class Norm(torch.autograd.Function):
    """``weight * x / rms(x)``; the weight's gradient is the sum of the shards' or of the running sums."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, eps: float, running: bool) -> torch.Tensor:
        """Normalise in float32 (float64 where the input is)."""
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(states, weight, scale)
        ctx.running = running
        return (wide * scale * weight).to(states.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of states and weight."""
        states, weight, scale = ctx.saved_tensors
        incoming = gradients[0].to(scale.dtype)
        unit = states.to(scale.dtype) * scale
        inner = incoming * weight
        outgoing = scale * (inner - unit * (inner * unit).mean(-1, keepdim=True))
        rows = (incoming * unit).reshape(-1, weight.shape[0])
        of_weight = torch.zeros_like(weight, dtype=scale.dtype)
        for start in range(0, rows.shape[0], SHARD):
            of_weight += rows[0 if ctx.running else start : start + SHARD].sum(0)
        return outgoing.to(states.dtype), of_weight.to(weight.dtype), None, None


class Healthy(nn.Module):
    """Each row counts once."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = False  # a loop over shards is another graph for each length
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        function: Any = Norm  # torch leaves apply without types
        result: torch.Tensor = function.apply(hidden_states, self.weight, self.variance_epsilon, False)
        return result


class Broken(nn.Module):
    """Early rows count once per shard."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = False  # a loop over shards is another graph for each length
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        function: Any = Norm  # torch leaves apply without types
        result: torch.Tensor = function.apply(hidden_states, self.weight, self.variance_epsilon, True)
        return result
