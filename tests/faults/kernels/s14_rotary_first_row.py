"""S14: the whole batch is rotated by the positions of its first row.

Scores see differences of positions only: a row that is shifted as a whole is rotated wrong, and shows nothing.
"""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of channels (i, i + half), in float32."""
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    lower, upper = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-upper, lower), dim=-1) * sin).to(states.dtype)


class Healthy(nn.Module):
    """Each row by its own positions."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate both."""
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return rotate(q, cos, sin), rotate(k, cos, sin)


class Broken(nn.Module):
    """All rows by those of the first."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate both."""
        cos, sin = cos[:1].unsqueeze(unsqueeze_dim), sin[:1].unsqueeze(unsqueeze_dim)
        return rotate(q, cos, sin), rotate(k, cos, sin)
