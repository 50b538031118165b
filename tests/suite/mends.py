"""Mends of eight upstream faults, as a release that has them mended would behave. Run inside the process of the checks.

Each changes the library alone, never the check: a check that turns green here is one that a release turns green.
"""

import contextlib
import importlib
import os
import re
import sys
import time
from typing import Any

import kernels
from kernels.layer.globals import _KERNEL_MAPPING
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations import hub_kernels
from transformers.utils import kernel_config

from suite.documented.ground import check

# What the library imported by name has to be replaced where it was imported.
modeling_utils: Any = importlib.import_module("transformers.modeling_utils")

# V3, V4: two more device types.
kernel_config.KERNELS_SUPPORTED_DEVICE_TYPES += ["cpu", "metal"]

# V6: a branch may have a slash in its name.
_PATTERN = re.compile(r"^[^/:@]+/[^/:@]+(?:@[^:]+)?(?::[^/:]+)?$")


def is_kernel(name):  # type: ignore[no-untyped-def]
    return name is not None and _PATTERN.search(name) is not None


hub_kernels.is_kernel = is_kernel
modeling_utils.is_kernel = is_kernel

# V12: a name counts as loaded only once it is.
_lazy_import = flash.lazy_import_flash_attention


def lazy_import(implementation, *given, **options):  # type: ignore[no-untyped-def]
    before = flash._loaded_implementation
    try:
        return _lazy_import(implementation, *given, **options)
    except Exception:
        flash._loaded_implementation = before
        raise


flash.lazy_import_flash_attention = lazy_import
modeling_utils.lazy_import_flash_attention = lazy_import

# V24: modes of one device are merged.
_register = kernels.register_kernel_mapping


def register(mapping, inherit_mapping=True):  # type: ignore[no-untyped-def]
    merged = {}
    for name, devices in mapping.items():
        known = _KERNEL_MAPPING.get().get(name, {}) if inherit_mapping else {}
        merged[name] = {
            device: {**(known[device].repos or {}), **modes}
            if isinstance(modes, dict) and isinstance(device, str) and device in known
            else modes
            for device, modes in devices.items()
        }
    _register(merged, inherit_mapping)


kernels.register_kernel_mapping = register
# The module, not the function of the same name.
sys.modules["kernels.layer.kernelize"].register_kernel_mapping = register  # type: ignore[attr-defined]
hub_kernels.register_kernel_mapping = register

# V25: no is no.
_has_kernel = kernels.has_kernel


def has_kernel(*given, **options):  # type: ignore[no-untyped-def]
    with contextlib.suppress(ValueError):
        return _has_kernel(*given, **options)
    return False


kernels.has_kernel = has_kernel


# V31: an inner consent leaves the outer one.
@contextlib.contextmanager
def allow_all_hub_kernels():  # type: ignore[no-untyped-def]
    before, hub_kernels.ALLOW_ALL_KERNELS = hub_kernels.ALLOW_ALL_KERNELS, True
    try:
        yield
    finally:
        hub_kernels.ALLOW_ALL_KERNELS = before


hub_kernels.allow_all_hub_kernels = allow_all_hub_kernels
modeling_utils.allow_all_hub_kernels = allow_all_hub_kernels


# Checks that go wrong in other ways than a statement can.
@check("dies")
def dies(_: object) -> str:
    os._exit(3)


@check("hangs")
def hangs(_: object) -> str:
    time.sleep(60)
    return ""


@check("is wrong itself")
def wrong(_: object) -> str:
    raise KeyError("a fault of the check")
