"""The state check finds kernels that spoil a training or reach into other models; and what the libraries break today.

The second half is about Transformers and kernels, not about any kernel: why the check leaves out what it leaves out.
Each test says what a user expects, and the expected failure what is seen instead, so that the day on which a library
heals is noticed. The transitions that the documentation speaks of are statements of their own (``suite/documented``).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Device
from cases.case import Case
from cases.kernels import ROOT
from cases.mappings import KernelReference
from cases.plan import USER, properties
from reports.record import Outcome, Reason
from suite import passes, state
from suite.device import BACKENDS
from suite.loading import Loader
from suite.subject import Shelf, Subject
from tests.suite.kernel_folders import edited, layer_folder

NORM = '''"""A norm."""

import torch
from torch import nn
{before}

class Norm(nn.Module):
    """{text}."""

    can_torch_compile = True
    has_backward = {backward}

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and {graph}):
            wide = hidden_states.float()
            scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return ({weight} * wide * scale).to(hidden_states.dtype)
{after}
'''

MAKES: dict[str, dict[str, object]] = {
    "healthy": {},
    "inference-only": {"backward": False, "graph": False},
    "claims-a-backward": {"graph": False},
    "own-mode": {"graph": "not self.training"},
    "keeps-weights": {
        "before": "\nKEPT: dict[float, torch.Tensor] = {}\n",
        "weight": "KEPT.setdefault(float(self.weight.double().sum()), self.weight)",
    },
    "patches-the-class": {
        "after": "\n\nfrom transformers.models.llama import modeling_llama\n\n"
        "modeling_llama.LlamaRMSNorm.forward = Norm.forward"
    },
}
"""What is filled into the norm, by the name of the kernel."""


Make = Callable[..., Subject]


@pytest.fixture
def make(models: Path, tmp_path: Path) -> Iterator[Make]:
    """Makes the subject of a case with one of the norms, or with a healthy rotation."""
    subjects: list[Subject] = []

    def made(norm: str | None, mode: str, model: str = "llama-tiny") -> Subject:
        user: dict[str, KernelReference] = {}
        if norm is not None:
            values = {"before": "", "after": "", "text": norm, "backward": True, "graph": True, "weight": "self.weight"}
            folder = layer_folder(tmp_path / norm, NORM.format(**{**values, **MAKES[norm]}))
            user["RMSNorm"] = KernelReference(str(folder), "Norm")
        else:
            folder = edited(tmp_path / "rotation", "rotary/v1", "layers.py", {})
            user["rotary_pos_emb"] = KernelReference(str(folder), "RotaryEmbedding")
        subject = Subject(
            Case.from_id(f"{model}/f32/{mode}/sdpa/{USER}"),
            Shelf(Loader(BACKENDS[Device.CPU], ROOT, own={USER: user}), models),
        )
        subjects.append(subject)
        return subject

    yield made
    for subject in subjects:
        subject.close()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("norm", ["healthy", None], ids=["norm", "rotation"])
def test_a_healthy_kernel_stays_right_through_all_switches(norm: str | None, mode: str, make: Make) -> None:
    """A kernel blamed for what the libraries do."""
    subject = make(norm, mode)
    finding = state.check(subject)
    assert finding.outcome is Outcome.PASS, finding
    assert finding.measures["bound after load"] == ("5 of 8" if norm else "1 of 8")
    assert subject.arms.unchanged()


def test_a_kernel_that_says_it_is_for_inference_is_not_blamed_for_lacking_gradients(make: Make) -> None:
    """An honest kernel made red by a training of which Transformers was told and the kernel was not."""
    finding = state.check(make("inference-only", "inference"))
    assert finding.outcome is Outcome.PASS, finding
    assert finding.measures["bound after train()"] == "0 of 8"


def test_a_kernel_that_only_says_it_has_a_backward_is_caught(make: Make) -> None:
    """S06 and S24: a part of the model is trained, the kernel of inference stays, and its gradients are missing."""
    finding = state.check(make("claims-a-backward", "inference"))
    assert finding.outcome is Outcome.FAIL
    assert finding.reason is Reason.MISSING_GRADIENT
    assert "after train() of the inner model 20 of 21 parameters get no gradient" in finding.message


def test_gradients_are_asked_for_after_each_switch_to_training(make: Make) -> None:
    """A kernel that loses the graph in training only: seen after the round trip as well as before."""
    finding = state.check(make("own-mode", "training"))
    assert finding.reason is Reason.MISSING_GRADIENT
    assert "after train()" in finding.message
    assert "after deepcopy" in finding.message


def test_a_kernel_that_keeps_weights_by_their_content_is_caught_in_the_copy(make: Make) -> None:
    """A copy that computes with the weights of the original: right until one is trained, and no gradient of its own."""
    finding = state.check(make("keeps-weights", "training"))
    assert finding.reason is Reason.MISSING_GRADIENT
    assert finding.message.startswith("after deepcopy 5 of 21 parameters get no gradient")


def test_a_kernel_that_patches_a_class_is_caught_in_another_model(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later model of the process runs a kernel that nobody asked for."""
    from transformers.models.llama import modeling_llama

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", modeling_llama.LlamaRMSNorm.forward)
    finding = state.check(make("patches-the-class", "inference"))
    assert finding.outcome is Outcome.FAIL
    assert "another model, never kernelized, runs kernels: class LlamaRMSNorm" in finding.message


def test_the_check_is_planned_once_for_each_route() -> None:
    """A check of routes repeated for every dtype, or for the kernels one by one."""
    planned = {
        text: "state" in properties(Case.from_id(f"llama-tiny/{text}"))
        for text in ("f32/inference/sdpa/bundled", "f32/training/sdpa/user", "bf16/inference/sdpa/bundled")
    }
    assert list(planned.values()) == [True, True, False]
    assert "state" not in properties(Case.from_id("llama-tiny/f32/inference/sdpa/only-RMSNorm"))


# What a user expects of Transformers 5.22.2, and what is seen.


def bound(model: Any) -> int:
    return sum(each.origin != "pytorch" for each in state.bindings(model))


def missing(model: Any, subject: Subject) -> int:
    return len(passes.forward_backward(model, subject.record, subject.batches["dense"]).missing)


def test_eval_after_train_brings_the_kernels_for_inference_back(make: Make) -> None:
    """mode.follow: a kernel lost for good by one round of training."""
    model = make("healthy", "inference").loaded.model
    assert bound(model.train().eval()) == 5


@pytest.mark.xfail(reason="an inner model knows nothing of the kernels of the outer one", strict=True)
def test_training_an_inner_model_has_every_gradient(make: Make) -> None:
    """A frozen head and a trained decoder: the kernels for inference stay in the decoder."""
    subject = make("inference-only", "inference")
    subject.loaded.model.base_model.train()
    assert missing(subject.loaded.model, subject) == 0


@pytest.mark.xfail(reason="a function kernel is one object per process", strict=True)
def test_a_function_kernel_belongs_to_its_model(make: Make) -> None:
    """A model that is loaded as a reference runs the kernel that it is to be compared with."""
    subject = make(None, "inference")
    other = subject.loader.plain(subject.case, subject.path)
    assert subject.loaded
    assert state.functions_untouched(other)


def test_layers_belong_to_their_model(make: Make) -> None:
    """A kernel on a layer of one model seen in another."""
    subject = make("healthy", "inference")
    other = subject.loader.plain(subject.case, subject.path)
    assert subject.loaded
    assert not state.foreign(other)
