"""Fusion of neighbouring modules: what is fused, where the weights come from, what is refused."""

import tempfile
from typing import Any

import torch
import transformers

from reports.record import Reason
from suite.documented.ground import DisprovedError, check, refusal, refused, works
from suite.documented.stack import Stack

KERNEL = "embedded/mlp:NormalisedMLP"


def pattern(where: str = "model.layers.*", other: str | None = None) -> Any:
    """The key that fuses the second normalisation of a block with its feed-forward layer."""
    return (("RMSNorm", f"{where}.post_attention_layernorm"), ("MLP", f"{other or where}.mlp"))


def fused(model: Any) -> list[int]:
    """Numbers of the blocks whose feed-forward layer has become an identity."""
    return [number for number, block in enumerate(model.model.layers) if isinstance(block.mlp, torch.nn.Identity)]


@check("fusion.fuse")
def fuse(stack: Stack) -> str:
    """Fault: blocks that are not fused, weights that are not converted, or a model that cannot be saved any more."""
    plain = stack.load()
    reference = stack.logits(plain)
    with works(f"a fusion with {KERNEL}"):
        model = stack.configured({pattern(): KERNEL})
    if fused(model) != list(range(len(model.model.layers))):
        raise DisprovedError(f"of {len(model.model.layers)} blocks that match, {fused(model)} are fused")
    kernel = stack.expect(model, "embedded/mlp@", "after fusion", "NormalisedMLP")
    stack.same(stack.logits(model), reference, "the fused model")
    model.train()
    with works("a backward pass of the fused model"):
        gradients, wanted = stack.gradients(model), stack.gradients(plain.train())
    missing = [name for name, gradient in gradients.items() if gradient is None]
    if missing:
        raise DisprovedError(f"no gradient for {', '.join(missing[:3])}", Reason.MISSING_GRADIENT)
    gate, up = (wanted[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    both = gradients["model.layers.0.post_attention_layernorm.gate_up_proj.weight"]
    if gate is None or up is None or both is None:
        raise AssertionError("the plain model has all gradients")
    stack.same(both, torch.cat((gate, up)), "the gradient of the fused matrix")
    with tempfile.TemporaryDirectory() as folder, works("saving the fused model, and loading it without kernels"):
        model.save_pretrained(folder)
        transformers.monkey_patching.clear_patch_mapping()
        again = type(plain).from_pretrained(folder, dtype=torch.float32, device_map=stack.backend.torch_type)
        stack.same(stack.logits(again), reference, "the model that was saved fused and loaded plain")
    return f"{kernel}: {len(fused(model))} blocks fused, logits and gradients right, saved and loaded again"


@check("fusion.fuse#own")
def own(stack: Stack) -> str:
    """Fault V9: the fusion of one model is applied to every model of its class that is loaded later."""
    with works(f"a fusion with {KERNEL}"):
        stack.configured({pattern(): KERNEL})
    later = stack.load()
    if fused(later):
        raise DisprovedError(
            f"a model loaded later, without a KernelConfig, has the fused blocks {fused(later)}", Reason.SHADOWED
        )
    return "a model loaded later is not fused"


@check("fusion.fuse#weights")
def weights(stack: Stack) -> str:
    """Fault V11: without a conversion_mapping the fused weights stay random, and a generic warning is all there is."""
    reference = stack.logits(stack.load())
    try:
        model = stack.configured({pattern(): "embedded/unconverted:NormalisedMLP"})
    except Exception as error:  # a refusal of whatever type is what is right here
        return refusal("a fusion without a rule for its weights", error, "conversion", "weight")
    stack.same(stack.logits(model), reference, "a fusion without a rule for its weights is accepted, and")
    return "the weights are right without a conversion_mapping"


@check("fusion.fuse#local")
def local(stack: Stack) -> str:
    """Fault V1: a local kernel cannot be fused, since its path has become a pair on the way."""
    config = stack.config({pattern(): f"{stack.local('mlp')}:NormalisedMLP"}, use_local_kernel=True)
    with works("a fusion with use_local_kernel=True"):
        model = stack.load(use_kernels=True, kernel_config=config)
    return stack.expect(model, str(stack.local("mlp")), "after fusion", "NormalisedMLP")


@check("fusion.parent")
def parent(stack: Stack) -> str:
    """Fault: patterns of different parents that are fused into something."""
    key = pattern("model.layers.*", "model.layers.*.other")
    return refused("a fusion over two parents", lambda: stack.configured({key: KERNEL}), "same parent")


@check("fusion.wildcard")
def wildcard(stack: Stack) -> str:
    """Fault: a star that swallows several segments, or a pattern that hits nothing and is taken."""
    said = refused(
        "a pattern whose star would have to stand for two segments",
        lambda: stack.configured({pattern("*.0"): KERNEL}),
        "matched",
    )
    with works("a pattern whose star stands for one segment"):
        model = stack.configured({pattern("model.*.0"): KERNEL})
    if 0 not in fused(model):
        raise DisprovedError("model.*.0 is not found to match model.layers.0")
    return said


@check("fusion.wildcard#one")
def one_block(stack: Stack) -> str:
    """Fault V37: a pattern without a star names one block, and all blocks of its class are fused."""
    with works("a fusion of block 0"):
        model = stack.configured({pattern("model.layers.0"): KERNEL})
    if fused(model) != [0]:
        raise DisprovedError(
            f"the pattern names model.layers.0, and the blocks {fused(model)} are fused", Reason.SHADOWED
        )
    return "only the block that the pattern names is fused"


@check("fusion.layout")
def layout(stack: Stack) -> str:
    """Fault: a kernel without a layout that is taken for a fusion."""
    return refused(
        "a fusion with a kernel that has no layout",
        lambda: stack.configured({pattern(): "embedded/normalisation:RMSNorm"}),
        "RMSNormLayout",
    )
