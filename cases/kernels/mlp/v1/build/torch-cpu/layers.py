"""Gated feed-forward layers that hold their weights in another layout than the checkpoint.

Gate and up projection are one matrix, so that the input is read once. That needs a class of its own in place of the
model's (``…Layout``, which Transformers builds) and a rule by which the checkpoint's weights become its weights
(``conversion_mapping``). ``GatedMLP`` replaces a class; ``NormalisedMLP`` fuses two neighbours, the normalisation and
the feed-forward layer, of which the second is then an identity.

A layout has a plain forward as well: where no kernel is bound to it, the model is slower and not wrong.
"""

from typing import Any, cast

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.core_model_loading import Concatenate, WeightConverter, WeightRenaming

__all__ = ["GatedMLP", "GatedMLPLayout", "NormalisedMLP", "NormalisedMLPLayout"]


def feed_forward(layer: Any, states: torch.Tensor) -> torch.Tensor:
    """``down(activation(gate) * up)`` of ``[..., hidden]``; the product is taken in float32 and rounded once."""
    both = layer.gate_up_proj(states)
    gate, up = both.to(torch.promote_types(both.dtype, torch.float32)).chunk(2, dim=-1)
    return cast(torch.Tensor, layer.down_proj((layer.act_fn(gate) * up).to(both.dtype)))


def normalise(layer: Any, states: torch.Tensor) -> torch.Tensor:
    """``weight * x / rms(x)`` of ``[..., hidden]``, in float32 and rounded once."""
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    result = nn.functional.rms_norm(wide, layer.weight.shape, layer.weight.to(wide.dtype), layer.variance_epsilon)
    return result.to(states.dtype)


class GatedMLP(nn.Module):
    """A feed-forward layer with one matrix for gate and up."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        return feed_forward(self, x)


class GatedMLPLayout(nn.Module):
    """Takes the place of a Llama-like model's feed-forward class."""

    conversion_mapping = (
        WeightConverter(
            ["mlp.gate_proj.weight", "mlp.up_proj.weight"], "mlp.gate_up_proj.weight", [Concatenate(dim=0)]
        ),
    )

    def __init__(self, config: Any) -> None:
        """Build it as the class it replaces is built.

        Raises:
            ValueError: the model's projections have biases, which this layout does not hold.
        """
        super().__init__()
        if getattr(config, "mlp_bias", False):
            raise ValueError("embedded/mlp:GatedMLP holds no biases, and this model's feed-forward layers have them")
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What PyTorch computes where no kernel is bound."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return cast(torch.Tensor, self.down_proj(self.act_fn(gate) * up))


class NormalisedMLP(nn.Module):
    """Normalisation and feed-forward layer in one."""

    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        return feed_forward(self, normalise(self, hidden_states))


class NormalisedMLPLayout(nn.Module):
    """Takes the place of a Llama-like decoder layer's second normalisation, and swallows the layer after it."""

    conversion_mapping = (
        WeightConverter(
            ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
            "post_attention_layernorm.gate_up_proj.weight",
            [Concatenate(dim=0)],
        ),
        WeightRenaming("mlp.down_proj.weight", "post_attention_layernorm.down_proj.weight"),
    )

    def __init__(self, norm: Any, mlp: Any) -> None:
        """Build it from the two layers it fuses.

        Raises:
            ValueError: the projections have biases, which this layout does not hold.
        """
        super().__init__()
        if mlp.gate_proj.bias is not None:
            raise ValueError("embedded/mlp:NormalisedMLP holds no biases, and this model's layers have them")
        # The weight keeps its name in the checkpoint; the projections move in beside it.
        self.weight = norm.weight
        self.variance_epsilon = norm.variance_epsilon
        self.gate_up_proj = nn.Linear(mlp.gate_proj.in_features, 2 * mlp.gate_proj.out_features, bias=False)
        self.down_proj = mlp.down_proj
        self.act_fn = mlp.act_fn

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """What PyTorch computes where no kernel is bound."""
        wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        gate, up = self.gate_up_proj(self.weight * wide.to(hidden_states.dtype)).chunk(2, dim=-1)
        return cast(torch.Tensor, self.down_proj(self.act_fn(gate) * up))
