"""What is compiled while pairs are timed takes the verdict away; what was compiled before does not."""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.callback import callback_handler

from cases.axes import Device, Phase
from cases.case import Case
from cases.mappings import KernelReference
from cases.plan import USER
from reports.record import Speed
from suite import speed
from suite.compilations import watched
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.sampling import Clock
from suite.speed import Timing
from suite.subject import Shelf, Subject
from tests.suite.kernel_folders import layer_folder

LAYER = '''"""A norm that compiles itself."""

import torch
from torch import nn

calls = 0


@torch.compile(backend="eager")
def normalise(x, weight, eps, changed):
    wide = x.float()
    result = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)
    return result if changed else result + 0


class Norm(nn.Module):
    """It."""

    def forward(self, hidden_states):
        """Normalise; the guard on ``changed`` fails once, after so many calls."""
        global calls
        calls += 1
        return normalise(hidden_states, self.weight, self.variance_epsilon, calls > LATE)
'''


@pytest.fixture(autouse=True)
def nothing_compiled_is_left() -> Iterator[None]:
    """What one test compiled serves the next one. Several threads are slow where the machine has other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def timed(folder: Path, late: int, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """The speed of the smallest Llama with a norm that is compiled again after ``late`` calls, on a made-up clock.

    A call lasts a second on it, so that three calls are warm-up enough, ten settle, and each pair has one of each arm.
    """
    text = LAYER.replace("LATE", str(late))
    kernel = KernelReference(str(layer_folder(folder / f"late-{late}", text)), "Norm")
    loader = Loader(BACKENDS[Device.CPU], None, own={USER: {"RMSNorm": kernel}})
    subject = Subject(Case.from_id(f"llama-tiny/f32/inference/eager/{USER}"), Shelf(loader, folder))
    time = [0.0]

    def passes_time(*_: object) -> None:
        time[0] += 1.0

    monkeypatch.setattr(speed, "clock_of", lambda backend: Clock(lambda: time[0], lambda: None))
    subject.loaded.model.register_forward_pre_hook(passes_time)
    try:
        return speed.speed(subject, Phase.PREFILL, Timing(1e9, loader.backend))
    finally:
        subject.close()


def test_a_kernel_that_compiles_again_while_it_is_timed_has_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: one pair of a second among sixty of a millisecond, and a verdict that holds for neither."""
    finding = timed(tmp_path, 80, monkeypatch)
    assert finding.speed is Speed.INCONCLUSIVE
    assert finding.measures["claimed"] == "INCONCLUSIVE"
    assert finding.measures["compiled_after_warm_up"] == 1
    assert "1 compilations after warm-up" in str(finding.measures["unmet"])
    assert "torch.compile" in finding.message


def test_a_kernel_that_compiles_in_its_warm_up_only_has_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: every kernel that is compiled called inconclusive for it."""
    finding = timed(tmp_path, 7, monkeypatch)
    assert finding.speed is Speed.SAME, finding.message
    assert finding.measures["compiled_after_warm_up"] == 0


def test_nothing_of_the_watch_is_left_behind() -> None:
    """Fault: a list that grows through the whole run, one more for each case."""
    before = list(callback_handler.start_callbacks)
    with watched() as found:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    assert len(found) == 1
    torch._dynamo.reset()
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(1))
    assert len(found) == 1
    assert callback_handler.start_callbacks == before


def test_triton_is_asked_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the compiler that most kernels use unseen; or a hook of somebody else's replaced. Triton runs on
    accelerators only: this is its interface as of 3.4 to 3.9."""
    others: list[str] = []

    class Autotuner:
        def _bench(self, *args: object, config: object) -> float:
            return 1.0

    def hook(**kwargs: Any) -> None:
        others.append(kwargs["repr"])

    runtime = SimpleNamespace(jit_post_compile_hook=hook)
    triton: Any = ModuleType("triton")
    triton.__spec__, triton.knobs = ModuleSpec("triton", None), SimpleNamespace(runtime=runtime)
    autotuner: Any = ModuleType("triton.runtime.autotuner")
    autotuner.Autotuner = Autotuner
    for module in (triton, autotuner):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with watched() as found:
        runtime.jit_post_compile_hook(repr="norm[num_warps=4]", fn=SimpleNamespace(name="norm"))
        assert Autotuner()._bench(1, config=None) == 1.0
    assert found[0] == "Triton norm"
    assert "tries configurations" in found[1]
    assert others == ["norm[num_warps=4]"]
    assert runtime.jit_post_compile_hook is hook
