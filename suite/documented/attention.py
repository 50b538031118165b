"""Attention: which implementation a model gets, where a kernel of the Hub comes from, what it must not leave out."""

from unittest import mock

import torch
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations import hub_kernels
from transformers.utils.import_utils import is_flash_attn_2_available

from reports.record import Reason
from suite import ledger
from suite.documented.ground import DisprovedError, NotHereError, check, refusal, refused, works
from suite.documented.stack import Stack

BUNDLED = "embedded/attention"


@check("attn.gqa")
def gqa(stack: Stack) -> str:
    """Fault: keys and values are repeated for each head before SDPA, which takes memory and time for nothing."""
    model = stack.load(attn_implementation="sdpa")
    seen: list[tuple[int, int, bool]] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def watched(query: torch.Tensor, key: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        seen.append((query.shape[1], key.shape[1], bool(options.get("enable_gqa"))))
        return real(query, key, *rest, **options)  # type: ignore[arg-type]

    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", watched):
        stack.logits(model)
    if not seen:
        raise DisprovedError("the model that was loaded with sdpa never called SDPA")
    query, key, grouped = seen[0]
    if not (grouped and key < query):
        raise DisprovedError(f"SDPA was called with {query} heads, {key} key-value heads, enable_gqa={grouped}")
    return f"SDPA was called with {query} heads and {key} key-value heads, enable_gqa=True"


@check("attn.choose")
def choose(stack: Stack) -> str:
    """Fault: a choice that is taken and not kept, or that holds in inference only."""
    reference = stack.logits(stack.load(attn_implementation="eager"))
    for name in ("sdpa", "flex_attention", BUNDLED):
        with works(f"attn_implementation={name!r}"):
            model = stack.load(attn_implementation=name)
        for training in (False, True):
            kept = model.train(training).config._attn_implementation
            if kept != name:
                raise DisprovedError(f"attn_implementation={name!r} has become {kept!r}, training={training}")
        if name != "flex_attention":  # compiles for half a minute when called
            with works(f"a forward and backward pass with attn_implementation={name!r}"):
                stack.same(stack.logits(model.eval()), reference, name)
                missing = stack.without_gradient(model.train())
            if missing:
                raise DisprovedError(f"{name}: no gradient for {', '.join(missing[:3])}", Reason.MISSING_GRADIENT)
    return "eager, sdpa, flex_attention and a kernel are kept in inference and training"


@check("attn.hub")
def from_hub(stack: Stack) -> str:
    """Fault: the string is taken, and another attention runs."""
    with works(f"attn_implementation={BUNDLED!r}"):
        model = stack.load(attn_implementation=BUNDLED)
    with ledger.count_attention(BUNDLED) as calls:
        stack.logits(model)
    if not stack.attention().startswith(f"{BUNDLED}@") or not calls:
        raise DisprovedError(
            f"the attention functions are those of {stack.attention() or 'no kernel'}", Reason.NOT_CALLED
        )
    return f"{stack.attention()}, {sum(calls.values())} calls"


@check("attn.hub#name")
def name_after_colon(stack: Stack) -> str:
    """Fault V12: the name after the colon is not looked at, so a misspelt one runs something else."""
    name = f"{BUNDLED}:no_such_function"
    return refused(f"attn_implementation={name!r}", lambda: stack.load(attn_implementation=name), "no_such_function")


@check("attn.hub#broken")
def broken_twice(stack: Stack) -> str:
    """Fault V12: what was refused the first time is accepted the second."""
    name = "embedded/no-functions"
    refused(f"{name}, which has no attention function,", lambda: stack.load(attn_implementation=name))
    return refused(f"the second try of {name}", lambda: stack.load(attn_implementation=name))


def _honoured(stack: Stack, model: str, repository: str, feature: str) -> str:
    reference = stack.logits(stack.load(model, attn_implementation="eager"), 48)
    sound = stack.load(model, attn_implementation=BUNDLED)
    stack.same(stack.logits(sound, 48), reference, f"the kernel that has {feature}")
    try:
        lacking = stack.load(model, attn_implementation=repository)
        result = stack.logits(lacking, 48)
    except Exception as error:  # a refusal of whatever type is what is right here
        return refusal(f"a kernel that lacks {feature}", error, feature.rpartition(" ")[2], "signature", "support")
    gap = float((result - reference).norm() / reference.norm())
    if gap > 1e-4:
        raise DisprovedError(
            f"the model asks for {feature}, the kernel's signature has no parameter for it, and it runs without: the "
            f"logits are off by {gap:.2g} of their norm",
            Reason.FEATURE_DROPPED,
        )
    return f"the result is right, with {feature} or without a need for it"


@check("attn.hub#window")
def window(stack: Stack) -> str:
    """Fault V13: a sliding window that the kernel cannot take is left out without a word."""
    return _honoured(stack, "mistral-tiny", "embedded/no-window", "a sliding window")


@check("attn.hub#sink")
def sink(stack: Stack) -> str:
    """Fault V13: attention sinks that the kernel cannot take are left out without a word."""
    return _honoured(stack, "gpt-oss-tiny", "embedded/no-sinks", "attention sinks")


@check("attn.hub#softcap")
def softcap(stack: Stack) -> str:
    """Fault V13: a soft-cap that the kernel cannot take is left out without a word, until Transformers 5.21."""
    return _honoured(stack, "gemma2-tiny", "embedded/no-softcap", "a softcap")


@check("attn.fallback")
def fallback(stack: Stack) -> str:
    """Fault: without the compiled package flash attention is refused, or something else runs under its name."""
    if is_flash_attn_2_available():
        raise NotHereError("the compiled flash-attn package is installed, and is used instead of the kernel of the Hub")
    wanted = flash.FLASH_ATTN_KERNEL_FALLBACK["flash_attention_2"]
    with works("attn_implementation='flash_attention_2'"):
        model = stack.load(attn_implementation="flash_attention_2")
    if not stack.attention().startswith(f"{wanted}@"):
        raise DisprovedError(f"expected {wanted}, seen {stack.attention() or 'no kernel'}")
    stack.same(stack.logits(model), stack.logits(stack.load(attn_implementation="eager")))
    return f"flash_attention_2 is {stack.attention()}"


@check("attn.nvidia_only")
def nvidia_only(stack: Stack) -> str:
    """Fault: FlashAttention 3 or 4 on another device ends in a message that does not say that it is the device."""
    if stack.backend.runs_nvidia_only:
        raise NotHereError("this is an NVIDIA device; the refusal is for all others")
    said = [
        refused(
            f"flash_attention_{version} on {stack.device}",
            lambda version=version: stack.load(attn_implementation=f"flash_attention_{version}"),  # type: ignore[misc]
            "cuda",
        )
        for version in (3, 4)
    ]
    return said[0].strip()


@check("attn.pin_tag")
def pins(stack: Stack) -> str:
    """Fault: a pin that leads to another commit."""
    repository = "embedded/versioned-attention"
    first, second = stack.commit(repository, "v1"), stack.commit(repository, "v2")
    wanted = {"v1": first, "v1.0.0": first, "v2": second, "v2.1.0": second, "main": second, first: first}
    for pin, commit in wanted.items():
        with works(f"{repository}@{pin}"):
            stack.load(attn_implementation=f"{repository}@{pin}")
        if stack.attention() != f"{repository}@{commit}":
            raise DisprovedError(f"@{pin} is commit {commit}, and loaded is {stack.attention() or 'no kernel'}")
    return "a branch, a tag, main and a commit lead where they should"


@check("attn.pin_tag#slash")
def pin_with_slash(stack: Stack) -> str:
    """Fault V6: a branch whose name has a slash is taken for no kernel at all."""
    name = "embedded/versioned-attention@release/2"
    with works(f"attn_implementation={name!r}, a branch that exists,"):
        stack.load(attn_implementation=name)
    return stack.attention()


@check("attn.pin_semver")
def semver(stack: Stack) -> str:
    """Fault V6: a version constraint goes to the Hub as the name of a revision, and is not found there."""
    name = "embedded/versioned-attention@>=2.0,<3.0"
    with works(f"attn_implementation={name!r}"):
        stack.load(attn_implementation=name)
    wanted = stack.commit("embedded/versioned-attention", "v2")
    if not stack.attention().endswith(wanted):
        raise DisprovedError(f"expected commit {wanted}, the newest below 3.0; loaded is {stack.attention()}")
    return stack.attention()


@check("attn.trust")
def trust(stack: Stack) -> str:
    """Fault: foreign code is fetched, or even run, before anyone has agreed to it."""
    name = "stranger/refused"
    said = refused(
        f"attn_implementation={name!r} without consent",
        lambda: stack.load(attn_implementation=name),
        "trusted publisher",
    )
    fetched = stack.downloads(name)
    if fetched:
        raise DisprovedError(
            f"refused, but only after {len(fetched)} files were fetched: {fetched[0].path}", Reason.UNTRUSTED
        )
    other = "stranger/attention"  # not the same again: that is a check of its own
    with works(f"attn_implementation={other!r} with allow_all_kernels=True"):
        stack.load(attn_implementation=other, allow_all_kernels=True)
    if not stack.attention().startswith(f"{other}@"):
        raise DisprovedError(f"with consent, loaded is {stack.attention() or 'no kernel'}")
    return f"refused before any download ({said[:120]}…), loaded with consent"


@check("attn.trust#again")
def consent_after_refusal(stack: Stack) -> str:
    """Fault V12: after a refusal the same string counts as loaded, and consent no longer loads anything."""
    name = "stranger/attention"
    refused(f"{name} without consent", lambda: stack.load(attn_implementation=name), "trusted publisher")
    with works(f"{name} with consent, after it was refused without,"):
        model = stack.load(attn_implementation=name, allow_all_kernels=True)
    if not stack.attention().startswith(f"{name}@"):
        raise DisprovedError(
            f"with consent, after a refusal, {model.config._attn_implementation!r} is set and "
            f"{stack.attention() or 'no kernel'} is loaded",
            Reason.NOT_CALLED,
        )
    return stack.attention()


@check("attn.trust#nested")
def nested_trust(stack: Stack) -> str:
    """Fault V31: leaving an inner consent takes the outer one away."""
    with hub_kernels.allow_all_hub_kernels():
        with hub_kernels.allow_all_hub_kernels():
            pass
        if not hub_kernels.ALLOW_ALL_KERNELS:
            raise DisprovedError(
                "within allow_all_hub_kernels() the consent is gone after another such block has ended",
                Reason.UNTRUSTED,
            )
    return "an inner block leaves the consent of the outer one"


@check("attn.with_layers")
def with_layers(stack: Stack) -> str:
    """Fault: one of the two is dropped when both are given."""
    plain = stack.logits(stack.load())
    with works("attn_implementation together with kernel_config"):
        model = stack.configured({"RMSNorm": "embedded/normalisation:RMSNorm"}, attn_implementation=BUNDLED)
    layer = stack.expect(model, "embedded/normalisation@", "beside an attention kernel")
    if not stack.attention().startswith(f"{BUNDLED}@") or model.config._attn_implementation != BUNDLED:
        raise DisprovedError(f"beside a kernel_config, attention is {stack.attention() or 'no kernel'}")
    stack.same(stack.logits(model), plain)
    return f"{layer} and {stack.attention()}"
