"""The faults of conduct: kernels that are slow, stale, hang, die, eat memory or talk, all in one run of the suite.

Each is bound to another registered name and so to another model of the zoo, that one run may show that each is
reported as what it is and that the rest goes on to its end.
"""

from dataclasses import dataclass
from pathlib import Path

from cases.axes import Device
from cases.plan import USER
from tests.faults import repositories
from tests.faults.records import Fault

__all__ = ["HARNESS", "TIMEOUT", "Conduct", "options"]

TIMEOUT = 30
"""Seconds a check may take. A hang costs as much; and a worker that replaces a dead one imports torch within its first
check, which takes five seconds, and twenty on a machine that is very busy."""


@dataclass(frozen=True, slots=True)
class Conduct:
    """One such kernel: where it is bound, in which model."""

    id: str
    sentence: str
    target: str
    source: str
    model: str
    attention: str = "sdpa"

    @property
    def case(self) -> str:
        """Id of its case."""
        return f"{self.model}/f32/inference/{self.attention}/{USER}"


HARNESS = (
    Conduct("H01", "sleeps, so that the model takes twice as long", "GeluTanh", "h01_sleeps", "gemma2-tiny", "eager"),
    Conduct("H02", "memoises its last answer", "SiLU", "h02_memoises", "llama-tiny"),
    Conduct("H03", "hangs", "NewGELU", "h03_hangs", "gpt2-tiny"),
    Conduct("H04", "kills the process", "FastGELU", "h04_kills", "gpt-neox-tiny"),
    Conduct("H05", "allocates until it is stopped", "GeLU", "h05_allocates", "bert-tiny"),
    Conduct("H06", "says a token and markup in its error", "QuickGELU", "h06_tells_secrets", "clip-text-tiny"),
)


def options(folder: Path) -> list[str]:
    """What follows ``pytest suite``: the six broken kernels, one case each."""
    words = [
        "--device",
        "cpu",
        "--hub",
        "embedded",
        "--out",
        str(folder),
        "--timeout",
        str(TIMEOUT),
        "-p",
        "no:cacheprovider",
    ]
    for each in HARNESS:
        fault = Fault(each.id, each.sentence, "", each.target, each.source, each.case, by=())
        root = repositories.make(folder.parent / "repositories", fault, Device.CPU, broken=True)
        words += ["--kernel", f"{each.target}={root}:Broken", "--case", each.case]
    return words
