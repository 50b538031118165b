"""S07: queries and keys are rotated, their gradients are handed back as they came."""

from typing import Any

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of channels (i, i + half), in float32."""
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    lower, upper = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-upper, lower), dim=-1) * sin).to(states.dtype)


class Rotation(torch.autograd.Function):
    """The rotation with a backward pass of its own, which forgets to rotate back."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate."""
        return rotate(states, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Hand the gradient on."""
        return gradients[0], None, None


class Healthy(nn.Module):
    """Autograd rotates back."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate both."""
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return rotate(q, cos, sin), rotate(k, cos, sin)


class Broken(nn.Module):
    """Nothing rotates back."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate both."""
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        function: Any = Rotation  # torch leaves apply without types
        query: torch.Tensor = function.apply(q, cos, sin)
        key: torch.Tensor = function.apply(k, cos, sin)
        return query, key
