"""What kernels would choose on a device that is not here, by name and mode. A prediction, and marked as one.

The order in which modes stand in for one another is that of the installed kernels. Whether a kernel can be loaded, and
whether it is then called, only a run on the device can say.
"""

from collections.abc import Iterable, Mapping, Sequence

from cases.axes import Device, Mode
from reports.audit import Entry, Forecast
from reports.record import Reason

__all__ = ["ORDER", "forecast"]

ORDER: Mapping[Mode, Sequence[str]] = {
    Mode.INFERENCE: ("INFERENCE", "INFERENCE|TORCH_COMPILE", "TRAINING", "TRAINING|TORCH_COMPILE", "FALLBACK"),
    Mode.TRAINING: ("TRAINING", "TRAINING|TORCH_COMPILE", "FALLBACK"),
    Mode.INFERENCE_COMPILE: ("INFERENCE|TORCH_COMPILE", "TRAINING|TORCH_COMPILE", "FALLBACK"),
    Mode.TRAINING_COMPILE: ("TRAINING|TORCH_COMPILE", "FALLBACK"),
}
"""Which mode of the mapping serves which mode of a model, best first: documented, and checked by mode.priority."""


def forecast(entries: Iterable[Entry], carried: Iterable[str], device: Device) -> list[Forecast]:
    """One line for each name that some class carries and each mode, sorted by name."""
    known = list(entries)
    return [
        _of(name, mode, [entry for entry in known if entry.name == name], device)
        for name in sorted(carried)
        for mode in Mode
    ]


def _of(name: str, mode: Mode, entries: list[Entry], device: Device) -> Forecast:
    here = [entry for entry in entries if entry.device == device]
    if not here:
        return Forecast(name, device, mode, None, Reason.NO_DEVICE if entries else Reason.NO_LAYER)
    for wanted in ORDER[mode]:
        for entry in (entry for entry in here if entry.mode == wanted):
            condition = ""
            if entry.capabilities is not None:
                low, high = (f"{value // 10}.{value % 10}" for value in entry.capabilities)
                condition = f"compute capability {low} to {high}; else {Reason.NO_COMPATIBLE_PROPERTIES}"
            return Forecast(name, device, mode, f"{entry.repository}@{entry.pin}:{entry.layer}", None, condition)
    return Forecast(name, device, mode, None, Reason.NO_COMPATIBLE_MODE)
