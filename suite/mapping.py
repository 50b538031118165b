"""The default kernel mapping of the installed Transformers as plain entries. Read from the package, never copied.

Transformers keeps the mapping behind different names from release to release. All of them fill the registry of
``kernels``, so that is what is read, after Transformers was asked to fill it.
"""

import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

import kernels
from kernels.layer.globals import _KERNEL_MAPPING
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations import hub_kernels

from reports.audit import Entry

__all__ = ["default_mapping", "defaults"]


def default_mapping() -> tuple[Entry, ...]:
    """Every entry, sorted. The registry of this process stays as it was."""
    return contextvars.Context().run(_read)


def defaults() -> dict[str, str]:
    """What is taken from the Hub outside of the mapping; the meaning is that of ``Audit.defaults``."""
    found = {
        f"attn_implementation={name!r}": repository
        for name, repository in getattr(flash, "FLASH_ATTN_KERNEL_FALLBACK", {}).items()
    }
    devices = getattr(flash, "FLASH_ATTN_KERNEL_DEVICES", {})
    for repository, number in getattr(flash, "FLASH_ATTN_KERNEL_VERSIONS", {}).items():
        found[f"{repository} without a pin"] = f"v{number} for {', '.join(devices.get(repository, ('all devices',)))}"
    for name, pin in getattr(hub_kernels, "_HUB_KERNEL_MAPPING", {}).items():
        revision = pin.get("revision") or f"v{pin.get('version', 1)}"
        found[f"module {name!r}"] = f"{pin.get('repo_id')}@{revision}"
    return found


def _read() -> tuple[Entry, ...]:
    # A context of its own, with a registry of its own: what is registered here is nobody else's.
    _KERNEL_MAPPING.set({})
    hub_kernels.register_kernel_mapping_transformers()
    return tuple(sorted(_entries(_KERNEL_MAPPING.get()), key=str))


def _entries(registry: Mapping[str, Mapping[str, Any]]) -> Iterator[Entry]:
    for name, devices in registry.items():
        for device, repositories in devices.items():
            for capabilities, by_mode in _intervals(repositories):
                for mode, repository in by_mode.items():
                    yield Entry(
                        name=name,
                        device=device,
                        mode=mode_name(mode),
                        repository=str(repository._repo_id),
                        layer=str(repository.layer_name),
                        version=repository._version,
                        revision=repository._revision,
                        trusted=bool(repository._trust_remote_code),
                        capabilities=capabilities,
                    )


def _intervals(repositories: Any) -> Iterator[tuple[tuple[int, int] | None, Mapping[Any, Any]]]:
    """The dictionaries by mode, with the capabilities that they are for."""
    tree = getattr(repositories, "repos_by_capability", None)
    if tree is None:
        yield None, repositories.repos or {}
        return
    stack = [tree.root]
    while stack:
        node = stack.pop()
        if node is None:
            continue
        everything = node.start == 0 and node.end > 10**6
        yield (None if everything else (node.start, node.end)), node.data
        stack += [node.left, node.right]


def mode_name(mode: kernels.Mode) -> str:
    """``TRAINING|TORCH_COMPILE`` for a mode of kernels."""
    names = [flag.name for flag in kernels.Mode if flag in mode and flag.name] or [str(mode)]
    return "|".join(sorted(names, key=["INFERENCE", "TRAINING", "TORCH_COMPILE"].index) if len(names) > 1 else names)
