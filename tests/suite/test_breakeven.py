"""The measuring of break-even maps, on tiny models and for so little time that few shapes are reached."""

import json
from pathlib import Path

import pytest
import torch

from cases import break_even, plan
from cases.axes import Device, Mode, Property, Tier
from cases.case import Case
from cases.models import MODELS
from reports.break_even import maps
from reports.evidence import Ledger
from reports.record import Engagement, Outcome, Reason, Record
from suite import breakeven
from suite.control import Control
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.prerequisites import RESTS_ON
from suite.session import KERNELS
from suite.speed import Timing
from suite.subject import Shelf, Subject

SPARE = 0.3
"""Seconds: enough for a shape or two."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def check(folder: Path, case: str, timing: Timing) -> Finding:
    subject = Subject(Case.from_id(case), Shelf(Loader(BACKENDS[Device.CPU], KERNELS), folder))
    try:
        return breakeven.check(subject, timing)
    finally:
        subject.close()


def test_shapes_are_measured_as_far_as_the_time_goes_and_the_rest_is_named(tmp_path: Path) -> None:
    """Fault: a map that takes a night, or shapes that are missing without a word."""
    case = "llama-tiny/f32/inference/sdpa/bundled"
    found = check(tmp_path, case, Timing(1.0, BACKENDS[Device.CPU], map_seconds=SPARE))
    assert found.outcome is Outcome.PASS
    proof = Engagement(name="RMSNorm", promised="o/n@v1:N", resolved="o/n@c:N", modules=1, bound=1, calls=1)
    record = Record(
        case=case,
        property=Property.BREAK_EVEN,
        outcome=found.outcome,
        evidence=(proof,),
        measures=found.measures,
    )
    (drawn,) = maps([record], Ledger([record]))
    assert drawn.width == 64
    shapes = {(cell.rows, cell.tokens) for cell in drawn.cells}
    assert (1, 1) in shapes
    named = [(rows, tokens) for rows in break_even.ROWS for tokens in break_even.TOKENS]
    assert shapes | {shape for shape in named if f"{shape[0]} × {shape[1]}" in drawn.left_out} == set(named)
    pairs, logs = found.measures["pairs"], found.measures["logs"]
    assert isinstance(pairs, list)
    assert isinstance(logs, list)
    assert len(pairs) == len(drawn.cells)
    assert sum(pairs) == len(logs)


def test_a_kernel_that_no_prefill_calls_has_no_map(tmp_path: Path) -> None:
    """Fault: PyTorch against itself, drawn as the map of a kernel that only decoding calls."""
    case = "mamba-tiny/f32/inference/none/only-selective_state_update"
    found = check(tmp_path, case, Timing(1.0, BACKENDS[Device.CPU], map_seconds=SPARE))
    assert (found.outcome, found.reason) == (Outcome.NOT_RUN, Reason.NOT_CALLED)
    assert not found.measures


def test_a_noisy_session_claims_no_win(tmp_path: Path) -> None:
    """Fault: a break-even where PyTorch beats itself."""
    timing = Timing(1.0, BACKENDS[Device.CPU], map_seconds=SPARE, control=Control(noisy="1.2× of itself"))
    found = check(tmp_path, "llama-tiny/f32/inference/sdpa/bundled", timing)
    assert set(str(found.measures["verdicts"]).split()) == {"INCONCLUSIVE"}
    assert found.measures["first_win"] is None


def test_a_map_rests_on_what_speed_rests_on() -> None:
    """Fault: the break-even of a wrong kernel."""
    assert RESTS_ON[Property.BREAK_EVEN] == RESTS_ON[Property.SPEED]


def test_each_tier_maps_what_it_can_pay_for() -> None:
    """Fault: a core run of an hour, or a nightly one that maps nothing."""

    def chosen(tier: Tier, **filters: tuple[str, ...]) -> frozenset[Case]:
        selection = plan.Selection(tier=tier, **filters)  # type: ignore[arg-type]
        return break_even.of_selection(selection, plan.build(selection))

    assert not chosen(Tier.SMOKE)
    core = chosen(Tier.CORE)
    # Two models, and on a CPU the default mapping binds nothing: sixteen seconds.
    assert len([case for case in core if case.mapping == "bundled"]) <= 2
    assert {case.mapping for case in core} == {"default", "bundled"}
    full = chosen(Tier.FULL)
    assert all(MODELS[case.model].timing and case.mode is Mode.INFERENCE for case in core | full)
    assert {"only-RMSNorm", "bundled", "default", "pytorch"} <= {case.mapping for case in full}
    asked = "qwen3-0.6b-width/bf16/inference/eager/only-SiLU"
    assert [case.id for case in chosen(Tier.CORE, cases=(asked, "llama-tiny/f32/inference/sdpa/bundled"))] == [asked]


@pytest.mark.parametrize(
    ("case", "said"), [("no/case", "no case id"), ("llama-tiny/f32/training/sdpa/bundled", "a case of inference")]
)
def test_the_command_refuses_what_it_cannot_map_in_a_line(
    case: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fault: a traceback over a case that is misspelt."""
    with pytest.raises(SystemExit) as ended:
        breakeven.main(["--device", "cpu", "--case", case])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_the_command_prints_the_measures_of_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Fault: a command that measures something else than the report shows."""
    case = "llama-tiny/f32/inference/sdpa/only-RMSNorm"
    breakeven.main(["--device", "cpu", "--case", case, "--budget", str(SPARE), "--json"])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["case"] == case
    assert len(printed["ratios"]) == len(printed["verdicts"].split()) > 0
