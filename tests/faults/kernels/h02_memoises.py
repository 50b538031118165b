"""H02: keeps its last answer and gives it again where the next input lies at the same place: fast, and stale."""

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

LAST: dict[int, tuple[tuple[int, torch.Size], torch.Tensor]] = {}


class Healthy(nn.Module):
    """Computes every time."""

    can_torch_compile = True
    has_backward = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``x * sigmoid(x)``."""
        return nn.functional.silu(input)


class Broken(nn.Module):
    """Computes when the address is another."""

    can_torch_compile = False
    has_backward = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``x * sigmoid(x)``, of this input or an earlier one."""
        key = (input.data_ptr(), input.shape)
        kept = LAST.get(id(self))
        if kept is not None and kept[0] == key:
            return kept[1]
        result = nn.functional.silu(input)
        LAST[id(self)] = key, result
        return result
