"""The bundled kernels: each is what its metadata says, fits every class it is for, and computes what PyTorch does.

A bundled kernel is the healthy twin of the faults that the suite must catch: if one of these were wrong, the suite
could not be told from a suite that is.
"""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import kernels
import pytest
import torch
import transformers
from kernels._rust import Digest, DigestAlgorithm, Metadata
from kernels.layer.layer import _validate_layer

from cases.kernels import BACKENDS, ROOT, Build, builds
from cases.mappings import BUNDLED, MAPPINGS, KernelReference
from cases.models import MODELS
from tests.cases.probing import Call, build, captured, registered, run

STATES = {"causal_conv1d_update": {"1"}, "selective_state_update": {"0"}}
"""Arguments that a function is there to write to."""

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

CARRIERS = [(model.name, name) for model in MODELS.values() if not model.timing for name in model.carries]
COMPARED = [
    pytest.param(model.name, name, dtype, id=f"{model.name}-{name}-{str(dtype).removeprefix('torch.')}")
    for model in MODELS.values()
    if not model.timing
    for name in sorted({*model.registers, *model.called_in_decode} & BUNDLED.keys())
    for dtype in DTYPES
]


@cache
def repository(name: str, version: int) -> Any:
    return kernels.get_local_kernel(ROOT / name / f"v{version}", backend="cpu")


def load(reference: KernelReference) -> Any:
    assert reference.version is not None
    return getattr(repository(reference.repository.partition("/")[2], reference.version).layers, reference.layer)


def calls_of(model: str, name: str, dtype: torch.dtype) -> list[Call]:
    found = [call for call in captured(model, dtype) if call.name == name]
    assert found, f"{model} never called {name}"
    return found


def relative_error(value: torch.Tensor, truth: torch.Tensor) -> float:
    value, truth = value.detach(), truth.detach()
    return float((value.double() - truth).norm() / truth.norm().clamp_min(1e-30))


def test_nothing_derived_is_stale() -> None:
    """A source edited without its digest: kernels would load it, and evidence would name other bytes."""
    assert [sentence for each in builds() for sentence in each.stale()] == []


@pytest.mark.parametrize("each", builds(), ids=lambda each: f"{each.name}-v{each.version}-{each.backend}")
def test_the_digest_is_the_one_that_kernels_computes(each: Build) -> None:
    """Our own hashing drifting from theirs, so that verification fails where it is asked for."""
    metadata = Metadata.read_from_file(each.folder / "metadata.json")
    assert metadata.digest is not None
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, each.folder))


def test_every_build_has_an_id_of_its_own_and_every_backend_a_build() -> None:
    """Two builds of one id: the second to be loaded is given the layers of the first, without a word."""
    ids = [Metadata.read_from_file(each.folder / "metadata.json").id for each in builds()]
    assert len(set(ids)) == len(ids)
    assert all(name.isidentifier() for name in ids)
    assert {each.backend for each in builds()} == set(BACKENDS)


@pytest.mark.parametrize("reference", BUNDLED.values(), ids=lambda reference: reference.promised)
def test_a_record_claims_what_the_layer_claims(reference: KernelReference) -> None:
    """A plan that promises a kernel in a mode for which kernels will not bind it, or the other way round."""
    layer = load(reference)
    assert layer.has_backward is reference.backward
    assert layer.can_torch_compile is reference.compiles


def test_every_bundled_name_is_called_by_a_model_and_has_a_mapping_of_its_own() -> None:
    """A kernel that no case could ever engage, or that is never tested without the others."""
    called = {name for model in MODELS.values() for name in (*model.registers, *model.called_in_decode)}
    assert set(BUNDLED) <= called
    assert {f"only-{name}" for name in BUNDLED} | {"pytorch", "default", "bundled"} == set(MAPPINGS)


@pytest.mark.parametrize("model", [name for name, record in MODELS.items() if not record.timing])
def test_a_kernel_fits_every_class_that_carries_its_name(model: str) -> None:
    """A kernel that kernels refuses, or whose parameters bear other names, so that a call by keyword fails."""
    for name, module in registered(build(MODELS[model])):
        if name in BUNDLED:
            layer = load(BUNDLED[name])
            _validate_layer(check_cls=type(module), cls=layer, repo=BUNDLED[name].promised)
            assert list(inspect.signature(layer.forward).parameters) == list(
                inspect.signature(type(module).forward).parameters
            )


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("RMSNorm", "variance_epsilon"), ("RMSNormGated", "variance_epsilon"), ("RMSNormZeroCentered", "eps")],
)
def test_every_class_of_transformers_has_the_attributes_that_a_norm_reads(name: str, attribute: str) -> None:
    """A class outside the zoo that keeps its epsilon under another name: the kernel would raise on that model."""
    tagged = re.compile(rf'^@use_kernel_forward_from_hub\("{name}"\)\nclass (\w+).*\n((?:    .*\n|\n)*)', re.MULTILINE)
    found = {
        match[1]: match[2]
        for path in (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")
        for match in tagged.finditer(path.read_text(encoding="utf-8"))
    }
    assert found
    lacking = [
        each for each, body in found.items() if f"self.{attribute} = " not in body or "self.weight = " not in body
    ]
    assert lacking == []


@pytest.mark.parametrize(("model", "name", "dtype"), COMPARED)
def test_a_kernel_is_as_near_to_float64_as_pytorch(model: str, name: str, dtype: torch.dtype) -> None:
    """Rounding too early, a weight or an epsilon ignored, a gradient wrong or missing: S01 to S08 on a healthy twin.

    The limit is PyTorch's own error times 1.15, what a norm summed in bfloat16 exceeds (measurement.md), where there
    are numbers enough for a mean; few numbers scatter, up to 1.35 here, and get 1.5. Below four roundings of float32
    nothing is a fault in any precision.
    """
    layer = load(BUNDLED[name])
    for call in calls_of(model, name, dtype):
        truth = run(call, type(call.module).forward, layer.has_backward, double=True)
        pytorch = run(call, type(call.module).forward, layer.has_backward)
        kernel = run(call, layer.forward, layer.has_backward)
        for kind in ("outputs", "gradients"):
            expected, found, exact = (getattr(each, kind) for each in (pytorch, kernel, truth))
            assert found.keys() == expected.keys()
            for place, value in found.items():
                assert value.dtype == expected[place].dtype
                assert value.shape == expected[place].shape
                if not value.is_floating_point():
                    assert torch.equal(value, expected[place])
                    continue
                factor = 1.15 if value.numel() >= 1024 else 1.5
                limit = factor * max(relative_error(expected[place], exact[place]), 4 * 2.0**-24)
                assert relative_error(value, exact[place]) <= limit, f"{kind}: {place}"
        for place in STATES.get(name, ()):
            limit = 1.5 * max(relative_error(pytorch.inputs[place], truth.inputs[place]), 4 * 2.0**-24)
            assert relative_error(kernel.inputs[place], truth.inputs[place]) <= limit


@pytest.mark.parametrize(("model", "name", "dtype"), [case for case in COMPARED if "float32" in str(case.id)])
def test_a_kernel_writes_to_no_input_and_repeats_itself(model: str, name: str, dtype: torch.dtype) -> None:
    """A forward that works in place (S12), returns one reused buffer (S13), or varies from run to run (S21)."""
    layer = load(BUNDLED[name])
    for call in calls_of(model, name, dtype):
        first = run(call, layer.forward, layer.has_backward)
        kept = {place: value.clone() for place, value in first.outputs.items()}
        again = run(call, layer.forward, layer.has_backward)
        given = {str(place): value for place, value in [*enumerate(call.arguments), *call.keywords.items()]}
        for place, value in first.inputs.items():
            assert (place in STATES.get(name, ())) or torch.equal(value, given[place])
        for place, value in kept.items():
            assert torch.equal(value, first.outputs[place])
            assert torch.equal(value, again.outputs[place])
        for place, value in first.gradients.items():
            assert torch.equal(value, again.gradients[place])


@pytest.mark.parametrize("name", BUNDLED)
def test_a_kernel_compiles_without_graph_breaks_if_and_only_if_it_says_so(name: str) -> None:
    """A claim that nobody verifies: kernels takes ``can_torch_compile`` on trust."""
    model = next(
        each.name for each in MODELS.values() if name in (*each.registers, *each.called_in_decode) and not each.timing
    )
    layer = load(BUNDLED[name])
    call = calls_of(model, name, torch.float32)[0]
    torch._dynamo.reset()
    compiled = torch.compile(layer.forward, backend="eager", fullgraph=True)
    if not layer.can_torch_compile:
        with pytest.raises(Exception, match=r"data-dependent|Data-dependent|graph break"):
            run(call, compiled, gradients=False)
        return
    found, expected = (run(call, forward, gradients=False) for forward in (compiled, layer.forward))
    for place, value in expected.outputs.items():
        torch.testing.assert_close(found.outputs[place], value)


def test_both_versions_of_the_norms_agree() -> None:
    """An old version that is broken: pins would be tested against a kernel that no one looks after."""
    for name in ("RMSNorm", "RMSNormGated", "RMSNormZeroCentered"):
        model = next(each.name for each in MODELS.values() if name in each.registers)
        for call in calls_of(model, name, torch.bfloat16):
            first, second = (
                run(call, getattr(repository("normalisation", version).layers, name).forward, gradients=True)
                for version in (1, 2)
            )
            for kind in ("outputs", "gradients"):
                for place, value in getattr(first, kind).items():
                    torch.testing.assert_close(value, getattr(second, kind)[place])


@pytest.mark.parametrize("version", [1, 2])
def test_a_norm_kept_in_float32_gives_half_precision_back(version: int) -> None:
    """GPT-OSS in float16, whose norms stay in float32: a result raised to that is refused by the next layer."""
    norm: Any = build(MODELS["gpt-oss-tiny"]).model.norm
    call = Call("RMSNorm", norm, (torch.randn(2, 5, 64).half(),), {})
    layer = repository("normalisation", version).layers.RMSNorm
    found, expected = (run(call, forward, gradients=True).outputs for forward in (layer.forward, type(norm).forward))
    assert found["output 0"].dtype is torch.float16
    torch.testing.assert_close(found["output 0"], expected["output 0"])


def test_one_router_kernel_serves_both_routers_of_the_name() -> None:
    """Softmax routing applied to Laguna's router, which scores by sigmoid and corrects by a bias, under one name."""
    laguna = importlib.import_module("transformers.models.laguna.modeling_laguna")
    router = laguna.LagunaTopKRouter(laguna.LagunaConfig(num_experts=8, num_experts_per_tok=3, hidden_size=16))
    generator = torch.Generator().manual_seed(0)
    for cap in (0.0, 2.0):
        router.router_logit_softcapping = cap
        torch.nn.init.normal_(router.weight, generator=generator)
        torch.nn.init.normal_(router.e_score_correction_bias, generator=generator)
        call = Call("SoftmaxTopKRouter", router, (torch.randn(2, 5, 16, generator=generator),), {})
        layer = load(BUNDLED["SoftmaxTopKRouter"])
        expected, found = (run(call, forward, gradients=True) for forward in (type(router).forward, layer.forward))
        for kind in ("outputs", "gradients"):
            for place, value in getattr(expected, kind).items():
                torch.testing.assert_close(getattr(found, kind)[place], value)


@pytest.mark.parametrize("name", ["CausalConvolution", "SelectiveScan", "ChunkedScan"])
def test_packed_sequences_are_refused_and_never_run_together(name: str) -> None:
    """A kernel that drops ``seq_idx`` among its keywords and lets one sequence see the one before it."""
    layer = getattr(repository("state-space", 1).layers, name)
    needed = [
        parameter
        for parameter in list(inspect.signature(layer.forward).parameters.values())[1:]
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    with pytest.raises(ValueError, match="seq_idx"):
        layer.forward(torch.nn.Identity(), *(torch.zeros(1) for _ in needed), seq_idx=torch.zeros(1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_fused_layout_computes_the_two_layers_it_replaces_with_and_without_its_kernel(dtype: torch.dtype) -> None:
    """Gate and up projection swapped; or a layout without a forward, which a model falls back on and gets None from."""
    layers = repository("mlp", 1).layers
    block: Any = build(MODELS["llama-tiny"]).model.layers[0].to(dtype)
    generator = torch.Generator().manual_seed(0)
    for parameter in (block.post_attention_layernorm.weight, *block.mlp.parameters()):
        torch.nn.init.normal_(parameter, generator=generator, std=0.3)
    gate_up = torch.cat((block.mlp.gate_proj.weight, block.mlp.up_proj.weight)).detach()
    fused = layers.NormalisedMLPLayout(block.post_attention_layernorm, block.mlp).to(dtype)
    alone = layers.GatedMLPLayout(block.mlp.config).to(dtype)
    alone.down_proj.weight = block.mlp.down_proj.weight
    for layout in (fused, alone):
        layout.gate_up_proj.weight.data.copy_(gate_up)
    states = torch.randn(2, 48, 64, generator=generator).to(dtype)
    normalised = block.post_attention_layernorm(states)
    for layout, layer, given in ((fused, layers.NormalisedMLP, states), (alone, layers.GatedMLP, normalised)):
        _validate_layer(check_cls=type(layout), cls=layer, repo="embedded/mlp")
        truth = block.double().mlp(
            block.post_attention_layernorm.double()(states.double()) if layout is fused else given.double()
        )
        block.to(dtype)
        limit = 1.15 * max(relative_error(block.mlp(normalised), truth), 4 * 2.0**-24)
        assert relative_error(layer.forward(layout, given), truth) <= limit
        assert relative_error(layout(given), truth) <= limit
