"""The one module that knows one device from another: which there are, how to wait for one, what it can do.

Everything else asks the ``Backend`` in use. A new device is one entry of ``BACKENDS``. The pytest controller never
imports torch, so it asks through ``probe_in_subprocess``, which also survives a driver that hangs or dies.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cases.axes import Device, DType

if TYPE_CHECKING:
    import torch

__all__ = ["BACKENDS", "Backend", "DeviceInfo", "ProbeError", "parse_device", "probe", "probe_in_subprocess"]

PROBE_SECONDS = 120.0
"""Longest wait for the probe: importing torch on a cold disk takes tens of seconds, a hung driver takes forever."""


class ProbeError(Exception):
    """The device asked for is not there; the message says what was found."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What the probe found out about the device that a run uses."""

    device: Device
    name: str
    count: int
    driver: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Backend:
    """One device type. The methods import torch when called, never before."""

    device: Device
    torch_type: str
    """What torch calls the device type."""
    mask: str | None
    """Environment variable that selects devices; it must be set before torch is imported."""
    rank: int
    """Preference of ``--device auto``: higher first."""

    @property
    def module(self) -> ModuleType:
        """``torch.cuda``, ``torch.xpu``, …"""
        import torch

        module: ModuleType = torch.get_device_module(self.torch_type)
        return module

    def is_available(self) -> bool:
        """Whether torch sees at least one such device."""
        import torch

        if self.device is Device.CPU:
            return True
        try:
            available = bool(self.module.is_available()) and bool(self.module.device_count() > 0)
        except (RuntimeError, AttributeError, ImportError, AssertionError):
            return False
        if self.torch_type == "cuda":
            # AMD devices report the type cuda; the build of torch says which they are.
            return available and (torch.version.hip is not None) == (self.device is Device.ROCM)
        return available

    def info(self) -> DeviceInfo:
        """Name, number, driver and memory of the devices.

        Unknown driver versions and memory sizes are given as ``"unknown"`` and 0.
        """
        if self.device is Device.CPU:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
            return DeviceInfo(self.device, _processor(), 1, platform.release(), memory)
        import torch

        module = self.module
        properties: Any = module.get_device_properties(0) if hasattr(module, "get_device_properties") else None
        name = str(module.get_device_name(0)) if hasattr(module, "get_device_name") else self.torch_type
        driver = getattr(properties, "driver_version", None) or torch.version.hip or torch.version.cuda or "unknown"
        memory = int(getattr(properties, "total_memory", 0))
        return DeviceInfo(self.device, name, int(module.device_count()), str(driver), memory)

    def synchronize(self) -> None:
        """Wait until the device has done all work given to it."""
        if self.device is not Device.CPU:
            self.module.synchronize()

    def has_events(self) -> bool:
        """Whether the device can time itself, as a second channel next to the wall clock."""
        return self.device is not Device.CPU and hasattr(self.module, "Event")

    def mark(self) -> object:
        """Put an event into the device's queue. Only where there are events."""
        event = self.module.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: Any, end: Any) -> float:
        """Seconds of device time between two events, after ``synchronize``."""
        return float(start.elapsed_time(end)) / 1e3

    def clock_mhz(self) -> float | None:
        """Clock of the device now; None where it cannot be read.

        A CPU has one clock a core, of which idle ones say nothing about the work, so there it counts as unreadable.
        """
        if self.device is Device.CPU or not hasattr(self.module, "clock_rate"):
            return None
        try:
            clock = float(self.module.clock_rate())
        except Exception:  # no NVML, no amdsmi, no right to ask: torch raises what its helper raises
            return None
        return clock if clock > 0 else None

    def supports(self, dtype: DType) -> bool:
        """Whether the device computes in ``dtype``."""
        if dtype is DType.BFLOAT16 and hasattr(self.module, "is_bf16_supported"):
            return bool(self.module.is_bf16_supported())
        return True

    @property
    def survives_fork(self) -> bool:
        """Whether a process that has imported torch may be copied: accelerators' runtimes do not stand it."""
        return self.device is Device.CPU and hasattr(os, "fork")

    @property
    def runs_nvidia_only(self) -> bool:
        """Whether what is documented to run on NVIDIA alone may run."""
        return self.device is Device.CUDA

    @property
    def is_amd(self) -> bool:
        """Whether torch calls the device cuda though it is none."""
        return self.device is Device.ROCM

    @property
    def mask_reorders(self) -> bool:
        """Whether the order in a mask is that of the devices. Intel's is documented to select only."""
        return self.device is not Device.XPU

    @property
    def order_setting(self) -> str | None:
        """Environment variable that numbers devices by their bus ids, where there is one."""
        return "ZE_ENABLE_PCI_ID_DEVICE_ORDER" if self.device is Device.XPU else None

    def capability(self) -> tuple[int, int] | None:
        """Compute capability of the first device; only NVIDIA's have one."""
        if self.device is not Device.CUDA:
            return None
        major, minor = self.module.get_device_capability(0)
        return int(major), int(minor)

    def identifiers(self) -> list[str]:
        """What tells the devices apart, in their order: bus id or UUID, else the name and the number."""
        module, found = self.module, []
        for index in range(int(module.device_count())):
            properties = module.get_device_properties(index)
            bus = getattr(properties, "pci_bus_id", None)
            found.append(
                f"{bus:04x}" if isinstance(bus, int) else str(getattr(properties, "uuid", f"{properties.name} {index}"))
            )
        return found

    def has_peak_memory(self) -> bool:
        """Whether the allocator counts the peak itself; the CPU's does not."""
        return self.device is not Device.CPU and hasattr(self.module, "max_memory_allocated")

    def reset_peak_memory(self) -> None:
        """Start a new peak."""
        self.module.reset_peak_memory_stats()

    def memory_allocated(self) -> int:
        """Bytes allocated now."""
        return int(self.module.memory_allocated())

    def peak_memory(self) -> int:
        """Bytes of the highest allocation since the last reset."""
        return int(self.module.max_memory_allocated())

    def torch_device(self) -> "torch.device":
        """The device that models are put on; masks make the chosen one the first."""
        import torch

        return torch.device(self.torch_type) if self.device is Device.CPU else torch.device(self.torch_type, 0)

    def masked(self, index: int, environment: Mapping[str, str]) -> dict[str, str]:
        """Environment variables that leave a process the ``index``-th of the devices it would otherwise see.

        A mask that is already set is narrowed, not replaced: its ``index``-th entry stays.
        """
        if self.mask is None:
            return {}
        visible = [entry for entry in environment.get(self.mask, "").split(",") if entry]
        return {self.mask: visible[index % len(visible)] if visible else str(index)}


BACKENDS: dict[Device, Backend] = {
    backend.device: backend
    for backend in (
        Backend(Device.CPU, "cpu", None, 0),
        Backend(Device.CUDA, "cuda", "CUDA_VISIBLE_DEVICES", 5),
        Backend(Device.ROCM, "cuda", "HIP_VISIBLE_DEVICES", 4),
        Backend(Device.XPU, "xpu", "ZE_AFFINITY_MASK", 3),
        Backend(Device.NPU, "npu", "ASCEND_RT_VISIBLE_DEVICES", 2),
        Backend(Device.MPS, "mps", None, 1),
    )
}


def parse_device(text: str) -> tuple[Device | None, int | None]:
    """Read ``auto``, ``xpu`` or ``xpu:1``. No device means: choose the best.

    Raises:
        ValueError: unknown device type, or an index that is no number.
    """
    name, colon, index = text.partition(":")
    accepted = "auto, " + ", ".join(Device) + " (optionally with an index, as in xpu:1)"
    if name == "auto" and not colon:
        return None, None
    if name not in set(Device) or (colon and not index.isdecimal()) or (name == Device.CPU and colon):
        raise ValueError(f"--device {text!r}: expected one of {accepted}")
    return Device(name), int(index) if index else None


def probe(text: str) -> DeviceInfo:
    """Find the device that ``text`` asks for.

    Raises:
        ProbeError: it is not on this machine; says what is.
    """
    wanted, index = parse_device(text)
    present = [backend for backend in BACKENDS.values() if backend.is_available()]
    if wanted is None:
        return max(present, key=lambda backend: backend.rank).info()
    found = ", ".join(backend.device for backend in present)
    if BACKENDS[wanted] not in present:
        import torch

        raise ProbeError(
            f"--device {text}: there is no {wanted} device on this machine; found: {found} "
            f"(torch {torch.__version__}). Choose one of these, or install the build of torch for {wanted}."
        )
    info = BACKENDS[wanted].info()
    if index is not None and index >= info.count:
        raise ProbeError(f"--device {text}: there are {info.count} {wanted} devices, numbered from 0; found: {found}")
    return info


def probe_in_subprocess(text: str, root: Path) -> DeviceInfo:
    """``probe`` in a process of its own, so that the caller needs no torch and outlives a broken driver.

    Raises:
        ProbeError: as ``probe``, or the probe died or did not answer.
    """
    if parse_device(text)[0] is Device.CPU:
        # Always there, and described without torch: no reason to wait for an import.
        return BACKENDS[Device.CPU].info()
    command = [sys.executable, "-m", "suite.device", text]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"--device {text}: the driver did not answer within {PROBE_SECONDS:.0f} s") from None
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ProbeError(f"--device {text}: the probe died with status {done.returncode}: {last}") from None
    if "error" in answer:
        raise ProbeError(answer["error"])
    return DeviceInfo(**{**answer, "device": Device(answer["device"])})


def _processor() -> str:
    """Model name of the processor; ``platform.processor`` is empty on most Linux systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    """Print the answer of ``probe`` as one line of JSON."""
    parser = argparse.ArgumentParser(description="Find a device and print what it is, as JSON.")
    parser.add_argument("device", help="auto, cpu, cuda, rocm, xpu, mps or npu, with an optional :index")
    try:
        answer: dict[str, Any] = asdict(probe(parser.parse_args().device))
    except (ProbeError, ValueError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
