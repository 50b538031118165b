"""S09: the backward pass saves memory by working in the gradient it was given, which others may read after it."""

from typing import Any

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Norm(torch.autograd.Function):
    """``weight * x / rms(x)`` with a backward pass of its own, in a copy of the incoming gradient or in itself."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, eps: float, in_place: bool) -> torch.Tensor:
        """Normalise in float32 (float64 where the input is)."""
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(states, weight, scale)
        ctx.in_place = in_place
        return (wide * scale * weight).to(states.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of states and weight."""
        states, weight, scale = ctx.saved_tensors
        incoming = gradients[0] if ctx.in_place else gradients[0].to(scale.dtype, copy=True)
        unit = states.to(scale.dtype) * scale
        of_weight = (incoming * unit).reshape(-1, weight.shape[0]).sum(0)
        incoming.mul_(weight)
        mean = (incoming * unit).mean(-1, keepdim=True)
        outgoing = incoming.sub_(unit * mean).mul_(scale)
        return outgoing.to(states.dtype), of_weight.to(weight.dtype), None, None


class Healthy(nn.Module):
    """Works in a copy."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        function: Any = Norm  # torch leaves apply without types
        result: torch.Tensor = function.apply(hidden_states, self.weight, self.variance_epsilon, False)
        return result


class Broken(nn.Module):
    """Works in what it was given."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        function: Any = Norm  # torch leaves apply without types
        result: torch.Tensor = function.apply(hidden_states, self.weight, self.variance_epsilon, True)
        return result
