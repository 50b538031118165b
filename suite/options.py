"""Reads the command line of ``pytest suite`` into typed choices, and refuses what cannot be, saying what could.

Runs in the pytest controller and knows no torch. Every message names the option, the value, and what is accepted.
"""

import argparse
import difflib
import re
import shlex
import tomllib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from cases import plan
from cases.attention import ATTENTIONS, attention_name
from cases.axes import DType, Mode, Tier
from cases.case import Case
from cases.mappings import MAPPINGS, KernelReference
from cases.models import MODELS
from cases.statements import BASE, PREFIX, STATEMENTS, Statement, statements_of
from reports.waivers import SHIPPED, Waiver, WaiverError
from reports.waivers import read as read_waivers
from suite.device import parse_device

__all__ = ["BUDGETS", "HubChoice", "OptionError", "Options", "parse_kernel", "read", "shard_of"]

BUDGETS = {Tier.SMOKE: 0.25, Tier.CORE: 1.5, Tier.FULL: 10.0}
"""Seconds of timing per case beyond the first eight pairs."""

Member = TypeVar("Member", bound=StrEnum)


class OptionError(Exception):
    """An option has a value that cannot be."""


class HubChoice(StrEnum):
    """Where kernels come from."""

    AUTO = "auto"
    """The real Hub if it answers, else the embedded one."""
    EMBEDDED = "embedded"
    """The bundled kernels, served on loopback."""
    ONLINE = "online"
    """The real Hub, or the one that HF_ENDPOINT names."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, understood."""

    device: str
    hub: HubChoice
    selection: plan.Selection
    trusted: frozenset[str]
    budget: float
    shard: tuple[int, int]
    out: Path | None
    resume: Path | None
    baseline: Path | None
    """An earlier run: a speed with another verdict than there is repeated before it is reported."""
    waivers: tuple[Waiver, ...]
    """Known faults of the stack: the suite's own, or those of ``--waivers``."""
    strict: bool
    choices: str
    """What of the command line chose the plan and the kernels, as text that can be compared."""
    rerun: str
    """The command that runs a part of this run again, up to ``--case``."""

    def cases(self) -> tuple[Case, ...]:
        """The cases of this shard.

        Raises:
            OptionError: the choices leave none.
        """
        try:
            cases = plan.build(self.selection)
        except ValueError as error:
            raise OptionError(f"--case: {error}") from None
        if not cases and not self.selection.cases:
            raise OptionError(
                "these choices of --model, --dtype, --mode, --attention, --mapping and --kernel leave no case: no "
                "chosen model registers the layer, or none has the attention. Leave one of them out."
            )
        part, parts = self.shard
        return tuple(case for case in cases if shard_of(case.model, parts) == part)

    def statements(self) -> tuple[Statement, ...]:
        """The statements to check: all of the tier where nothing is filtered, else those that all else rests on.

        Raises:
            OptionError: ``--case`` names one that does not exist.
        """
        chosen = self.selection
        asked = [text.removeprefix(PREFIX) for text in chosen.cases if text.startswith(PREFIX)]
        for name in asked:
            if name not in STATEMENTS:
                close = difflib.get_close_matches(name, STATEMENTS, n=3) or list(BASE)
                raise OptionError(f"--case {PREFIX}{name}: no such statement; did you mean {', '.join(close)}?")
        filtered = (chosen.models, chosen.dtypes, chosen.modes, chosen.attentions, chosen.mappings, chosen.kernels)
        if chosen.cases or any(filtered):
            return tuple(STATEMENTS[name] for name in dict.fromkeys((*BASE, *asked)))
        part, parts = self.shard
        # What all else rests on is asked on every shard, the rest on one.
        return tuple(
            statement
            for statement in statements_of(chosen.tier)
            if statement.id in BASE or shard_of(statement.id, parts) == part
        )


def shard_of(model: str, parts: int) -> int:
    """The shard, from 1 to ``parts``, that a model belongs to; the same on every machine."""
    return zlib.crc32(model.encode()) % parts + 1


def read(namespace: argparse.Namespace) -> Options:
    """Understand pytest's parsed command line.

    Raises:
        OptionError: a value is impossible or misspelt.
    """
    try:
        parse_device(namespace.device)
    except ValueError as error:
        raise OptionError(str(error)) from None
    tier = _member("--tier", namespace.tier, Tier)
    kernels = [parse_kernel(text) for text in namespace.kernel]
    if namespace.kernels is not None:
        kernels += _kernels_file(Path(namespace.kernels))
    _unique(name for name, _ in kernels)
    selection = plan.Selection(
        tier=tier,
        models=_named("--model", namespace.model, MODELS),
        dtypes=tuple(_member("--dtype", text, DType) for text in namespace.dtype),
        modes=tuple(_member("--mode", text, Mode) for text in namespace.mode),
        attentions=tuple(_attention(text) for text in namespace.attention),
        mappings=_named("--mapping", namespace.mapping, MAPPINGS),
        kernels=tuple(kernels),
        cases=tuple(namespace.case),
    )
    if kernels and namespace.mapping:
        raise OptionError("--mapping and --kernel: give one of them; with --kernel only these kernels are tested")
    if namespace.out is not None and namespace.resume is not None:
        raise OptionError("--out and --resume: give one of them; a resumed run stays in its folder")
    return Options(
        device=namespace.device,
        hub=_member("--hub", namespace.hub, HubChoice),
        selection=selection,
        trusted=frozenset(_repository("--trust", text) for text in namespace.trust),
        budget=BUDGETS[tier] if namespace.budget is None else _seconds("--budget", namespace.budget),
        shard=(1, 1) if namespace.shard is None else _shard(namespace.shard),
        out=None if namespace.out is None else Path(namespace.out),
        resume=None if namespace.resume is None else _existing_run("--resume", Path(namespace.resume)),
        baseline=None if namespace.baseline is None else _existing_run("--baseline", Path(namespace.baseline)),
        waivers=_waivers([Path(text) for text in namespace.waivers] or [SHIPPED]),
        strict=bool(namespace.strict),
        choices=_choices(namespace),
        rerun=_rerun(namespace),
    )


def _member(option: str, text: str, kind: type[Member]) -> Member:
    try:
        return kind(text)
    except ValueError:
        raise OptionError(f"{option} {text!r}: expected one of {', '.join(kind)}") from None


def _named(option: str, texts: list[str], records: Iterable[str]) -> tuple[str, ...]:
    known = list(records)
    for text in texts:
        if text not in known:
            raise OptionError(f"{option} {text!r}: expected one of {', '.join(known)}")
    return tuple(texts)


def _attention(text: str) -> str:
    if text in ATTENTIONS:
        return text
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[^/:]+)?(:[^/:]+)?", text):
        raise OptionError(f"--attention {text!r}: expected one of {', '.join(ATTENTIONS)}, or org/repo[@revision]")
    return attention_name(text)


def parse_kernel(text: str) -> tuple[str, KernelReference]:
    """Read ``LAYER=REPO[@PIN]:NAME``. A pin ``v2`` is a version, anything else a revision; no pin is version 1.

    Raises:
        OptionError: not of that form, or a local folder that is not there.
    """
    form = "expected LAYER=ORG/REPO[@PIN]:NAME or LAYER=/absolute/folder:NAME, as in RMSNorm=/home/me/norm:MyNorm"
    layer, equals, rest = text.partition("=")
    repository, colon, name = rest.rpartition(":")
    if not (layer and equals and colon and repository and re.fullmatch(r"\w+", name)):
        raise OptionError(f"--kernel {text!r}: {form}")
    known = sorted({registered for model in MODELS.values() for registered in model.carries})
    if layer not in known:
        raise OptionError(f"--kernel {text!r}: no model registers {layer!r}; registered are {', '.join(known)}")
    if repository.startswith("/"):
        if not Path(repository).is_dir():
            raise OptionError(f"--kernel {text!r}: there is no folder {repository}; {form}")
        return layer, KernelReference(repository, name, version=None)
    if Path(repository).is_dir():
        raise OptionError(
            f"--kernel {text!r}: {repository} is a folder; write its absolute path, {Path(repository).resolve()}"
        )
    repository, _, pin = repository.partition("@")
    _repository(f"--kernel {text!r}:", repository)
    if not pin:
        return layer, KernelReference(repository, name, version=1)
    if re.fullmatch(r"v\d+", pin):
        return layer, KernelReference(repository, name, version=int(pin[1:]))
    return layer, KernelReference(repository, name, version=None, revision=pin)


def _repository(option: str, text: str) -> str:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        raise OptionError(f"{option} {text!r}: expected a repository as ORG/NAME")
    return text


def _kernels_file(path: Path) -> list[tuple[str, KernelReference]]:
    form = "expected a TOML file with a table [kernels] whose entries are LAYER = 'REPO[@PIN]:NAME'"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("kernels")
    except OSError as error:
        raise OptionError(f"--kernels {path}: {error.strerror or error}; {form}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"--kernels {path}: {error}; {form}") from None
    if not isinstance(table, dict) or not table or not all(isinstance(value, str) for value in table.values()):
        raise OptionError(f"--kernels {path}: {form}")
    return [parse_kernel(f"{layer}={value}") for layer, value in table.items()]


def _unique(layers: Iterable[str]) -> None:
    seen: set[str] = set()
    for layer in layers:
        if layer in seen:
            raise OptionError(f"--kernel {layer}=…: given twice; a layer has one kernel in one run")
        seen.add(layer)


def _seconds(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise OptionError(f"{option} {text!r}: expected a number of seconds above 0")
    return value


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part <= parts:
        raise OptionError(f"--shard {text!r}: expected I/N with 1 <= I <= N, as in 2/4")
    return part, parts


def _waivers(paths: list[Path]) -> tuple[Waiver, ...]:
    try:
        return read_waivers(paths)
    except WaiverError as error:
        raise OptionError(f"--waivers {error}") from None


def _existing_run(option: str, path: Path) -> Path:
    if not (path / "results.jsonl").is_file():
        raise OptionError(f"{option} {path}: no results.jsonl there; give the folder of an earlier run")
    return path


def _choices(namespace: argparse.Namespace) -> str:
    """The options that decide what is planned and what it runs with; the device is compared by itself."""
    names = ("tier", "model", "dtype", "mode", "attention", "mapping", "kernel", "kernels", "trust", "case", "shard")
    return " ".join(f"{name}={getattr(namespace, name)!r}" for name in names)


def _rerun(namespace: argparse.Namespace) -> str:
    """What a case depends on besides its id. Filters and most tiers choose cases, so they are left out."""
    words = ["pytest", "suite", "--device", namespace.device]
    for option in ("kernel", "trust", "waivers"):
        for value in getattr(namespace, option):
            words += [f"--{option}", value]
    if namespace.kernels is not None:
        words += ["--kernels", namespace.kernels]
    if namespace.hub != HubChoice.AUTO:
        words += ["--hub", namespace.hub]
    if namespace.tier == Tier.FULL:
        # Only this tier compiles with Inductor too.
        words += ["--tier", namespace.tier]
    return shlex.join(words)
