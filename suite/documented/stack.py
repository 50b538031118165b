"""The ground with the package ``kernels`` on it: kernel configurations, what is bound, what the Hub was asked."""

import json
import urllib.request
from typing import Any
from urllib.parse import quote

import kernels
import transformers

from reports.record import Reason
from suite import hub, ledger
from suite.arms import sites
from suite.documented.ground import DisprovedError, Ground
from suite.shim import accept_device

__all__ = ["Stack"]


class Stack(Ground):
    """The libraries under test on one device, with the Hub of these checks."""

    __slots__ = ()

    def config(self, mapping: Any, **options: Any) -> transformers.KernelConfig:
        """A ``KernelConfig`` that is accepted on this device, with the recorded shim where that is needed."""
        self.shims.extend(shim for shim in accept_device(self.device) if shim not in self.shims)
        return transformers.KernelConfig(mapping, **options)

    def configured(self, mapping: Any, model: str = "llama-tiny", **options: Any) -> Any:
        """A model with a ``KernelConfig`` that inherits nothing, through ``from_pretrained``."""
        config = self.config(mapping, inherit_mapping=False)
        return self.load(model, use_kernels=True, kernel_config=config, **options)

    def bound(self, model: Any, name: str = "RMSNorm") -> str:
        """Where the forwards of a registered name come from: ``repo@commit:Class``, or ``pytorch``, each once."""
        found = set()
        for site in (site for site in sites(model) if site.name == name):
            function = getattr(site.forward(), "__func__", None)
            source = ledger.origin(function) if site.has_kernel() and function is not None else None
            layer = function.__qualname__.rpartition(".")[0] if function is not None else ""
            at = f"@{source.revision}" if source and source.revision else ""
            found.add(f"{source.repository}{at}:{layer}" if source else "pytorch")
        return " and ".join(sorted(found)) or "nothing"

    def expect(self, model: Any, wanted: str, what: str, name: str = "RMSNorm") -> str:
        """Check where a name is bound to: ``wanted`` is how it begins, or ``pytorch``. Returns what is bound.

        Raises:
            DisprovedError: it is bound to something else.
        """
        seen = self.bound(model, name)
        if not seen.startswith(wanted):
            raise DisprovedError(f"{what}: expected {name} from {wanted}, seen {seen}", Reason.SHADOWED)
        return seen

    def attention(self) -> str:
        """``repo@commit`` of the flash functions that Transformers would call now; empty if they are no kernel's."""
        found = [ledger.origin(function) for function in ledger.flash_functions()]
        return next((f"{source.repository}@{source.revision}" for source in found if source is not None), "")

    def requests(self) -> list[hub.Request]:
        """All requests that the Hub has had."""
        return hub.requests_of(self.endpoint)

    def downloads(self, repository: str) -> list[hub.Request]:
        """Files of a repository that were fetched so far."""
        return [request for request in hub.downloads(self.requests()) if f"/{repository}/" in request.path]

    def commit(self, repository: str, revision: str) -> str:
        """The commit that a revision of a repository stands for."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(
            f"{self.endpoint}/api/kernels/{repository}/revision/{quote(revision, safe='')}", timeout=10
        ) as answer:
            return str(json.load(answer)["sha"])

    def layer(self, repository: str, layer: str = "Norm", **options: Any) -> Any:
        """A layer of version 1 of a repository, as mappings of ``kernels`` hold it."""
        options = {"version": 1} if not {"version", "revision"} & set(options) else options
        return kernels.LayerRepository(repository, layer_name=layer, **options)

    def mapping(self, name: str, repository: Any, mode: kernels.Mode = kernels.Mode.INFERENCE) -> dict[str, Any]:
        """A mapping as ``kernels`` takes it: one name, this device, one mode."""
        return {name: {self.device: {mode: repository}}}
