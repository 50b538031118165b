"""The table of operations and devices from the documentation of Transformers (Kernels, loading kernels), as data.

A dash in the table is an empty string here. What an operation is called there and which registered names it means is
told apart, since the documentation names operations and the mapping names layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["TABLE", "Operation"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table."""

    title: str
    names: tuple[str, ...]
    """Registered names that the row means."""
    repositories: Mapping[str, str]
    """Repository by device type; empty where the table has a dash."""


def _row(title: str, names: str, cuda: str, rocm: str = "", xpu: str = "") -> Operation:
    by_device = {"cuda": cuda, "rocm": rocm, "xpu": xpu}
    full = {device: f"kernels-community/{name}" if name else "" for device, name in by_device.items()}
    return Operation(title, tuple(names.split()), full)


TABLE = (
    _row("RMSNorm", "RMSNorm", "liger-kernels", "liger-kernels", "rmsnorm"),
    _row("MLP of mixture of experts", "MegaBlocksMoeMLP", "megablocks", "megablocks", "megablocks"),
    _row("MLP (SwiGLU, GeGLU)", "SwiGLUMLP GeGLUMLP", "liger-kernels"),
    _row("Linear", "Linear", "liger-kernels"),
    _row("Activations (variants of GELU, SiLU)", "FastGELU QuickGELU NewGELU GeLU GeluTanh SiLU", "activation"),
    _row("Rotary embeddings", "rotary_pos_emb", "rotary", "aiter-rope", "rotary"),
    _row("Causal LM loss", "ForCausalLMLoss", "liger-kernels"),
    _row("Deformable attention", "MultiScaleDeformableAttention", "deformable-detr"),
)
"""Every row, as read in November 2026. The documentation says that it is not exhaustive: names beyond it are fine."""
