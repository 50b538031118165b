"""Does the compile check find kernels that claim ``torch.compile`` and break it, and leave the others in peace?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cases import compiled, plan
from cases.axes import Device, DType, Mode, Tier
from cases.case import Case
from cases.kernels import Build, write
from cases.mappings import KernelReference
from reports.record import Outcome, Reason
from suite import compiling
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.model_checks import ArmError
from suite.subject import Shelf, Subject

LAYER = """
import torch
from torch import nn


def normalise(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


@torch.library.custom_op("test_compiling::no_shape_rule", mutates_args=())
def no_shape_rule(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return normalise(x, weight, 1e-6)


class Norm(nn.Module):
    can_torch_compile = CLAIM

    def forward(self, hidden_states):
        BODY
"""

HEALTHY = "return normalise(hidden_states, self.weight, self.variance_epsilon)"
BRANCH = f"if bool(hidden_states.abs().max() == 0):\n            return hidden_states * self.weight\n        {HEALTHY}"
LENGTH = f"sizes[hidden_states.shape[1]] = 1\n        {HEALTHY}"
OTHER = f"if torch.compiler.is_compiling():\n            return hidden_states * self.weight\n        {HEALTHY}"
OPAQUE = "return no_shape_rule(hidden_states, self.weight)"


@pytest.fixture(autouse=True)
def nothing_compiled_is_left() -> Iterator[None]:
    """What one check compiled serves the next one, or counts as its break."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert not torch._dynamo.utils.counters["stats"]


def compile_norm(
    models: Path, folder: Path, body: str = HEALTHY, claim: str = "True", mode: Mode = Mode.INFERENCE
) -> Finding:
    """What the check says of a norm in the smallest Llama."""
    build = Build(folder / "norm" / "build" / "torch-cpu", "norm", 1, "cpu")
    build.folder.mkdir(parents=True)
    (build.folder / "__init__.py").write_text('from . import layers\n\n__all__ = ["layers"]\n')
    source = LAYER.replace("CLAIM", claim).replace("BODY", body)
    (build.folder / "layers.py").write_text(f"{source}\nsizes = {{}}\n# {folder}\n")
    write(build)
    kernel = KernelReference(str(folder / "norm"), "Norm")
    loader = Loader(BACKENDS[Device.CPU], None, own={plan.USER: {"RMSNorm": kernel}})
    case = Case("llama-tiny", DType.FLOAT32, mode, "eager", plan.USER)
    subject = Subject(case, Shelf(loader, models))
    try:
        finding = compiling.check(subject, inductor=False)
        assert subject.arms.unchanged()
    finally:
        subject.close()
    return finding


def test_a_healthy_kernel_is_in_one_graph_for_all_lengths(models: Path, tmp_path: Path) -> None:
    """A check that is red for a kernel that compiles."""
    finding = compile_norm(models, tmp_path)
    assert finding.outcome is Outcome.PASS, finding.message
    assert (finding.measures["graph_breaks"], finding.measures["recompiles"]) == (0, 1)
    assert finding.measures["in_graph"] == "RMSNorm"


def test_gradients_are_compared_in_training(models: Path, tmp_path: Path) -> None:
    """A compiled backward that is never run, or whose parameters are never found under the names of the wrapper."""
    finding = compile_norm(models, tmp_path, mode=Mode.TRAINING)
    assert finding.outcome is Outcome.PASS, finding.message
    assert finding.measures["recipes"] == 2


def test_a_branch_on_the_data_is_a_graph_break_of_the_kernel(models: Path, tmp_path: Path) -> None:
    """S20: ``can_torch_compile = True`` is a claim that nobody verifies (V34)."""
    finding = compile_norm(models, tmp_path, BRANCH)
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, Reason.GRAPH_BREAK)
    assert "RMSNorm says can_torch_compile" in finding.message
    assert str(tmp_path) in finding.message


def test_a_kernel_that_claims_nothing_may_break(models: Path, tmp_path: Path) -> None:
    """A kernel that says that it does not compile fails for not compiling."""
    finding = compile_norm(models, tmp_path, BRANCH, claim="False")
    assert (finding.outcome, finding.reason) == (Outcome.NOT_RUN, Reason.NOT_APPLICABLE)


def test_other_results_when_compiled_are_wrong(models: Path, tmp_path: Path) -> None:
    """A kernel that takes another way under ``torch.compile``, where nobody compares it."""
    finding = compile_norm(models, tmp_path, OTHER)
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, Reason.TOLERANCE)


def test_a_graph_for_each_length_fails(models: Path, tmp_path: Path) -> None:
    """A kernel that depends on the very length compiles again for each, until torch gives up and runs it without."""
    finding = compile_norm(models, tmp_path, LENGTH)
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, Reason.RECOMPILE), finding.message


def test_a_kernel_that_cannot_be_compiled_is_to_blame(models: Path, tmp_path: Path) -> None:
    """An operator without a rule for its shape: the error of the compiler looks like one of PyTorch."""
    with pytest.raises(ArmError, match="no_shape_rule") as caught:
        compile_norm(models, tmp_path, OPAQUE)
    assert caught.value.kernel


def test_the_choice_of_cases_is_small_and_shows_what_the_user_brings() -> None:
    """A core tier that spends minutes on tracing; a kernel of the user's that is never compiled."""
    for tier in (Tier.SMOKE, Tier.CORE):
        cases = plan.build(plan.Selection(tier=tier))
        chosen = compiled.choose(cases, tier, {})
        assert 0 < len(chosen) <= compiled.LIMIT[tier]
        assert chosen == compiled.choose(reversed(cases), tier, {})
        for name in ("RMSNorm", "SiLU", "selective_scan_fn"):
            user = {name: KernelReference("/x", "Kernel")}
            cases = plan.build(plan.Selection(tier=tier, kernels=tuple(user.items())))
            assert any(not case.mode.trains for case in compiled.choose(cases, tier, user))
