"""Modes: which kernel is bound in inference, in training and under torch.compile, and when that changes."""

from itertools import combinations
from typing import Any

import kernels
import torch
from kernels import Mode
from transformers import kernelize
from transformers.integrations import hub_kernels

from reports.record import Reason
from suite.documented.ground import DisprovedError, NotHereError, check, works
from suite.documented.stack import Stack

COMPILE = Mode.TORCH_COMPILE
ORDER = (
    (Mode.INFERENCE, (Mode.INFERENCE, Mode.INFERENCE | COMPILE, Mode.TRAINING, Mode.TRAINING | COMPILE, Mode.FALLBACK)),
    (Mode.TRAINING, (Mode.TRAINING, Mode.TRAINING | COMPILE, Mode.FALLBACK)),
    (Mode.INFERENCE | COMPILE, (Mode.INFERENCE | COMPILE, Mode.TRAINING | COMPILE, Mode.FALLBACK)),
    (Mode.TRAINING | COMPILE, (Mode.TRAINING | COMPILE, Mode.FALLBACK)),
)
"""The order in which kernels' documentation says that modes stand in for one another."""


def modal(stack: Stack, inference: str, training: str | None = None, layer: str = "Norm") -> dict[str, Any]:
    """A mapping of RMSNorm with a kernel for each mode on this device."""
    by_mode = {Mode.INFERENCE: stack.layer(inference, layer)}
    if training is not None:
        by_mode[Mode.TRAINING] = stack.layer(training, layer)
    return {"RMSNorm": {stack.device: by_mode}}


def by_default(stack: Stack, mapping: dict[str, Any], **options: Any) -> Any:
    """A model with use_kernels=True where the default mapping is this one, as if Transformers shipped it."""
    # With its own entries on top, as set_use_kernels puts them, ours would lose on devices that have a default (V23).
    hub_kernels.register_kernel_mapping_transformers = lambda *_: kernels.register_kernel_mapping(mapping)
    return stack.load(use_kernels=True, **options)


@check("mode.follow")
def follow(stack: Stack) -> str:
    """Fault: the kernel of the other mode stays, or training has no gradients."""
    with works("use_kernels=True, then train() and eval()"):
        model = by_default(stack, modal(stack, "embedded/inference-only", "embedded/lazy"))
        stack.expect(model.eval(), "embedded/inference-only@", "in inference")
        stack.expect(model.train(), "embedded/lazy@", "after train()")
        missing = stack.without_gradient(model)
        stack.expect(model.eval(), "embedded/inference-only@", "after eval()")
    if missing:
        raise DisprovedError(f"no gradient for {len(missing)} parameters after train()", Reason.MISSING_GRADIENT)
    return "eval() and train() bind the kernel of their mode, and every parameter has a gradient"


@check("mode.follow#config")
def follow_config(stack: Stack) -> str:
    """Fault V8: with a KernelConfig the mode at load is the only one that has the kernel; train() drops it silently."""
    model = stack.configured({"RMSNorm": "embedded/normalisation:RMSNorm"})
    stack.expect(model, "embedded/normalisation@", "after loading with a KernelConfig")
    with works("train() of a model with a KernelConfig"):
        model.train()
    return stack.expect(model, "embedded/normalisation@", "after train(), with a kernel that has a backward pass")


@check("mode.follow#off")
def switched_off(stack: Stack) -> str:
    """Fault V14: use_kernels=False leaves the inference kernel bound, and training has no gradients."""
    model = by_default(stack, modal(stack, "embedded/inference-only"))
    with works("use_kernels=False, then train()"):
        model.use_kernels = False
        missing = stack.without_gradient(model.train())
    if missing:
        raise DisprovedError(
            f"after use_kernels=False and train() RMSNorm is {stack.bound(model)}, and {len(missing)} of "
            f"{len(list(model.parameters()))} parameters have no gradient",
            Reason.MISSING_GRADIENT,
        )
    return f"after use_kernels=False and train() RMSNorm is {stack.bound(model)}, and all gradients are there"


@check("mode.follow#compiled")
def compiled_training(stack: Stack) -> str:
    """Fault V15: train() of the compiled model does not reach the model, which keeps its inference kernels."""
    model = by_default(stack, modal(stack, "embedded/inference-only"))
    compiled: Any = torch.compile(model, backend="eager")
    with works("torch.compile(model).train()"):
        compiled.train()
    missing = stack.without_gradient(model)
    if missing:
        raise DisprovedError(
            f"after torch.compile(model).train() RMSNorm is {stack.bound(model)}, training={model.training}, and "
            f"{len(missing)} of {len(list(model.parameters()))} parameters have no gradient",
            Reason.MISSING_GRADIENT,
        )
    return f"after torch.compile(model).train() RMSNorm is {stack.bound(model)}"


@check("mode.follow#backward")
def claims_backward(stack: Stack) -> str:
    """Fault V27: a kernel that says nothing about a backward pass, and has none, is bound in training."""
    model = by_default(stack, modal(stack, "embedded/no-backward", "embedded/no-backward"))
    with works("train() with a kernel that has no backward pass"):
        missing = stack.without_gradient(model.train())
    if missing:
        raise DisprovedError(
            f"the training kernel {stack.bound(model)} leaves {len(missing)} of {len(list(model.parameters()))} "
            "parameters without a gradient, and nothing says so",
            Reason.MISSING_GRADIENT,
        )
    return f"in training RMSNorm is {stack.bound(model)}, and all gradients are there"


@check("mode.follow#device")
def follow_device(stack: Stack) -> str:
    """Fault V17: .to(device) leaves the kernels of the former device bound."""
    if stack.backend.torch_type == "cpu":
        raise NotHereError("needs a second device to move the model to")
    model = by_default(stack, modal(stack, "embedded/lazy"))
    with works('.to("cpu")'):
        model.to("cpu")
    return stack.expect(model, "pytorch", 'after .to("cpu"), for which the mapping has nothing')


@check("mode.explicit")
def explicit(stack: Stack) -> str:
    """Fault: a mode that is asked for and not taken."""
    entries = {
        Mode.INFERENCE: stack.layer("embedded/marked", "Norm0"),
        Mode.TRAINING: stack.layer("embedded/marked", "Norm1"),
        Mode.TRAINING | COMPILE: stack.layer("embedded/marked", "Norm2"),
    }
    model = stack.load()
    with kernels.use_kernel_mapping({"RMSNorm": {stack.device: entries}}, inherit_mapping=False):
        for number, mode in enumerate(entries):
            with works(f"kernelize(model, mode={mode})"):
                kernelize(model, mode=mode)
            if not stack.bound(model).endswith(f":Norm{number}"):
                raise DisprovedError(f"kernelize(mode={mode}) bound {stack.bound(model)}", Reason.SHADOWED)
    return "kernelize takes inference, training, and training with torch.compile"


@check("mode.explicit#kept")
def explicit_kept(stack: Stack) -> str:
    """Fault V16: eval() and train() forget that the kernels were chosen for torch.compile."""
    entries = {
        Mode.TRAINING: stack.layer("embedded/marked", "Norm1"),
        Mode.TRAINING | COMPILE: stack.layer("embedded/marked", "Norm2"),
    }
    model = by_default(stack, {"RMSNorm": {stack.device: entries}}).train()
    kernelize(model, mode=Mode.TRAINING | COMPILE)
    stack.expect(model, "embedded/marked@", "after kernelize(mode=TRAINING|TORCH_COMPILE)")
    with works("eval(), train()"):
        model.eval()
        model.train()
    if not stack.bound(model).endswith(":Norm2"):
        raise DisprovedError(
            f"kernelized for TRAINING|TORCH_COMPILE; after eval() and train() RMSNorm is {stack.bound(model)}, the "
            "kernel without torch.compile",
            Reason.REBOUND,
        )
    return "the compile mode stays after eval() and train()"


class _Norm(torch.nn.Module):
    """A layer to bind kernels to."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Nothing."""
        return hidden_states


@check("mode.priority")
def priority(stack: Stack) -> str:
    """Fault: of several kernels for other modes the wrong one stands in, such as one without a backward pass."""
    kernels.replace_kernel_forward_from_hub(_Norm, "Norm")
    modes = list(ORDER[0][1])
    layers = {mode: f"Norm{number}" for number, mode in enumerate(modes)}
    checked = 0
    for size in range(1, len(modes) + 1):
        for chosen in combinations(modes, size):
            mapping = {"Norm": {stack.device: {mode: stack.layer("embedded/marked", layers[mode]) for mode in chosen}}}
            with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
                for wanted, order in ORDER:
                    module = _Norm()
                    kernels.kernelize(module, mode=wanted, device=stack.device)
                    first = next((mode for mode in order if mode in chosen), None)
                    expected = layers[first] if first is not None else "_Norm"
                    seen = module.forward.__func__.__qualname__.partition(".")[0]  # type: ignore[attr-defined]
                    checked += 1
                    if seen != expected:
                        raise DisprovedError(f"kernels for {chosen}: {wanted} got {seen}, expected {expected}")
    return f"{checked} combinations of registered and wanted modes follow the order"


def _compiled(stack: Stack, repository: str) -> str:
    """Compile one layer with its kernel as one graph. Whole models are compiled by the cases of the compile modes."""
    model = stack.load()
    norm = model.model.norm
    states = torch.randn(2, 5, norm.weight.shape[0], generator=torch.Generator().manual_seed(0)).to(norm.weight.device)
    reference = norm(states)
    mapping = {"RMSNorm": {stack.device: {Mode.INFERENCE | COMPILE: stack.layer(repository)}}}
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        kernelize(model, mode=Mode.INFERENCE | COMPILE)
    where = stack.expect(model, f"{repository}@", "kernelized for INFERENCE|TORCH_COMPILE")
    compiled: Any = torch.compile(norm, backend="eager", fullgraph=True)
    try:
        result = compiled(states)
    except torch._dynamo.exc.Unsupported as error:
        first = str(error).strip().partition("\n")[0]
        raise DisprovedError(
            f"{where} says can_torch_compile and is bound for torch.compile, and breaks the graph: {first}",
            Reason.GRAPH_BREAK,
        ) from error
    stack.same(result.float().cpu(), reference.float().cpu(), "the compiled layer")
    return f"{where} compiles as one graph and computes the same"


@check("mode.compile")
def compile_mode(stack: Stack) -> str:
    """Fault: a kernel of a compile mode that breaks the graph, or computes something else when compiled."""
    return _compiled(stack, "embedded/lazy")


@check("mode.compile#claimed")
def claims_compile(stack: Stack) -> str:
    """Fault V34: can_torch_compile is believed, not verified."""
    return _compiled(stack, "embedded/breaks-graphs")
