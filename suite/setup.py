"""Makes the bench of a worker process: the first place where a worker imports torch and the libraries under test."""

import gc
import logging
import os
import threading
import traceback
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.constants import ENDPOINT

from cases.axes import Device, Tier
from cases.repositories import RepositoryInUse
from reports import store
from suite import audit, hub_away
from suite.bench import Bench
from suite.compiled_speed import BACKEND
from suite.device import BACKENDS
from suite.loading import Loader
from suite.options import Options
from suite.recorder import Recorder
from suite.speed import Timing
from suite.stopping import SIGN_OFF_LOOKS, Stopping
from suite.subject import Shelf
from suite.throttling import Throttling

__all__ = ["make_bench", "make_shelf", "make_timing"]


def make_shelf(options: Options, facts: dict[str, Any]) -> Shelf:
    """What loads and keeps models in a process, which is set up for it."""
    torch.set_num_threads(int(facts["threads"]))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    hub_away.limit_waiting()
    transformers.utils.logging.disable_progress_bar()
    # kernels warns for every layer without a mapping, which the ledger says once and better.
    logging.getLogger("kernels").setLevel(logging.ERROR)
    folder = Path(facts["folder"])
    loader = Loader(
        backend=BACKENDS[Device(facts["device"])],
        local_root=None if facts["local_root"] is None else Path(facts["local_root"]),
        trusted=options.trusted,
        own=options.own,
    )
    models = folder / "cache" / "models"
    models.mkdir(parents=True, exist_ok=True)
    return Shelf(loader, models)


def make_timing(options: Options, facts: dict[str, Any], shelf: Shelf) -> Timing:
    """How this process measures time."""
    backend = shelf.loader.backend
    return Timing(
        options.budget,
        backend,
        enabled=bool(facts.get("timing", True)),
        map_seconds=options.map_seconds,
        flags=options.selection.tier is not Tier.SMOKE,
        compiler=BACKEND if options.selection.tier is Tier.FULL else None,
        throttling=Throttling(backend.clock_mhz),
        stopping=Stopping(SIGN_OFF_LOOKS) if options.selection.tier is Tier.FULL else Stopping(),
    )


def make_bench(options: Options, facts: dict[str, Any], repositories: tuple[RepositoryInUse, ...]) -> Bench:
    """A bench for the options and the facts that the controller handed over."""
    shelf = make_shelf(options, facts)
    folder = Path(facts["folder"])
    recorder = Recorder(folder, facts["rerun"], options.waivers, facts["device"])
    bench = Bench(
        shelf,
        recorder,
        timing=make_timing(options, facts, shelf),
        embedded=bool(facts["embedded"]),
        inductor=options.selection.tier is Tier.FULL,
        repositories=repositories,
        planned=options.statements(),
    )
    _audit(bool(facts["embedded"]), folder, recorder)
    # The libraries stay. A collection after each case would walk through all their objects, a fifth of a second each.
    gc.freeze()
    # What a former worker of this run found out, if this one replaces it.
    for record in store.read_run(folder).records:
        bench.know(record)
    return bench


def _audit(embedded: bool, folder: Path, recorder: Recorder) -> None:
    """Keep the audit of the default mapping with the run. It is no check: what goes wrong with it is only logged."""

    def keep(hub: str) -> None:
        try:
            audit.keep(folder, hub)
        except Exception as error:
            recorder.log("".join(traceback.format_exception(error)))

    keep("")
    # One worker asks a real Hub: a hundred questions from each of many would be refused, and kernels with them. Nobody
    # waits for the answers, and a Hub that gives none holds nothing up.
    if not embedded and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        threading.Thread(target=keep, args=(ENDPOINT,), name="audit", daemon=True).start()
