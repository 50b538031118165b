"""When something does not work: what is said, what is left to PyTorch, and that no result is ever wrong."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import kernels
import torch
import transformers
from kernels import Mode

from cases.models import MODELS
from reports.record import Reason
from suite import hub, zoo
from suite.documented.ground import DisprovedError, check, refusal, refused, works
from suite.documented.modes import by_default
from suite.documented.stack import Stack


@contextlib.contextmanager
def fault(stack: Stack, **options: object) -> Iterator[None]:
    """A fault of the Hub within the block."""
    hub.set_fault(stack.endpoint, hub.Fault(**options))  # type: ignore[arg-type]
    try:
        yield
    finally:
        hub.set_fault(stack.endpoint, None)


@check("trouble.load")
def wrong_name(stack: Stack) -> str:
    """Fault: an entry that the repository does not have, or a version that is not there, ends in something else."""
    refused(
        "an entry that the repository does not have",
        lambda: stack.configured({"RMSNorm": "embedded/normalisation:NoSuchLayer"}),
        "NoSuchLayer",
    )
    return refused(
        "a version that is not there",
        lambda: stack.configured({"RMSNorm": ("embedded/normalisation:RMSNorm", {"version": 7})}),
        "version 7",
        "1, 2",
    )


@check("trouble.load#import")
def failing_import(stack: Stack) -> str:
    """Fault: a kernel whose import fails is left out without a word, or what it misses is not said."""
    return refused(
        "a kernel that cannot be imported",
        lambda: stack.configured({"RMSNorm": "embedded/fails:Norm"}),
        "libmissing.so",
    )


@check("trouble.load#gone")
def hub_gone(stack: Stack) -> str:
    """Fault: a Hub that fails ends in a hang, or in a message that does not say which repository was wanted."""
    with fault(stack, kind=hub.FaultKind.ERROR, repository="embedded/gone"):
        said = refused(
            "a kernel whose repository cannot be read",
            lambda: stack.configured({"RMSNorm": "embedded/gone:Norm"}),
            "embedded/gone",
        )
    with works("the same kernel after the Hub has recovered"):
        stack.configured({"RMSNorm": "embedded/gone:Norm"})
    return said.strip().partition("\n")[0]


@check("trouble.load#digest")
def corrupted(stack: Stack) -> str:
    """Fault V39: a file that is not what the kernel's metadata says it is gets loaded."""
    name = "embedded/corrupted-activation"
    with fault(stack, kind=hub.FaultKind.CORRUPT, repository=name, matching="layers.py"):
        try:
            model = stack.configured({"SiLU": f"{name}:SiLU"})
        except Exception as error:  # a refusal of whatever type is what is right here
            return refusal("a file that is not what its digest says", error, "digest", "hash", "checksum")
    raise DisprovedError(
        f"layers.py of {stack.bound(model, 'SiLU').partition('@')[0]} is not the file whose digest its metadata "
        "declares, and is run",
        Reason.REJECTED,
    )


@check("trouble.load#swapped")
def swapped(stack: Stack) -> str:
    """Fault V26: a kernel whose parameters have other names, in another order, is accepted, and is wrong."""
    llama = MODELS["llama-tiny"]
    # As many key-value heads as heads: else the swap fails by its shapes, and says so only when it runs.
    record = replace(llama, name="llama-tiny-ungrouped", overrides={**llama.overrides, "num_key_value_heads": 4})
    path = zoo.build(record, stack.models)
    options: Any = {"dtype": torch.float32, "device_map": stack.backend.torch_type}
    reference = stack.logits(transformers.LlamaForCausalLM.from_pretrained(path, **options))
    config = stack.config({"rotary_pos_emb": "embedded/swapped:Rotary"}, inherit_mapping=False)
    try:
        model = transformers.LlamaForCausalLM.from_pretrained(path, kernel_config=config, use_kernels=True, **options)
    except Exception as error:  # a refusal of whatever type is what is right here
        return refusal("a kernel with the parameters (k, q, …)", error, "signature", "parameter", "argument")
    what = "a kernel with the parameters (k, q, …) in place of (q, k, …) is accepted, and its result"
    stack.same(stack.logits(model), reference, what)
    return "the result is right"


@check("trouble.load#exists")
def has_kernel(stack: Stack) -> str:
    """Fault V25: has_kernel, which says whether there is a build, raises where there is none."""
    for what, name, options in (
        ("a version that is not there", "embedded/normalisation", {"version": 7}),
        ("a repository that is not trusted", "stranger/refused", {"version": 1}),
    ):
        with works(f"has_kernel for {what}, whose answer is a bool,"):
            if kernels.has_kernel(name, **options) is not False:
                raise DisprovedError(f"has_kernel says that there is {what}")
    return "has_kernel is False for a missing version and for an untrusted repository"


@check("trouble.version")
def older_branch(stack: Stack) -> str:
    """Fault: an old branch without a build for this machine, and no word of the newer one that has it."""
    return (
        refused(
            "version 1, which has no build for this device",
            lambda: stack.configured({"RMSNorm": "embedded/grown:Norm"}),
            "v2",
            "embedded/grown",
        )
        .partition("However")[2]
        .strip()
    )


@check("trouble.device")
def no_build(stack: Stack) -> str:
    """Fault: a kernel of the default mapping without a build for this device ends the run."""
    reference = stack.logits(stack.load())
    with works("use_kernels=True with a kernel in the mapping that has no build for this device"):
        model = by_default(stack, stack.mapping("RMSNorm", stack.layer("embedded/elsewhere")))
        result = stack.logits(model)
    stack.expect(model, "pytorch", "without a build for this device")
    stack.same(result, reference)
    return "a kernel without a build for this device leaves the layer to PyTorch"


@check("trouble.device#config")
def no_build_configured(stack: Stack) -> str:
    """Fault V38: the same kernel in a KernelConfig ends from_pretrained, though PyTorch could go on."""
    with works("a KernelConfig with a kernel that has no build for this device"):
        model = stack.configured({"RMSNorm": "embedded/elsewhere:Norm"})
    return stack.expect(model, "pytorch", "without a build for this device")


@check("infer.auto#hooks")
def hooks(stack: Stack) -> str:
    """Fault V18: eval() and train() bind forwards over Accelerate's, and what was offloaded is not brought back."""
    places = dict.fromkeys(
        ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.1"), stack.backend.torch_type
    )
    options: Any = {
        "device_map": {**places, "model.layers.0": "disk"},
        "offload_folder": str(stack.scratch / "offload"),
    }
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    plain = stack.load(**options).train().eval()
    reference = stack.logits(plain)
    both = {mode: stack.layer("embedded/lazy") for mode in (Mode.INFERENCE, Mode.TRAINING)}
    with works("use_kernels=True with a block on disk"):
        model = by_default(stack, {"RMSNorm": {stack.device: both}}, **options)
    with works("train() and eval() of a model with a block on disk, then a forward pass,"):
        model.train()
        model.eval()
        stack.same(stack.logits(model), reference)
    return "train() and eval() leave the hooks that bring back what is on disk"
