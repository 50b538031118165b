"""The schema of a result: the one thing that ``suite`` (which writes) and ``reports`` (which reads) share.

``results.jsonl`` holds one ``Record`` a line. Reading validates: a file from elsewhere is untrusted input, so every
string is bounded and every enum closed. Fields may be added; none may change its meaning.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from cases.axes import Phase, Property

__all__ = [
    "DECIDED",
    "SCHEMA",
    "Determinism",
    "Engagement",
    "Environment",
    "LoadedKernel",
    "Measure",
    "Outcome",
    "Reason",
    "Record",
    "Short",
    "Speed",
    "Text",
    "decode_record",
    "encode",
    "figure",
]

SCHEMA = 1
"""Version of this schema; a reader refuses records of a later one."""

Short = Annotated[str, msgspec.Meta(max_length=512)]
Text = Annotated[str, msgspec.Meta(max_length=20_000)]


Measure = float | int | str | bool | list[float] | None
"""A figure of a record."""


class Outcome(StrEnum):
    """How a check ended. The closed set, best to worst; the worst wins when outcomes are aggregated."""

    PASS = "PASS"
    """The property holds, with evidence."""
    NOT_SUPPORTED = "NOT_SUPPORTED"
    """Declared unsupported, and the documented refusal was seen."""
    WAIVED = "WAIVED"
    """A known fault, matched by a waiver; the check still ran."""
    NOT_RUN = "NOT_RUN"
    """Not checked; the reason says why."""
    FALLBACK = "FALLBACK"
    """A kernel was asked for and PyTorch ran."""
    RESOURCE = "RESOURCE"
    """Out of memory."""
    HARNESS_ERROR = "HARNESS_ERROR"
    """The suite itself went wrong."""
    TIMEOUT = "TIMEOUT"
    """Did not end in time and was killed."""
    CRASH = "CRASH"
    """The process died."""
    FAIL = "FAIL"
    """The property does not hold."""
    UNKNOWN = "UNKNOWN"
    """Aggregate of an empty set. Never written by the suite."""


class Speed(StrEnum):
    """Verdict on time; its own field, since a wrong kernel may be fast."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_MEASURED = "NOT_MEASURED"


DECIDED = frozenset({Speed.FASTER, Speed.SAME, Speed.SLOWER})
"""Verdicts that say something of the kernel."""


class Determinism(StrEnum):
    """Grade of repeatability."""

    BITWISE = "BITWISE"
    """Every repeat gave the same bits."""
    TOLERANT = "TOLERANT"
    """Repeats differ, within the tolerance of the forward check."""
    VARIES = "VARIES"
    """Repeats differ by more than that, and PyTorch's do not."""
    REFERENCE_VARIES = "REFERENCE_VARIES"
    """PyTorch's own repeats differ on this device."""


class Reason(StrEnum):
    """Why an outcome is not a plain PASS or FAIL. The first five are ``kernels.KernelizeFallback``'s."""

    NO_LAYER = "NO_LAYER"
    NO_DEVICE = "NO_DEVICE"
    NO_COMPATIBLE_PROPERTIES = "NO_COMPATIBLE_PROPERTIES"
    NO_COMPATIBLE_MODE = "NO_COMPATIBLE_MODE"
    CANNOT_LOAD = "CANNOT_LOAD"
    CONDITION = "CONDITION"
    """The layer's ``kernel_condition`` said no."""
    DISABLED = "DISABLED"
    """Switched off by an environment variable."""
    REJECTED = "REJECTED"
    """The kernel was refused at load: signature, statelessness, import error."""
    UNTRUSTED = "UNTRUSTED"
    """The publisher is not trusted and no consent was given."""
    NOT_CALLED = "NOT_CALLED"
    """Bound, and never ran."""
    BAD_SIGNATURE = "BAD_SIGNATURE"
    """The loaded variant is signed, and the signature does not hold for its files."""
    REBOUND = "REBOUND"
    """Bound at load, another forward later."""
    SHADOWED = "SHADOWED"
    """Another mapping won."""
    WRONG_REVISION = "WRONG_REVISION"
    """Loaded from another repository or commit than the pin stands for."""
    BASELINE_NOT_PYTORCH = "BASELINE_NOT_PYTORCH"
    """The PyTorch arm itself ran an installed package."""
    DEPENDS = "DEPENDS"
    """A property this one rests on did not pass."""
    NOT_REGISTERED = "NOT_REGISTERED"
    """The model registers no layer or function of that name in the installed Transformers."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """The property does not exist for this case (no gradients in inference, no cache in an encoder)."""
    NO_HUB = "NO_HUB"
    """The repository is on the real Hub only, and the run uses the embedded one."""
    HUB_AWAY = "HUB_AWAY"
    """The Hub stopped answering: nothing is said of the kernel, and a resumed run tries again."""
    TOLERANCE = "TOLERANCE"
    """The error is above the limit."""
    MISSING_GRADIENT = "MISSING_GRADIENT"
    """A parameter has a gradient in PyTorch and none with the kernel."""
    FEATURE_DROPPED = "FEATURE_DROPPED"
    """The model asks for something that the kernel's signature has no parameter for; it is left out without a word."""
    NONDETERMINISTIC = "NONDETERMINISTIC"
    GRAPH_BREAK = "GRAPH_BREAK"
    RECOMPILE = "RECOMPILE"
    """More graphs are compiled over several lengths than PyTorch's own forward needs."""
    EXCEPTION = "EXCEPTION"
    """The code under test raised; the message holds what it said."""
    INTERRUPTED = "INTERRUPTED"
    UNFIT = "UNFIT"
    """The machine is in no state to be measured on."""


class Engagement(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger: what became of one registered name (or of the attention function) in one case."""

    name: Short
    """Registered name (``RMSNorm``), or ``attention``."""
    promised: Short
    """What was asked for: ``org/repo@v1:Layer``, ``/abs/path:Layer``, ``pytorch``."""
    resolved: Short | None = None
    """What was loaded: ``org/repo@<commit>:Layer (torch-cpu)``; None when PyTorch runs."""
    digest: Short | None = None
    """``sha256:…`` over the files of the variant that was loaded."""
    signature: Short | None = None
    """State of its signature: ``unsigned``, ``verified (…)``, ``not verified: …`` or ``invalid: …``."""
    modules: int = 0
    """Modules or functions of the model that carry the name."""
    bound: int = 0
    """How many of them have the kernel as their forward."""
    calls: int = 0
    """Calls of kernel forwards seen in one untimed pass."""
    reason: Reason | None = None
    """Why not all modules are bound or called."""
    detail: Text | None = None
    """What the library said."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One check of one case. ``speed`` and ``determinism`` are set by the checks of these names only."""

    case: Short
    property: Property
    outcome: Outcome
    phase: Phase | None = None
    requirements: tuple[Short, ...] = ()
    reason: Reason | None = None
    message: Text = ""
    """One or two sentences for a reader who has not seen the suite."""
    speed: Speed | None = None
    determinism: Determinism | None = None
    evidence: tuple[Engagement, ...] = ()
    measures: dict[Short, Measure] = {}
    """Named figures. Speed: ``ratio``, ``low``, ``high`` (t_pytorch / t_kernel), ``pairs``, ``pytorch_ms``,
    ``kernel_ms``, ``logs`` (ln ratios), ``pytorch_seconds`` and ``kernel_seconds`` (raw, a call), ``claimed`` (the
    verdict of the interval alone), ``unmet``, tokens per second, ``device_ratio`` (by device events),
    ``compiled_after_warm_up``. Forward: ``error_ratio``, ``limit``, ``error_kernel``, ``error_pytorch``,
    ``match_bits``, ``match_top1``. Memory: ``ratio``. Determinism: ``digest`` (of all bits), ``fresh_process``
    (``same``, ``other``, or why not asked), ``batch_kernel`` and ``batch_pytorch`` (a sequence alone against itself in
    a batch, 0 for the same bits), ``flags`` (deterministic algorithms ``hold``, ``vary`` or ``raise``), ``flags_cost``,
    ``flags_cost_low``, ``flags_cost_high``. Break-even: as ``reports.break_even.measures_of`` writes them."""
    shims: tuple[Short, ...] = ()
    waiver: Short | None = None
    """Id of the waiver that turned this record WAIVED."""
    unwaived: Outcome | None = None
    """What the outcome was before."""
    repro: Text = ""
    seconds: float = 0.0
    schema: int = SCHEMA


class LoadedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel variant that was loaded during the run."""

    name: Short
    repo: Short
    revision: Short | None
    variant: Short
    digest: Short
    signature: Short = ""
    """As in ``Engagement``; empty in runs of earlier versions."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """``environment.json``: where and with what a run was made."""

    suite_commit: Short
    command: Text
    started: Short
    """UTC, ISO 8601."""
    device: Short
    """Device type, as in ``--device``."""
    device_name: Short
    device_count: int
    driver: Short
    memory_bytes: int
    packages: dict[Short, Short]
    python: Short
    platform: Short
    threads: int
    hub: Short
    """``embedded`` or the address of the Hub used."""
    tier: Short
    planned: int
    """Number of (case, property) pairs in the plan: fewer records than this means an unfinished run."""
    choices: Text = ""
    """What of the command line chose the plan; a run is resumed with the same only."""
    shims: tuple[Short, ...] = ()
    kernels: tuple[LoadedKernel, ...] = ()
    quarantined: Text = ""
    """Why the machine was not fit to be measured on; its speeds are kept and do not count. Empty: it was fit."""
    ended: Short | None = None
    exit_status: int | None = None
    schema: int = SCHEMA


_decoder = msgspec.json.Decoder(Record)
_encoder = msgspec.json.Encoder()


def decode_record(line: bytes | str) -> Record:
    """Read and validate one line.

    Raises:
        msgspec.ValidationError: a field is missing, of the wrong type, too long, or of a later schema.
    """
    record = _decoder.decode(line)
    if record.schema > SCHEMA:
        raise msgspec.ValidationError(f"record of schema {record.schema}; this reader knows {SCHEMA}")
    return record


def figure(record: Record, name: str) -> float | None:
    """A measure that is a finite number; None where there is none, or something else stands in its place."""
    value = record.measures.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
        return None
    return float(value)


def encode(value: Record | Environment) -> bytes:
    """One line of JSON, without the newline."""
    return _encoder.encode(value)
