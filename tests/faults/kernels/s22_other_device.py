"""S22: nothing is wrong with the kernel; there is only no build of it for this device, and PyTorch runs in silence."""

import torch
from torch import nn

__all__ = ["Healthy"]


class Healthy(nn.Module):
    """``weight * x / rms(x)``, in float32 (float64 where the input is), rounded once."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * scale * self.weight).to(hidden_states.dtype)
