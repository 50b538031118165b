"""Activations, each as one operator of PyTorch that rounds once.

The tanh approximations are one function under three names: NewGELU, FastGELU (whose 0.7978845608 is sqrt(2/pi)) and
GeluTanh. PyTorch's forwards of the first two are seven operators each, rounding to the input's precision after every
one. SiLU, GeLU and GeluTanh are the same operator in both, so that a speed of SAME is the right verdict on them.
"""

import torch
from torch import nn

__all__ = ["FastGELU", "GeLU", "GeluTanh", "NewGELU", "QuickGELU", "SiLU"]


class SiLU(nn.Module):
    """``x * sigmoid(x)``."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Elementwise, any shape."""
        return nn.functional.silu(input)


class GeLU(nn.Module):
    """``x * Phi(x)`` by the error function."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Elementwise, any shape."""
        return nn.functional.gelu(input)


class GeluTanh(nn.Module):
    """``x * Phi(x)`` by its tanh approximation."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Elementwise, any shape."""
        return nn.functional.gelu(input, approximate="tanh")


class NewGELU(nn.Module):
    """The tanh approximation, as GPT-2 has it."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Elementwise, any shape."""
        return nn.functional.gelu(input, approximate="tanh")


class FastGELU(nn.Module):
    """The tanh approximation, factored."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Elementwise, any shape."""
        return nn.functional.gelu(input, approximate="tanh")


class QuickGELU(nn.Module):
    """``x * sigmoid(1.702 x)``."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Elementwise, any shape; in float32, where 1.702 x cannot overflow and is not rounded before its sigmoid."""
        values = input.to(torch.promote_types(input.dtype, torch.float32))
        return (torch.sigmoid(1.702 * values) * values).to(input.dtype)
