"""S24: an inference kernel, honest about it, that the set-up leaves active in training."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


def normalise(hidden_states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``weight * x / rms(x)``, in float32 (float64 where the input is), rounded once."""
    wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    result = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight
    return result.to(hidden_states.dtype)


class Healthy(nn.Module):
    """A kernel with a backward pass, which training may have."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        return normalise(hidden_states, self.weight, self.variance_epsilon)


class Broken(nn.Module):
    """One without, which ends the graph where it is left."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = False

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        with torch.no_grad():
            return normalise(hidden_states, self.weight, self.variance_epsilon)
