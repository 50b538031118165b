"""What the Hub of the documented statements serves beside the bundled kernels: small repositories with one trait each.

Every trait is one that a kernel on the real Hub may have: no build for this device, an import that fails, a claim that
is not true, a signature that lacks something. The default mapping's own repositories are there as doubles, made of the
bundled kernels, so that what ``use_kernels=True`` promises can be kept without the real Hub.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cases.kernels import BACKENDS as BUILDS
from cases.kernels import ROOT
from cases.mappings import BUNDLED
from reports.audit import Entry
from suite.hub import Repository, bundled_repositories

__all__ = ["build_of", "local_repositories", "served", "write"]

_BUILDS = {"mps": "metal", "npu": "cann"}
"""Devices whose builds go by another name."""


def build_of(device: str) -> str:
    """The backend by which builds for a device are named."""
    return _BUILDS.get(device, device)


NORM = """
import torch

class {name}(torch.nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        wide = hidden_states.float()
        result = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return (result * self.weight.float()).to(hidden_states.dtype)
"""
PLAIN = NORM.format(name="Norm")
SCALED = PLAIN.replace("return (result", "return (2 * result")
"""Twice the right result: whose result it is shows in the logits too."""
NO_BACKWARD = (
    PLAIN.replace("    has_backward = True\n", "")
    .replace("wide = hidden_states.float()", "wide = hidden_states.detach().float()")
    .replace("self.weight.float()", "self.weight.detach().float()")
)
INFERENCE_ONLY = NO_BACKWARD.replace(
    "    can_torch_compile = True\n", "    can_torch_compile = True\n    has_backward = False\n"
)
BREAKS_GRAPHS = PLAIN.replace("wide = hidden_states.float()", "print(end='')\n        wide = hidden_states.float()")
LAID_OUT = (
    PLAIN
    + """

class NormLayout(torch.nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps
"""
)
SWAPPED = """
import torch

def rotate(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)

class Rotary(torch.nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, k, q, cos, sin, unsqueeze_dim=1):
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
"""
MODES = "\n".join(NORM.format(name=f"Norm{number}") for number in range(5))

INIT = "from . import layers\n"
FAILING_INIT = "raise ImportError('this kernel needs a library that is not there: libmissing.so')\n"
ATTENTION_INIT = (ROOT / "attention" / "v1" / "build" / "torch-cpu" / "__init__.py").read_text(encoding="utf-8")
ATTENTION = (ROOT / "attention" / "v1" / "build" / "torch-cpu" / "attention.py").read_text(encoding="utf-8")
WITHOUT = """
from . import attention

def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, {others}):
    return attention.flash_attn_func(
        q, k, v, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal, {passed})

def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    {others}):
    return attention.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=dropout_p,
        softmax_scale=softmax_scale, causal=causal, {passed})
"""
NO_WINDOW = WITHOUT.format(others="softcap=0.0, s_aux=None", passed="softcap=softcap, s_aux=s_aux")
NO_SINKS = WITHOUT.format(others="window_size=(-1, -1), softcap=0.0", passed="window_size=window_size, softcap=softcap")
NO_SOFTCAP = WITHOUT.format(others="window_size=(-1, -1), s_aux=None", passed="window_size=window_size, s_aux=s_aux")
MLP = (ROOT / "mlp" / "v1" / "build" / "torch-cpu" / "layers.py").read_text(encoding="utf-8")

Files = Mapping[str, str]


def write(folder: Path, identity: str, files: Files, builds: Iterable[str] = BUILDS, version: int = 1) -> Path:
    """Write one version of a repository, in the Hub's layout; returns the folder that holds ``build``."""
    for build in builds:
        variant = folder / "build" / f"torch-{build}"
        variant.mkdir(parents=True, exist_ok=True)
        metadata = {
            "id": f"_{identity.replace('-', '_')}_v{version}_{build}",
            "name": identity,
            "version": version,
            "license": "Apache-2.0",
            "python-depends": [],
            "backend": {"type": build},
        }
        (variant / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        for name, text in files.items():
            (variant / name).write_text(text, encoding="utf-8")
    return folder


def served(folder: Path, device: str, defaults: Iterable[Entry], flash: Mapping[str, int]) -> list[Repository]:
    """Every repository of that Hub. ``defaults`` and ``flash`` say which repositories of others need a double."""

    def one(name: str, files: Files, **options: Any) -> Repository:
        path = write(folder / "hub" / name / "v1", name, files, **options)
        return Repository(f"embedded/{name}", {"v1": path, "main": path})

    def norm(text: str) -> Files:
        return {"__init__.py": INIT, "layers.py": text}

    elsewhere = [build for build in BUILDS if build != build_of(device)]
    attention = {"__init__.py": ATTENTION_INIT, "attention.py": ATTENTION}
    both = {"__init__.py": ATTENTION_INIT + INIT, "layers.py": PLAIN}
    grown = folder / "hub" / "grown"
    refused = write(folder / "hub" / "refused" / "v1", "refused", {**attention, **both})
    return [
        *bundled_repositories(),
        one("lazy", norm(PLAIN)),
        one("cached", norm(PLAIN)),
        one("scaled", norm(SCALED)),
        one("marked", norm(MODES)),
        one("no-backward", norm(NO_BACKWARD)),
        one("inference-only", norm(INFERENCE_ONLY)),
        one("breaks-graphs", norm(BREAKS_GRAPHS)),
        one("laid-out", norm(LAID_OUT)),
        one("swapped", norm(SWAPPED)),
        one("fails", {"__init__.py": FAILING_INIT, "layers.py": PLAIN}),
        one("elsewhere", norm(PLAIN), builds=elsewhere),
        Repository("embedded/corrupted-activation", {"v1": ROOT / "activation" / "v1"}, suffix="_corrupted"),
        one("gone", norm(PLAIN)),
        one("no-functions", norm(PLAIN)),
        one("no-window", {"__init__.py": NO_WINDOW, "attention.py": ATTENTION}),
        one("no-sinks", {"__init__.py": NO_SINKS, "attention.py": ATTENTION}),
        one("no-softcap", {"__init__.py": NO_SOFTCAP, "attention.py": ATTENTION}),
        one("unconverted", norm(MLP.replace("    conversion_mapping =", "    not_the_mapping ="))),
        _versioned(folder, "versioned", norm(PLAIN), norm(SCALED)),
        _versioned(folder, "versioned-attention", attention, {**attention, "extra.py": "VERSION = 2\n"}),
        Repository(
            "embedded/grown",
            {
                "v1": write(grown / "v1", "grown", norm(PLAIN), elsewhere),
                "v2": write(grown / "v2", "grown", norm(PLAIN), version=2),
            },
        ),
        Repository("stranger/refused", {"v1": refused, "main": refused}, suffix="_refused"),
        *_doubles(folder, defaults),
        *_flash_doubles(folder, flash, attention),
    ]


def _versioned(folder: Path, name: str, first: Files, second: Files) -> Repository:
    paths = [
        write(folder / "hub" / name / f"v{number}", name, files, version=number)
        for number, files in ((1, first), (2, second))
    ]
    branches = {"v1": paths[0], "v2": paths[1], "main": paths[1], "release/2": paths[1]}
    return Repository(f"embedded/{name}", branches, {"v1.0.0": "v1", "v2.1.0": "v2"})


def _doubles(folder: Path, defaults: Iterable[Entry]) -> list[Repository]:
    """A repository for each of the default mapping, with bundled layers under the names that the mapping wants."""
    wanted: dict[str, dict[str, dict[str, str]]] = {}
    for entry in defaults:
        branch = f"v{entry.version}" if entry.version is not None else entry.revision
        if entry.name in BUNDLED and branch:
            wanted.setdefault(entry.repository, {}).setdefault(branch, {})[entry.layer] = entry.name
    found = []
    for repository, branches in wanted.items():
        paths = {}
        for branch, layers in branches.items():
            lines, files = [], {"__init__.py": INIT}
            for layer, name in layers.items():
                reference = BUNDLED[name]
                source = reference.repository.partition("/")[2]
                module = f"{source.replace('-', '_')}_double"
                origin = ROOT / source / f"v{reference.version}" / "build" / "torch-cpu" / "layers.py"
                files[f"{module}.py"] = origin.read_text(encoding="utf-8")
                lines.append(f"from .{module} import {reference.layer} as {layer}")
            files["layers.py"] = "\n".join(lines) + "\n"
            slug = f"double-of-{_slug(repository)}-{_slug(branch)}"
            paths[branch] = write(folder / "hub" / slug, slug, files)
        found.append(Repository(repository, paths))
    return found


def _slug(text: str) -> str:
    """The text as the name of a kernel may be: small letters, digits and dashes."""
    return "".join(sign if sign.isalnum() else "-" for sign in text.lower())


def _flash_doubles(folder: Path, flash: Mapping[str, int], attention: Files) -> list[Repository]:
    """The flash kernels that Transformers falls back to. Where its code says NVIDIA only, only that build is there."""
    found = []
    for repository, version in flash.items():
        builds = BUILDS if repository.endswith("flash-attn2") else ("cuda",)
        slug = f"double-of-{_slug(repository)}"
        path = write(folder / "hub" / slug, slug, attention, builds)
        found.append(Repository(repository, {f"v{version}": path}))
    return found


def local_repositories(folder: Path) -> None:
    """Write the repositories that are loaded from disk."""
    norm = {"__init__.py": INIT, "layers.py": PLAIN}
    write(folder / "local" / "norm", "local-norm", norm)
    write(folder / "local" / "first", "one-id-for-two", norm)
    write(folder / "local" / "second", "one-id-for-two", {**norm, "layers.py": SCALED})
    write(folder / "local" / "override", "local-override", norm)
    write(folder / "local" / "mlp", "local-mlp", {"__init__.py": INIT, "layers.py": MLP})
