"""What is paid once, and not with every call: the download of the kernels, loading a model with them, and its first
pass, in which kernels are compiled and tuned. Figures of the records, a line each.
"""

from collections.abc import Iterable
from statistics import median

from cases.axes import Property
from reports.record import Record, figure

__all__ = ["paid_once"]


def paid_once(records: Iterable[Record]) -> tuple[tuple[str, str], ...]:
    """Pairs of what it is and what it took; empty where nothing was recorded."""
    brought: list[tuple[float, float]] = []
    loads: list[float] = []
    passes: list[float] = []
    for record in records:
        seconds, size = (figure(record, f"download_{name}") for name in ("seconds", "bytes"))
        if record.property in (Property.REPOSITORY, Property.LOAD) and seconds is not None and size is not None:
            brought.append((seconds, size))
        load, first = figure(record, "load_seconds"), figure(record, "first_pass_seconds")
        if record.property is Property.LOAD and load is not None:
            loads.append(max(0.0, load - (seconds or 0.0)))
        if record.property is Property.ENGAGE and first is not None:
            passes.append(first)
    lines = [
        ("download of kernels", _download(brought)),
        ("loading a model with its kernels", _spread(loads)),
        ("its first pass", _spread(passes)),
    ]
    return tuple((name, text) for name, text in lines if text)


def _download(brought: list[tuple[float, float]]) -> str:
    seconds, size = (sum(values) for values in zip(*brought, strict=True)) if brought else (0.0, 0.0)
    if not size:
        return "0 s, all cached" if brought else ""
    return f"{seconds:.3g} s for {size / 1000:,.1f} kB in {sum(each > 0 for _, each in brought):,} downloads"


def _spread(found: list[float]) -> str:
    if not found:
        return ""
    return f"{median(found):.3g} s in the middle, {max(found):.3g} s at most, of {len(found):,}"
