"""Without the package ``kernels``: what is said, and what works all the same."""

from transformers.utils import import_utils

from suite.documented.ground import DisprovedError, Ground, check, refused, works


@check("trouble.package#missing")
def missing(stack: Ground) -> str:
    """Fault: an error that does not say which package is missing, or which versions are supported."""
    if import_utils.is_kernels_available():
        raise AssertionError("the package kernels was to be hidden from this process")
    with works("a model without kernels"):
        stack.logits(stack.load())
    low, high = import_utils.KERNELS_MIN_VERSION, import_utils.KERNELS_MAX_VERSION
    said = refused("use_kernels=True without the package", lambda: stack.load(use_kernels=True), "kernels", low, high)
    refused(
        "an attention kernel without the package",
        lambda: stack.load(attn_implementation="embedded/attention"),
        "kernels",
        low,
        high,
    )
    if "pip install" not in said:
        raise DisprovedError(f"the error does not say what to do: {said}")
    return said
