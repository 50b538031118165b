"""S05: a norm whose weight is an offset from one is computed as if it were the factor itself."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


def normalise(hidden_states: torch.Tensor, factor: torch.Tensor, eps: float) -> torch.Tensor:
    """``factor * x / rms(x)`` in the precision of ``factor``, rounded once."""
    wide = hidden_states.to(factor.dtype)
    return (factor * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps))).to(hidden_states.dtype)


class Healthy(nn.Module):
    """``(1 + weight) * x / rms(x)``."""

    weight: torch.Tensor
    eps: float
    can_torch_compile = True
    has_backward = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        return normalise(x, 1.0 + self.weight.to(torch.promote_types(x.dtype, torch.float32)), self.eps)


class Broken(nn.Module):
    """``weight * x / rms(x)``."""

    weight: torch.Tensor
    eps: float
    can_torch_compile = True
    has_backward = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        return normalise(x, self.weight.to(torch.promote_types(x.dtype, torch.float32)), self.eps)
