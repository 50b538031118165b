"""Reads the command line of ``pytest suite`` into typed choices, and refuses what cannot be, saying what could.

Runs in the pytest controller and knows no torch. Every message names the option, the value, and what is accepted.
"""

import argparse
import difflib
import re
import shlex
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from cases import break_even, ladder, plan
from cases.attention import ATTENTIONS, attention_name
from cases.axes import DType, Mode, Tier
from cases.case import Case
from cases.ladder import Ladder, Rung
from cases.mappings import MAPPINGS, KernelReference
from cases.models import MODELS
from cases.statements import BASE, PREFIX, STATEMENTS, Statement, statements_of
from reports.waivers import SHIPPED, Waiver, WaiverError
from reports.waivers import read as read_waivers
from suite.device import parse_device
from suite.kernel_options import (
    OptionError,
    kernels_file,
    parse_kernel,
    parse_ladder,
    repository_name,
    unique_layers,
)

__all__ = ["BUDGETS", "HubChoice", "OptionError", "Options", "parse_kernel", "read", "seconds", "shard_of"]

BUDGETS = {Tier.SMOKE: 0.25, Tier.CORE: 1.5, Tier.FULL: 10.0}
"""Seconds of timing per case beyond the first eight pairs."""

Member = TypeVar("Member", bound=StrEnum)


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
    map_seconds: float
    """Time for a map of shapes; like ``budget`` what ``--budget`` says, where it is given."""
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
    ladder: Ladder | None = None
    rungs: tuple[Rung, ...] = ()
    """The revisions of the ladder. Only the Hub knows them, so they are added when it is open (``on``)."""

    @property
    def own(self) -> dict[str, dict[str, KernelReference]]:
        """The user's own kernels: by mapping, the kernel of each registered name."""
        if self.ladder is None:
            return {plan.USER: dict(self.selection.kernels)}
        return {rung.mapping: {self.ladder.layer: self.ladder.kernel(rung)} for rung in self.rungs}

    def on(self, rungs: tuple[Rung, ...]) -> "Options":
        """The same with the revisions of the ladder, which are a choice too: a branch that moves is another plan.

        Raises:
            OptionError: ``--case`` names a revision that there is not.
        """
        names = [rung.name for rung in rungs]
        for text in self.selection.cases:
            asked = ladder.rung_of(text)
            if asked is not None and asked not in names:
                raise OptionError(f"--case {text!r}: no revision {asked!r}; there are {', '.join(names)}")
        commits = " ".join(f"{rung.name}={rung.commit}" for rung in rungs)
        return replace(self, rungs=rungs, choices=f"{self.choices} rungs={commits!r}" if rungs else self.choices)

    def climbed(self, cases: Iterable[Case]) -> tuple[Case, ...]:
        """The cases on every revision of the ladder; without one, or before it is known, as they are."""
        return ladder.climb(cases, self.rungs) if self.rungs else tuple(cases)

    def cases(self) -> tuple[Case, ...]:
        """The cases of this shard, before they climb a ladder.

        Raises:
            OptionError: the choices leave none.
        """
        try:
            cases = plan.build(self.selection)
        except ValueError as error:
            raise OptionError(f"--case: {error}") from None
        if not cases and not self.selection.cases:
            raise OptionError(
                "these choices of --model, --dtype, --mode, --attention, --mapping, --kernel and --ladder leave no "
                "case: no chosen model registers the layer, or none has the attention. Leave one of them out."
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
    # A ladder multiplies its plan by the number of revisions.
    tier = _member("--tier", namespace.tier or (Tier.SMOKE if namespace.ladder else Tier.CORE), Tier)
    kernels = [parse_kernel(text) for text in namespace.kernel]
    if namespace.kernels is not None:
        kernels += kernels_file(Path(namespace.kernels))
    unique_layers(name for name, _ in kernels)
    steps = None if namespace.ladder is None else parse_ladder(namespace.ladder)
    if steps is not None and (kernels or namespace.mapping):
        raise OptionError("--ladder and --kernel or --mapping: give one of them; a ladder is about one layer alone")
    if steps is None and any(ladder.rung_of(text) is not None for text in namespace.case):
        raise OptionError("--case …/user@REVISION: give --ladder LAYER=ORG/REPO:NAME too, whose revision it is")
    selection = plan.Selection(
        tier=tier,
        models=_named("--model", namespace.model, MODELS),
        dtypes=tuple(_member("--dtype", text, DType) for text in namespace.dtype),
        modes=tuple(_member("--mode", text, Mode) for text in namespace.mode),
        attentions=tuple(_attention(text) for text in namespace.attention),
        mappings=_named("--mapping", namespace.mapping, MAPPINGS),
        kernels=tuple(kernels) if steps is None else ((steps.layer, KernelReference(steps.repository, steps.name)),),
        cases=tuple(namespace.case),
    )
    budget = None if namespace.budget is None else seconds("--budget", namespace.budget)
    if kernels and namespace.mapping:
        raise OptionError("--mapping and --kernel: give one of them; with --kernel only these kernels are tested")
    if namespace.out is not None and namespace.resume is not None:
        raise OptionError("--out and --resume: give one of them; a resumed run stays in its folder")
    return Options(
        device=namespace.device,
        hub=_member("--hub", namespace.hub, HubChoice),
        selection=selection,
        trusted=frozenset(repository_name("--trust", text) for text in namespace.trust),
        budget=BUDGETS[tier] if budget is None else budget,
        map_seconds=break_even.SECONDS[tier] if budget is None else budget,
        shard=(1, 1) if namespace.shard is None else _shard(namespace.shard),
        out=None if namespace.out is None else Path(namespace.out),
        resume=None if namespace.resume is None else _existing_run("--resume", Path(namespace.resume)),
        baseline=None if namespace.baseline is None else _existing_run("--baseline", Path(namespace.baseline)),
        waivers=_waivers([Path(text) for text in namespace.waivers] or [SHIPPED]),
        strict=bool(namespace.strict),
        choices=_choices(namespace, tier),
        rerun=_rerun(namespace),
        ladder=steps,
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


def seconds(option: str, text: str) -> float:
    """A length of time.

    Raises:
        OptionError: it is none.
    """
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


def _choices(namespace: argparse.Namespace, tier: Tier) -> str:
    """The options that decide what is planned and what it runs with; the device is compared by itself."""
    names = ("model", "dtype", "mode", "attention", "mapping", "kernel", "kernels", "trust", "case", "shard")
    ladder = ("ladder",) if namespace.ladder else ()
    chosen = {"tier": tier.value, **{name: getattr(namespace, name) for name in (*names, *ladder)}}
    return " ".join(f"{name}={value!r}" for name, value in chosen.items())


def _rerun(namespace: argparse.Namespace) -> str:
    """What a case depends on besides its id. Filters and most tiers choose cases, so they are left out."""
    words = ["pytest", "suite", "--device", namespace.device]
    for option in ("kernel", "trust", "waivers"):
        for value in getattr(namespace, option):
            words += [f"--{option}", value]
    for option in ("kernels", "ladder"):
        if getattr(namespace, option) is not None:
            words += [f"--{option}", getattr(namespace, option)]
    if namespace.hub != HubChoice.AUTO:
        words += ["--hub", namespace.hub]
    if namespace.tier == Tier.FULL:
        # Only this tier compiles with Inductor too.
        words += ["--tier", namespace.tier]
    return shlex.join(words)
