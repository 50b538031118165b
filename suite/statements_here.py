"""Documented statements that the worker itself can check: about the device, and about the mapping as it is written.

What an accelerator is needed for is NOT_RUN elsewhere, with that reason; the decisions are functions of plain values,
and tested with a faked device.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from reports.audit import Entry
from reports.record import Outcome, Reason
from suite.device import Backend
from suite.finding import Finding
from suite.mapping import default_mapping
from suite.mapping_audit import carried_names, table_differences, unmatched_names

__all__ = ["CHECKS", "not_yet"]

ROOT = Path(__file__).resolve().parent.parent

MINIMUM = (7, 0)
"""Compute capability from which on NVIDIA devices are documented to run kernels."""

COVERED = ("RMSNorm", "rotary_pos_emb", "SiLU", "GeLU", "GeluTanh", "FastGELU", "NewGELU", "QuickGELU")
"""Names behind what the documentation says XPU covers: activations, RMSNorm, rotary embeddings."""


def _not_here(text: str) -> Finding:
    return Finding(Outcome.NOT_RUN, Reason.NOT_APPLICABLE, text)


def names_by_mask(backend: Backend, mask: str) -> list[str]:
    """Identifiers of the devices that a process sees under a mask, in its order. Needs a fresh process: masks are read
    when the driver starts."""
    script = "import json, sys, suite.device as d; print(json.dumps(d.BACKENDS[d.Device(sys.argv[1])].identifiers()))"
    done = subprocess.run(
        [sys.executable, "-c", script, backend.device],
        cwd=ROOT,
        env={**os.environ, str(backend.mask): mask},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return names


def judge_mask(ask: Callable[[str], list[str]], count: int, keeps_order: bool) -> Finding:
    """Whether a mask selects, and does not reorder. ``ask`` gives the devices that are seen under a mask."""
    if count < 2:
        return _not_here(f"needs two devices to tell one from another; there are {count}")
    everything = ask("0,1")
    if ask("1") != everything[1:2]:
        return Finding(Outcome.FAIL, Reason.EXCEPTION, f"mask 1 leaves {ask('1')}, expected {everything[1:2]}")
    reversed_order = ask("1,0")
    if keeps_order and reversed_order != everything:
        text = f"mask 1,0 gives {reversed_order} and 0,1 gives {everything}: the order of a mask must not matter"
        return Finding(Outcome.FAIL, Reason.EXCEPTION, text)
    return Finding(Outcome.PASS, message=f"mask 1 leaves {everything[1]}; 0,1 and 1,0 see {everything}")


def select(backend: Backend) -> Finding:
    """Fault: a mask that selects nothing, so that two jobs share a device."""
    if backend.mask is None:
        return _not_here(f"{backend.device} has no environment variable that selects devices")
    return judge_mask(lambda mask: names_by_mask(backend, mask), backend.info().count, not backend.mask_reorders)


def order(backend: Backend) -> Finding:
    """Fault: devices numbered otherwise in each run."""
    if backend.order_setting is None:
        return _not_here("ZE_ENABLE_PCI_ID_DEVICE_ORDER is a variable of Intel's driver; this is no Intel GPU")
    return judge_order(backend.identifiers(), os.environ.get(backend.order_setting))


def judge_order(seen: list[str], setting: str | None) -> Finding:
    """Whether devices are in the order of their PCI bus ids, which their identifiers begin with."""
    if setting != "1":
        return _not_here("run with ZE_ENABLE_PCI_ID_DEVICE_ORDER=1 to check the order that it makes")
    if seen != sorted(seen):
        return Finding(Outcome.FAIL, Reason.EXCEPTION, f"devices are in the order {seen}, not that of their bus ids")
    return Finding(Outcome.PASS, message=f"devices are in the order of their bus ids: {seen}")


def capability(backend: Backend) -> Finding:
    """Fault: a device that is too old, on which kernels fail one by one."""
    return judge_capability(backend.capability(), backend.device)


def judge_capability(found: tuple[int, int] | None, device: str) -> Finding:
    """Whether a compute capability is enough; None where the device has none."""
    if found is None:
        return _not_here(f"{device} has no compute capability; the statement is about NVIDIA")
    if found < MINIMUM:
        text = f"compute capability {found[0]}.{found[1]}; kernels need {MINIMUM[0]}.{MINIMUM[1]} or later"
        return Finding(Outcome.FAIL, Reason.NO_COMPATIBLE_PROPERTIES, text)
    return Finding(Outcome.PASS, message=f"compute capability {found[0]}.{found[1]}")


def rocm(backend: Backend) -> Finding:
    """Fault: an AMD device that calls itself cuda is given NVIDIA's kernels."""
    if not backend.is_amd:
        return _not_here("needs an AMD device")
    from transformers.utils.import_utils import get_device_type

    return judge_rocm(str(get_device_type(backend.torch_device())), default_mapping())


def judge_rocm(seen: str, entries: tuple[Entry, ...]) -> Finding:
    """Whether Transformers sees through an AMD device, and has kernels for it."""
    names = sorted({entry.name for entry in entries if entry.device == "rocm"})
    if seen != "rocm" or not names:
        text = f"Transformers takes the AMD device for {seen!r}, and the mapping has {len(names)} names for rocm"
        return Finding(Outcome.FAIL, Reason.NO_DEVICE, text)
    return Finding(Outcome.PASS, message=f"the AMD device is rocm, with kernels for {', '.join(names)}")


def table(_: Backend) -> Finding:
    """Fault V32: the documentation's table promises what the mapping has not, or keeps silent about what it has."""
    found = table_differences(default_mapping())
    if found:
        text = "; ".join(f"{remark.name} on {remark.device}: {remark.text}" for remark in found)
        return Finding(
            Outcome.FAIL, Reason.NO_DEVICE, f"the table and the mapping differ in {len(found)} places: {text}"
        )
    return Finding(Outcome.PASS, message="the documentation's table agrees with the installed mapping")


def dead(_: Backend) -> Finding:
    """Fault V32: names in the mapping and in the table that no class carries, so that their kernels never run."""
    names, _orphans = unmatched_names(default_mapping(), carried_names())
    if names:
        text = f"mapped, and carried by no class or function of Transformers: {', '.join(names)}"
        return Finding(Outcome.FAIL, Reason.NO_LAYER, text)
    return Finding(Outcome.PASS, message="every name of the mapping is carried by a class or function")


def xpu_cover(_: Backend) -> Finding:
    """Fault: a layer that XPU is documented to cover and has no kernel for."""
    entries = default_mapping()
    names = {device: {entry.name for entry in entries if entry.device == device} for device in ("cuda", "xpu")}
    missing = [name for name in COVERED if name not in names["xpu"]]
    share = len(names["xpu"] & names["cuda"]) / max(1, len(names["cuda"]))
    text = f"XPU has kernels for {len(names['xpu'] & names['cuda'])} of the {len(names['cuda'])} names that CUDA has"
    if missing or share <= 0.5:
        return Finding(Outcome.FAIL, Reason.NO_DEVICE, f"{text}; missing: {', '.join(missing) or 'most'}")
    return Finding(Outcome.PASS, message=f"{text}, among them activations, RMSNorm and rotary embeddings")


def not_yet(_: Backend) -> Finding:
    """The statement stands in the table, and nothing checks it yet."""
    return _not_here("this version of the suite does not check it yet")


CHECKS: dict[str, Callable[[Backend], Finding]] = {
    "env.select": select,
    "env.order": order,
    "env.capability": capability,
    "layers.rocm": rocm,
    "layers.table": table,
    "layers.table#dead": dead,
    "layers.xpu_cover": xpu_cover,
}
"""Every check by its id in ``cases.statements``."""
