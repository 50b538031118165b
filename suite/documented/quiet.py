"""With telemetry switched off. This runs in a process that was started with HF_HUB_DISABLE_TELEMETRY=1."""

from suite.documented.ground import check, works
from suite.documented.stack import Stack


@check("trouble.load#telemetry")
def telemetry(stack: Stack) -> str:
    """Fault V35: without telemetry kernels sends a header that is none, and nothing can be loaded from the Hub."""
    with works("loading a kernel with HF_HUB_DISABLE_TELEMETRY=1"):
        model = stack.configured({"RMSNorm": "embedded/normalisation:RMSNorm"})
    return stack.expect(model, "embedded/normalisation@", "with HF_HUB_DISABLE_TELEMETRY=1")
