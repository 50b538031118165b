"""The faults that the suite must find, as data: what is wrong, where the kernel lies, how a user would run it, and
which check is expected to say so.

The list comes from public bug reports. A fault is a class ``Broken`` beside its twin ``Healthy`` in one file of
``kernels/``; for attention it is one line of ``kernels/attention.py`` changed; three are no fault of the kernel but of
the set-up around it. A new fault is one record here and one small file. Imports no torch.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cases.axes import Property
from cases.plan import USER
from reports.record import Reason

__all__ = ["ATTENTION", "FAULTS", "SOURCES", "Fault", "SetUp"]

SOURCES = Path(__file__).parent / "kernels"

ATTENTION = "attention"
"""Target of a fault that is reached with ``--attention``; every other is a registered name, for ``--kernel``."""


class SetUp(StrEnum):
    """What is done around a kernel that has no fault of its own."""

    NONE = "none"
    """Nothing: the kernel itself is broken."""
    OTHER_DEVICE = "other-device"
    """The repository has a build for another device only."""
    LEFT_IN_TRAINING = "left-in-training"
    """Kernels are bound for inference, then ``use_kernels = False`` and ``train()``, which un-binds nothing (V14)."""
    DEEP_COPY = "deep-copy"
    """The model is deep-copied, and the original gives its kernels back: the copy calls the process-wide function,
    and what is bound in it is never called (V20)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and how it is run."""

    id: str
    sentence: str
    plain_test: str
    """What a plain test (allclose on the float32 logits of a tiny Llama) sees of it."""
    target: str
    """Registered name, or ``ATTENTION``."""
    source: str
    """File of ``kernels/`` without its suffix."""
    where: str
    """``model/dtype/mode/attention`` of the case that is run; for attention ``model/dtype/mode``."""
    by: tuple[Property, ...]
    """Properties of which each must say FAIL or FALLBACK: the mechanism that is there for this fault."""
    reasons: tuple[Reason, ...] = ()
    """Reasons of which one must be given by one of these; empty where any will do."""
    edit: tuple[str, str] | None = None
    """Text of the source and what stands there instead in the broken kernel; None where it has two classes."""
    set_up: SetUp = SetUp.NONE

    def repository(self, *, broken: bool) -> str:
        """Name of the kernel repository; faults by edit of one source share their twin."""
        if self.edit is not None and not broken:
            return f"{self.source}-healthy"
        return f"{self.id.lower()}-{'broken' if broken else 'healthy'}"

    def layer(self, *, broken: bool) -> str:
        """Class of the repository's ``layers``. Where the set-up alone is the fault, both use the healthy kernel."""
        return "Broken" if broken and self.set_up not in (SetUp.OTHER_DEVICE, SetUp.DEEP_COPY) else "Healthy"

    def case(self, *, broken: bool) -> str:
        """Id of the case, as ``--case`` takes it."""
        if self.target == ATTENTION:
            return f"{self.where}/faults~{self.repository(broken=broken)}/pytorch"
        return f"{self.where}/{USER}"


NOTHING = "nothing"

FAULTS = (
    Fault(
        "S01",
        "RMSNorm with eps fixed at 1e-6 instead of the module's",
        NOTHING,
        "RMSNorm",
        "s01_fixed_eps",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.PROBE,),
    ),
    Fault(
        "S02",
        "RMSNorm squared and averaged in the input dtype",
        NOTHING,
        "RMSNorm",
        "s02_square_in_input_dtype",
        "llama-tiny/bf16/inference/sdpa",
        by=(Property.PROBE,),
        reasons=(Reason.TOLERANCE,),
    ),
    Fault(
        "S03",
        "the same in fp16 with large values: the square overflows, the output is 0",
        NOTHING,
        "RMSNorm",
        "s03_square_overflows",
        "llama-tiny/f16/inference/sdpa",
        by=(Property.PROBE,),
    ),
    Fault(
        "S04",
        "no eps at all: a zero row gives NaN",
        "6e-4",
        "RMSNorm",
        "s04_no_eps",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.PROBE, Property.FORWARD),
    ),
    Fault(
        "S05",
        "zero-centred norm without the +1",
        "nothing on Llama",
        "RMSNormZeroCentered",
        "s05_not_zero_centred",
        "qwen3.5-moe-tiny/f32/inference/sdpa",
        by=(Property.PROBE, Property.FORWARD),
    ),
    Fault(
        "S06",
        "forward under no_grad, has_backward not set: no gradients",
        NOTHING,
        "RMSNorm",
        "s06_no_gradient",
        "llama-tiny/f32/training/sdpa",
        by=(Property.PROBE, Property.GRADIENT),
        reasons=(Reason.MISSING_GRADIENT,),
    ),
    Fault(
        "S07",
        "RoPE: right forward, the gradient passes unrotated",
        NOTHING,
        "rotary_pos_emb",
        "s07_rotary_gradient_unrotated",
        "llama-tiny/f32/training/sdpa",
        by=(Property.PROBE, Property.GRADIENT),
    ),
    Fault(
        "S08",
        "backward scales the gradient by 2",
        NOTHING,
        "RMSNorm",
        "s08_gradient_doubled",
        "llama-tiny/f32/training/sdpa",
        by=(Property.PROBE, Property.GRADIENT),
    ),
    Fault(
        "S09",
        "backward writes into the incoming gradient",
        "3e-7",
        "RMSNorm",
        "s09_incoming_gradient_overwritten",
        "llama-tiny/f32/training/sdpa",
        by=(Property.PROBE,),
    ),
    Fault(
        "S10",
        "weight gradient added once per shard",
        NOTHING,
        "RMSNorm",
        "s10_weight_gradient_per_shard",
        "llama-tiny/f32/training/sdpa",
        by=(Property.PROBE, Property.GRADIENT),
    ),
    Fault(
        "S11",
        "attention backward wrong when key-value heads < heads",
        NOTHING,
        ATTENTION,
        "attention",
        "llama-tiny/f32/training",
        by=(Property.PROBE, Property.GRADIENT),
        edit=(
            "    return states.repeat_interleave(times, dim=1)\n",
            "    # The gradient reaches a key-value head through the first of its query heads only.\n"
            "    shared = states.unsqueeze(2).expand(-1, -1, times, -1, -1)\n"
            "    return torch.cat((shared[:, :, :1], shared[:, :, 1:].detach()), dim=2).flatten(1, 2)\n",
        ),
    ),
    Fault(
        "S12",
        "forward mutates its input",
        "nothing at the layer's output",
        "SiLU",
        "s12_input_mutated",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.PROBE,),
    ),
    Fault(
        "S13",
        "returns one reused buffer",
        NOTHING,
        "RMSNorm",
        "s13_buffer_reused",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.PROBE,),
    ),
    Fault(
        "S14",
        "RoPE uses row 0's cos/sin for the whole batch",
        "3e-8 under left padding; 1e-3 with stretched positions",
        "rotary_pos_emb",
        "s14_rotary_first_row",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.PROBE, Property.FORWARD),
    ),
    Fault(
        "S15",
        "flash: varlen ignores cumulative lengths (leaks across padding and packing)",
        "nothing dense; greedy tokens equal",
        ATTENTION,
        "attention",
        "llama-tiny/f32/inference",
        by=(Property.PROBE, Property.FORWARD),
        reasons=(Reason.TOLERANCE,),
        edit=(
            "    lengths = (cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist())\n",
            "    lengths = ([q.shape[0]], [k.shape[0]])\n",
        ),
    ),
    Fault(
        "S16",
        "flash: sliding window one token too wide",
        "nothing on Llama",
        ATTENTION,
        "attention",
        "mistral-tiny/f32/inference",
        by=(Property.PROBE, Property.FORWARD),
        edit=(
            "    left, right = window[0], 0 if causal else window[1]\n",
            "    left, right = window[0] + (window[0] >= 0), 0 if causal else window[1]\n",
        ),
    ),
    Fault(
        "S17",
        "flash: causal mask aligned top-left",
        "nothing in dense prefill",
        ATTENTION,
        "attention",
        "llama-tiny/f32/inference",
        by=(Property.PROBE, Property.GENERATE),
        edit=(".unsqueeze(1) + (keys - queries)\n", ".unsqueeze(1)\n"),
    ),
    Fault(
        "S18",
        "flash: sink argument under another name, dropped",
        "no error raised",
        ATTENTION,
        "attention",
        "gpt-oss-tiny/f16/inference",
        by=(Property.ENGAGE,),
        reasons=(Reason.FEATURE_DROPPED,),
        edit=("s_aux", "sink_scores"),
    ),
    Fault(
        "S19",
        "flash: softmax scale ignored",
        "0.0 on Llama and Mistral",
        ATTENTION,
        "attention",
        "gemma2-tiny/bf16/inference",
        by=(Property.PROBE, Property.FORWARD),
        edit=(
            "    scale = states.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale\n",
            "    scale = states.shape[-1] ** -0.5\n",
        ),
    ),
    Fault(
        "S20",
        "can_torch_compile = True with a data-dependent branch",
        NOTHING,
        "RMSNorm",
        "s20_data_dependent_branch",
        "llama-tiny/f32/inference-compile/sdpa",
        by=(Property.COMPILE,),
        reasons=(Reason.GRAPH_BREAK,),
    ),
    Fault(
        "S21",
        "run-to-run noise",
        "nothing at 1e-3",
        "RMSNorm",
        "s21_noise",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.PROBE, Property.DETERMINISM),
        reasons=(Reason.NONDETERMINISTIC,),
    ),
    Fault(
        "S22",
        "the repository has only a build for another device",
        "nothing (results are right!)",
        "RMSNorm",
        "s22_other_device",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.ENGAGE,),
        reasons=(Reason.CANNOT_LOAD,),
        set_up=SetUp.OTHER_DEVICE,
    ),
    Fault(
        "S23",
        "an extra positional parameter",
        "TypeError at load",
        "RMSNorm",
        "s23_extra_parameter",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.LOAD,),
        reasons=(Reason.REJECTED,),
    ),
    Fault(
        "S24",
        "an inference kernel still active in training",
        "20 of 21 gradients missing, no error",
        "RMSNorm",
        "s24_left_in_training",
        "llama-tiny/f32/training/sdpa",
        by=(Property.PROBE, Property.GRADIENT),
        reasons=(Reason.MISSING_GRADIENT,),
        set_up=SetUp.LEFT_IN_TRAINING,
    ),
    Fault(
        "S25",
        "a kernel bound but never called",
        NOTHING,
        "rotary_pos_emb",
        "s25_never_called",
        "llama-tiny/f32/inference/sdpa",
        by=(Property.ENGAGE,),
        reasons=(Reason.NOT_CALLED,),
        set_up=SetUp.DEEP_COPY,
    ),
)
