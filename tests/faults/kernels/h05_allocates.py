"""H05: allocates until it is stopped; and sees to it that it is stopped, before the machine is."""

import resource
from pathlib import Path

import torch
from torch import nn

__all__ = ["Broken", "Healthy"]

BEYOND = 1 << 30
"""Bytes of address space that this process may still take."""
PIECE = 1 << 26
"""Numbers in one piece of 256 MiB."""


class Healthy(nn.Module):
    """Takes what it needs."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """GELU."""
        return nn.functional.gelu(input)


class Broken(nn.Module):
    """Takes all there is."""

    can_torch_compile = False
    has_backward = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Nothing."""
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BEYOND, hard))
        taken = []
        try:
            while True:
                taken.append(torch.zeros(PIECE))
        finally:
            taken.clear()
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
