"""Builds a model of the zoo once per run: configuration, weights that are not neutral, saved to disk.

A fresh model is a poor test: its norm weights are 1, its biases 0, its matrices so small that attention is uniform,
and a kernel that ignores any of them passes. So weights are redrawn before the model is saved. What is tested loads
the saved model through ``from_pretrained`` like anyone else.
"""

from pathlib import Path
from typing import Any

import torch
import transformers

from cases.inputs import SEED
from cases.models import Model

__all__ = ["build"]

NEUTRAL_SPREAD = 0.2
"""Standard deviation of what is added to norm weights and biases: far from neutral, still a plausible model."""
SMALL = 0.05
"""Matrices whose weights spread less than this were drawn with ``initializer_range`` and are redrawn by fan-in."""


def build(model: Model, folder: Path) -> Path:
    """Path of the saved model, building it first if ``folder`` has none.

    Several workers may do this at once: each builds aside and renames, so a half-written model is never loaded.
    """
    target = folder / model.name
    if target.exists():
        return target
    torch.manual_seed(SEED)
    config = transformers.AutoConfig.for_model(model.model_type, **model.overrides)
    architecture: Any = getattr(transformers, model.architecture)
    built = architecture.from_config(config) if hasattr(architecture, "from_config") else architecture(config)
    redraw(built)
    aside = folder / f".{model.name}.{torch.initial_seed()}.{id(built)}"
    built.save_pretrained(aside)
    try:
        aside.rename(target)
    except OSError:
        if not target.exists():
            raise
    return target


@torch.no_grad()
def redraw(module: torch.nn.Module) -> None:
    """Draw the weights of ``module`` away from neutral values, in place, from a seeded generator.

    Vectors get noise on top; matrices with the tiny spread of ``initializer_range`` get a spread of 1/sqrt(fan-in), so
    that scores, gates and routers take different values. Anything else (state-space decays) has a meaning of its own.
    """
    generator = torch.Generator().manual_seed(SEED)
    for name, parameter in sorted(module.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)
        if parameter.dim() < 2:
            parameter.add_(NEUTRAL_SPREAD * noise)
        elif "embed" in name or name.endswith(("wte.weight", "wpe.weight")):
            parameter.copy_(noise)
        elif float(parameter.std()) < SMALL and abs(float(parameter.mean())) < SMALL:
            # Expert weights are (experts, in, out) or (experts, out, in): the larger of the two errs to small scores.
            fan_in = parameter.shape[-1] if parameter.dim() == 2 else max(parameter.shape[-2:])
            parameter.copy_(noise / fan_in**0.5)
