"""S12: the result is written over the input. In a Llama nobody looks at the activation's input again.

Both say that they are for inference only: with gradients torch itself would refuse the one.
"""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]


class Healthy(nn.Module):
    """A new tensor."""

    can_torch_compile = True
    has_backward = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``x * sigmoid(x)``."""
        return nn.functional.silu(input)


class Broken(nn.Module):
    """The caller's tensor."""

    can_torch_compile = True
    has_backward = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``x * sigmoid(x)``."""
        return nn.functional.silu(input, inplace=True)
