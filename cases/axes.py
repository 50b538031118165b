"""The axes a case moves along, and the properties that are checked of it. One enum each, every member documented.

A value's spelling here is the spelling in case ids, options and result files, so it never changes meaning.
"""

from enum import StrEnum

__all__ = ["DType", "Device", "Mode", "Phase", "Property", "Tier"]


class Device(StrEnum):
    """Device types by the names that Transformers and kernels use for them."""

    CPU = "cpu"
    """Host processor; always there."""
    CUDA = "cuda"
    """NVIDIA GPU."""
    ROCM = "rocm"
    """AMD GPU: torch calls the device ``cuda``, kernels calls it ``rocm``."""
    XPU = "xpu"
    """Intel GPU."""
    MPS = "mps"
    """Apple GPU."""
    NPU = "npu"
    """Ascend NPU."""


class DType(StrEnum):
    """Floating-point types a model is loaded in."""

    FLOAT32 = "f32"
    """IEEE single precision."""
    BFLOAT16 = "bf16"
    """Brain float: the range of float32 with 8 bits of precision."""
    FLOAT16 = "f16"
    """IEEE half precision; overflows above 65504."""


class Mode(StrEnum):
    """What the kernelized model is used for; the four modes that ``kernels.kernelize`` knows."""

    INFERENCE = "inference"
    """``model.eval()``, no gradients."""
    TRAINING = "training"
    """``model.train()``, forward and backward."""
    INFERENCE_COMPILE = "inference-compile"
    """Inference under ``torch.compile``."""
    TRAINING_COMPILE = "training-compile"
    """Training under ``torch.compile``."""

    @property
    def trains(self) -> bool:
        """Whether a backward pass belongs to this mode."""
        return self in (Mode.TRAINING, Mode.TRAINING_COMPILE)

    @property
    def compiles(self) -> bool:
        """Whether the model runs under ``torch.compile`` in this mode."""
        return self in (Mode.INFERENCE_COMPILE, Mode.TRAINING_COMPILE)


class Phase(StrEnum):
    """The piece of work that is timed."""

    PREFILL = "prefill"
    """One forward pass over the whole prompt."""
    DECODE = "decode"
    """One forward pass over one new token with a filled cache."""
    TRAIN_STEP = "train-step"
    """Forward and backward pass."""


class Property(StrEnum):
    """What is checked of a case, in the order of checking: a later one may rest on an earlier one."""

    STATEMENT = "statement"
    """A documented statement that is about no model in particular."""
    LADDER = "ladder"
    """A revision on a ladder, and what its files offer; nothing of it is run."""
    REPOSITORY = "repository"
    """A kernel repository is sound before anything of it runs: metadata, purity, signatures, flags."""
    LOAD = "load"
    """The model loads through ``from_pretrained`` as the case says."""
    ENGAGE = "engage"
    """The kernels asked for are bound and called."""
    PROBE = "probe"
    """Each kernel agrees with its layer's own PyTorch forward on captured and perturbed calls."""
    FORWARD = "forward"
    """Logits agree with PyTorch, as far as PyTorch agrees with itself in float64."""
    GRADIENT = "gradient"
    """So does the gradient of every parameter."""
    STATE = "state"
    """The right forward is active after train(), eval(), deepcopy and the like, and other models are untouched."""
    DETERMINISM = "determinism"
    """The same call gives the same bits."""
    COMPILE = "compile"
    """The model compiles without graph breaks and computes the same."""
    GENERATE = "generate"
    """Prefill and decode with a cache give the logits of one forward pass."""
    MEMORY = "memory"
    """Peak memory as a multiple of PyTorch's."""
    SPEED = "speed"
    """Time as a fraction of PyTorch's."""
    BREAK_EVEN = "break_even"
    """The shapes from which on the kernels win, and the calls that pay back their load."""


class Tier(StrEnum):
    """How much of the plan is run."""

    SMOKE = "smoke"
    """Every property and axis value once; under half a minute."""
    CORE = "core"
    """Every pair of axis values once; release sign-off."""
    FULL = "full"
    """The whole product; nightly."""
