"""Kernels from the disk: by a KernelConfig, by the environment, and two that say that they are the same."""

import os
from pathlib import Path
from unittest import mock

import kernels

from reports.record import Reason
from suite.documented.ground import DisprovedError, check, works
from suite.documented.stack import Stack


@check("local.load")
def load(stack: Stack) -> str:
    """Fault V1: use_local_kernel=True as it is documented raises in from_pretrained."""
    config = stack.config({"RMSNorm": f"{stack.local('norm')}:Norm"}, use_local_kernel=True)
    with works("from_pretrained with use_local_kernel=True"):
        model = stack.load(use_kernels=True, kernel_config=config)
    return stack.expect(model, str(stack.local("norm")), "with use_local_kernel=True")


@check("local.load#later")
def later(stack: Stack) -> str:
    """Fault: the same by set_use_kernels, which is the way around V1."""
    model = stack.load()
    reference = stack.logits(model)
    config = stack.config({"RMSNorm": f"{stack.local('norm')}:Norm"}, use_local_kernel=True)
    with works("set_use_kernels with use_local_kernel=True"):
        model.set_use_kernels(True, config)
    stack.same(stack.logits(model), reference)
    return stack.expect(model, str(stack.local("norm")), "with use_local_kernel=True")


def _loaded_from(path: Path) -> str:
    layer = kernels.LocalLayerRepository(path, layer_name="Norm").load()
    return str(layer.forward.__code__.co_filename)


@check("local.load#id")
def one_id(stack: Stack) -> str:
    """Fault V29: of two local repositories with one id the second loads the layers of the first."""
    first, second = stack.local("first"), stack.local("second")
    _loaded_from(first)
    try:
        seen = _loaded_from(second)
    except Exception as error:  # a refusal of whatever type would be right
        return f"refused: {type(error).__name__}: {error}"
    if not seen.startswith(str(second)):
        raise DisprovedError(f"{second} was asked for, and the code comes from {seen}", Reason.SHADOWED)
    return "two repositories with one id are kept apart"


@check("local.load#override")
def override(stack: Stack) -> str:
    """Fault V30: LOCAL_KERNELS has no effect on a layer that is asked for by its version."""
    with mock.patch.dict(os.environ, {"LOCAL_KERNELS": f"embedded/no-such-repository={stack.local('override')}"}):
        module = kernels.get_kernel("embedded/no-such-repository", version=1)
        if not str(module.__file__).startswith(str(stack.local("override"))):
            raise AssertionError(f"get_kernel does not take LOCAL_KERNELS: {module.__file__}")
        with works("LayerRepository(version=1) of a repository that LOCAL_KERNELS overrides, as get_kernel does,"):
            layer = stack.layer("embedded/no-such-repository").load()
    return f"loaded {layer.forward.__code__.co_filename}"
