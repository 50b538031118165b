"""``audit.json``: the default mapping of the Transformers that a run was made with, what is wrong with it, and what it
would do on every device type. The suite writes it once a run, reports read it, as untrusted as they read a record.

Nothing in it was measured: entries and remarks are read from sources, and a forecast is a prediction.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from cases.axes import Device, Mode
from reports.record import SCHEMA, Reason, Short, Text
from reports.store import MAX_DOCUMENT, RunError, schema_of

__all__ = ["AUDIT", "Audit", "Entry", "Forecast", "Kind", "Remark", "read_audit"]

AUDIT = "audit.json"

Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], msgspec.Meta(max_length=20_000)]
"""A hundred entries, thirty names, six devices and four modes are what there is today."""


class Kind(StrEnum):
    """What a remark is about."""

    DEAD_NAME = "dead name"
    """In the mapping, and no class or function of Transformers carries it."""
    ORPHAN_TAG = "orphan tag"
    """Carried by a class or function, and not in the mapping."""
    MUTABLE_PIN = "mutable pin"
    """A branch: what it loads may change from one day to the next."""
    STALE_PIN = "stale pin"
    """The Hub has a newer version."""
    TRUST = "trust entry"
    """The mapping itself consents to code of a publisher who is not trusted."""
    TABLE = "table"
    """Differs from the documentation's table."""
    PARAMETERS = "parameters"
    """Kernels that serve one name take different parameters."""
    NO_BUILD = "no build"
    """The pinned revision has no build for the device or for the installed torch."""


class Entry(msgspec.Struct, frozen=True):
    """One kernel of the mapping: for one name, device, range of capabilities and mode."""

    name: Short
    device: Short
    mode: Short
    """``INFERENCE``, ``TRAINING|TORCH_COMPILE``, …; ``FALLBACK`` where one kernel serves all modes."""
    repository: Short
    layer: Short
    version: int | None
    revision: Short | None
    trusted: bool
    """Whether the mapping itself consents to the code of an unknown publisher."""
    capabilities: tuple[int, int] | None = None
    """Lowest and highest compute capability, ten times the major number plus the minor; None: any."""

    @property
    def pin(self) -> str:
        """The revision as it is asked for."""
        return f"v{self.version}" if self.version is not None else self.revision or "no pin"


class Remark(msgspec.Struct, frozen=True, order=True):
    """One thing worth knowing. A remark is no verdict."""

    kind: Kind
    name: Short
    device: Short
    """Device type; empty: all."""
    text: Text


class Forecast(msgspec.Struct, frozen=True):
    """What is predicted for one name on one device type in one mode."""

    name: Short
    device: Device
    mode: Mode
    kernel: Short | None
    """``repo@pin:Layer``; None: PyTorch."""
    reason: Reason | None
    """Why PyTorch."""
    condition: Text = ""
    """What else has to be true for the kernel to be chosen."""
    predicted: bool = True
    """Always: nothing of it was seen."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    transformers: Short
    """Version whose mapping this is."""
    kernels: Short
    """Version whose order of modes the forecast follows."""
    entries: Many[Entry]
    """Every entry of the mapping, sorted."""
    defaults: Annotated[dict[Short, Short], msgspec.Meta(max_length=20_000)] = {}
    """What Transformers takes from the Hub outside of the mapping: what stands in for an attention implementation, the
    revision of an attention kernel without a pin, and the modules that it loads by a short name."""
    carried: Many[Short]
    """Names that classes and functions of this Transformers carry, sorted."""
    remarks: Many[Remark]
    """Sorted."""
    forecast: Many[Forecast]
    """For every carried name, device type and mode."""
    hub: Short = ""
    """Address of the Hub where pins, builds and parameters were looked up; empty: none was asked."""
    hub_problem: Text = ""
    """Why the Hub that was asked could not answer."""
    schema: int = SCHEMA


def read_audit(folder: Path) -> Audit | None:
    """The audit in the folder of a run; None where there is none, as in runs of earlier versions.

    Raises:
        RunError: it cannot be read, is too large, or was written by a later version of the suite.
    """
    path = folder / AUDIT
    if not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise RunError(f"{path}: more than {MAX_DOCUMENT:,} bytes. This is no file that the suite wrote.")
    if (schema := schema_of(data)) > SCHEMA:
        raise RunError(
            f"{path}: written by a later version of the suite (schema {schema}; this one reads up to {SCHEMA}). "
            "Update this checkout and try again."
        )
    try:
        return msgspec.json.decode(data, type=Audit)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: not readable ({error}); expected what `pytest suite` writes. Remove it.") from None
