"""The configuration that a run recommends: what is in it, and that it is a file that runs."""

import ast
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.evidence import Ledger
from reports.never_slower import choices, configuration, regrets
from reports.record import Engagement, Outcome, Reason, Record, Speed
from reports.store import Run


def speed(mapping: str, kernel: tuple[str, str], ratio: float, verdict: Speed, phase: Phase = Phase.PREFILL) -> Record:
    name, promised = kernel
    return Record(
        case=f"qwen3-0.6b-width/f32/inference/eager/{mapping}",
        property=Property.SPEED,
        outcome=Outcome.PASS,
        phase=phase,
        speed=verdict,
        evidence=(Engagement(name=name, promised=promised, resolved=promised, modules=2, bound=2, calls=2),),
        measures={"ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.01},
    )


NORM = ("RMSNorm", "org/norm@v2:Norm")
SILU = ("SiLU", "org/silu@abc123:SiLU")


def config_of(*records: Record) -> tuple[str, dict[str, Any]]:
    """The file, and the arguments that it gives to KernelConfig."""
    text = configuration(Run(Path(), records, None))
    given: dict[str, Any] = {}

    def kernel_config(mapping: dict[str, Any], **options: Any) -> None:
        given.update(mapping=mapping, **options)

    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    exec(compile(tree, "config", "exec"), {"KernelConfig": kernel_config})
    return text, given


def test_what_is_faster_and_never_slower_is_in_the_configuration() -> None:
    """Fault: a kernel that wins in prefill and loses in decode, recommended for both."""
    text, given = config_of(
        speed("only-RMSNorm", NORM, 1.2, Speed.FASTER),
        speed("only-RMSNorm", NORM, 1.0, Speed.SAME, Phase.DECODE),
        speed("only-SiLU", SILU, 1.5, Speed.FASTER),
        speed("only-SiLU", SILU, 0.8, Speed.SLOWER, Phase.DECODE),
    )
    assert given["mapping"] == {"RMSNorm": ("org/norm:Norm", {"version": 2})}
    assert given["inherit_mapping"] is False
    assert "SiLU" in text, "what is left out is said"


@pytest.mark.parametrize(
    ("promised", "entry"),
    [
        ("org/silu@abc123:SiLU", ("org/silu:SiLU", {"revision": "abc123"})),
        ("/home/me/silu:SiLU", "/home/me/silu:SiLU"),
    ],
)
def test_pins_and_folders_keep_their_meaning(promised: str, entry: object) -> None:
    """Fault: a configuration that loads another revision than the one that was measured."""
    _, given = config_of(speed("only-SiLU", ("SiLU", promised), 1.5, Speed.FASTER))
    assert given["mapping"] == {"SiLU": entry}
    assert given["use_local_kernel"] is promised.startswith("/")


def test_an_unfit_machine_recommends_nothing() -> None:
    """Fault: a recommendation from a machine in quarantine."""
    unfit = Record(
        case="control/fitness-before",
        property=Property.STATEMENT,
        outcome=Outcome.NOT_RUN,
        reason=Reason.UNFIT,
        message="busy",
    )
    text, given = config_of(unfit, speed("only-RMSNorm", NORM, 1.2, Speed.FASTER))
    assert given["mapping"] == {}
    assert "QUARANTINED" in text


def test_a_hostile_name_stays_a_string() -> None:
    """Fault: code from a results file in a file that is made to be run."""
    hostile = ("RMSNorm\nimport os", "org/x@v1:N'\"); raise SystemExit #")
    _, given = config_of(speed("only-RMSNorm", hostile, 1.2, Speed.FASTER))
    assert list(given["mapping"]) == [hostile[0]]


def test_the_regret_of_the_default_is_against_the_best_measured_or_none() -> None:
    """Fault: a default that is slower than no kernel at all, without regret."""
    slow = speed("default", NORM, 0.8, Speed.SLOWER)
    [(record, regret)] = regrets([slow])
    assert record == slow
    assert regret == pytest.approx(0.25)
    [(_, regret)] = regrets([slow, speed("only-RMSNorm", NORM, 1.6, Speed.FASTER)])
    assert regret == pytest.approx(1.0)


def test_kernels_that_were_timed_together_tell_nothing_of_one() -> None:
    """Fault: the speed of one kernel credited to its neighbour."""
    both = speed("bundled", NORM, 1.2, Speed.FASTER)
    entry = both.evidence[0]
    other = Engagement(name="SiLU", promised="a/b@v1:S", resolved="a/b@c:S", modules=1, bound=1, calls=1)
    record = Record(
        case=both.case,
        property=both.property,
        outcome=both.outcome,
        speed=both.speed,
        evidence=(entry, other),
        measures=both.measures,
    )
    assert choices([record], Ledger([record])) == []
