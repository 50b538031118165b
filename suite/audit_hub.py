"""What a Hub says about the pins of the mapping: newer versions, builds for a device, parameters of the kernels.

Foreign code is read and never run: parameters come from the syntax tree of the sources.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from reports.audit import Entry, Kind, Remark

__all__ = ["fits", "hub_remarks", "parameters", "sources"]

BUILDS = {"cuda": "cu(da)?", "rocm": "rocm", "xpu": "xpu", "mps": "metal", "npu": "cann", "cpu": "cpu"}
"""By device type: how the names of its builds go on after ``torch-`` or ``torch210-cxx11-``."""


def hub_remarks(entries: Iterable[Entry], endpoint: str | None = None) -> Iterator[Remark]:
    """Stale pins, pins without a build, and names whose kernels take different parameters.

    ``endpoint`` is the address of the Hub; None: the one that HF_ENDPOINT names, or huggingface.co.

    Raises:
        OSError: the Hub does not answer.
    """
    # A client of our own: that of kernels fails where telemetry is off (FINDINGS.md, V35).
    api = HfApi(endpoint=endpoint)
    by_pin: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        by_pin[entry.repository, entry.pin].append(entry)
    signatures: defaultdict[str, dict[tuple[str, ...], list[str]]] = defaultdict(dict)
    for (repository, pin), served in by_pin.items():
        try:
            refs = api.list_repo_refs(repository, repo_type="kernel")
            files = api.list_repo_files(repository, repo_type="kernel", revision=pin)
        except Exception as error:  # a Hub that is gone raises what the transport of the client raises
            status = error.response.status_code if isinstance(error, HfHubHTTPError) else 500
            if status >= 500:
                raise OSError(f"{type(error).__name__}: {error}") from error
            text = f"{repository} at {pin} is not on this Hub"
            yield from (Remark(Kind.NO_BUILD, entry.name, entry.device, text) for entry in served)
            continue
        yield from _stale(served, [branch.name for branch in refs.branches])
        variants = {path.split("/")[1] for path in files if path.startswith("build/") and path.count("/") > 1}
        for entry in served:
            fitting = sorted(variant for variant in variants if fits(variant, entry.device))
            if not fitting:
                there = ", ".join(sorted(variants)) or "none"
                text = f"{repository} at {pin} has no build for {entry.device}; there are {there}"
                yield Remark(Kind.NO_BUILD, entry.name, entry.device, text)
                continue
            found = _parameters_on(api, repository, pin, fitting[-1], files, entry.layer)
            if found is not None:
                signatures[entry.name].setdefault(found, []).append(f"{repository} ({entry.device})")
    for name, forms in signatures.items():
        if len(forms) > 1:
            said = "; ".join(f"{', '.join(sorted(set(where)))}: ({', '.join(form)})" for form, where in forms.items())
            yield Remark(Kind.PARAMETERS, name, "", said)


def fits(variant: str, device: str) -> bool:
    """Whether a build is for a device type. Which build fits which version of it, only the device can say."""
    return re.search(rf"(^|-){BUILDS.get(device, device)}\d*($|-)", variant) is not None or variant.endswith(
        "universal"
    )


def _stale(served: list[Entry], branches: list[str]) -> Iterator[Remark]:
    versions = [int(name[1:]) for name in branches if re.fullmatch(r"v\d+", name)]
    for entry in served:
        if entry.version is not None and versions and entry.version < max(versions):
            text = f"{entry.repository} is pinned to v{entry.version}, and v{max(versions)} is there"
            yield Remark(Kind.STALE_PIN, entry.name, entry.device, text)


def _parameters_on(
    api: HfApi, repository: str, pin: str, variant: str, files: list[str], layer: str
) -> tuple[str, ...] | None:
    found = (parameters(source, layer) for source in sources(api, repository, pin, variant, files))
    return next((names for names in found if names is not None), None)


def sources(api: HfApi, repository: str, pin: str, variant: str, files: Iterable[str]) -> Iterator[str]:
    """The Python files of a build as text, ``layers`` first, each downloaded when it is wanted."""
    python = [path for path in files if path.startswith(f"build/{variant}/") and path.endswith(".py")]
    for path in sorted(python, key=lambda path: ("layers" not in path, path)):
        local = Path(str(api.hf_hub_download(repository, path, repo_type="kernel", revision=pin)))
        yield local.read_text(encoding="utf-8", errors="replace")


def parameters(source: str, layer: str) -> tuple[str, ...] | None:
    """Names of the parameters of a layer's ``forward``, without self; None where the source does not define it.

    An alias, as in ``from .norm import RMSNorm as LigerRMSNorm``, is followed by its name only within the source.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == layer:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward":
                    return tuple(argument.arg for argument in method.args.args[1:])
    return None
