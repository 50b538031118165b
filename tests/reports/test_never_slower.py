"""The configuration that a run recommends: what is in it and why, and that it is a file that runs."""

import ast
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.evidence import Ledger
from reports.kernel_config import configuration
from reports.never_slower import Recommendation, recommend
from reports.ratio import Ratio
from reports.record import Engagement, Outcome, Reason, Record, Speed
from reports.store import Run
from reports.verdict import judge

Kernel = tuple[str, str]
WIDTH = "qwen3-0.6b-width"


def engaged(kernel: Kernel, calls: int = 2) -> Engagement:
    name, promised = kernel
    return Engagement(name=name, promised=promised, resolved=promised, modules=2, bound=2, calls=calls)


def speed(
    mapping: str,
    kernels: Kernel | tuple[Kernel, ...],
    ratio: float,
    verdict: Speed,
    phase: Phase = Phase.PREFILL,
    model: str = WIDTH,
) -> Record:
    called: tuple[Kernel, ...] = (kernels,) if isinstance(kernels[0], str) else kernels
    return Record(
        case=f"{model}/f32/inference/eager/{mapping}",
        property=Property.SPEED,
        outcome=Outcome.PASS,
        phase=phase,
        speed=verdict,
        evidence=tuple(engaged(kernel) for kernel in called),
        measures={"ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.01},
    )


NORM = ("RMSNorm", "org/norm@v2:Norm")
SILU = ("SiLU", "org/silu@abc123:SiLU")
ROTARY = ("rotary_pos_emb", "org/rotary@v1:Rotary")
FLASH = ("attention", "org/flash@v3")


def best_of(*records: Record) -> Recommendation:
    return recommend(judge(records, None), Ledger(records))


def used(*records: Record) -> set[str]:
    return {choice.name for choice in best_of(*records).used}


def config_of(*records: Record) -> tuple[str, dict[str, Any]]:
    """The file, and the arguments that it gives to KernelConfig."""
    text = configuration(Run(Path(), records, None))
    given: dict[str, Any] = {}

    def kernel_config(mapping: dict[str, Any], **options: Any) -> None:
        given.update(mapping=mapping, **options)

    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    names: dict[str, Any] = {"KernelConfig": kernel_config}
    exec(compile(tree, "config", "exec"), names)
    given["attention"] = names["ATTENTION"]
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


def test_kernels_that_were_timed_together_only_are_used_together_only() -> None:
    """Fault: the speed of one kernel credited to its neighbour, or a kernel that is faster in company left out."""
    both = speed("bundled", (NORM, SILU), 1.2, Speed.FASTER)
    assert used(both) == {"RMSNorm", "SiLU"}
    assert used(both, speed("bundled", (NORM, SILU), 0.9, Speed.SLOWER, Phase.DECODE)) == set()
    slow = speed("only-SiLU", SILU, 0.9, Speed.SLOWER)
    found = best_of(both, slow)
    assert not found.used
    (norm,) = [choice for choice in found.choices if choice.name == "RMSNorm"]
    assert norm.why.startswith("unknown: together with SiLU")
    assert norm.measured == 0


def test_what_is_faster_alone_and_slower_together_is_not_all_used() -> None:
    """Fault: a configuration that was measured to be slower than no kernel at all."""
    alone = speed("only-RMSNorm", NORM, 1.3, Speed.FASTER), speed("only-SiLU", SILU, 1.1, Speed.FASTER)
    assert used(*alone) == {"RMSNorm", "SiLU"}
    assert used(*alone, speed("bundled", (NORM, SILU), 0.9, Speed.SLOWER)) == {"RMSNorm"}


def test_a_speed_at_toy_widths_recommends_nothing() -> None:
    """Fault: a kernel recommended for real models since it wins where the matrices are 64 wide."""
    found = best_of(speed("bundled", NORM, 3.0, Speed.FASTER, model="llama-tiny"))
    assert not found.used
    assert found.unknown == ("RMSNorm",)


def test_of_two_kernels_for_one_name_the_faster_is_used() -> None:
    """Fault: a mapping that cannot be, with two kernels for a name."""
    other = ("RMSNorm", "org/other@v1:Norm")
    records = speed("only-RMSNorm", NORM, 1.2, Speed.FASTER), speed("user", other, 1.5, Speed.FASTER)
    assert [choice.promised for choice in best_of(*records).used] == [other[1]]


def test_local_kernels_and_kernels_of_the_hub_are_not_mixed() -> None:
    """Fault: a KernelConfig that loads a folder as a repository."""
    local = ("SiLU", "/home/me/silu:SiLU")
    _, given = config_of(speed("only-RMSNorm", NORM, 1.2, Speed.FASTER), speed("user", local, 1.5, Speed.FASTER))
    assert given["mapping"] == {"SiLU": "/home/me/silu:SiLU"}


def test_an_attention_kernel_is_named_apart() -> None:
    """Fault: a KernelConfig with the attention as a layer, which Transformers refuses."""
    _, given = config_of(speed("pytorch", FLASH, 1.4, Speed.FASTER), speed("only-RMSNorm", NORM, 1.2, Speed.FASTER))
    assert given["attention"] == "org/flash@v3"
    assert set(given["mapping"]) == {"RMSNorm"}


def test_the_regret_of_the_default_is_against_the_best_measured_or_none() -> None:
    """Fault: a default that is slower than no kernel at all, without regret."""
    slow = speed("default", NORM, 0.8, Speed.SLOWER)
    (regret,) = best_of(slow).regrets
    assert regret.case == slow.case
    assert regret.times == pytest.approx(Ratio(1 / 0.8, 1 / 0.808, 1 / 0.792))
    (regret,) = best_of(slow, speed("only-RMSNorm", NORM, 1.6, Speed.FASTER)).regrets
    assert regret.times.value == pytest.approx(2.0)
    (regret,) = best_of(speed("default", NORM, 1.6, Speed.FASTER)).regrets
    assert regret.times == (1, 1, 1)


def test_a_default_that_binds_no_kernel_is_pytorch() -> None:
    """Fault: nothing said of a default that leaves a measured speedup lying."""
    fast = speed("only-RMSNorm", NORM, 1.6, Speed.FASTER)
    none = Engagement(name="RMSNorm", promised="pytorch", modules=2, reason=Reason.NO_DEVICE)
    engage = Record(
        case=fast.case.replace("only-RMSNorm", "default"),
        property=Property.ENGAGE,
        outcome=Outcome.NOT_RUN,
        evidence=(none,),
    )
    found = best_of(fast, engage)
    (regret,) = found.regrets
    assert regret.plain
    assert regret.times == pytest.approx(Ratio(1.6, 1.6 * 0.99, 1.6 * 1.01))
    assert "binds no kernel here, so it is PyTorch" in found.regret
    assert best_of(fast).regret.startswith("What the default mapping costs is unknown")
