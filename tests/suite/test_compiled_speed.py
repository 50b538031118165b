"""Compiled models are timed as two instances: one really in PyTorch, one with its kernels in the graph, and neither
compiled again by turns. Traced for real, without generating code; the clock is made up."""

from itertools import count
from pathlib import Path

import pytest
import torch

from cases.axes import Device, Phase, Property
from cases.case import Case
from cases.kernels import ROOT
from cases.mappings import KernelReference
from cases.plan import USER
from reports.record import Outcome, Reason, Speed
from suite import passes, speed
from suite.compiled_speed import compiled
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.prerequisites import rests_on
from suite.sampling import Clock
from suite.speed import Timing
from suite.subject import Shelf, Subject
from tests.suite.kernel_folders import edited, layer_folder

BACKEND = "aot_eager"
INFERENCE = "llama-tiny/f32/inference-compile/sdpa"
TRAINING = "llama-tiny/f32/training-compile/sdpa"


def subject_of(models: Path, case: str, user: dict[str, KernelReference] | None = None) -> Subject:
    return Subject(Case.from_id(case), Shelf(Loader(BACKENDS[Device.CPU], ROOT, own={USER: user or {}}), models))


def timed(subject: Subject, monkeypatch: pytest.MonkeyPatch, compiler: str | None = BACKEND) -> Finding:
    ticks = count()
    monkeypatch.setattr(speed, "clock_of", lambda backend: Clock(lambda: float(next(ticks)), lambda: None))
    (phase,) = speed.phases(subject)
    try:
        return speed.speed(subject, phase, Timing(1e9, subject.backend, compiler=compiler))
    finally:
        subject.close()
        assert not torch._dynamo.utils.counters["stats"]


def test_both_instances_are_compiled_once_and_the_kernels_are_in_the_graph(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: arms that are compiled again at each turn, or a compiled PyTorch timed against itself."""
    finding = timed(subject_of(models, f"{TRAINING}/bundled"), monkeypatch)
    assert (finding.outcome, finding.speed) == (Outcome.PASS, Speed.SAME), finding.message
    assert finding.measures["compiled_after_warm_up"] == 0
    assert finding.measures["in_graph"] == "RMSNorm, SiLU, rotary_pos_emb"


def test_a_compiled_model_is_timed_in_one_phase(models: Path) -> None:
    """Fault: a decoded token with a cache that grows, compiled again for each length."""
    assert speed.phases(subject_of(models, f"{INFERENCE}/bundled")) == (Phase.PREFILL,)
    assert speed.phases(subject_of(models, f"{TRAINING}/bundled")) == (Phase.TRAIN_STEP,)


def test_the_second_instance_is_pytorch_though_functions_are_shared(models: Path, tmp_path: Path) -> None:
    """Fault: a PyTorch arm that was traced with the kernel of the process-wide function, which the other one bound."""
    wrong = edited(tmp_path / "wrong-rotary", "rotary/v1", "layers.py", {"(states * cos)": "(states * cos * 2)"})
    subject = subject_of(
        models, f"{INFERENCE}/{USER}", {"rotary_pos_emb": KernelReference(str(wrong), "RotaryEmbedding")}
    )
    try:
        assert subject.loaded
        with subject.arms.pytorch():
            expected = passes.forward(subject.loaded.model, subject.record, subject.batches["dense"])
        with compiled(subject, BACKEND) as instances:
            found = {}
            for arm, work in (("kernel", instances.kernel), ("pytorch", instances.pytorch)) * 2:
                work.prepare(1)
                found[arm] = work.call()
        assert instances.in_graph() == ["rotary_pos_emb"]
    finally:
        subject.close()
    for arm, value in found.items():
        assert isinstance(value, torch.Tensor)
        right = torch.allclose(value.double().flatten(0, 1), expected, atol=1e-5)
        assert right is (arm == "pytorch")


def test_a_kernel_that_is_in_no_graph_has_no_speedup(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: the speed of what the compiler left out sold as the kernel's."""
    text = (
        "import torch\nfrom torch import nn\n\n\nclass Act(nn.Module):\n    can_torch_compile = True\n\n"
        "    @torch.compiler.disable\n    def forward(self, input):\n        return torch.nn.functional.silu(input)\n"
    )
    kernel = KernelReference(str(layer_folder(tmp_path / "left-out", text)), "Act")
    finding = timed(subject_of(models, f"{INFERENCE}/{USER}", {"SiLU": kernel}), monkeypatch)
    assert (finding.outcome, finding.reason) == (Outcome.NOT_RUN, Reason.NOT_CALLED), finding.message
    assert finding.speed is Speed.NOT_MEASURED


@pytest.mark.parametrize(("mapping", "compiler"), [("bundled", None), ("only-RMSNorm", BACKEND)])
def test_what_is_not_timed_says_why(
    mapping: str, compiler: str | None, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: minutes of compilation in a run of minutes, or a silence."""
    finding = timed(subject_of(models, f"{INFERENCE}/{mapping}"), monkeypatch, compiler)
    assert (finding.outcome, finding.reason, finding.speed) == (
        Outcome.NOT_RUN,
        Reason.NOT_APPLICABLE,
        Speed.NOT_MEASURED,
    )
    assert "tier full" in finding.message


def test_a_compiled_speed_rests_on_the_compile_check_and_another_does_not() -> None:
    """Fault: a compiled model with wrong results that is fast; or an eager speed lost to a graph break."""
    assert Property.COMPILE in rests_on(Case.from_id(f"{INFERENCE}/bundled"), Property.SPEED)
    assert Property.COMPILE not in rests_on(Case.from_id("llama-tiny/f32/inference/sdpa/bundled"), Property.SPEED)
