"""What a process of checks answers: a finding, the shims that it took, and a trace where the suite itself failed."""

from dataclasses import dataclass

from suite.finding import Finding

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one id."""

    finding: Finding
    shims: tuple[str, ...] = ()
    trace: str = ""
