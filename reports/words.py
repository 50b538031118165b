"""What the codes of a result mean, in a sentence each, for a reader who has never seen the suite."""

from reports.record import Determinism, Outcome, Reason, Speed

__all__ = ["DASH", "DETERMINISM", "OUTCOMES", "REASONS", "SPEEDS", "TIMES"]

TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"

OUTCOMES: dict[Outcome, str] = {
    Outcome.PASS: "The property holds, with evidence.",
    Outcome.NOT_SUPPORTED: "Declared unsupported, and the documented refusal was seen.",
    Outcome.WAIVED: "A known fault, matched by a waiver; the check still ran.",
    Outcome.NOT_RUN: "Not checked; the reason says why.",
    Outcome.FALLBACK: "A kernel was asked for and PyTorch ran instead.",
    Outcome.RESOURCE: "The device ran out of memory.",
    Outcome.HARNESS_ERROR: "The suite itself went wrong; says nothing of the kernel.",
    Outcome.TIMEOUT: "Did not end in time and was killed.",
    Outcome.CRASH: "The process died.",
    Outcome.FAIL: "The property does not hold.",
    Outcome.UNKNOWN: "Nothing was recorded.",
}

REASONS: dict[Reason, str] = {
    Reason.NO_LAYER: "The mapping has no entry for this layer.",
    Reason.NO_DEVICE: "The mapping has an entry for this layer, but none for this device.",
    Reason.NO_COMPATIBLE_PROPERTIES: "The mapping has entries for this device type, but none for this very device "
    "(for example its compute capability).",
    Reason.NO_COMPATIBLE_MODE: "The mapping has no entry for this mode (training, compile) or one it may stand in for.",
    Reason.CANNOT_LOAD: "The repository was found in the mapping but could not be loaded: no build for this device and "
    "torch, not reachable, or broken.",
    Reason.CONDITION: "The layer's own kernel_condition declined in this configuration.",
    Reason.DISABLED: "Kernels were switched off by an environment variable.",
    Reason.REJECTED: "The kernel was refused at load: its signature, state or import does not fit the layer.",
    Reason.UNTRUSTED: "The publisher is not trusted, and no consent was given.",
    Reason.NOT_CALLED: "The kernel was bound, but the model never called it.",
    Reason.BAD_SIGNATURE: "The kernel carries a signature, and it does not hold for the files that were loaded.",
    Reason.REBOUND: "The kernel was bound at load, and another forward was in its place later.",
    Reason.SHADOWED: "Another mapping took precedence over the one asked for.",
    Reason.WRONG_REVISION: "The kernel was loaded from another repository or commit than its pin stands for.",
    Reason.BASELINE_NOT_PYTORCH: "The PyTorch arm itself ran an installed package, so there is no PyTorch to compare.",
    Reason.DEPENDS: "A property that this one rests on did not pass.",
    Reason.NOT_REGISTERED: "The model registers no layer or function of this name in the installed Transformers.",
    Reason.NOT_APPLICABLE: "The property does not exist for this case.",
    Reason.NO_HUB: "The repository is on the real Hub only, and the run used the embedded one.",
    Reason.HUB_AWAY: "The Hub stopped answering during the run; says nothing of the kernel, and --resume tries again.",
    Reason.TOLERANCE: "The error is above the limit that PyTorch's own error sets.",
    Reason.MISSING_GRADIENT: "A parameter has a gradient in PyTorch and none with the kernel.",
    Reason.FEATURE_DROPPED: "The model asks for something that the kernel cannot be told of; it ran without.",
    Reason.NONDETERMINISTIC: "The same call gave different results.",
    Reason.GRAPH_BREAK: "torch.compile broke the graph at the kernel.",
    Reason.RECOMPILE: "torch.compile made more graphs over several lengths than it does without the kernel.",
    Reason.EXCEPTION: "The code under test raised an error; the message holds what it said.",
    Reason.INTERRUPTED: "The run was stopped while this was being checked.",
    Reason.UNFIT: "The machine is in no state to be measured on.",
}

DETERMINISM: dict[Determinism, str] = {
    Determinism.BITWISE: "every repeat gave the same bits",
    Determinism.TOLERANT: "repeats differ, within the tolerance of the forward check",
    Determinism.VARIES: "repeats differ by more than the tolerance, and PyTorch's do not",
    Determinism.REFERENCE_VARIES: "PyTorch's own repeats differ on this device",
}

SPEEDS: dict[Speed, str] = {
    Speed.FASTER: "the whole interval is more than 2 % above 1",
    Speed.SAME: "the whole interval is within 2 % of 1",
    Speed.SLOWER: "the whole interval is more than 2 % below 1",
    Speed.INCONCLUSIVE: "the interval did not become narrow enough to say",
    Speed.NOT_MEASURED: "not timed; the reason says why",
}
