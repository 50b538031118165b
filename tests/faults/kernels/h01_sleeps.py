"""H01: right, and slow: it sleeps in every call."""

import time

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

SECONDS = 0.02
"""Above the time of a whole tiny model, so that the model takes at least twice as long."""


class Healthy(nn.Module):
    """The same without the sleep."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The tanh approximation of GELU."""
        return nn.functional.gelu(input, approximate="tanh")


class Broken(nn.Module):
    """With the sleep."""

    can_torch_compile = False
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The tanh approximation of GELU."""
        time.sleep(SECONDS)
        return nn.functional.gelu(input, approximate="tanh")
