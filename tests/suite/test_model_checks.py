"""The model checks find faults of attention and positions that no layer shows, and pass their healthy twins."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cases.axes import Device, Mode
from cases.case import Case
from cases.inputs import STEPS, applies
from cases.kernels import ROOT
from cases.mappings import KernelReference
from cases.models import MODELS
from cases.plan import USER
from reports.record import Outcome, Reason
from suite import engagement, features, model_checks
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.subject import Shelf, Subject
from tests.suite.kernel_folders import edited, layer_folder

FUNCTION = "window_size: tuple[int, int] = (-1, -1),"

FAULTS = {
    # Values stay as they are and the gradient of keys doubles where heads share them.
    "S11": {
        "    scale = size**-0.5 if scale is None": "    key = key if groups == heads else 2 * key - key.detach()\n"
        "    scale = size**-0.5 if scale is None"
    },
    "S15": {
        "queries, keys = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()": "queries, keys = [q.shape[0]], "
        "[k.shape[0]]"
    },
    "S16": {"    left, right = window\n": "    left, right = window\n    left = left + 1 if left >= 0 else left\n"},
    "S17": {" + (keys - queries)": ""},
    "S18": {"s_aux": "sink_scores"},
    "S19": {"scale = size**-0.5 if scale is None else scale": "scale = size**-0.5"},
    "no window": {
        FUNCTION: "window: tuple[int, int] = (-1, -1),",
        "        window_size,\n": "        window,\n",
        "causal, window_size, softcap": "causal, window, softcap",
    },
}
"""Changes of the bundled attention, by the fault they make."""


@pytest.fixture
def clean() -> Iterator[list[Subject]]:
    """Subjects to close: function objects are shared by the process."""
    subjects: list[Subject] = []
    yield subjects
    for subject in subjects:
        subject.close()


def loader(**options: Any) -> Loader:
    return Loader(BACKENDS[Device.CPU], ROOT, **options)


def subject_of(
    models: Path, text: str, clean: list[Subject], user: dict[str, KernelReference] | None = None
) -> Subject:
    subject = Subject(Case.from_id(text), Shelf(loader(own={USER: user or {}}), models))
    clean.append(subject)
    return subject


def with_attention(
    monkeypatch: pytest.MonkeyPatch, folder: Path, models: Path, where: str, fault: str, clean: list[Subject]
) -> Subject:
    """A case of a fault of the attention; its healthy twin where ``fault`` has no change."""
    name = f"{folder.name.replace('_', '-')}-{fault.replace(' ', '-')}".lower()
    kernel = edited(folder / name, "attention/v1", "attention.py", FAULTS.get(fault, {}))
    monkeypatch.setenv("LOCAL_KERNELS", f"tests/{name}={kernel}")
    return subject_of(models, f"{where}/tests~{name}/pytorch", clean)


def failed(finding: Finding, *words: str) -> None:
    assert finding.outcome is Outcome.FAIL, finding
    for word in words:
        assert word in finding.message


CAUGHT = [
    ("S15", "llama-tiny/f32/inference", model_checks.forward, ("left-padded", "packed", "right on dense")),
    ("S15", "llama-tiny/bf16/inference", model_checks.forward, ("left-padded", "packed", "right on dense")),
    ("S16", "mistral-tiny/f32/inference", model_checks.forward, ("dense",)),
    ("S16", "mistral-tiny/bf16/inference", model_checks.forward, ("dense",)),
    ("S16", "gpt-oss-tiny/f32/inference", model_checks.forward, ("dense",)),
    ("S17", "llama-tiny/f32/inference", model_checks.generate, ("chunked",)),
    ("S17", "phi-tiny/f16/inference", model_checks.generate, ("chunked",)),
    ("S18", "gpt-oss-tiny/f32/inference", model_checks.forward, ("dense",)),
    ("S19", "gemma2-tiny/f32/inference", model_checks.forward, ("dense",)),
    ("S19", "gemma2-tiny/bf16/training", model_checks.gradient, ("dense",)),
    ("S11", "llama-tiny/f32/training", model_checks.gradient, ("k_proj",)),
    ("S11", "phi-tiny/bf16/training", model_checks.gradient, ("k_proj",)),
    ("no window", "mistral-tiny/f32/inference", model_checks.forward, ("dense",)),
]


@pytest.mark.parametrize(("fault", "where", "check", "words"), CAUGHT, ids=[f"{c[0]}-{c[1]}" for c in CAUGHT])
def test_a_broken_attention_is_caught(
    fault: str,
    where: str,
    check: Any,
    words: tuple[str, ...],
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clean: list[Subject],
) -> None:
    """S11, S15 to S19: right on one dense prompt of Llama, or right but for the gradient."""
    failed(check(with_attention(monkeypatch, tmp_path, models, where, fault, clean)), *words)


@pytest.mark.parametrize("where", sorted({case[1] for case in CAUGHT}))
def test_a_healthy_attention_passes_where_a_broken_one_is_caught(
    where: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: list[Subject]
) -> None:
    """A check that fails whatever it is given."""
    subject = with_attention(monkeypatch, tmp_path, models, where, "healthy", clean)
    checks = {case[2] for case in CAUGHT if case[1] == where}
    for check in (engagement.engage, *checks):
        finding = check(subject)
        assert finding.outcome is Outcome.PASS, finding


@pytest.mark.parametrize(
    ("fault", "model", "words"),
    [
        ("S18", "gpt-oss-tiny", ("attention sinks", "s_aux or learnable_sink", "sink_scores")),
        ("no window", "mistral-tiny", ("a sliding window", "window_size")),
    ],
)
def test_a_feature_that_the_signature_lacks_is_named(
    fault: str,
    model: str,
    words: tuple[str, ...],
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clean: list[Subject],
) -> None:
    """S18 and V13: Transformers drops the argument, and nothing raises."""
    finding = engagement.engage(with_attention(monkeypatch, tmp_path, models, f"{model}/f32/inference", fault, clean))
    failed(finding, *words)
    assert finding.reason is Reason.FEATURE_DROPPED


def test_a_feature_that_no_model_asks_for_may_be_missing(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: list[Subject]
) -> None:
    """A kernel without sinks called broken for a Llama, which has none."""
    subject = with_attention(monkeypatch, tmp_path, models, "llama-tiny/f32/inference", "S18", clean)
    assert engagement.engage(subject).outcome is Outcome.PASS


def test_every_feature_is_seen_in_the_model_that_has_it(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: list[Subject]
) -> None:
    """A feature renamed in Transformers, which would then never be asked for."""
    seen: set[str] = set()
    for model in ("gemma2-tiny", "gpt-oss-tiny"):
        subject = with_attention(monkeypatch, tmp_path / model, models, f"{model}/f32/inference", "healthy", clean)
        assert subject.loaded
        with features.watch() as asked:
            engagement.exercise(subject)
        seen |= {feature.name for feature in asked}
    assert seen == {feature.name for feature in features.FEATURES}


ROTARY = {"cos, sin = wide(cos)": "cos, sin = cos[:1], sin[:1]\n        cos, sin = wide(cos)"}


@pytest.mark.parametrize("where", ["llama-tiny/f32/inference/sdpa", "qwen3-tiny/bf16/training/eager"])
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "healthy"])
def test_a_rotation_by_the_first_row_is_caught_by_stretched_positions(
    where: str, broken: bool, models: Path, tmp_path: Path, clean: list[Subject]
) -> None:
    """S14: rotation sees differences only, so left padding hides it."""
    kernel = edited(tmp_path / f"rotary-{broken}", "rotary/v1", "layers.py", ROTARY if broken else {})
    user = {"rotary_pos_emb": KernelReference(str(kernel), "RotaryEmbedding")}
    finding = model_checks.forward(subject_of(models, f"{where}/{USER}", clean, user))
    if broken:
        failed(finding, "stretched", "right on dense")
    else:
        assert finding.outcome is Outcome.PASS, finding


INFERENCE_ONLY = '''"""A norm for inference."""

import torch
from torch import nn


class Norm(nn.Module):
    """No backward."""

    can_torch_compile = True
    has_backward = False

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise."""
        with torch.no_grad():
            wide = hidden_states.float()
            scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return (self.weight * wide * scale).to(hidden_states.dtype)
'''


def test_an_inference_kernel_left_in_training_is_caught_by_missing_gradients(
    models: Path, tmp_path: Path, clean: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S24: loaded for inference, switched off by the attribute, trained: 20 of 21 gradients are missing, no error."""
    kernel = layer_folder(tmp_path / "inference-only", INFERENCE_ONLY)
    user = {"RMSNorm": KernelReference(str(kernel), "Norm", backward=False)}
    real = Loader.load

    def left(self: Loader, case: Case, path: Path) -> Any:
        loaded = real(self, replace(case, mode=Mode.INFERENCE), path)
        loaded.model.use_kernels = False
        loaded.model.train()
        return loaded

    monkeypatch.setattr(Loader, "load", left)
    finding = model_checks.gradient(subject_of(models, f"llama-tiny/f32/training/sdpa/{USER}", clean, user))
    failed(finding, "20 of 21 parameters get no gradient")
    assert finding.reason is Reason.MISSING_GRADIENT


@pytest.mark.parametrize("model", [name for name, record in MODELS.items() if not record.timing])
def test_a_recipe_means_something_for_each_model_that_is_put_through_it(
    model: str, models: Path, clean: list[Subject]
) -> None:
    """A recipe that a model cannot follow: PyTorch's own error would be as large as the kernel's, and hide it.

    In float64 the pieces of a prompt give the logits of the whole, and padding changes none of another row.
    """
    record = MODELS[model]
    attention = "eager" if "eager" in record.attentions else "none"
    subject = subject_of(models, f"{model}/f32/inference/{attention}/pytorch", clean)
    for steps in STEPS.values():
        if applies(steps, record, record.carries):
            whole, _ = subject.truth.forward(steps.inputs)
            pieces, _ = subject.truth.stepwise(steps)
            assert torch.allclose(pieces, whole, rtol=1e-9, atol=1e-9), steps.name
    dense, _ = subject.truth.forward("dense")
    padded, _ = subject.truth.forward("left-padded")
    row = len(dense) // 2
    assert torch.allclose(padded[:row], dense[:row], rtol=1e-9, atol=1e-9)
    if record.positions:
        stretched, _ = subject.truth.forward("stretched")
        assert not torch.allclose(stretched, dense, rtol=1e-3), "positions are said to matter, and do not"
