"""KernelConfig: what a key may be, what a value may be, what is inherited, what is refused."""

from typing import Any

import transformers

from reports.record import Reason
from suite.documented.ground import DisprovedError, NotHereError, check, refused, works
from suite.documented.stack import Stack

NORM = "embedded/normalisation:RMSNorm"
VERSIONED = "embedded/versioned"
DEFAULT = "MegaBlocksMoeMLP"
"""A name that the default mapping serves on most device types, the CPU among them."""


@check("config.layer")
def layer(stack: Stack) -> str:
    """Fault: the entry of the repository that is named is not the one that is bound."""
    with works(f'KernelConfig({{"RMSNorm": {NORM!r}}})'):
        model = stack.configured({"RMSNorm": NORM})
    seen = stack.expect(model, "embedded/normalisation@", "with a KernelConfig")
    if not seen.endswith(":RMSNorm"):
        raise DisprovedError(f"{NORM} was asked for, and {seen} is bound")
    stack.same(stack.logits(model), stack.logits(stack.load()))
    return seen


@check("config.function")
def function(stack: Stack) -> str:
    """Fault: the name of a function is taken, and the function stays what it was."""
    reference = stack.logits(stack.load())
    with works('KernelConfig({"rotary_pos_emb": …})'):
        model = stack.configured({"rotary_pos_emb": "embedded/rotary:RotaryEmbedding"})
    seen = stack.expect(model, "embedded/rotary@", "with a KernelConfig", "rotary_pos_emb")
    stack.same(stack.logits(model), reference)
    return seen


def _everywhere(stack: Stack) -> dict[str, str]:
    """An entry for each of three devices and for this one."""
    return dict.fromkeys(dict.fromkeys(("cuda", "rocm", "xpu", stack.device)), NORM)


@check("config.per_device")
def per_device(stack: Stack) -> str:
    """Fault V2: a dictionary with several devices, as the documentation has it, is refused by from_pretrained."""
    entries = _everywhere(stack)
    with works(f'from_pretrained with KernelConfig({{"RMSNorm": {{{", ".join(entries)}}}}})'):
        model = stack.configured({"RMSNorm": entries})
    return stack.expect(model, "embedded/normalisation@", "with an entry for each device")


@check("config.per_device#later")
def per_device_later(stack: Stack) -> str:
    """Fault: the same by set_use_kernels, which is the way around V2."""
    model = stack.load()
    with works("set_use_kernels with an entry for each device"):
        model.set_use_kernels(True, stack.config({"RMSNorm": _everywhere(stack)}, inherit_mapping=False))
    return stack.expect(model, "embedded/normalisation@", "with an entry for each device")


@check("config.per_device#other")
def other_device(stack: Stack) -> str:
    """Fault V2: a kernel for another device only is bound on this one, since from_pretrained drops the key."""
    other = "xpu" if stack.device != "xpu" else "cuda"
    with works(f"a KernelConfig with an entry for {other} only"):
        model = stack.configured({"RMSNorm": {other: NORM}})
    return stack.expect(model, "pytorch", f"with an entry for {other} only, on {stack.device}")


@check("config.per_device#metal")
def metal(stack: Stack) -> str:
    """Fault V3: the documentation and kernels' builds say Metal; only the key "mps" is accepted."""
    model = stack.load()
    entries = {**_everywhere(stack), "metal": NORM}
    with works('a KernelConfig with the device key "metal"'):
        model.set_use_kernels(True, stack.config({"RMSNorm": entries}, inherit_mapping=False))
    return stack.expect(model, "embedded/normalisation@", 'with a further entry for "metal"')


@check("config.per_device#cpu")
def this_device(stack: Stack) -> str:
    """Fault V4: KernelConfig refuses the CPU, which kernels supports and the default mapping has an entry for."""
    config = transformers.KernelConfig({"RMSNorm": NORM}, inherit_mapping=False)
    with works(f"a KernelConfig on {stack.device}, without the shim of this suite,"):
        model = stack.load(use_kernels=True, kernel_config=config)
    return stack.expect(model, "embedded/normalisation@", "with a KernelConfig")


def _leads_to(stack: Stack, metadata: dict[str, Any] | None, revision: str) -> None:
    entry = f"{VERSIONED}:Norm" if metadata is None else (f"{VERSIONED}:Norm", metadata)
    commit = stack.commit(VERSIONED, revision)
    with works(f"{VERSIONED}:Norm with {metadata or 'no pin'}"):
        model = stack.configured({"RMSNorm": entry})
    stack.expect(model, f"{VERSIONED}@{commit}:", f"{metadata or 'no pin'} is commit {commit}")


@check("config.version")
def version(stack: Stack) -> str:
    """Fault: a version that loads another branch, or a default that is not 1."""
    _leads_to(stack, {"version": 2}, "v2")
    _leads_to(stack, {"version": 1}, "v1")
    _leads_to(stack, None, "v1")
    return "version 2, version 1 and the default of 1 load the branch of that name"


@check("config.revision")
def revision(stack: Stack) -> str:
    """Fault: a pin that leads to another commit."""
    for name in ("v2.1.0", "v1.0.0", "main", "v1", "release/2"):
        _leads_to(stack, {"revision": name}, name)
    commit = stack.commit(VERSIONED, "v1")
    _leads_to(stack, {"revision": commit}, commit)
    return "two tags, three branches and a commit load exactly what they name"


@check("config.trust")
def trust(stack: Stack) -> str:
    """Fault: foreign code is fetched before anyone has agreed to it, or consent does not help."""
    name = "stranger/refused"
    said = refused(
        f"{name} without consent", lambda: stack.configured({"RMSNorm": f"{name}:Norm"}), "trusted publisher"
    )
    if fetched := stack.downloads(name):
        raise DisprovedError(f"refused, but only after {fetched[0].path} was fetched", Reason.UNTRUSTED)
    with works("trust_remote_code=True"):
        model = stack.configured({"RMSNorm": (f"{name}:Norm", {"version": 1, "trust_remote_code": True})})
    stack.expect(model, f"{name}@", "with trust_remote_code=True")
    return f"refused before any download ({said[:100]}…), loaded with consent"


def _with_default(stack: Stack, **options: Any) -> tuple[Any, str]:
    """A model that has a name with a default kernel and one without, and a config for the latter."""
    default = stack.bound(stack.load("gpt-oss-tiny", use_kernels=True), DEFAULT)
    if default == "pytorch":
        raise NotHereError(f"the default mapping has no {DEFAULT} on {stack.device} that could be inherited")
    config = stack.config({"RMSNorm": NORM}, **options)
    with works("use_kernels=True with a KernelConfig"):
        model = stack.load("gpt-oss-tiny", use_kernels=True, kernel_config=config)
    stack.expect(model, "embedded/normalisation@", "the entry of the KernelConfig")
    return model, default


@check("config.inherit")
def inherit(stack: Stack) -> str:
    """Fault: an entry that loses against the default, or defaults of other names that are lost."""
    model, default = _with_default(stack)
    stack.expect(model, default, "a default that the KernelConfig does not name", DEFAULT)
    config = stack.config({DEFAULT: "embedded/moe:MixtureOfExperts"})
    replaced = stack.load("gpt-oss-tiny", use_kernels=True, kernel_config=config)
    stack.expect(replaced, "embedded/moe@", "a default that the KernelConfig replaces", DEFAULT)
    return f"an entry wins over the default of its name; {default} stays"


@check("config.only")
def only(stack: Stack) -> str:
    """Fault: inherit_mapping=False that inherits."""
    model, _ = _with_default(stack, inherit_mapping=False)
    stack.expect(model, "pytorch", "with inherit_mapping=False", DEFAULT)
    return "with inherit_mapping=False the default kernels are not bound"


@check("config.unregistered")
def unregistered(stack: Stack) -> str:
    """Fault: a misspelt name that is taken, and does nothing."""
    return refused("a name that the model does not register", lambda: stack.configured({"RMSNrom": NORM}), "RMSNrom")
