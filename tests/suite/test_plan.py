"""The plan: what each tier covers, and that it is the same everywhere."""

import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest

from cases import plan
from cases.axes import DType, Mode, Property, Tier
from cases.case import Case
from cases.mappings import MAPPINGS, KernelReference
from cases.models import MODELS
from cases.requirements import REQUIREMENTS

ROOT = Path(__file__).resolve().parents[2]


def coordinates(case: Case) -> tuple[object, ...]:
    return (case.model, case.dtype, case.mode, case.attention, case.mapping)


def test_smoke_shows_every_axis_value_and_every_property_once() -> None:
    """Fault: a smoke test that never touches a dtype, a mode or a kernel."""
    cases = plan.build(plan.Selection(tier=Tier.SMOKE))
    assert {case.model for case in cases} == set(MODELS)
    assert {case.dtype for case in cases} == set(DType)
    assert {case.mode for case in cases} == {Mode.INFERENCE, Mode.TRAINING}
    assert {case.mapping for case in cases} == set(MAPPINGS)
    assert {case.attention for case in cases} == {"eager", "sdpa", "bundled", "none"}
    shown = {checked for case in cases for checked in plan.properties(case)}
    assert shown >= {Property.LOAD, Property.ENGAGE, Property.FORWARD, Property.GRADIENT, Property.SPEED}


def test_core_has_every_pair_of_axis_values_that_any_case_can_have() -> None:
    """Fault: a covering with holes, where a kernel and a dtype never meet."""
    selection = plan.Selection(tier=Tier.CORE)
    axes, valid = plan._axes(selection), plan._validity(selection)
    possible = [row for row in product(*axes) if valid(row)]
    wanted = {pair for row in possible for pair in combinations(enumerate(row), 2)}
    shown = {pair for case in plan.build(selection) for pair in combinations(enumerate(coordinates(case)), 2)}
    assert wanted == shown


def test_full_is_the_product_without_what_cannot_exist() -> None:
    """Fault: a nightly run that leaves out a combination by accident."""
    selection = plan.Selection(tier=Tier.FULL)
    axes, valid = plan._axes(selection), plan._validity(selection)
    assert len(plan.build(selection)) == sum(valid(row) for row in product(*axes))
    assert {case.mode for case in plan.build(selection)} == set(Mode)


def test_the_plan_is_the_same_in_another_process() -> None:
    """Fault: an order that hangs on the hash seed, so that shards and resumed runs disagree."""
    script = "from cases import plan; print(*[case.id for case in plan.build(plan.Selection())])"
    other = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert other.stdout.split() == [case.id for case in plan.build(plan.Selection())]


def test_ids_are_unique_and_read_back() -> None:
    """Fault: two cases under one id, of which one result is lost."""
    cases = plan.build(plan.Selection(tier=Tier.FULL))
    assert len({case.id for case in cases}) == len(cases)
    assert all(Case.from_id(case.id) == case for case in cases)


def test_every_check_cites_a_documented_statement_that_exists() -> None:
    """Fault: a check that nobody asked for, or that cites a statement which is not there."""
    for case in plan.build(plan.Selection()):
        for checked in plan.properties(case):
            cited = plan.requirements(case, checked)
            assert cited
            assert set(cited) <= set(REQUIREMENTS)


def test_a_kernel_of_the_user_is_tested_on_every_model_that_has_the_layer() -> None:
    """Fault: bring-your-own that tests one favourite model."""
    kernels = (("RMSNorm", KernelReference("org/repo", "Norm")),)
    cases = plan.build(plan.Selection(kernels=kernels))
    assert {case.mapping for case in cases} == {plan.USER}
    assert {case.model for case in cases} == {name for name, model in MODELS.items() if "RMSNorm" in model.carries}


@pytest.mark.parametrize("text", ["a/b", "nope/f32/inference/sdpa/bundled", "llama-tiny/f32/inference/none/bundled"])
def test_a_case_that_cannot_exist_is_refused(text: str) -> None:
    """Fault: a misspelt case id that runs nothing."""
    with pytest.raises(ValueError, match=text.replace("/", ".")):
        plan.build(plan.Selection(cases=(text,)))
