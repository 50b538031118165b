"""S03: the square is taken in float16, and of values above 256 it is infinite, so that the result is zero.

Only the square: the mean is in float32, so that on values of ordinary size nothing is wrong to be seen.
"""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """Widen, then square."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.weight * (wide * scale)).to(hidden_states.dtype)


class Broken(nn.Module):
    """Square, then widen."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        square = (hidden_states * hidden_states).to(wide.dtype)
        scale = torch.rsqrt(square.mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.weight * (wide * scale)).to(hidden_states.dtype)
