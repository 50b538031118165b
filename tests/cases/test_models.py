"""The zoo's records against the installed Transformers: what a record claims, the model must do when it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.integrations.flash_attention import get_target_dtype

from cases.models import MODELS, Model
from tests.cases.probing import TOKENS, build, hooked, registered

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
tiny_models = pytest.mark.parametrize(
    "model", [model for model in MODELS.values() if not model.timing], ids=lambda model: model.name
)


@cache
def built(name: str) -> Any:
    """One instance per model for all tests that do not change it."""
    return build(MODELS[name])


def result(output: Any) -> torch.Tensor:
    """What a loss would be taken of, whichever kind of model it is."""
    value = output.logits if hasattr(output, "logits") else output.text_embeds
    assert isinstance(value, torch.Tensor)
    return value


@contextmanager
def calls(network: Any) -> Iterator[set[str]]:
    """The registered names that are called within the block."""
    seen: set[str] = set()
    with hooked(network, lambda name, *_: seen.add(name)):
        yield seen


@every_model
def test_a_model_carries_exactly_the_names_of_its_record(model: Model) -> None:
    """A name added or dropped by Transformers, that the plan would promise kernels for or never test."""
    assert {name for name, _ in registered(built(model.name))} == set(model.carries)


@every_model
def test_a_prompt_calls_exactly_the_names_of_the_record(model: Model) -> None:
    """A kernel counted as engaged because its name is carried, though no forward pass ever calls it."""
    network = built(model.name)
    with calls(network) as seen, torch.no_grad():
        network(input_ids=TOKENS[:1, :20])
    assert seen == set(model.registers)


@tiny_models
def test_training_calls_exactly_the_names_of_the_record_and_reaches_every_parameter(model: Model) -> None:
    """A parameter without a gradient in PyTorch, which would make a missing gradient of a kernel look normal."""
    network = built(model.name)
    try:
        network.train()
        with calls(network) as seen:
            loss = result(network(input_ids=TOKENS)).float().square().mean()
        loss.backward()
        missing = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    finally:
        network.eval()
        network.zero_grad(set_to_none=True)
    assert seen == set(model.called_in_training)
    assert missing == []


@tiny_models
def test_one_token_with_a_cache_calls_exactly_the_names_of_the_record(model: Model) -> None:
    """Kernels of the decode step left out of the plan, as a prompt never calls them."""
    network = built(model.name)
    assert (hasattr(network, "generate") and network.can_generate()) is model.generates
    if not model.generates:
        assert model.called_in_decode == ()
        return
    with torch.no_grad():
        output = network(input_ids=TOKENS, use_cache=True)
        kept = {key: output[key] for key in ("past_key_values", "cache_params") if key in output}
        with calls(network) as seen:
            network(input_ids=TOKENS[:, :1], **kept)
        tokens = network.generate(TOKENS[:, :8], max_new_tokens=2, min_new_tokens=2, do_sample=False)
    assert seen == set(model.called_in_decode)
    assert tokens.shape == (2, 10)


@every_model
def test_a_class_accepts_exactly_the_attentions_of_its_record(model: Model) -> None:
    """An attention that the class refuses, planned; or one that it accepts, never tested."""
    network = type(built(model.name))
    if model.attentions == ("none",):
        assert not network._supports_sdpa
        assert not network._supports_flash_attn
        return
    if model.name == "gpt2-tiny":
        # What it claims and cannot do; the test after this one says when it can.
        assert network._supports_flash_attn
        assert set(model.attentions) == {"eager", "sdpa"}
        return
    accepted = {"eager", *(["sdpa"] * network._supports_sdpa), *(["bundled"] * network._supports_flash_attn)}
    assert set(model.attentions) == accepted


def test_gpt2_dies_of_flash_attention_in_float32() -> None:
    """Staying with two attentions after Transformers has mended the third."""
    module = built("gpt2-tiny").transformer.h[0].attn
    with pytest.raises(StopIteration):
        get_target_dtype(torch.zeros(1), module)


@tiny_models
def test_attentions_of_one_model_agree(model: Model) -> None:
    """An attention that is accepted and computes something else, so that no kernel could be compared with it."""
    choices = [name for name in model.attentions if name in ("eager", "sdpa")]
    with torch.no_grad():
        results = [result(build(model, attn_implementation=name)(input_ids=TOKENS)) for name in choices]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-5)


@tiny_models
def test_a_saved_model_comes_back_as_it_was(model: Model, tmp_path: Path) -> None:
    """A record whose weights do not survive the loading code, so that two arms would compare two models."""
    network = built(model.name)
    network.save_pretrained(tmp_path)
    loaded = getattr(transformers, model.architecture).from_pretrained(tmp_path).eval()
    assert type(loaded) is type(network)
    with torch.no_grad():
        torch.testing.assert_close(
            result(loaded(input_ids=TOKENS)), result(network(input_ids=TOKENS)), rtol=1e-5, atol=1e-6
        )


@every_model
def test_a_model_that_routes_says_so(model: Model) -> None:
    """A row whose expert was a near tie, taken for a wrong result of a kernel."""
    routers = [
        module for module in built(model.name).modules() if type(module).__name__.endswith(("Router", "Experts"))
    ]
    assert bool(routers) is model.routes


@pytest.mark.parametrize(("name", "limit"), [("mistral-tiny", 16), ("gemma2-tiny", 16), ("gpt-oss-tiny", 16)])
def test_the_window_cuts_the_sequence(name: str, limit: int) -> None:
    """A window no shorter than the sequence, under which a kernel that ignores it would pass."""
    assert built(name).config.sliding_window == limit < TOKENS.shape[1]


@every_model
def test_records_are_sorted_and_head_sizes_legal(model: Model) -> None:
    """A head size that real flash kernels refuse, so that the same case could not run on a GPU."""
    for names in (model.registers, model.called_in_training, model.called_in_decode, model.idle):
        assert list(names) == sorted(set(names))
    config = built(model.name).config
    if model.attentions != ("none",):
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        assert size % 8 == 0
