"""S04: no epsilon at all, so that a row of zeros is divided by zero."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """A row of zeros stays one."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        result = self.weight * (wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))
        return result.to(hidden_states.dtype)


class Broken(nn.Module):
    """A row of zeros becomes NaN."""

    weight: torch.Tensor
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        return (self.weight * (wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True)))).to(hidden_states.dtype)
