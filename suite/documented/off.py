"""USE_HUB_KERNELS: what it switches off. These run in a process that was started with USE_HUB_KERNELS=0."""

from transformers.utils.import_utils import ENV_VARS_TRUE_VALUES

from reports.record import Reason
from suite.documented.ground import DisprovedError, check, refusal, refused, works
from suite.documented.stack import Stack


@check("off.env")
def layers(stack: Stack) -> str:
    """Fault: layer kernels although they were switched off, or a word of the documentation that does not."""
    with works("use_kernels=True under USE_HUB_KERNELS=0"):
        for name in ("llama-tiny", "gpt-oss-tiny"):
            model = stack.load(name, use_kernels=True)
            for layer in ("RMSNorm", "MegaBlocksMoeMLP", "rotary_pos_emb"):
                if stack.bound(model, layer) not in ("pytorch", "nothing"):
                    raise DisprovedError(f"under USE_HUB_KERNELS=0 {layer} is {stack.bound(model, layer)}")
    for word in ("0", "OFF", "NO", "off", "no"):
        if word.upper() in ENV_VARS_TRUE_VALUES:
            raise DisprovedError(f"USE_HUB_KERNELS={word} counts as on")
    return "0, OFF and NO switch layer kernels off"


@check("off.env#flag")
def flag(stack: Stack) -> str:
    """Fault V7: the model says that it uses kernels."""
    model = stack.load(use_kernels=True)
    if model.use_kernels:
        raise DisprovedError(
            "under USE_HUB_KERNELS=0 no kernel is bound, and model.use_kernels is True", Reason.DISABLED
        )
    return "model.use_kernels is False"


@check("off.env#config")
def config(stack: Stack) -> str:
    """Fault V7: a KernelConfig ends in a message that blames the model, not the switch."""
    entry = {"RMSNorm": "embedded/normalisation:RMSNorm"}
    try:
        model = stack.configured(entry)
    except Exception as error:  # then it has to say why
        text = f"{type(error).__name__}: {error}"
        return refused(
            f"a KernelConfig under USE_HUB_KERNELS=0 ({text[:120]})", lambda: stack.configured(entry), "USE_HUB"
        )
    return (
        stack.expect(model, "pytorch", "under USE_HUB_KERNELS=0") if stack.bound(model) != "nothing" else "PyTorch runs"
    )


@check("off.env#attention")
def attention(stack: Stack) -> str:
    """Fault V7: attention kernels are loaded from the Hub although its kernels were switched off."""
    try:
        stack.load(attn_implementation="embedded/attention")
    except Exception as error:  # refused: that is off as well
        return refusal("an attention kernel under USE_HUB_KERNELS=0", error, "USE_HUB_KERNELS", "disabled")
    if stack.attention():
        raise DisprovedError(
            f"under USE_HUB_KERNELS=0 the attention kernel {stack.attention()} is loaded", Reason.DISABLED
        )
    return "no attention kernel is loaded"
