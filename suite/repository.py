"""The check of a kernel repository before anything of it is called: every violation at once, each with its remedy.

First what its files say, without running them: is there a variant for this machine, is the metadata whole, are the
files those that were built, does no other repository of the run have the same id. Then the module is imported, as
loading would, and its layer is held against every class of Transformers that carries the registered name. Only
repositories that the run asks for by name are downloaded or imported, by the library's own client.
"""

import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kernels
from huggingface_hub import constants
from transformers.modeling_flash_attention_utils import FLASH_ATTN_KERNEL_VERSIONS

from cases.mappings import KernelReference
from cases.repositories import RepositoryInUse
from reports.record import Outcome, Reason
from suite import attention_functions, hub_away, layer_class, repository_files, signatures, variant_signature
from suite.downloads import Downloads, downloading
from suite.finding import Finding, Measure
from suite.loading import Loader

__all__ = ["Repositories"]

UNSAID = frozenset({"notes", "promised", "download_seconds", "download_bytes"})
"""Measures that are not for the sentence of a pass."""


@dataclass(slots=True)
class _Located:
    """A repository brought onto this machine, or why it is not."""

    folder: Path | None
    """The variant that loading would take here."""
    variants: list[Path]
    missing: Finding | None = None
    downloads: Downloads = field(default_factory=Downloads)
    """What it took to bring it here, until the first of the names that it serves has reported it."""


@dataclass(slots=True)
class _Report:
    """What is found about one name, while it is being found."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measures: dict[str, Measure] = field(default_factory=dict)

    def finding(self, promised: str) -> Finding:
        """All violations, or the facts that a reader wants."""
        if self.notes:
            self.measures["notes"] = "; ".join(self.notes)[:5000]
        if self.problems:
            self.measures["violations"] = len(self.problems)
            listed = "\n".join(f"{number}. {text}" for number, text in enumerate(self.problems, 1))
            many = "1 violation" if len(self.problems) == 1 else f"{len(self.problems)} violations"
            return Finding(Outcome.FAIL, Reason.REJECTED, f"{promised}: {many}\n{listed}", measures=self.measures)
        facts = [f"{key} {value}" for key, value in self.measures.items() if key not in UNSAID]
        return Finding(Outcome.PASS, message=f"{promised}: {', '.join(facts)}", measures=self.measures)


class Repositories:
    """All repositories of a run. Each is located and imported once, however many names it serves."""

    def __init__(self, loader: Loader, in_use: Iterable[RepositoryInUse]) -> None:
        self._loader = loader
        self._in_use = tuple(in_use)
        self._located: dict[KernelReference, _Located] = {}
        self._looked: dict[Path, repository_files.Variant] = {}
        self._modules: dict[KernelReference, Any] = {}

    def check(self, repository: RepositoryInUse) -> Finding:
        """Check the repository of one registered name."""
        reference = self._reference(repository)
        located = self._locate(reference)
        report = _Report()
        for folder in located.variants:
            looked = self._look(folder)
            report.problems += looked.problems
            report.notes += looked.notes
        if located.folder is None:
            found = located.missing or _missing(Reason.CANNOT_LOAD, f"{repository.promised}: not found")
            return report.finding(repository.promised) if report.problems else found
        looked = self._look(located.folder)
        signature = variant_signature.state(located.folder)
        report.measures |= {"variant": located.folder.name, "digest": looked.digest, "signature": signature}
        if signature.startswith(variant_signature.INVALID):
            report.problems.append(f"{located.folder.name}: the signature is {signature}; sign the build again")
        elif signature.startswith(variant_signature.NOT_VERIFIED):
            report.notes.append(f"{located.folder.name}: the signature is {signature}")
        report.measures |= {"promised": repository.promised, **located.downloads.measures}
        located.downloads = Downloads()
        self._check_version(reference, looked, report)
        if self._check_unique(repository, looked, report):
            # Of two repositories with one id the second gets the first one's modules: there is no telling whose.
            self._check_code(repository, reference, located.folder, report)
        return report.finding(repository.promised)

    def _reference(self, repository: RepositoryInUse) -> KernelReference:
        if repository.kernel is not None:
            return self._loader.located(repository.kernel)
        name, _, revision = (repository.implementation or "").partition(":")[0].partition("@")
        if revision:
            return KernelReference(name, "", revision=revision)
        return KernelReference(name, "", version=FLASH_ATTN_KERNEL_VERSIONS.get(name, 1))

    def _locate(self, reference: KernelReference) -> _Located:
        key = KernelReference(reference.repository, "", reference.version, reference.revision)
        if key not in self._located:
            self._located[key] = self._find(reference)
        return self._located[key]

    def _find(self, reference: KernelReference) -> _Located:
        local = _local_root(reference)
        if local is None:
            return self._download(reference)
        folder, variants = repository_files.local_variant(local)
        if folder is not None:
            return _Located(folder, variants)
        listed = ", ".join(variant.name for variant in variants) or "no variant at all"
        return _Located(
            None,
            variants,
            _missing(
                Reason.CANNOT_LOAD,
                f"{reference.promised}: no build for this torch and device; there is {listed}. Layers of this kernel "
                "stay PyTorch, without a word of the library",
            ),
        )

    def _download(self, reference: KernelReference) -> _Located:
        try:
            with downloading() as downloads:
                folder = kernels.install_kernel(
                    reference.repository,
                    version=reference.version,
                    revision=reference.revision,
                    trust_remote_code=reference.repository in self._loader.trusted,
                    local_files_only=constants.HF_HUB_OFFLINE,
                )
        except Exception as error:  # whatever the client raises, loading is going to meet it too
            text = " ".join(str(error).split())[:1500]
            untrusted = "trusted publisher" in text or "trust status" in text
            reason = Reason.UNTRUSTED if untrusted else Reason.CANNOT_LOAD
            refused = _missing(reason, f"{reference.promised}: {type(error).__name__}: {text}")
            return _Located(None, [], hub_away.finding(error) or refused)
        return _Located(folder, [folder], downloads=downloads)

    def _look(self, folder: Path) -> repository_files.Variant:
        if folder not in self._looked:
            self._looked[folder] = repository_files.look(folder)
        return self._looked[folder]

    def _check_version(self, reference: KernelReference, looked: repository_files.Variant, report: _Report) -> None:
        if _local_root(reference) is None and reference.version and looked.version not in (None, reference.version):
            report.problems.append(
                f"{looked.where}: version is {looked.version} on the branch of version {reference.version}; "
                "publish each build on the branch of its own version"
            )

    def _check_unique(self, repository: RepositoryInUse, looked: repository_files.Variant, report: _Report) -> bool:
        """Whether no other repository of the run has the id."""
        unique = True
        for other in self._in_use:
            if other.rung and other.rung != repository.rung:
                continue  # One kernel at another time: nobody has both.
            folder = self._locate(self._reference(other)).folder
            if folder is None or folder.resolve() == looked.folder.resolve():
                continue
            if looked.id is not None and self._look(folder).id == looked.id:
                unique = False
                report.problems.append(
                    f"{looked.where}: id {looked.id!r} is also that of {other.promised}: of two kernels with one id "
                    "the second to be loaded gets the layers of the first; build one of them with another id"
                )
        return unique

    def _check_code(
        self, repository: RepositoryInUse, reference: KernelReference, folder: Path, report: _Report
    ) -> None:
        source = repository_files.sources(folder, reference.layer) if reference.layer else repository_files.Source()
        report.problems += source.problems
        report.notes += source.notes
        try:
            module = self._module(reference)
        except (Exception, SystemExit) as error:  # the kernel's own code may raise anything
            if hub_away.finding(error) is not None:
                raise
            text = " ".join(str(error).split())[:1000]
            report.problems.append(f"{folder.name}: importing it raises {type(error).__name__}: {text}")
            report.problems += [f"layers.py: {reference.layer} has the member {name}" for name in source.members]
            return
        _check_exports(module, folder, "layers" if reference.layer else "flash_attn_varlen_func", report)
        if reference.layer:
            self._check_layer(repository, reference, module, report)
        else:
            found = attention_functions.check(module)
            report.problems += found.problems
            report.notes += found.notes
            report.measures["missing_features"] = ", ".join(found.missing) or "none"

    def _module(self, reference: KernelReference) -> Any:
        """The module, by the library's own loading: later loads get this very one."""
        key = KernelReference(reference.repository, "", reference.version, reference.revision)
        self._loader.apart.enter(reference)
        if key not in self._modules:
            local = reference.is_local
            self._modules[key] = (
                kernels.get_local_kernel(Path(reference.repository))
                if local
                else kernels.get_kernel(
                    reference.repository,
                    version=reference.version,
                    revision=reference.revision,
                    trust_remote_code=reference.repository in self._loader.trusted,
                )
            )
        return self._modules[key]

    def _check_layer(
        self, repository: RepositoryInUse, reference: KernelReference, module: Any, report: _Report
    ) -> None:
        layer = getattr(getattr(module, "layers", None), reference.layer, None)
        if layer is None:
            there = sorted(
                name
                for name, value in vars(getattr(module, "layers", None) or object).items()
                if inspect.isclass(value)
            )
            report.problems.append(
                f"layers has no class {reference.layer}; there are {', '.join(there)[:300] or 'none'}; check the name"
            )
            return
        impure = layer_class.impurities(layer, reference.layer)
        report.problems += impure
        if not inspect.isclass(layer) or not hasattr(layer, "forward"):
            return
        flags, wrong = layer_class.claims(layer)
        report.measures |= flags
        report.problems += [f"{reference.layer}.{text}" for text in wrong]
        stopped = layer_class.stops_gradients(layer)
        if stopped is not None and getattr(layer, "has_backward", True):
            report.problems.append(
                f"{reference.layer}.forward gives no gradients ({stopped}) and has_backward is "
                f"{flags['has_backward']}: parameters in the layer and below it are silently not trained; set "
                "has_backward = False, or keep the graph"
            )
        compared = signatures.compare(inspect.signature(layer.forward), signatures.carriers(repository.name))
        report.problems += compared.problems
        report.notes += compared.notes
        report.measures["classes"] = compared.carriers
        report.problems += self._check_agreement(repository, layer)

    def _check_agreement(self, repository: RepositoryInUse, layer: Any) -> list[str]:
        forwards: dict[str, Callable[..., Any]] = {repository.promised: layer.forward}
        for reference in map(self._loader.located, repository.former):
            if self._locate(reference).folder is None:
                continue
            other = getattr(getattr(self._module(reference), "layers", None), reference.layer, None)
            if other is not None:
                forwards[reference.promised] = other.forward
        return signatures.disagreements(forwards)


def _missing(reason: Reason, text: str) -> Finding:
    return Finding(Outcome.NOT_RUN, reason, text)


def _local_root(reference: KernelReference) -> Path | None:
    """The folder of a local repository, also of one that ``LOCAL_KERNELS`` puts in the place of a Hub's."""
    if reference.is_local:
        return Path(reference.repository)
    for entry in os.environ.get("LOCAL_KERNELS", "").split(":"):
        name, _, path = entry.partition("=")
        if name == reference.repository and path:
            return Path(path)
    return None


def _check_exports(module: Any, folder: Path, needed: str, report: _Report) -> None:
    """``__all__`` must name what is there, and had better name what Transformers takes."""
    exported = getattr(module, "__all__", None)
    if exported is None:
        report.notes.append(f"{folder.name}/__init__.py has no __all__")
        return
    absent = [str(name) for name in exported if not hasattr(module, str(name))]
    if absent:
        report.problems.append(
            f"{folder.name}/__init__.py: __all__ names {', '.join(absent)[:200]}, which is not there; drop or import it"
        )
    if needed not in exported:
        report.notes.append(f"{folder.name}/__init__.py: __all__ does not name {needed}, which Transformers takes")
