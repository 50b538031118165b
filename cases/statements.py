"""The checks of documented statements that belong to no case: what each is called, what it bears on, where it runs.

A statement that one check cannot cover has several: ``config.version`` and then ``off.env#attention``. The part before
``#`` is the id of a requirement (``requirements.toml``), which the check cites. The checks themselves are functions of
the same id in ``suite.documented``. Most run in a process of their own, since they change what a whole process shares
(function kernels, fusion patches, registrations) or need another environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cases.axes import Tier

__all__ = ["BASE", "PREFIX", "STATEMENTS", "Statement", "Where", "statements_of"]

PREFIX = "statement/"
"""How the id of such a check begins in records, where a case has its model."""


class Where(StrEnum):
    """The kind of process that a check runs in."""

    WORKER = "worker"
    """The worker of the suite itself: it only looks."""
    APART = "apart"
    """A process that has the libraries imported, and forgets the check afterwards."""
    OFF = "off"
    """The same, with USE_HUB_KERNELS=0 from its start."""
    BARE = "bare"
    """The same, where no package ``kernels`` can be imported."""
    QUIET = "quiet"
    """The same, with HF_HUB_DISABLE_TELEMETRY=1 from its start."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One check of one documented statement."""

    id: str
    """``requirement`` or ``requirement#what``."""
    where: Where
    requirements: tuple[str, ...]
    """What it cites: the requirement in its id first."""

    @property
    def case(self) -> str:
        """Its id in records and on the command line."""
        return PREFIX + self.id


def _statements(where: Where, text: str) -> list[Statement]:
    """Read lines of ``id, id > further requirements``, which is shorter to read than as many constructors."""
    found = []
    for entry in (entry.strip() for line in text.strip().splitlines() for entry in line.split(",")):
        name, _, further = entry.partition(">")
        name = name.strip()
        found.append(Statement(name, where, (name.partition("#")[0], *further.split())))
    return found


_IN_WORKER = """
env.available, trouble.package, attn.default
env.select, env.order, env.capability, layers.rocm
layers.table, layers.table#dead, layers.xpu_cover
"""

_APART = """
attn.gqa, attn.choose, attn.hub, attn.hub#name, attn.hub#broken, attn.hub#window, attn.hub#sink
attn.hub#softcap, attn.fallback, attn.nvidia_only, attn.pin_tag, attn.pin_tag#slash, attn.pin_semver
attn.trust, attn.trust#nested, attn.trust#again, attn.with_layers
layers.default, layers.lazy, layers.lazy#trust, layers.fallback, layers.fallback#pickle
mode.follow, mode.follow#config, mode.follow#off, mode.follow#compiled, mode.follow#backward, mode.follow#device
mode.explicit, mode.explicit#kept, mode.priority, mode.compile, mode.compile#claimed
config.layer, config.layer#reused, config.layer#failed, config.layer#own, config.layer#pattern
config.function, config.function#own, config.function#copy
config.per_device, config.per_device#other, config.per_device#later, config.per_device#metal
config.per_device#cpu, config.version, config.revision, config.trust, config.inherit, config.inherit#registered
config.inherit#modes, config.only, config.unregistered
fusion.fuse, fusion.fuse#own, fusion.fuse#weights, fusion.fuse#local > local.load
fusion.parent, fusion.wildcard, fusion.wildcard#one, fusion.layout
local.load, local.load#later, local.load#id, local.load#override
trouble.load, trouble.load#import, trouble.load#gone, trouble.load#digest, trouble.load#swapped, trouble.load#exists
trouble.version, trouble.device, trouble.device#config
determinism.differs, determinism.match, determinism.disable, determinism.flags
infer.auto#hooks
"""

_OFF = "off.env, off.env#flag, off.env#config, off.env#attention"
_BARE = "trouble.package#missing"
_QUIET = "trouble.load#telemetry"

_NOT_YET = """
infer.single, infer.auto, infer.pipeline, infer.continuous, quant.methods, quant.bnb, quant.lora
train.device, train.bf16, train.trainer, dist.backend, dist.ddp, dist.fsdp, dist.zero, dist.tp
"""
"""Stand in the table of requirements, and say that nothing checks them yet."""

STATEMENTS: Mapping[str, Statement] = {
    statement.id: statement
    for statement in (
        *_statements(Where.WORKER, _IN_WORKER),
        *_statements(Where.APART, _APART),
        *_statements(Where.OFF, _OFF),
        *_statements(Where.BARE, _BARE),
        *_statements(Where.QUIET, _QUIET),
        *_statements(Where.WORKER, _NOT_YET),
    )
}
"""Every check by its id, in the order of checking."""

BASE = ("env.available", "trouble.package", "attn.default")
"""Is it there at all? Checked before everything else, whatever part of the plan is asked for."""


def statements_of(tier: Tier) -> tuple[Statement, ...]:
    """Those of a tier. Smoke has those that need no further process, since starting one takes seconds."""
    return tuple(
        statement for statement in STATEMENTS.values() if tier is not Tier.SMOKE or statement.where is Where.WORKER
    )
