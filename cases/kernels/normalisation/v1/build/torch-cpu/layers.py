"""Root-mean-square normalisation, in three kinds, written out.

All work is done in float32 (float64 where the input is), and the result is rounded once, after the weight. Many
PyTorch forwards round before they multiply by the weight as well; the float64 result is the same, and this is nearer
to it. Version 1 spells the sum of squares out; version 2 lets PyTorch fuse it.
"""

import torch
from torch import nn

__all__ = ["RMSNorm", "RMSNormGated", "RMSNormZeroCentered"]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the precision that sums are taken in: float32, or float64 where it is that already."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def normalise(hidden_states: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale the last dimension to a mean square of one; returns the precision of ``wide``."""
    values = wide(hidden_states)
    # One pass over the input and no tensor of squares, which pow(2).mean(-1) would write.
    squares = torch.linalg.vecdot(values, values).unsqueeze(-1)
    return values * torch.rsqrt(squares / values.shape[-1] + eps)


class RMSNorm(nn.Module):
    """``weight * x / rms(x)``."""

    weight: torch.Tensor
    variance_epsilon: float
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``; the result has the input's dtype.

        Where the weight is wider than the input, some classes raise the result to it and some do not. The models that
        are loaded so (GPT-OSS keeps its norms in float32 when the rest is float16) are of those that do not.
        """
        return (normalise(hidden_states, self.variance_epsilon) * wide(self.weight)).to(hidden_states.dtype)


class RMSNormZeroCentered(nn.Module):
    """``(1 + weight) * x / rms(x)``: the weight is an offset from one."""

    weight: torch.Tensor
    eps: float
    can_torch_compile = True
    has_backward = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., hidden]``; the sum 1 + weight is taken in float32, where a small weight survives it."""
        return (normalise(x, self.eps) * (1.0 + wide(self.weight))).to(x.dtype)


class RMSNormGated(nn.Module):
    """``weight * x / rms(x)``, times the activation of a gate."""

    weight: torch.Tensor
    variance_epsilon: float
    activation: str
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Normalise and gate ``[..., hidden]`` by ``silu`` or ``sigmoid``, whichever the module names.

        Raises:
            ValueError: the module names another activation.
        """
        if self.activation == "silu":
            opening = nn.functional.silu(wide(gate))
        elif self.activation == "sigmoid":
            opening = torch.sigmoid(wide(gate))
        else:
            raise ValueError(f"RMSNormGated knows the gates silu and sigmoid, not {self.activation!r}")
        result = normalise(hidden_states, self.variance_epsilon) * wide(self.weight) * opening
        return result.to(hidden_states.dtype)
