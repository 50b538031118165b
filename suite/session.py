"""A run as the pytest controller sees it: its folder, its Hub, its device, its environment, its end.

Opened before any worker starts and before anything imports torch or huggingface_hub, since both read their settings
from the environment at import. What workers need goes to them in ``facts``, a dictionary of plain values.
"""

import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from reports import store, waivers
from reports.controls import controls, without_controls
from reports.record import Environment, LoadedKernel, Outcome, Reason, Record, encode
from suite import hub, revisions
from suite.device import BACKENDS, DeviceInfo, probe_in_subprocess
from suite.options import HubChoice, OptionError, Options

__all__ = ["ROOT", "Session", "facts_for_listing", "open_session", "threads"]

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "cases" / "kernels"

PACKAGES = (
    "torch",
    "transformers",
    "kernels",
    "huggingface_hub",
    "accelerate",
    "pytest",
    "pytest-benchmark",
    "pytest-xdist",
    "pytest-timeout",
    "triton",
    "fla-core",
    "flash-attn",
    "mamba-ssm",
    "causal-conv1d",
)
"""What a result can depend on. Those that are not installed are left out of ``environment.json``."""


@dataclass
class Session:
    """An open run."""

    folder: Path
    device: DeviceInfo
    environment: Environment
    facts: dict[str, Any]
    options: Options
    """What was asked for, with the revisions of a ladder, which the Hub named."""
    done: frozenset[tuple[str, str]] = frozenset()
    """(case, property) pairs recorded by the run that is resumed."""
    resources: ExitStack = field(default_factory=ExitStack)

    def plan(self, checks: int) -> None:
        """Write down how many checks are going to be recorded, so that a run cut short shows as such."""
        self.environment = msgspec.structs.replace(self.environment, planned=checks + len(self.done))
        self._write()

    def close(self, exit_status: int) -> None:
        """Write the end of the run into its environment, and the lock of the kernels that were loaded."""
        self.resources.close()
        # Models of real width take gigabytes, and can be built again.
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        try:
            records: tuple[Record, ...] = store.read_run(self.folder).records
        except store.RunError:
            records = ()
        kernels = _kernels(records)
        self.environment = msgspec.structs.replace(
            self.environment,
            kernels=kernels,
            quarantined=controls(records).quarantined,
            shims=tuple(sorted({shim for record in records for shim in record.shims})),
            ended=_now(),
            exit_status=exit_status,
        )
        self._write()
        lock = [msgspec.to_builtins(kernel) for kernel in kernels]
        store.write_whole(self.folder / store.LOCK, msgspec.json.format(msgspec.json.encode(lock), indent=2))

    def left(self, exit_status: int) -> None:
        """Write down the status that the process ends with, which the report may have changed."""
        self.environment = msgspec.structs.replace(self.environment, exit_status=exit_status)
        self._write()

    def _write(self) -> None:
        store.write_whole(self.folder / store.ENVIRONMENT, msgspec.json.format(encode(self.environment), indent=2))


def open_session(options: Options, workers: int) -> Session:
    """Find the device, make the folder, start the Hub, and set the environment variables that workers inherit.

    Raises:
        ProbeError: the device is not there.
        OptionError: the folder is in use or cannot be written, or the real Hub was asked for and does not answer, or
            has not what the ladder names.
    """
    _refuse_switches()
    if options.baseline is not None:
        try:
            store.read_run(options.baseline)
        except store.RunError as error:
            raise OptionError(f"--baseline: {error}") from None
    info = probe_in_subprocess(options.device, ROOT)
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{info.device}"
    folder = (options.resume or options.out or Path("runs") / name).resolve()
    resources = ExitStack()
    endpoint, local_root = _open_hub(options, folder, resources)
    if options.ladder is not None:
        try:
            options = options.on(revisions.find(options.ladder, options.trusted, info.device, endpoint))
        except OptionError:
            # What the client of the Hub has kept by now; a run that was there stays.
            shutil.rmtree(folder / "cache", ignore_errors=True)
            with suppress(OSError):
                folder.rmdir()
            raise
    done = _begin(options, info, folder)
    per_worker = threads(workers)
    facts: dict[str, Any] = {
        "folder": str(folder),
        "device": info.device.value,
        "device_count": info.count,
        "workers": workers,
        "local_root": local_root,
        "embedded": endpoint == "embedded",
        "threads": per_worker,
        "rerun": options.rerun,
        "rungs": [list(astuple(rung)) for rung in options.rungs],
    }
    _, _, index = options.device.partition(":")
    if index:
        os.environ.update(BACKENDS[info.device].masked(int(index), os.environ))
    environment = Environment(
        suite_commit=_commit(),
        command=shlex.join(["pytest", *sys.argv[1:]]),
        started=_now(),
        device=info.device,
        device_name=info.name,
        device_count=info.count,
        driver=info.driver,
        memory_bytes=info.memory_bytes,
        packages=_packages(),
        python=platform.python_version(),
        platform=platform.platform(),
        threads=per_worker,
        hub=endpoint,
        tier=options.selection.tier,
        choices=options.choices,
        planned=0,
    )
    session = Session(folder, info, environment, facts, options, done, resources)
    session._write()
    (folder / waivers.FILE).write_bytes(msgspec.json.encode(waivers.InUse(options.waivers, options.strict)))
    return session


def _refuse_switches() -> None:
    """Refuse to test kernels in an environment that switches them off.

    Raises:
        OptionError: a variable does.
    """
    on = {"USE_HUB_KERNELS": ("1", "ON", "YES", "TRUE"), "DISABLE_KERNEL_MAPPING": ("0", "")}
    for name, values in on.items():
        value = os.environ.get(name, values[0])
        if value.upper() not in values:
            raise OptionError(f"{name}={value} is set, which switches off the kernels that are to be tested: unset it")


def facts_for_listing() -> dict[str, Any]:
    """What ``--collect-only`` needs: nothing is probed, opened or written."""
    return {"folder": None}


def _begin(options: Options, info: DeviceInfo, folder: Path) -> frozenset[tuple[str, str]]:
    """Make the folder, or take up the run in it; the (case, property) pairs that are done."""
    if options.resume is not None:
        try:
            run = store.read_run(folder)
        except store.RunError as error:
            raise OptionError(f"--resume: {error}") from None
        made = run.environment
        if made is not None and made.choices and made.choices != options.choices:
            raise OptionError(
                f"--resume {options.resume}: that run was started with other choices, and a folder holds one plan. Its "
                f"command was: {made.command}. Give the same options, with --resume in the place of --out"
            )
        if run.environment is not None and run.environment.device != info.device:
            raise OptionError(
                f"--resume {options.resume}: that run was made on {run.environment.device}, this one is for "
                f"{info.device}; a folder holds one device"
            )
        lost = {r.case for r in run.records if r.outcome in _AGAIN}
        again = {
            (r.case, r.property.value)
            for r in run.records
            # What was not checked for want of one of these is not done either.
            if r.outcome in _AGAIN or (r.reason is Reason.DEPENDS and r.case in lost)
        }
        # One phase of a check that was interrupted is not the check.
        # Controls are the session's own: a resumed session makes new ones, and no plan counts them.
        return frozenset((r.case, r.property.value) for r in without_controls(run.records)) - again
    if (folder / store.RESULTS).exists():
        raise OptionError(f"--out {folder}: holds a run already; give another folder, or --resume {folder} to go on")
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / store.RESULTS).touch()
    except OSError as error:
        raise OptionError(f"--out {folder}: {error.strerror}; give a folder that can be written") from None
    return frozenset()


def _open_hub(options: Options, folder: Path, resources: ExitStack) -> tuple[str, str | None]:
    """Where kernels come from: ``embedded`` or an address, and the folder to load bundled kernels from, if on disk."""
    choice = options.hub
    if choice is not HubChoice.EMBEDDED and hub.real_hub_answers():
        # The real Hub has none of the bundled kernels, so they are loaded from disk.
        attention = KERNELS / "attention" / "v1"
        overrides = [entry for entry in os.environ.get("LOCAL_KERNELS", "").split(":") if entry]
        os.environ["LOCAL_KERNELS"] = ":".join([*overrides, f"embedded/attention={attention}"])
        return os.environ.get("HF_ENDPOINT", "https://huggingface.co"), str(KERNELS)
    if choice is HubChoice.ONLINE:
        raise OptionError("--hub online: the Hub does not answer, or HF_HUB_OFFLINE is set; try --hub embedded")
    server = resources.enter_context(hub.EmbeddedHub(hub.bundled_repositories(KERNELS)))
    os.environ.update(hub.environment_for(server.endpoint, folder / "cache"))
    return "embedded", None


def threads(workers: int) -> int:
    """Threads of each worker. One core is left to the controller and the system: without it every parallel region
    waits for the thread that was pushed aside, which on two cores made tiny models several times slower."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (cores - 1) // workers)


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    def git(*words: str) -> str:
        command = ["git", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit, changed = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.TimeoutExpired):
        commit, changed = "", ""
    return f"{commit or 'unknown'}{' with changes' if changed else ''}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_AGAIN = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.HARNESS_ERROR})
"""Outcomes that a resumed run tries again."""

_RESOLVED = re.compile(r"(?P<repo>[^@:]+)(?:@(?P<revision>[^:]+))?:(?P<name>.*) \((?P<variant>[^)]+)\)")


def _kernels(records: tuple[Record, ...]) -> tuple[LoadedKernel, ...]:
    found = {}
    for entry in (entry for record in records for entry in record.evidence if entry.resolved and entry.digest):
        match = _RESOLVED.fullmatch(entry.resolved or "")
        if match:
            found[match["repo"], match["variant"], entry.digest] = LoadedKernel(
                name=match["repo"].rpartition("/")[2],
                repo=match["repo"],
                revision=match["revision"],
                variant=match["variant"],
                digest=entry.digest or "",
                signature=entry.signature or "",
            )
    return tuple(found[key] for key in sorted(found, key=str))
