"""S13: results of one shape and dtype all lie in one buffer, and the next call overwrites the last one's.

In a Llama the result of one norm is used up before the next is computed.
"""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

BUFFERS: dict[tuple[torch.Size, torch.dtype, torch.device], torch.Tensor] = {}


def normalise(hidden_states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``weight * x / rms(x)``, in float32 (float64 where the input is), rounded once."""
    wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    result = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight
    return result.to(hidden_states.dtype)


class Healthy(nn.Module):
    """Each result has memory of its own. Like the other, it says that it is for inference only."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = False
    has_backward = False

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        return normalise(hidden_states, self.weight, self.variance_epsilon)


class Broken(nn.Module):
    """One buffer for all."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = False
    has_backward = False

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``."""
        key = (hidden_states.shape, hidden_states.dtype, hidden_states.device)
        if key not in BUFFERS:
            BUFFERS[key] = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        with torch.no_grad():
            return BUFFERS[key].copy_(normalise(hidden_states, self.weight, self.variance_epsilon))
