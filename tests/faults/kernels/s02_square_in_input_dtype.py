"""S02: squares and their mean are taken in the input's dtype, which has eight bits in bfloat16."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """Squares and mean in float32, as every norm of Transformers takes them."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (wide * scale).to(hidden_states.dtype)


class Broken(nn.Module):
    """Everything in the input's dtype."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        scale = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden_states * scale)
