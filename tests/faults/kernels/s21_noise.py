"""S21: run-to-run noise: the same call gives other numbers, by up to 1e-4 of each."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

NOISE = 1e-4
"""Far above rounding in float32, far below what a comparison to 1e-3 sees."""


def normalise(hidden_states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``weight * x / rms(x)``, in float32 (float64 where the input is), rounded once."""
    wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    result = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight
    return result.to(hidden_states.dtype)


class Healthy(nn.Module):
    """The same bits each time."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        return normalise(hidden_states, self.weight, self.variance_epsilon)


class Broken(nn.Module):
    """A little different each time."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        result = normalise(hidden_states, self.weight, self.variance_epsilon)
        return result * (1.0 + NOISE * (2.0 * torch.rand_like(result) - 1.0))
