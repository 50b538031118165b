"""H03: never comes back."""

import threading

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """Comes back."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The tanh approximation of GELU."""
        return nn.functional.gelu(input, approximate="tanh")


class Broken(nn.Module):
    """Waits for an event that nobody sets."""

    can_torch_compile = False
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Nothing."""
        threading.Event().wait()
        return input
