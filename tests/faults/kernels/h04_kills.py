"""H04: takes the process with it, as a fault in a driver does."""

import os
import signal

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """Leaves the process alive."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The tanh approximation of GELU."""
        return nn.functional.gelu(input, approximate="tanh")


class Broken(nn.Module):
    """Ends it without a word."""

    can_torch_compile = False
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Nothing."""
        os.kill(os.getpid(), signal.SIGKILL)
        return input
