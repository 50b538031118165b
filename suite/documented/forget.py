"""Undo what a check changed in its process, as far as that can be done. Used where a process cannot be copied."""

import gc

import torch
from kernels.layer import layer as layers
from kernels.layer.globals import _KERNEL_MAPPING
from transformers import modeling_flash_attention_utils as flash
from transformers import monkey_patching
from transformers.integrations import hub_kernels

__all__ = ["forget"]


def forget() -> None:
    """Empty the registries; give function objects their own forward back; let models go."""
    monkey_patching.clear_patch_mapping()
    _KERNEL_MAPPING.set({})
    layers._CACHED_LAYER.clear()
    hub_kernels.ALLOW_ALL_KERNELS = False
    flash._loaded_implementation = None
    for candidate in gc.get_objects():
        if isinstance(candidate, torch.nn.Module):
            for function in getattr(candidate, "_kernel_funcs", {}).values():
                function.__dict__.pop("forward", None)
    gc.collect()
