"""Norms and rotations, each with one fault, and their healthy twins: the kernel repository of ``test_probes.py``."""

from typing import Any

import torch
from torch import nn


class Norm(torch.autograd.Function):
    """A fused RMSNorm; ``fault`` is what its backward pass does wrong."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, eps: float, fault: str) -> torch.Tensor:
        wide = states.float() if states.dtype != torch.float64 else states
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(states, weight, scale)
        ctx.fault = fault
        return (wide * scale * weight).to(states.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        states, weight, scale = ctx.saved_tensors
        (incoming,) = gradients
        if ctx.fault == "overwrite":
            incoming.mul_(0.5)
            incoming = incoming * 2
        wide = incoming.to(scale.dtype)
        unit = states.to(scale.dtype) * scale
        inner = wide * weight
        outgoing = scale * (inner - unit * (inner * unit).mean(-1, keepdim=True))
        of_weight = (wide * unit).reshape(-1, weight.shape[0]).sum(0).to(weight.dtype)
        if ctx.fault == "double":
            outgoing = outgoing * 2
        if ctx.fault == "shards":
            of_weight = of_weight * 2
        if ctx.fault == "accumulate" and weight.grad is not None:
            of_weight = of_weight + weight.grad
        return outgoing.to(states.dtype), of_weight, None, None


class Rotation(torch.autograd.Function):
    """A fused rotation; ``fault`` is what its backward pass does wrong."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, fault: str) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.fault = fault
        return turned(states, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        cos, sin = ctx.saved_tensors
        (incoming,) = gradients
        return incoming if ctx.fault == "unrotated" else turned(incoming, cos, -sin), None, None, None


def turned(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    lower, upper = states.float().chunk(2, dim=-1)
    return (states.float() * cos.float() + torch.cat((-upper, lower), dim=-1) * sin.float()).to(states.dtype)


def fused(layer: Any, states: torch.Tensor, fault: str) -> torch.Tensor:
    function: Any = Norm
    result: torch.Tensor = function.apply(states, layer.weight, layer.variance_epsilon, fault)
    return result


def plain(states: torch.Tensor, eps: float) -> torch.Tensor:
    wide = states.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(states.dtype)


class HealthyNorm(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states, "")


class FixedEpsilon(nn.Module):
    weight: torch.Tensor

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.weight * plain(hidden_states, 1e-6)


class NarrowSquares(nn.Module):
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden_states * scale)


class NoEpsilon(nn.Module):
    weight: torch.Tensor

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.weight * plain(hidden_states, 0.0)


class WeightIgnored(nn.Module):
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return plain(hidden_states, self.variance_epsilon)


class WithoutGradient(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return fused(self, hidden_states, "")


class DoubledGradient(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states, "double")


class IncomingOverwritten(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states, "overwrite")


class WeightPerShard(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states, "shards")


class WeightAccumulatedTwice(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states, "accumulate")


class InputMutated(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "")
        hidden_states.detach().copy_(result.detach())
        return result


BUFFERS: dict[tuple[object, ...], torch.Tensor] = {}


class BufferReused(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "")
        if torch.is_grad_enabled():
            return result
        buffer = BUFFERS.setdefault((hidden_states.shape, hidden_states.dtype), torch.empty_like(result))
        return buffer.copy_(result)


class Noisy(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "")
        return result * (1 + 1e-6 * torch.randn_like(result))


class WeightKept(nn.Module):
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return fused(self, hidden_states, "")
        kept = BUFFERS.setdefault((id(self), self.weight.data_ptr()), self.weight.detach().clone())
        return kept * plain(hidden_states, self.variance_epsilon)


class NeighboursSeen(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "")
        return result + 1e-7 * hidden_states.sum(0, keepdim=True)


class ContiguousAssumed(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        size = hidden_states.shape
        rows = hidden_states.as_strided(size, torch.empty(size, device="meta").stride())
        return fused(self, rows, "")


class HealthyRotation(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return turned(q, cos, sin), turned(k, cos, sin)


class GradientUnrotated(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        function: Any = Rotation
        return function.apply(q, cos, sin, "unrotated"), function.apply(k, cos, sin, "unrotated")


class FirstRowForAll(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos[:1].unsqueeze(unsqueeze_dim), sin[:1].unsqueeze(unsqueeze_dim)
        return turned(q, cos, sin), turned(k, cos, sin)


class GridTooSmall(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "").clone()
        result.reshape(-1, result.shape[-1])[2048:] = 0
        return result


class OddBatchEnd(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "").clone()
        if len(result) > 1 and len(result) % 2:
            result[-1] *= 1.05
        return result


class NinthSequence(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        result = fused(self, hidden_states, "").clone()
        result[8:] *= 1.05
        return result


class TableOfSixteen(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states[torch.arange(len(hidden_states)) % 16], "")


class NanHidden(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return fused(self, hidden_states.nan_to_num(), "")


class Seeds(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return fused(self, hidden_states, "")
