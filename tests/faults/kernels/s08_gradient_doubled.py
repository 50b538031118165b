"""S08: a backward pass of the kernel's own returns twice the gradient of the input."""

from typing import Any

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Norm(torch.autograd.Function):
    """``weight * x / rms(x)`` with a backward pass of its own, whose result is multiplied by ``factor``."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, eps: float, factor: float) -> torch.Tensor:
        """Normalise in float32 (float64 where the input is)."""
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(states, weight, scale)
        ctx.factor = factor
        return (wide * scale * weight).to(states.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of states and weight."""
        states, weight, scale = ctx.saved_tensors
        incoming = gradients[0].to(scale.dtype)
        unit = states.to(scale.dtype) * scale
        inner = incoming * weight
        outgoing = scale * (inner - unit * (inner * unit).mean(-1, keepdim=True))
        of_weight = (incoming * unit).reshape(-1, weight.shape[0]).sum(0)
        return (ctx.factor * outgoing).to(states.dtype), of_weight.to(weight.dtype), None, None


class Healthy(nn.Module):
    """The gradient once."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        function: Any = Norm  # torch leaves apply without types
        result: torch.Tensor = function.apply(hidden_states, self.weight, self.variance_epsilon, 1.0)
        return result


class Broken(nn.Module):
    """The gradient twice."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        function: Any = Norm  # torch leaves apply without types
        result: torch.Tensor = function.apply(hidden_states, self.weight, self.variance_epsilon, 2.0)
        return result
