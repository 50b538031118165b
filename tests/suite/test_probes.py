"""The probes find each fault by its mechanism, say where and by how much, and leave healthy kernels alone.

In one process and without pytest's workers: a subject is loaded as a case says, and probed.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from transformers import modeling_flash_attention_utils as flash
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cases.axes import Device
from cases.case import Case
from cases.inputs import Inputs
from cases.mappings import BUNDLED_ATTENTION, KernelReference
from cases.models import MODELS
from cases.plan import USER
from reports.record import Outcome, Reason
from suite import passes, zoo
from suite.attending import attend
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.probes import probe
from suite.subject import Shelf, Subject

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "cases" / "kernels"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors here are small: a second thread costs more than it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A local kernel repository of ``probed_layers.py``."""
    root = tmp_path_factory.mktemp("probed")
    variant = root / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "layers.py").write_bytes((Path(__file__).parent / "probed_layers.py").read_bytes())
    (variant / "__init__.py").write_text("from . import layers\n\n__all__ = ['layers']\n", encoding="utf-8")
    facts = {"id": "_probed_layers_for_tests", "name": "probed", "version": 1, "license": "Apache-2.0"}
    metadata = {**facts, "python-depends": [], "backend": {"type": "cpu"}}
    (variant / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return str(root)


def probed(case: str, models: Path, user: dict[str, KernelReference] | None = None) -> Finding:
    loader = Loader(BACKENDS[Device.CPU], KERNELS, frozenset({BUNDLED_ATTENTION}), {USER: user or {}})
    subject = Subject(Case.from_id(case), Shelf(loader, models))
    try:
        return probe(subject)
    finally:
        subject.close()


FAULTS = [
    ("S01", "f32", "inference", "FixedEpsilon", "rows of size 0.0001 and an epsilon of 0.01"),
    ("S02", "bf16", "inference", "NarrowSquares", "on average over"),
    ("S03", "f16", "inference", "NarrowSquares", "rows of size 300"),
    ("S04", "f32", "inference", "NoEpsilon", "every other row zero"),
    ("S06", "f32", "inference", "WithoutGradient", "is missing, and PyTorch has one"),
    ("S08", "f32", "training", "DoubledGradient", "gradient of hidden_states"),
    ("S09", "f32", "training", "IncomingOverwritten", "writes to the incoming gradient"),
    ("S10", "f32", "training", "WeightPerShard", "gradient of parameter weight"),
    ("S10", "f32", "training", "WeightAccumulatedTwice", "is not twice that of one"),
    ("S12", "f32", "inference", "InputMutated", "writes to its argument hidden_states"),
    ("S13", "f32", "inference", "BufferReused", "changes when the layer is called again"),
    ("S21", "f32", "inference", "Noisy", "the same call gives another"),
    ("", "f32", "inference", "WeightIgnored", "as captured"),
    ("", "f32", "inference", "WeightKept", "changed in place since an earlier call"),
    ("", "f32", "inference", "NeighboursSeen", "when the other rows grow"),
    ("", "f32", "inference", "ContiguousAssumed", "views: "),
    ("", "f32", "inference", "GridTooSmall", "5003 rows"),
    ("", "f32", "inference", "OddBatchEnd", "a batch of 3"),
    ("", "f32", "inference", "NinthSequence", "a batch of 17"),
    ("", "f32", "inference", "TableOfSixteen", "a batch of 17"),
    ("", "f32", "inference", "NanHidden", "of a row of NaN"),
    ("", "f32", "inference", "Seeds", "random generator"),
]
"""Fault, dtype, mode, layer, and what the message has to say about the mechanism that found it."""


@pytest.mark.parametrize(("fault", "dtype", "mode", "layer", "said"), FAULTS, ids=lambda value: str(value)[:24])
def test_a_broken_norm_is_caught(
    fault: str, dtype: str, mode: str, layer: str, said: str, models: Path, repository: str
) -> None:
    """S01 to S13 and S21 in RMSNorm: the mechanism meant for a fault no longer sees it."""
    user = {"RMSNorm": KernelReference(repository, layer)}
    finding = probed(f"llama-tiny/{dtype}/{mode}/sdpa/user", models, user)
    assert finding.outcome is Outcome.FAIL
    assert "RMSNorm (LlamaRMSNorm at model.layers.0.input_layernorm)" in finding.message
    assert said in finding.message


@pytest.mark.parametrize(
    ("layer", "mode", "said"),
    [
        ("GradientUnrotated", "training", "gradient of q"),
        ("FirstRowForAll", "inference", "different positions in each row of the batch"),
    ],
)
def test_a_broken_rotation_is_caught(layer: str, mode: str, said: str, models: Path, repository: str) -> None:
    """S07 and S14 in the rotary function: gradients left as they came, or one row's positions used for all."""
    user = {"rotary_pos_emb": KernelReference(repository, layer)}
    finding = probed(f"llama-tiny/f32/{mode}/sdpa/user", models, user)
    assert finding.outcome is Outcome.FAIL
    assert said in finding.message


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_the_healthy_twins_pass(dtype: str, mode: str, models: Path, repository: str) -> None:
    """A false alarm on a fused norm and rotation that are written differently from PyTorch's and are right."""
    user = {
        "RMSNorm": KernelReference(repository, "HealthyNorm"),
        "rotary_pos_emb": KernelReference(repository, "HealthyRotation"),
    }
    finding = probed(f"llama-tiny/{dtype}/{mode}/sdpa/user", models, user)
    assert finding.outcome is Outcome.PASS, finding.message
    assert isinstance(finding.measures["probes"], int)
    assert finding.measures["probes"] > 30


@pytest.mark.parametrize(
    ("case", "unprobed"),
    [
        ("mamba2-tiny/bf16/inference/none/bundled", "SiLU"),
        ("qwen3.5-moe-tiny/f32/training/sdpa/bundled", "fused_recurrent_gated_delta_rule"),
        ("gpt-oss-tiny/f16/inference/eager/bundled", ""),
    ],
    ids=["states", "choices", "tuples"],
)
def test_states_choices_and_tuples_are_probed_without_false_alarm(case: str, unprobed: str, models: Path) -> None:
    """A state update taken for a mutated input; an expert chosen at a tie taken for an error; a layer left out."""
    finding = probed(case, models)
    assert finding.outcome is Outcome.PASS, finding.message
    assert finding.measures["unprobed"] == unprobed, "what no pass of this mode calls, and nothing else"


def test_a_state_left_where_it_was_is_caught(models: Path) -> None:
    """An update kernel with the right result that forgets to move its state on: the next token is wrong."""
    from_state = "causal_conv1d_update"
    loader = Loader(BACKENDS[Device.CPU], local_root=KERNELS)
    subject = Subject(Case.from_id("mamba-tiny/f32/inference/none/bundled"), Shelf(loader, models))
    site = next(site for site in subject.arms.sites if site.name == from_state)
    kernel = subject.arms._kernels[subject.arms.sites.index(site)]

    def forgetful(module: Any, hidden_states: Any, conv_state: Any, *args: Any, **kwargs: Any) -> Any:
        return kernel.__func__(module, hidden_states, conv_state.clone(), *args, **kwargs)

    subject.arms._kernels[subject.arms.sites.index(site)] = forgetful.__get__(site.module)
    try:
        finding = probe(subject)
    finally:
        subject.close()
    assert finding.outcome is Outcome.FAIL
    assert "argument conv_state after the call" in finding.message


@pytest.fixture
def local_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"{BUNDLED_ATTENTION}={KERNELS / 'attention' / 'v1'}")


Flash = Callable[..., torch.Tensor]


def top_left(real: Flash) -> Flash:
    def broken(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        if options.get("causal") and q.dim() == 4 and q.shape[1] < k.shape[1]:
            k, v = k[:, : q.shape[1]], v[:, : q.shape[1]]
        return real(q, k, v, **options)

    return broken


def leaking(real: Flash) -> Flash:
    def broken(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        for name in ("cu_seqlens_q", "cu_seqlens_k"):
            if name in options:
                options[name] = options[name][[0, -1]]
        return real(q, k, v, **options)

    return broken


def without(name: str) -> Callable[[Flash], Flash]:
    def breaking(real: Flash) -> Flash:
        return lambda q, k, v, **options: real(q, k, v, **{key: val for key, val in options.items() if key != name})

    return breaking


def wide_window(real: Flash) -> Flash:
    def broken(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        if "window_size" in options:
            options["window_size"] = tuple(side + 1 for side in options["window_size"])
        return real(q, k, v, **options)

    return broken


def first_group_only(real: Flash) -> Flash:
    def broken(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        shared = q.shape[-2] != k.shape[-2]
        return real(q, k.detach() + 0.5 * (k - k.detach()) if shared else k, v, **options)

    return broken


@pytest.mark.usefixtures("local_attention")
@pytest.mark.parametrize(
    ("model", "mode", "fault", "said"),
    [
        ("llama-tiny", "inference", lambda real: real, ""),
        ("llama-tiny", "training", first_group_only, "gradient of key"),
        ("llama-tiny", "inference", leaking, "packed in one row"),
        ("mistral-tiny", "inference", wide_window, "output 0"),
        ("llama-tiny", "inference", top_left, "after a cache of"),
        ("gpt-oss-tiny", "inference", without("s_aux"), "output 0"),
        ("gemma2-tiny", "inference", without("softmax_scale"), "output 0"),
        ("gemma2-tiny", "inference", without("softcap"), "output 0"),
    ],
    ids=["healthy", "S11", "S15", "S16", "S17", "S18", "S19", "softcap"],
)
def test_a_broken_attention_is_caught(
    model: str, mode: str, fault: Callable[[Flash], Flash], said: str, models: Path
) -> None:
    """S11 and S15 to S19: an attention kernel that drops or misreads what it is given."""
    case = f"{model}/f32/{mode}/bundled/pytorch"
    loader = Loader(BACKENDS[Device.CPU], None, trusted=frozenset({BUNDLED_ATTENTION}))
    subject = Subject(Case.from_id(case), Shelf(loader, models))
    assert subject.loaded
    subject.ask(passes.forward, "dense")
    names = [name for name in ("_flash_fn", "_flash_varlen_fn") if getattr(flash, name) is not None]
    patches = [mock.patch.object(flash, name, fault(getattr(flash, name))) for name in names]
    for patch in patches:
        patch.start()
    try:
        finding = probe(subject)
    finally:
        for patch in patches:
            patch.stop()
        subject.close()
    assert finding.outcome is (Outcome.FAIL if said else Outcome.PASS), finding.message
    assert said in finding.message


@pytest.fixture
def by_definition() -> Iterator[str]:
    """The definition as an attention implementation, given the masks of flash attention."""
    name = "probed_definition"
    ALL_ATTENTION_FUNCTIONS.register(name, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
    yield name
    ALL_ATTENTION_FUNCTIONS._global_mapping.pop(name)
    ALL_MASK_ATTENTION_FUNCTIONS._global_mapping.pop(name)


@pytest.mark.parametrize("padding", [(0, 0), (0, 7)], ids=["dense", "padded"])
@pytest.mark.parametrize(
    "model", ["llama-tiny", "mistral-tiny", "gemma2-tiny", "gpt-oss-tiny", "bert-tiny", "modernbert-tiny"]
)
def test_the_definition_of_attention_is_what_models_compute(
    model: str, padding: tuple[int, ...], models: Path, by_definition: str
) -> None:
    """A reference that is itself wrong about a mask, a window, a scale, a soft-cap or a sink."""
    record = MODELS[model]
    path = zoo.build(record, models)
    architecture = getattr(transformers, record.architecture)
    given = passes.batch(Inputs("given", 2, 48, padding, "as models get it"), torch.device("cpu"), 256)
    eager, defined = (
        passes.forward(architecture.from_pretrained(path, attn_implementation=name).eval(), record, given)
        for name in ("eager", by_definition)
    )
    torch.testing.assert_close(defined, eager, rtol=1e-4, atol=1e-4)


def test_a_kernel_that_raises_is_a_failure_with_what_it_said(models: Path, repository: str) -> None:
    """An exception of the kernel on an input that PyTorch accepts, taken for a fault of the suite."""
    user = {"SiLU": KernelReference(repository, "HealthyNorm")}
    loader = Loader(BACKENDS[Device.CPU], None, own={USER: user})
    subject = Subject(Case.from_id("llama-tiny/f32/inference/sdpa/user"), Shelf(loader, models))
    try:
        finding = probe(subject)
    finally:
        subject.close()
    assert finding.outcome is Outcome.FAIL
    assert finding.reason is Reason.EXCEPTION
    assert "raises AttributeError" in finding.message
