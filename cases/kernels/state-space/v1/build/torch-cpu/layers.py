"""State-space layers: the short causal convolution, and the selective scans of Mamba and Mamba 2.

All are functions of Transformers, so each class has a forward and nothing else. Work is done in float32 (float64 where
the input is), and rounded once at the end. States are written in place where the function's contract is to do so
(``causal_conv1d_update``, ``selective_state_update``), and nowhere else. Packed sequences are refused as PyTorch's
forwards refuse them, rather than run into each other.
"""
# The functions replaced call their matrices A, B, C and D, and models pass them by these names.
# ruff: noqa: N803, N806

import torch
from torch import nn
from torch.nn import functional

__all__ = [
    "CausalConvolution",
    "CausalConvolutionUpdate",
    "ChunkedScan",
    "SelectiveScan",
    "SelectiveStateUpdate",
]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the precision that sums are taken in: float32, or float64 where it is that already."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def refuse_packed(options: dict[str, object]) -> None:
    """Raise where a caller asks to keep packed sequences apart."""
    for name in ("seq_idx", "cu_seqlens"):
        if options.get(name) is not None:
            raise ValueError(f"embedded/state-space can't keep packed sequences apart, and {name} was given")


def convolve(
    window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """Weigh each channel of ``[batch, channels, length + taps - 1]`` over its taps; a sum of shifted products."""
    taps = weight.shape[-1]
    length = window.shape[-1] - taps + 1
    window, weight = wide(window), wide(weight)
    result = window[..., :length] * weight[:, :1]
    if bias is not None:
        result = result + wide(bias).unsqueeze(-1)
    for tap in range(1, taps):
        result = torch.addcmul(result, window[..., tap : tap + length], weight[:, tap : tap + 1])
    if activation is None:
        return result
    if activation in ("silu", "swish"):
        return functional.silu(result)
    raise ValueError(f"the causal convolution knows the activations silu, swish and none, not {activation!r}")


def opened(step: torch.Tensor, bias: torch.Tensor | None, softplus: bool) -> torch.Tensor:
    """Time steps in float32, with their bias and softplus."""
    step = wide(step)
    if bias is not None:
        step = step + wide(bias)
    return functional.softplus(step) if softplus else step


class CausalConvolution(nn.Module):
    """``causal_conv1d_fn``."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Convolve ``[batch, channels, length]`` with ``[channels, taps]``, looking back only."""
        refuse_packed(kwargs)
        padded = functional.pad(hidden_states, (weight.shape[-1] - 1, 0))
        return convolve(padded, weight, bias, activation).to(hidden_states.dtype)


class CausalConvolutionUpdate(nn.Module):
    """``causal_conv1d_update``."""

    can_torch_compile = True
    # The state is overwritten, so that a gradient through it would be wrong without a word.
    has_backward = False

    def forward(
        self,
        hidden_states: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
    ) -> torch.Tensor:
        """Convolve the new ``[batch, channels, length]`` after ``conv_state``, and move the state on."""
        length, taps = hidden_states.shape[-1], weight.shape[-1]
        window = torch.cat((conv_state, hidden_states.to(conv_state.dtype)), dim=-1)
        conv_state.copy_(window[..., -conv_state.shape[-1] :])
        return convolve(window[..., -(length + taps - 1) :], weight, bias, activation).to(hidden_states.dtype)


class SelectiveScan(nn.Module):
    """``selective_scan_fn`` of Mamba."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        delta_bias: torch.Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        use_mambapy: bool = False,
        use_associative_scan: bool = False,
        **kwargs: object,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Scan ``[batch, channels, length]`` with steps ``dt`` of the same shape, ``A`` ``[channels, states]``, and
        ``B`` and ``C`` ``[batch, states, length]``. The last state is ``[batch, channels, states]`` in float32.
        """
        refuse_packed(kwargs)
        steps = opened(dt, None if delta_bias is None else delta_bias.unsqueeze(-1), delta_softplus).transpose(1, 2)
        inputs = wide(hidden_states).transpose(1, 2)
        decays = torch.exp(steps.unsqueeze(-1) * wide(A))
        updates = (steps * inputs).unsqueeze(-1) * wide(B).transpose(1, 2).unsqueeze(2)
        # Unbinding beats indexing: the gradient of an index is a zero tensor of the whole length, each time.
        state = torch.zeros_like(updates[:, 0])
        states = []
        for decay, update in zip(decays.unbind(1), updates.unbind(1), strict=True):
            state = torch.addcmul(update, decay, state)
            states.append(state)
        result = torch.matmul(torch.stack(states, dim=1), wide(C).transpose(1, 2).unsqueeze(-1)).squeeze(-1)
        if D is not None:
            result = torch.addcmul(result, inputs, wide(D))
        if z is not None:
            result = result * functional.silu(wide(z)).transpose(1, 2)
        # Parameters kept in float32 raise PyTorch's result to it.
        dtype = hidden_states.dtype if D is None else torch.promote_types(hidden_states.dtype, D.dtype)
        result = result.transpose(1, 2).to(dtype)
        return (result, state) if return_last_state else result


class SelectiveStateUpdate(nn.Module):
    """``selective_state_update`` of Mamba (two-dimensional inputs) and of Mamba 2 (heads, and groups of them)."""

    can_torch_compile = True
    # The state is overwritten, so that a gradient through it would be wrong without a word.
    has_backward = False

    def forward(
        self,
        state: torch.Tensor,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        z: torch.Tensor | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """One step of ``[batch, channels]`` or ``[batch, heads, head]``; ``state`` has one more dimension, the states,
        and is moved on. ``B`` and ``C`` are ``[batch, states]`` or ``[batch, groups, states]``.
        """
        steps = opened(dt, dt_bias, dt_softplus).unsqueeze(-1)
        inputs = wide(hidden_states)
        B, C = wide(B).unsqueeze(-2), wide(C).unsqueeze(-1)
        if hidden_states.dim() == 3:
            heads = hidden_states.shape[1] // B.shape[1]
            B, C = B.repeat_interleave(heads, dim=1), C.repeat_interleave(heads, dim=1)
        updated = torch.addcmul(steps * B * inputs.unsqueeze(-1), wide(state), torch.exp(steps * wide(A)))
        state.copy_(updated)
        result = torch.matmul(updated, C).squeeze(-1)
        if D is not None:
            result = torch.addcmul(result, inputs, wide(D))
        if z is not None:
            result = result * functional.silu(wide(z))
        return result.to(hidden_states.dtype)


class ChunkedScan(nn.Module):
    """``mamba_chunk_scan_combined`` of Mamba 2; scores are taken once per group, not once per head."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        chunk_size: int,
        D: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        initial_states: torch.Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        return_final_states: bool = False,
        **kwargs: object,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Scan ``[batch, length, heads, head]`` with steps ``[batch, length, heads]``, ``A`` ``[heads]``, and ``B`` and
        ``C`` ``[batch, length, groups, states]``. The result is float32, as PyTorch's; the final state is
        ``[batch, heads, head, states]``.
        """
        refuse_packed(kwargs)
        if kwargs.get("z") is not None:
            raise ValueError("embedded/state-space applies no gate in the chunked scan, and z was given")
        batch, length, heads, size = hidden_states.shape
        groups, states = B.shape[2:]
        # A sequence shorter than a chunk needs no padding to one.
        chunk = min(chunk_size, length)
        padding = -length % chunk
        steps = opened(dt, dt_bias, dt_softplus).clamp(*dt_limit)
        inputs = wide(hidden_states)
        scaled = functional.pad(inputs * steps.unsqueeze(-1), (0, 0, 0, 0, 0, padding))
        decays = functional.pad(steps * wide(A), (0, 0, 0, padding))
        # [batch, chunks, groups, heads of the group, place in the chunk, ...]
        shape = (batch, -1, chunk, groups, heads // groups)
        scaled = scaled.reshape(*shape, size).permute(0, 1, 3, 4, 2, 5)
        decays = decays.reshape(shape).permute(0, 1, 3, 4, 2)
        keys, queries = (
            functional.pad(wide(matrix), (0, 0, 0, 0, 0, padding))
            .reshape(batch, -1, chunk, groups, states)
            .transpose(2, 3)
            .unsqueeze(3)
            for matrix in (B, C)
        )
        total = decays.cumsum(-1)
        below = torch.ones(chunk, chunk, dtype=torch.bool, device=B.device).tril(-1)
        # Summing from each place on, rather than subtracting two long sums, keeps small differences exact.
        between = decays.unsqueeze(-1).expand(*decays.shape, chunk).masked_fill(~below, 0.0).cumsum(-2)
        weights = between.masked_fill(below.T, float("-inf")).exp() * (queries @ keys.transpose(-1, -2))
        result = weights @ scaled
        gains = (scaled * between[..., -1, :].exp().unsqueeze(-1)).transpose(-1, -2) @ keys
        state = torch.zeros_like(gains[:, 0]) if initial_states is None else wide(initial_states).view_as(gains[:, 0])
        carried = []
        for gain, decay in zip(gains.unbind(1), total[..., -1].exp().unbind(1), strict=True):
            carried.append(state)
            state = torch.addcmul(gain, state, decay[..., None, None])
        earlier = queries @ torch.stack(carried, dim=1).transpose(-1, -2)
        result = torch.addcmul(result, earlier, total.exp().unsqueeze(-1))
        result = result.permute(0, 1, 4, 2, 3, 5).reshape(batch, length + padding, heads, size)[:, :length]
        if D is not None:
            result = torch.addcmul(result, inputs, wide(D).unsqueeze(-1))
        if return_final_states:
            return result, state.reshape(batch, heads, size, states)
        return result
