"""S25: nothing is wrong with the kernel, and it is bound; the set-up lets the model call another object."""

import torch
from torch import nn

__all__ = ["Healthy"]


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of channels (i, i + half), in float32."""
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    lower, upper = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-upper, lower), dim=-1) * sin).to(states.dtype)


class Healthy(nn.Module):
    """Rotary position embedding."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate both."""
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return rotate(q, cos, sin), rotate(k, cos, sin)
