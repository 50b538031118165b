"""H06: dies with a message that holds a token and markup, for a log and a report to pass on."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

TOKEN = "hf_" + "SecretTokenOfNobody" + "0123456789abcde"
"""Of the form of a Hub token; nobody's."""


class Healthy(nn.Module):
    """Says nothing."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``x * sigmoid(1.702 x)``."""
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        return (torch.sigmoid(1.702 * wide) * wide).to(input.dtype)


class Broken(nn.Module):
    """Says too much."""

    can_torch_compile = False
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Nothing."""
        raise RuntimeError(f"</script><script>window.owned=1</script> Authorization: Bearer {TOKEN}")
