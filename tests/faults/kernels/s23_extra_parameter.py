"""S23: the forward takes one positional parameter more than the layer it stands for."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """The layer's own parameters."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * scale * self.weight).to(hidden_states.dtype)


class Broken(nn.Module):
    """And one more, which no caller gives."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Add, then normalise ``[..., hidden]``."""
        states = hidden_states + residual
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * scale * self.weight).to(states.dtype)
