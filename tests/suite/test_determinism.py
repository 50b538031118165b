"""Kernels that give other bits at another time, in another process, or for another place in the batch are found, and
those that only round in another order are not accused. Real models and kernels throughout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cases.axes import Device, Property, Tier
from cases.case import Case
from cases.kernels import ROOT
from cases.mappings import KernelReference
from cases.plan import USER
from reports import store
from reports.record import Determinism, Engagement, Outcome, Reason, Record
from suite import determinism, digests, engagement, fresh, speed
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.options import read
from suite.sampling import Clock
from suite.speed import Timing
from suite.subject import Shelf, Subject
from tests.faults.runner import parsed
from tests.suite.kernel_folders import layer_folder

LAYER = '''"""A norm."""

import random

import torch
from torch import nn


def normalise(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


CALLS = []
DRAWN = 1 + (hash("drawn once a process") % 1000 + 1) * 1e-5


class Norm(nn.Module):
    """It."""

    def forward(self, hidden_states):
        """Normalise."""
        result = normalise(hidden_states, self.weight, self.variance_epsilon)
        BODY
'''

HEALTHY = "return result"
DRAWN = "return result * DRAWN"
PLACE = "return result * (1 + 1e-3 * torch.arange(len(result)).view(-1, 1, 1))"
SIZE = "return result if len(result) == 1 else torch.nextafter(result, 2 * result)"
LAST_BIT = (
    "first, rest = result.split([1, result.shape[-1] - 1], -1)\n        "
    "return torch.cat((torch.nextafter(first, first + random.choice((-1.0, 0.0, 1.0))), rest), -1)"
)
FLAGS = "torch.are_deterministic_algorithms_enabled()"
LARGER_WITH_FLAGS = f"return result * 1.05 if {FLAGS} else result"
GRADIENT_WITH_FLAGS = f"return result + 0.05 * (result - result.detach()) if {FLAGS} else result"
ROUNDS_WITH_FLAGS = f"return torch.nextafter(result, 2 * result) if {FLAGS} else result"
FIRST_CALL = "CALLS.append(1)\n        return result * 1.05 if len(CALLS) == 1 else result"
REFUSES = "return torch.empty_like(result).put_(torch.arange(result.numel()), result)"


def kernel(folder: Path, body: str) -> KernelReference:
    return KernelReference(str(layer_folder(folder / "norm", LAYER.replace("BODY", body))), "Norm")


def check(
    models: Path,
    folder: Path,
    body: str,
    where: str = "llama-tiny/f32/inference/eager",
    prepare: Callable[[Subject], None] | None = None,
    *,
    timed: bool = False,
) -> Finding:
    """What the check says of a norm, after ``prepare`` where there is one."""
    backend = BACKENDS[Device.CPU]
    loader = Loader(backend, ROOT, own={USER: {"RMSNorm": kernel(folder, body)}})
    subject = Subject(Case.from_id(f"{where}/{USER}"), Shelf(loader, models))
    try:
        if prepare:
            prepare(subject)
        return determinism.check(subject, Timing(0.01, backend, enabled=timed))
    finally:
        subject.close()
        assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("where", ["llama-tiny/f32/inference/eager", "qwen3-moe-tiny/bf16/training/sdpa"])
def test_a_healthy_kernel_is_bitwise_alone_and_in_a_batch_and_with_flags(
    where: str, models: Path, tmp_path: Path
) -> None:
    """Fault: a check that is red, or unsure, whatever it is given."""
    finding = check(models, tmp_path, HEALTHY, where)
    assert (finding.outcome, finding.determinism) == (Outcome.PASS, Determinism.BITWISE), finding.message
    assert finding.measures["batch_kernel"] == finding.measures["batch_pytorch"]
    assert finding.measures["flags"] == "hold"
    assert finding.measures["fresh_process"] == digests.AWAITS
    assert "flags_cost" not in finding.measures


def test_a_kernel_that_depends_on_its_place_in_the_batch_fails(models: Path, tmp_path: Path) -> None:
    """Fault: the second prompt of a batch is answered otherwise than alone, every time in the same way."""
    finding = check(models, tmp_path, PLACE)
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, Reason.NONDETERMINISTIC)
    assert finding.determinism is Determinism.BITWISE
    assert "alone" in finding.message
    assert finding.measures["batch_pytorch"] == 0
    assert float(str(finding.measures["batch_kernel"])) > 1e-5


def test_a_kernel_that_rounds_otherwise_in_a_batch_is_recorded_and_not_accused(models: Path, tmp_path: Path) -> None:
    """Fault: a split that follows the size of the batch called wrong, or lost without a word."""
    finding = check(models, tmp_path, SIZE)
    assert finding.outcome is Outcome.PASS, finding.message
    assert 0 < float(str(finding.measures["batch_kernel"])) < 1e-5
    assert finding.measures["batch_pytorch"] == 0


def test_last_bits_that_vary_are_tolerated_until_the_flags_promise_them(models: Path, tmp_path: Path) -> None:
    """Fault: ``use_deterministic_algorithms(True)`` set, and a kernel that takes no notice."""
    finding = check(models, tmp_path, LAST_BIT)
    assert finding.determinism is Determinism.TOLERANT
    assert (finding.measures["flags"], finding.measures["flags_pytorch"]) == ("vary", "hold")
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, Reason.NONDETERMINISTIC)
    assert finding.measures["fresh_process"] == "not asked"


def test_a_kernel_that_refuses_the_flags_is_recorded_with_what_it_said(models: Path, tmp_path: Path) -> None:
    """Fault: a refusal, which is honest, taken for a fault of the kernel; or the operator not named."""
    finding = check(models, tmp_path, REFUSES)
    assert finding.outcome is Outcome.PASS, finding.message
    assert (finding.measures["flags"], finding.measures["flags_pytorch"]) == ("raise", "hold")
    assert "put_" in str(finding.measures["flags_said"])


@pytest.mark.parametrize(
    ("body", "mode", "said"),
    [(LARGER_WITH_FLAGS, "inference", "output on"), (GRADIENT_WITH_FLAGS, "training", "gradient on")],
    ids=["output", "gradient"],
)
def test_a_kernel_that_is_wrong_with_the_flags_alone_fails(
    body: str, mode: str, said: str, models: Path, tmp_path: Path
) -> None:
    """Fault: a result that repeats with the flags, and is another one than without them."""
    finding = check(models, tmp_path, body, f"llama-tiny/f32/{mode}/eager")
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, Reason.NONDETERMINISTIC)
    assert (finding.determinism, finding.measures["flags"]) == (Determinism.BITWISE, "hold")
    assert f"wrong, and right without: {said}" in finding.message


def test_a_kernel_that_rounds_otherwise_with_the_flags_is_not_accused(models: Path, tmp_path: Path) -> None:
    """Fault: the deterministic way of a sum, which may be another order, taken for a wrong one."""
    finding = check(models, tmp_path, ROUNDS_WITH_FLAGS)
    assert finding.outcome is Outcome.PASS, finding.message
    assert 0 < float(str(finding.measures["flags_difference"])) < 1e-5


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("body", "grade"),
    [(HEALTHY, Determinism.BITWISE), (FIRST_CALL, Determinism.VARIES)],
    ids=["healthy", "first call"],
)
def test_the_first_pass_of_a_case_is_one_of_those_that_must_agree(
    body: str, grade: Determinism, mode: str, models: Path, tmp_path: Path
) -> None:
    """Fault: a first call that is wrong, made to prove that the kernel runs, and looked at by nobody."""

    def engaged(subject: Subject) -> None:
        assert engagement.engage(subject).outcome is Outcome.PASS

    finding = check(models, tmp_path, body, f"llama-tiny/f32/{mode}/eager", engaged)
    assert finding.determinism is grade, finding.message
    assert finding.outcome is (Outcome.PASS if grade is Determinism.BITWISE else Outcome.FAIL)


@pytest.mark.parametrize(("body", "tolerated"), [(HEALTHY, True), (FIRST_CALL, False)], ids=["healthy", "first call"])
def test_a_first_call_that_is_wrong_in_a_fresh_process_is_not_tolerated(
    body: str, tolerated: bool, models: Path, tmp_path: Path
) -> None:
    """Fault: other bits in a fresh process excused by calls that came after those that gave them."""
    loader = Loader(BACKENDS[Device.CPU], ROOT, own={USER: {"RMSNorm": kernel(tmp_path, body)}})
    subject = Subject(Case.from_id(f"llama-tiny/f32/training/eager/{USER}"), Shelf(loader, models))
    try:
        answer = determinism.again(subject, record(subject.case.id, digest="other bits"))
    finally:
        subject.close()
    assert answer["tolerated"] is tolerated


def test_the_cost_of_the_flags_has_an_interval_and_leaves_them_off(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a cost without an interval, upside down, of the wrong arm, or that every later check pays too."""
    time = [0.0]

    def made_up(subject: Subject) -> None:
        def passes_time(*_: object) -> None:
            with_flags = subject.arms.unchanged() and torch.are_deterministic_algorithms_enabled()
            time[0] += 2 if with_flags else 1

        subject.loaded.model.register_forward_pre_hook(passes_time)
        monkeypatch.setattr(speed, "clock_of", lambda backend: Clock(lambda: time[0], lambda: None))

    measures = check(models, tmp_path, HEALTHY, prepare=made_up, timed=True).measures
    assert [measures[f"flags_cost{end}"] for end in ("_low", "", "_high")] == pytest.approx([2, 2, 2])


def test_bits_are_compared_and_not_values() -> None:
    """Fault: a NaN that never equals itself, or a zero that changes its sign and is called the same."""
    nan, zero = torch.tensor([float("nan")], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    assert determinism.difference(nan, nan) == 0
    assert determinism.difference(nan, zero) > 1
    assert determinism.difference(zero, zero.repeat(2)) > 1
    assert 0 < determinism.difference(-zero, zero) < 1e-300
    assert determinism.digest({"output": zero}) != determinism.digest({"output": -zero})
    assert determinism.digest({"output": zero}) != determinism.digest({"loss": zero})


def test_what_is_drawn_once_a_process_is_found_by_a_fresh_one(models: Path, tmp_path: Path) -> None:
    """Fault: ten calls agree, and tomorrow's ten agree on something else. Its twins are not accused."""
    reference = kernel(tmp_path, DRAWN)
    options = read(parsed(["--device", "cpu", "--kernel", f"RMSNorm={reference.repository}:Norm"]))
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "cache").mkdir()
    (folder / "cache" / "models").symlink_to(models, target_is_directory=True)
    facts = {"folder": str(folder), "device": "cpu", "threads": 1, "local_root": str(ROOT)}
    loader = Loader(BACKENDS[Device.CPU], ROOT, own={USER: {"RMSNorm": reference}})
    cases = [f"llama-tiny/f32/inference/eager/{USER}", "llama-tiny/f32/training/eager/bundled"]
    for text in cases:
        subject = Subject(Case.from_id(text), Shelf(loader, models))
        found = determinism.check(subject, Timing(0.01, loader.backend, enabled=False))
        subject.close()
        assert (found.outcome, found.determinism) == (Outcome.PASS, Determinism.BITWISE), found.message
        evidence = (Engagement(name="RMSNorm", promised="it", resolved=text, calls=1),)
        record = Record(
            case=text,
            property=Property.DETERMINISM,
            outcome=found.outcome,
            determinism=found.determinism,
            message=found.message,
            measures=found.measures,
            evidence=evidence,
        )
        store.append(folder / store.RESULTS, record)
    fresh.repeat(folder, options, facts)
    drawn, twin = store.read_run(folder).records
    assert drawn.measures["fresh_process"] == "other", drawn.message
    assert (drawn.outcome, drawn.determinism) == (Outcome.FAIL, Determinism.VARIES)
    assert (twin.outcome, twin.determinism, twin.measures["fresh_process"]) == (
        Outcome.PASS,
        Determinism.BITWISE,
        "same",
    )


def record(case: str, *kernels: str, **measures: Any) -> Record:
    return Record(
        case=case,
        property=Property.DETERMINISM,
        outcome=Outcome.PASS,
        determinism=Determinism.BITWISE,
        evidence=tuple(Engagement(name=name, promised=name, resolved=name, calls=1) for name in kernels),
        measures={"digest": "a", "digest_pytorch": "b", "fresh_process": digests.AWAITS, **measures},
    )


def test_core_repeats_few_cases_that_show_every_kernel_in_every_mode_and_every_dtype() -> None:
    """Fault: minutes for all of them, or a kernel that nobody repeats."""
    records = [
        record("m/f32/inference/eager/only-A", "A"),
        record("m/f32/inference/eager/bundled", "A", "B"),
        record("m/f32/training/eager/only-B", "B"),
        record("m/bf16/inference/eager/only-A", "A"),
        record("m/bf16/inference/eager/only-B", "B"),
        record("m/f16/inference/eager/only-A", "A", fresh_process="not asked"),
    ]
    chosen = [each.case for each in digests.awaiting(records, Tier.CORE)]
    assert chosen[0] == "m/f32/inference/eager/bundled"
    assert sorted(chosen[1:]) == ["m/bf16/inference/eager/only-A", "m/f32/training/eager/only-B"]
    assert digests.awaiting(records, Tier.SMOKE) == []
    assert len(digests.awaiting(records, Tier.FULL)) == 5


@pytest.mark.parametrize(
    ("answer", "word", "grade", "outcome"),
    [
        ({"digest": "a", "digest_pytorch": "b"}, "same", Determinism.BITWISE, Outcome.PASS),
        (
            {"digest": "x", "digest_pytorch": "y", "tolerated": False},
            "other",
            Determinism.REFERENCE_VARIES,
            Outcome.PASS,
        ),
        ({"digest": "x", "digest_pytorch": "b", "tolerated": True}, "other", Determinism.TOLERANT, Outcome.PASS),
        ({"digest": "x", "digest_pytorch": "b", "tolerated": False}, "other", Determinism.VARIES, Outcome.FAIL),
        ({"error": "no time"}, "not repeated in a fresh process: no time", Determinism.BITWISE, Outcome.PASS),
    ],
)
def test_what_a_fresh_process_says_decides_the_grade(
    answer: dict[str, Any], word: str, grade: Determinism, outcome: Outcome
) -> None:
    """Fault: a kernel blamed for what PyTorch does too, or a silence taken for agreement."""
    judged = digests.judged(record("m/f32/inference/eager/only-A", "A"), answer)
    assert (judged.measures["fresh_process"], judged.determinism, judged.outcome) == (word, grade, outcome)
