"""KernelConfig and the mappings beneath: what one model's configuration does to others, and to itself the next time."""

import copy
from typing import Any

import kernels
from kernels import Mode
from transformers import monkey_patching

from reports.record import Reason
from suite.arms import sites
from suite.documented.config import DEFAULT, NORM
from suite.documented.ground import DisprovedError, NotHereError, check, works
from suite.documented.stack import Stack


@check("config.layer#reused")
def reused(stack: Stack) -> str:
    """Fault V10: loading with a KernelConfig changes it, so that it cannot be used for a second model."""
    config = stack.config({"RMSNorm": NORM}, inherit_mapping=False)
    stack.load(use_kernels=True, kernel_config=config)
    with works("a second model with the same KernelConfig object"):
        model = stack.load(use_kernels=True, kernel_config=config)
    return stack.expect(model, "embedded/normalisation@", "the second model")


@check("config.layer#failed")
def failed(stack: Stack) -> str:
    """Fault V10: a KernelConfig that was refused stays in the model, and breaks what comes after."""
    model = stack.load()
    try:
        model.set_use_kernels(True, stack.config({"NoSuchName": NORM}))
    except ValueError:
        pass
    else:
        raise DisprovedError("a name that the model does not register is accepted")
    with works("set_use_kernels(True) after a KernelConfig was refused"):
        model.set_use_kernels(True)
    if model.kernel_config is not None:
        raise DisprovedError("the KernelConfig that was refused is still the model's kernel_config", Reason.REJECTED)
    return "a refused KernelConfig leaves nothing behind"


@check("config.layer#own")
def own_layout(stack: Stack) -> str:
    """Fault V9: the layout of one model's KernelConfig replaces the layers of every model that is loaded later."""
    before = type(stack.load().model.layers[0].mlp).__name__
    with works('KernelConfig({"LlamaMLP": "embedded/mlp:GatedMLP"})'):
        stack.configured({"LlamaMLP": "embedded/mlp:GatedMLP"})
    after = type(stack.load().model.layers[0].mlp).__name__
    if after != before:
        raise DisprovedError(
            f"a model loaded later, without a KernelConfig, has {after} in place of {before}", Reason.SHADOWED
        )
    return f"a model loaded later has its own {after}"


@check("config.layer#pattern")
def key_is_a_name(stack: Stack) -> str:
    """Fault V9: a key is searched for in the names of all classes, so that of one model hits those of others."""
    others = ("MistralRMSNorm", "GptOssRMSNorm", "GemmaRMSNorm", "Qwen3NextRMSNormGated")
    with works('KernelConfig({"RMSNorm": "embedded/laid-out:Norm"})'):
        stack.configured({"RMSNorm": "embedded/laid-out:Norm"})
    patches = monkey_patching.get_patch_mapping()
    hit = [name for name in others if monkey_patching._find_replacement_class(name, patches)]
    if hit:
        raise DisprovedError(f"a configuration of one Llama replaces the classes {', '.join(hit)} too", Reason.SHADOWED)
    return "no class of another model is replaced"


@check("config.function#own")
def own_function(stack: Stack) -> str:
    """Fault V36: a function is one object in the whole process, and gets the kernel in every model at once."""
    other = stack.load()
    stack.configured({"rotary_pos_emb": "embedded/rotary:RotaryEmbedding"})
    return stack.expect(other, "pytorch", "a model without kernels, after another was given one", "rotary_pos_emb")


@check("config.function#copy")
def deep_copy(stack: Stack) -> str:
    """Fault V20: in a deep copy the kernel of a function is bound to an object that nothing calls."""
    model = stack.configured({"rotary_pos_emb": "embedded/rotary:RotaryEmbedding"})
    stack.expect(model, "embedded/rotary@", "before the copy", "rotary_pos_emb")
    twin = copy.deepcopy(model)
    calls: list[str] = []

    def counted(label: str, forward: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            calls.append(label)
            return forward(*given, **options)

        return call

    for site in (site for site in sites(twin) if site.is_function and site.name == "rotary_pos_emb"):
        site.module.forward = counted("copy", site.module.forward)
    stack.logits(twin)
    if not calls:
        raise DisprovedError("the function kernel of a deep copy is never called", Reason.NOT_CALLED)
    return f"the function kernel of a deep copy is called {len(calls)} times"


@check("config.inherit#registered")
def registered(stack: Stack) -> str:
    """Fault V23: what a user registered is overwritten when Transformers registers its defaults."""
    if stack.bound(stack.load("gpt-oss-tiny", use_kernels=True), DEFAULT) == "pytorch":
        raise NotHereError(f"the default mapping has no {DEFAULT} on {stack.device} that could win")
    kernels.register_kernel_mapping(stack.mapping(DEFAULT, stack.layer("embedded/moe", "MixtureOfExperts")))
    model = stack.load("gpt-oss-tiny", use_kernels=True)
    return stack.expect(model, "embedded/moe@", "a kernel that the user registered before loading", DEFAULT)


@check("config.inherit#modes")
def merged(stack: Stack) -> str:
    """Fault V24: registering a kernel for one mode removes those of the other modes of that device."""
    model = stack.load()
    with kernels.use_kernel_mapping(
        {"RMSNorm": {stack.device: {Mode.TRAINING: stack.layer("embedded/marked", "Norm1")}}}, inherit_mapping=False
    ):
        kernels.register_kernel_mapping(stack.mapping("RMSNorm", stack.layer("embedded/marked", "Norm0")))
        kernels.kernelize(model, mode=Mode.TRAINING, device=stack.device)
    return stack.expect(model, "embedded/marked@", "the training kernel, after one for inference was registered too")
