"""The one module that knows devices; those that this machine lacks are played by stand-ins of torch's modules."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cases.axes import Device, DType
from suite.device import BACKENDS, ProbeError, parse_device, probe, probe_in_subprocess

ROOT = Path(__file__).resolve().parents[2]


def accelerator(name: str = "Max 1550", count: int = 2, **more: Any) -> SimpleNamespace:
    """What torch's module of a device type answers."""
    properties = SimpleNamespace(driver_version="1.6.3", total_memory=64 * 2**30)
    return SimpleNamespace(
        is_available=lambda: count > 0,
        device_count=lambda: count,
        get_device_name=lambda index: name,
        get_device_properties=lambda index: properties,
        **more,
    )


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimpleNamespace]:
    """Devices that torch claims to see, by torch's name; tests add to it."""
    modules: dict[str, SimpleNamespace] = {}

    def module(kind: str) -> SimpleNamespace:
        if kind not in modules:
            raise RuntimeError(f"no module for {kind}")
        return modules[kind]

    monkeypatch.setattr(torch, "get_device_module", module)
    return modules


def test_auto_takes_the_best_accelerator_and_else_the_cpu(present: dict[str, SimpleNamespace]) -> None:
    """Fault: a night of CPU numbers from a machine full of accelerators."""
    assert probe("auto").device is Device.CPU
    present["xpu"] = accelerator()
    info = probe("auto")
    assert (info.device, info.name, info.count, info.driver) == (Device.XPU, "Max 1550", 2, "1.6.3")


def test_an_amd_device_is_rocm_although_torch_calls_it_cuda(
    present: dict[str, SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: an AMD device that gets NVIDIA's kernels."""
    present["cuda"] = accelerator("MI300X")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert probe("auto").device is Device.ROCM
    with pytest.raises(ProbeError, match="no cuda device"):
        probe("cuda")
    monkeypatch.setattr(torch.version, "hip", None)
    assert probe("auto").device is Device.CUDA


def test_a_device_that_is_not_there_is_refused_with_what_is(present: dict[str, SimpleNamespace]) -> None:
    """Fault: a run on another device than was asked for."""
    present["xpu"] = accelerator(count=0)
    with pytest.raises(ProbeError, match="found: cpu"):
        probe("xpu")


def test_an_index_beyond_the_last_device_is_refused(present: dict[str, SimpleNamespace]) -> None:
    """Fault: xpu:7 of two that quietly becomes xpu:0."""
    present["xpu"] = accelerator(count=2)
    assert probe("xpu:1").count == 2
    with pytest.raises(ProbeError, match="2 xpu devices"):
        probe("xpu:7")


@pytest.mark.parametrize("text", ["gpu", "xpu:", "xpu:x", "auto:1", "cpu:0", "", "XPU"])
def test_a_misspelt_device_is_no_device(text: str) -> None:
    """Fault: a typing mistake that means auto."""
    with pytest.raises(ValueError, match="expected one of"):
        parse_device(text)


@pytest.mark.parametrize(
    ("device", "index", "environment", "mask"),
    [
        (Device.XPU, 1, {}, {"ZE_AFFINITY_MASK": "1"}),
        (Device.CUDA, 0, {"CUDA_VISIBLE_DEVICES": "4,6"}, {"CUDA_VISIBLE_DEVICES": "4"}),
        (Device.CUDA, 3, {"CUDA_VISIBLE_DEVICES": "4,6"}, {"CUDA_VISIBLE_DEVICES": "6"}),
        (Device.ROCM, 2, {}, {"HIP_VISIBLE_DEVICES": "2"}),
        (Device.CPU, 1, {}, {}),
    ],
)
def test_a_mask_is_narrowed_and_not_replaced(
    device: Device, index: int, environment: dict[str, str], mask: dict[str, str]
) -> None:
    """Fault: workers that leave the devices a scheduler gave them, or share one."""
    assert BACKENDS[device].masked(index, environment) == mask


def test_bfloat16_is_asked_of_the_device(present: dict[str, SimpleNamespace]) -> None:
    """Fault: results in a dtype that the device only pretends to have."""
    present["xpu"] = accelerator(is_bf16_supported=lambda: False)
    assert not BACKENDS[Device.XPU].supports(DType.BFLOAT16)
    assert BACKENDS[Device.XPU].supports(DType.FLOAT32)


def test_a_probe_that_dies_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a broken driver that takes the controller with it."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ProbeError, match="died with status 1"):
        probe_in_subprocess("auto", ROOT)


def test_the_probe_prints_one_line_of_json() -> None:
    """Fault: a warning of some library parsed as the answer."""
    done = subprocess.run(
        [sys.executable, "-m", "suite.device", "cpu"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["device"] == "cpu"
    assert answer["count"] == 1
