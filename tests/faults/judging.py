"""From the records of a fault and its twin to one verdict, written as one line of JSON at once.

A verdict says which checks spoke, with what figure, and whether the one that is there for this fault was among them: a
fault that is found by luck is a hole with a lid on it.
"""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import torch

from cases.axes import Device, Property
from reports.record import Record
from suite.qualify import FILE, Alarm, FaultVerdict
from tests.faults import mechanisms
from tests.faults.records import Fault
from tests.faults.runner import CAUGHT, Result, run

__all__ = ["run_all"]

_SAID = re.compile(r"\]\): ([^;|:]{1,60})")
"""What a probe complains of, after the recipe and the shapes in brackets."""
MESSAGE = 600
"""Characters of a message that are kept: what, where and by how much fits in."""


def run_all(faults: Iterable[Fault], folder: Path, device: Device, without: Iterable[tuple[str, str]] = ()) -> None:
    """Run faults and twins; then each (fault, mechanism) of ``without`` with that mechanism switched off, no twin."""
    # Tiny models are slower on several threads, and the machine has other work.
    torch.set_num_threads(1)
    chosen = {fault.id: fault for fault in faults}
    twins: dict[str, Result] = {}
    # Neighbours share a model and its float64 truth.
    for fault in sorted(chosen.values(), key=lambda each: each.where):
        broken = run(fault, folder, device, broken=True)
        twin = f"{fault.repository(broken=False)} {fault.where}"
        if twin not in twins:
            twins[twin] = run(fault, folder, device, broken=False)
        _write(folder, _verdict(broken, twins[twin]))
    for identifier, mechanism in without:
        with ExitStack() as stack:
            unchecked = mechanisms.switch_off(mechanism, stack)
            broken = run(chosen[identifier], folder, device, broken=True, unchecked=unchecked)
        _write(folder, _verdict(broken, None, mechanism))


def _verdict(broken: Result, healthy: Result | None, without: str = "") -> FaultVerdict:
    fault = broken.fault
    spoke = [record for record in broken.caught if record.property in fault.by]
    return FaultVerdict(
        fault=fault.id,
        sentence=fault.sentence,
        target=fault.target,
        expected=fault.by,
        alarms=tuple(_alarm(record) for record in broken.alarms),
        as_expected={record.property for record in spoke} >= set(fault.by)
        and (not fault.reasons or any(record.reason in fault.reasons for record in spoke)),
        twin_clean=healthy is not None and healthy.clean,
        twin_alarms=() if healthy is None else tuple(_alarm(record) for record in healthy.alarms),
        seconds=round(broken.seconds + (healthy.seconds if healthy else 0.0), 3),
        repro=broken.records[0].repro if broken.records else "",
        without=without,
    )


def _alarm(record: Record) -> Alarm:
    return Alarm(
        property=record.property,
        outcome=record.outcome,
        reason=record.reason,
        figure=_figure(record) if record.outcome in CAUGHT else "",
        message=record.message[:MESSAGE],
    )


def _figure(record: Record) -> str:
    """The number by which a check knew, or its words where none was needed."""
    measures = {name: value for name, value in record.measures.items() if isinstance(value, int | float)}
    if measures.get("error_ratio", 0) > measures.get("limit", float("inf")):
        return f"{measures['error_ratio']:.3g} × PyTorch's error"
    if measures.get("mean_ratio", 0) > measures.get("mean_limit", float("inf")):
        return f"{measures['mean_ratio']:.3g} × PyTorch's error on average"
    for name, text in (
        ("missing", "{} gradients missing"),
        ("graph_breaks", "{} graph breaks"),
        ("different", "{} repeats differ"),
    ):
        if measures.get(name):
            return text.format(measures[name])
    if measures.get("complaints") and (said := _SAID.search(record.message)):
        return said[1]
    if record.property is Property.ENGAGE and record.evidence:
        entry = next((entry for entry in record.evidence if entry.reason), record.evidence[0])
        return f"{entry.bound} of {entry.modules} bound, {entry.calls} calls"
    return ""


def _write(folder: Path, verdict: FaultVerdict) -> None:
    with (folder / FILE).open("ab") as file:
        file.write(msgspec.json.encode(verdict) + b"\n")
