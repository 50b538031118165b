"""Which kernel is asked for under which registered name: the bundled kernels, and the mappings made of them.

A name is here if an expression of plain PyTorch serves every class of Transformers that carries it. Not here, and why:

- ``mamba_inner_fn`` and ``mamba_split_conv1d_scan_combined`` go from projection to projection, and their signatures
  hold no padding mask, which the layers apply between convolution and scan. A kernel would be wrong with padding.
- ``Qwen3_5GatedDeltaNet`` is a whole layer with its cache; the four names inside it are served one by one.
- ``MultiScaleDeformableAttention``, ``EsmFold2TriangleMultiplication`` and ``Llama4TextMoe`` are called by no model of
  the zoo (the last by none at all: Transformers no longer registers it).

A new kernel is one line in ``BUNDLED``.
"""

from collections.abc import Mapping as Table
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUNDLED", "BUNDLED_ATTENTION", "MAPPINGS", "KernelReference", "Mapping"]


@dataclass(frozen=True, slots=True)
class KernelReference:
    """One layer of one revision of a kernel repository, and what it claims to be good for."""

    repository: str
    """``owner/name`` on a Hub, or the absolute path of a local repository."""
    layer: str
    """Class in the repository's ``layers``."""
    version: int | None = None
    """Major version; the newest build of the branch ``v<N>`` is loaded."""
    revision: str | None = None
    """Tag, branch or commit, instead of a version."""
    backward: bool = True
    """Whether the layer says that it has a backward pass; one that has none is never bound in training."""
    compiles: bool = True
    """Whether the layer says that ``torch.compile`` takes it; one that does not is never bound in a compile mode."""

    @property
    def is_local(self) -> bool:
        """Whether the repository is a folder."""
        return Path(self.repository).is_absolute()

    @property
    def promised(self) -> str:
        """The kernel as evidence names it: ``embedded/normalisation@v2:RMSNorm``."""
        at = f"v{self.version}" if self.version is not None else self.revision
        return f"{self.repository}@{at}:{self.layer}" if at else f"{self.repository}:{self.layer}"


@dataclass(frozen=True, slots=True)
class Mapping:
    """The kernels that a case asks for."""

    name: str
    """Last coordinate of a case id."""
    entries: Table[str, KernelReference] | None
    """Kernel by registered name, of which those count that the model has; None is the installed default mapping."""
    inherit: bool
    """Whether names without an entry keep their default kernel, rather than stay PyTorch."""
    requirements: tuple[str, ...]
    """Documented statements that a case with this mapping exercises."""
    reason: str


BUNDLED: dict[str, KernelReference] = {
    "RMSNorm": KernelReference("embedded/normalisation", "RMSNorm", 2),
    "RMSNormGated": KernelReference("embedded/normalisation", "RMSNormGated", 2),
    "RMSNormZeroCentered": KernelReference("embedded/normalisation", "RMSNormZeroCentered", 2),
    "rotary_pos_emb": KernelReference("embedded/rotary", "RotaryEmbedding", 1),
    "FastGELU": KernelReference("embedded/activation", "FastGELU", 1),
    "GeLU": KernelReference("embedded/activation", "GeLU", 1),
    "GeluTanh": KernelReference("embedded/activation", "GeluTanh", 1),
    "NewGELU": KernelReference("embedded/activation", "NewGELU", 1),
    "QuickGELU": KernelReference("embedded/activation", "QuickGELU", 1),
    "SiLU": KernelReference("embedded/activation", "SiLU", 1),
    "MegaBlocksMoeMLP": KernelReference("embedded/moe", "MixtureOfExperts", 1, compiles=False),
    "SoftmaxTopKRouter": KernelReference("embedded/moe", "TopKRouter", 1),
    "causal_conv1d_fn": KernelReference("embedded/state-space", "CausalConvolution", 1),
    "causal_conv1d_update": KernelReference("embedded/state-space", "CausalConvolutionUpdate", 1, backward=False),
    "mamba_chunk_scan_combined": KernelReference("embedded/state-space", "ChunkedScan", 1),
    "selective_scan_fn": KernelReference("embedded/state-space", "SelectiveScan", 1),
    "selective_state_update": KernelReference("embedded/state-space", "SelectiveStateUpdate", 1, backward=False),
    "chunk_gated_delta_rule": KernelReference("embedded/delta-rule", "ChunkedDelta", 1),
    "chunk_kda": KernelReference("embedded/delta-rule", "ChunkedChannelDelta", 1),
    "fused_recurrent_gated_delta_rule": KernelReference("embedded/delta-rule", "RecurrentDelta", 1),
    "fused_recurrent_kda": KernelReference("embedded/delta-rule", "RecurrentChannelDelta", 1),
}
"""The bundled kernel for each registered name that has one."""

BUNDLED_ATTENTION = "embedded/attention"
"""The bundled flash-style attention, as ``attn_implementation`` takes it."""


def _only(name: str, reference: KernelReference) -> Mapping:
    # Transformers registers functions by their own lower-case names, layers by a class name.
    kind = "config.function" if name[0].islower() else "config.layer"
    return Mapping(
        name=f"only-{name}",
        entries={name: reference},
        inherit=False,
        requirements=(kind, "config.only"),
        reason=f"{name} alone, so that a difference from PyTorch can be no other kernel's.",
    )


_RECORDS = (
    Mapping(
        name="pytorch",
        entries={},
        inherit=False,
        requirements=("layers.fallback",),
        reason="No layer kernel at all: the reference, and the case that has only an attention to test.",
    ),
    Mapping(
        name="default",
        entries=None,
        inherit=True,
        requirements=("layers.default",),
        reason="What a user gets from use_kernels=True: the mapping of the installed Transformers as it is.",
    ),
    Mapping(
        name="bundled",
        entries=BUNDLED,
        inherit=False,
        requirements=("config.layer", "config.function", "config.only", "config.version"),
        reason="Every name with a bundled kernel at once; runs on every device, without the Hub.",
    ),
    *(_only(name, reference) for name, reference in BUNDLED.items()),
)

MAPPINGS: dict[str, Mapping] = {mapping.name: mapping for mapping in _RECORDS}
"""Every record by its name."""
