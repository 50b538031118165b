"""The default mapping as the report shows it: what is wrong with it, what it would choose on each device type, and on
the device of the run whether it did. A forecast is shown as one; only what the ledger has was seen.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cases.axes import Device, Mode
from reports.audit import Audit, Forecast, Kind, Remark
from reports.clean import one_line
from reports.evidence import PLAIN, Ledger, case_of
from reports.record import Engagement, Reason
from reports.views import IDLE, Bounded

__all__ = ["AuditView", "Cell", "Difference", "view"]

REMARKS = 80
"""Remarks shown in one table."""
NAMES = 60
"""Rows of the forecast."""
DIFFERENCES = 30

DEFAULT = "/default"
"""How the ids of cases with the default mapping end."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is predicted for one name on one device type."""

    kernel: str
    """Repository and pin of the first mode that has a kernel, without the publisher; empty: PyTorch in every mode."""
    modes: int
    """Modes in which this kernel is chosen."""
    reasons: tuple[Reason, ...]
    """Why PyTorch, where it is."""
    lines: tuple[str, ...]
    """What is chosen in each mode, in full."""

    @property
    def alike(self) -> bool:
        """Whether every mode is PyTorch, and for the same reason."""
        return not self.kernel and len(self.reasons) == 1


@dataclass(frozen=True, slots=True)
class Difference:
    """Something else was seen on the device of the run than was predicted."""

    name: str
    mode: Mode
    predicted: str
    seen: str
    case: str


@dataclass(frozen=True, slots=True)
class AuditView:
    """Everything in the section."""

    versions: str
    looked_up: str
    """What is known of the pins: where they were looked up, or that they were not."""
    counts: tuple[tuple[Kind, int], ...]
    here: Bounded[Remark]
    """Remarks about the device of the run, or about all."""
    elsewhere: Bounded[Remark]
    rows: Bounded[tuple[str, tuple[Cell | None, ...]]]
    """Each name, with its cell for each device type."""
    compared: int
    """Names and modes of which the ledger of this run says something."""
    differences: Bounded[Difference]


def view(audit: Audit, ledger: Ledger, device: str) -> AuditView:
    """The section for a run on a device type."""
    remarks = [
        Remark(each.kind, one_line(each.name, 80), one_line(each.device, 20), one_line(each.text, 400))
        for each in audit.remarks
    ]
    near = [remark for remark in remarks if remark.device in ("", device)]
    far = [remark for remark in remarks if remark.device not in ("", device)]
    compared, differences = _compared(audit, ledger, device)
    return AuditView(
        versions=one_line(f"transformers {audit.transformers} and kernels {audit.kernels}", 120),
        looked_up=_looked_up(audit),
        counts=tuple(Counter(remark.kind for remark in remarks).most_common()),
        here=Bounded.of(near, REMARKS),
        elsewhere=Bounded.of(far, REMARKS),
        rows=Bounded.of(_rows(audit.forecast), NAMES),
        compared=compared,
        differences=Bounded.of(differences, DIFFERENCES),
    )


def _looked_up(audit: Audit) -> str:
    if not audit.hub:
        return "Pins, builds and parameters could not be looked up: the run had no Hub with the mapping's repositories."
    asked = f"Pins, builds and parameters were looked up at {one_line(audit.hub, 120)}"
    return f"{asked}, until it did not answer: {one_line(audit.hub_problem, 300)}" if audit.hub_problem else f"{asked}."


def _rows(forecast: Iterable[Forecast]) -> list[tuple[str, tuple[Cell | None, ...]]]:
    found: defaultdict[str, defaultdict[Device, list[Forecast]]] = defaultdict(lambda: defaultdict(list))
    for line in forecast:
        found[line.name][line.device].append(line)
    return [
        (one_line(name, 80), tuple(_cell(by_device[device]) if device in by_device else None for device in Device))
        for name, by_device in sorted(found.items())
    ]


def _cell(lines: Sequence[Forecast]) -> Cell:
    kernel = next((line.kernel for line in lines if line.kernel), None)
    short = _COMMIT.sub(r"\1", kernel or "").partition(":")[0]
    return Cell(
        kernel=one_line(short.partition("/")[2] or short, 80),
        modes=sum(line.kernel == kernel for line in lines) if kernel else 0,
        reasons=tuple(dict.fromkeys(line.reason for line in lines if line.reason)),
        lines=tuple(
            f"{line.mode}: {one_line(line.kernel or f'PyTorch ({line.reason})', 160)}"
            + (f", only with {one_line(line.condition, 120)}" if line.condition else "")
            for line in lines[: len(Mode)]
        ),
    )


_COMMIT = re.compile(r"(?<=@)([0-9a-f]{10})[0-9a-f]{30}")
_PLACE = re.compile(r"(?P<repository>[^@:]+)(?:@[^:]*)?:(?P<layer>[^ ]*)")
"""Both what is predicted, ``repo@pin:Layer``, and what was loaded, ``repo@commit:Layer (variant)``."""


def _compared(audit: Audit, ledger: Ledger, device: str) -> tuple[int, list[Difference]]:
    """How many names and modes were seen, and where something else was seen than predicted, each once."""
    predicted = {(line.name, line.mode): line for line in audit.forecast if line.device == device}
    seen: set[tuple[str, Mode]] = set()
    found: dict[tuple[str, Mode, str], Difference] = {}
    for identity, entries in ledger.cases().items():
        case = case_of(identity) if identity.endswith(DEFAULT) else None
        for entry in entries if case is not None else ():
            line = predicted.get((entry.name, case.mode)) if case is not None else None
            if case is None or line is None or entry.promised != PLAIN:
                continue
            seen.add((entry.name, case.mode))
            if not _agrees(line, entry):
                ran = one_line(entry.resolved or f"PyTorch ({entry.reason})", 200)
                promised = one_line(line.kernel or f"PyTorch ({line.reason})", 200)
                name = one_line(entry.name, 80)
                found.setdefault(
                    (entry.name, case.mode, ran), Difference(name, case.mode, promised, ran, one_line(identity, 160))
                )
    return len(seen), list(found.values())


def _agrees(line: Forecast, entry: Engagement) -> bool:
    if line.kernel is None:
        return entry.bound == 0
    if entry.bound == 0:
        # The mapping chose as predicted; what the layer, the model or another kernel made of it is not its doing.
        conditional = bool(line.condition) and entry.reason is Reason.NO_COMPATIBLE_PROPERTIES
        return conditional or entry.reason in IDLE or entry.reason is Reason.CONDITION
    places = [_PLACE.match(text or "") for text in (line.kernel, entry.resolved)]
    return len({place.groups() for place in places if place}) == 1 and all(places)
