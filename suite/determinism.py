"""The check ``determinism``: the same call gives the same bits, in this process and the next, alone and in a batch.

Ten calls in one process, of which the first is the first of the case, bit for bit, on output, loss and every gradient;
each sequence alone and in its batch; with ``torch.use_deterministic_algorithms(True)``: whether it holds, whether it
raises, whether it is still right, what it costs. What PyTorch does not keep itself is not asked of a kernel. A digest
of the bits goes into the record, and the controller has it made again in a fresh process (``suite.digests``), where
another seed of ``hash`` and other addresses show.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from cases.inputs import SEED
from cases.plan import given
from reports.record import Determinism, Outcome, Reason, Record
from suite import model_checks, passes
from suite.digests import AWAITS
from suite.finding import Finding, Measure
from suite.model_checks import ArmError, arm
from suite.numerics import LIMITS
from suite.speed import SEVERAL, Timing, arm_of, timed
from suite.stopping import Stopping
from suite.subject import Subject
from suite.work import works

__all__ = ["again", "check", "difference", "digest", "results"]

REPEATS = 10
"""Calls that must agree bit for bit. Races show within a few; design/measurement section 4 asks for ten."""
WITH_FLAGS = 3
"""Calls with PyTorch's flags set, where the ten without them agreed: the flags take ways that can be no less exact."""
COST_PAIRS = 8
"""Pairs for the cost of the flags: a figure with an interval, of which no verdict is asked, has one look."""

_DOES = {"hold": "holds", "vary": "varies", "raise": "raises"}

Results = dict[str, torch.Tensor]
"""All that one pass of the case's mode produces, by name, in float64, which holds every other precision exactly."""


def results(subject: Subject, *, kernel: bool) -> Results:
    """Output of one pass of one arm; in training also the loss and the gradient of every parameter."""
    with arm(subject, kernel=kernel):
        return _named(subject.dense_pass())


def _named(found: passes.Pass) -> Results:
    if isinstance(found, torch.Tensor):
        return {"output": found}
    gradients = {f"gradient of {name}": value for name, value in found.by_name.items()}
    return {"output": found.output, "loss": found.loss, **gradients}


def digest(found: Results) -> str:
    """``sha256:…`` over names, shapes and bits."""
    total = hashlib.sha256()
    for name, value in found.items():
        total.update(f"{name} {list(value.shape)}\0".encode())
        total.update(value.contiguous().numpy().tobytes())
    return f"sha256:{total.hexdigest()}"


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """0 for the same bits; else the relative difference, ``SEVERAL`` where there is none (another shape, NaN)."""
    if one.shape != other.shape:
        return SEVERAL
    if torch.equal(one.view(torch.int64), other.view(torch.int64)):
        return 0.0
    gap = float((one - other).norm() / other.norm().clamp_min(1e-30))
    # A zero of the other sign is another value of no size.
    return max(gap, sys.float_info.min) if gap < SEVERAL else SEVERAL


def _largest(one: Results, other: Results) -> float:
    """Largest ``difference`` of a tensor."""
    lost = one.keys() ^ other.keys()
    return SEVERAL if lost else max(difference(one[name], other[name]) for name in other)


@dataclass(frozen=True, slots=True)
class _Repeats:
    """What came of the same call several times."""

    last: Results
    different: int
    """Repeats that are not the first, bit for bit."""
    largest: float
    """Largest relative difference of a tensor."""


def _repeated(subject: Subject, calls: int, *, kernel: bool, first: passes.Pass | None = None) -> _Repeats:
    """``first`` is what the first of the calls gave, where it was made before."""
    begin = results(subject, kernel=kernel) if first is None else _named(first)
    gaps = []
    for _ in range(calls - 1):
        last = results(subject, kernel=kernel)
        gaps.append(_largest(last, begin))
    return _Repeats(last, sum(gap > 0 for gap in gaps), max(gaps))


def check(subject: Subject, timing: Timing) -> Finding:
    """All of it. What is wrong stands in the message, whatever else holds."""
    repeats = _repeated(subject, REPEATS, kernel=True, first=subject.first_pass)
    pytorch = results(subject, kernel=False)
    # A kernel that repeats needs no excuse, so whether PyTorch does is asked where one may be needed.
    varies = _repeated(subject, REPEATS, kernel=False).different if repeats.different else None
    grade, text = _grade(subject, repeats, pytorch, varies)
    measures: dict[str, Measure] = {
        "repeats": REPEATS,
        "different": repeats.different,
        "reference_different": varies,
        "largest_difference": repeats.largest,
        "digest": digest(repeats.last),
        "digest_pytorch": digest(pytorch),
    }
    problems = [text] if grade is Determinism.VARIES else []
    said = [text]
    for part in (_alone, partial(_with_flags, repeats=repeats)):
        found = part(subject)
        measures |= found.measures
        said.append(found.words)
        problems += [found.words] if found.wrong else []
    costs = timing.enabled and timing.flags and (subject.case.mapping == "bundled" or given(subject.case.mapping))
    if costs and measures["flags"] != "raise":
        measures |= _cost(subject, timing)
    # What varies in one process, or is wrong already, needs no second one to show it.
    measures["fresh_process"] = AWAITS if grade is Determinism.BITWISE and not problems else "not asked"
    if problems:
        message = "; ".join(problems)
        return Finding(Outcome.FAIL, Reason.NONDETERMINISTIC, message, measures=measures, determinism=grade)
    return Finding(Outcome.PASS, message="; ".join(said), measures=measures, determinism=grade)


def again(subject: Subject, record: Record) -> dict[str, Any]:
    """The digests of this process, as ``suite.digests.judged`` takes them."""
    kernel, pytorch = (results(subject, kernel=each) for each in (True, False))
    answer: dict[str, Any] = {"digest": digest(kernel), "digest_pytorch": digest(pytorch)}
    if answer["digest"] != record.measures["digest"]:
        # The first call of a process may be wrong by itself, and the checks' own calls right.
        gap = _largest(results(subject, kernel=True), kernel)
        settled = gap <= _own_error(subject, pytorch["output"])
        answer["tolerated"] = settled and _wrong(subject) is None
    return answer


def _wrong(subject: Subject) -> Finding | None:
    """What the forward check finds now, and in training the gradient check, if it is no PASS."""
    checks = [model_checks.forward, *([model_checks.gradient] if subject.case.mode.trains else [])]
    return next((found for each in checks if (found := each(subject)).outcome is not Outcome.PASS), None)


def _own_error(subject: Subject, pytorch: torch.Tensor) -> float:
    """Relative error of PyTorch's output against float64: what rounding does to this model in this dtype."""
    truth, _ = subject.truth.forward("dense")
    return float((pytorch - truth).norm() / truth.norm())


def _grade(subject: Subject, repeats: _Repeats, pytorch: Results, varies: int | None) -> tuple[Determinism, str]:
    if not repeats.different:
        return Determinism.BITWISE, f"{REPEATS} calls, the same bits"
    if varies:
        return Determinism.REFERENCE_VARIES, f"PyTorch itself differs in {varies} of {REPEATS - 1} repeats"
    tolerated = repeats.largest <= _own_error(subject, pytorch["output"])
    text = (
        f"{repeats.different} of {REPEATS - 1} repeats differ from the first call, by up to {repeats.largest:.2e}; "
        "PyTorch's own repeats agree"
    )
    return (Determinism.TOLERANT if tolerated else Determinism.VARIES), text


@dataclass(frozen=True, slots=True)
class _Part:
    """What one part of the check found."""

    words: str
    wrong: bool
    measures: dict[str, Measure]


def _alone(subject: Subject) -> _Part:
    """Batch invariance: the largest difference between a sequence in the batch and by itself, for both arms.

    PyTorch's own matrix products are seldom invariant, so what counts is what the kernel adds to PyTorch's figure.
    """
    kernel, pytorch = (_apart(subject, kernel=each) for each in (True, False))
    measures: dict[str, Measure] = {"batch_kernel": kernel, "batch_pytorch": pytorch}
    words = f"a sequence alone differs from itself in a batch by {kernel:.1e}, in PyTorch by {pytorch:.1e}"
    if kernel == 0:
        return _Part("a sequence alone has the bits that it has in a batch", False, measures)
    if kernel <= LIMITS["output"].factor * pytorch:
        return _Part(words, False, measures)
    with arm(subject, kernel=False):
        own = subject.ask(passes.forward, "dense")
    allowed = LIMITS["output"].factor * _own_error(subject, own)
    rounding = f" (rounding explains {allowed:.1e})"
    return _Part(words + rounding, kernel > allowed, measures)


def _apart(subject: Subject, *, kernel: bool) -> float:
    given = subject.batches["dense"]
    rows = len(given.kept)
    routing = subject.truth.forward("dense")[1] if subject.record.routes else []
    largest = 0.0
    with arm(subject, kernel=kernel):
        whole = subject.ask(passes.forward, "dense", routing).chunk(rows)
        for number, expected in enumerate(whole):
            own = [choice.chunk(rows)[number] for choice in routing]
            alone = subject.ask(partial(_one_row, number=number), "dense", own)
            largest = max(largest, difference(alone, expected))
    return largest


def _one_row(model: Any, record: Any, given: passes.Batch, number: int) -> torch.Tensor:
    return passes.forward(model, record, given.row(number))


@contextmanager
def deterministic() -> Iterator[None]:
    """PyTorch's flag within the block, and what was set before after it."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _with_flags(subject: Subject, *, repeats: _Repeats) -> _Part:
    """With the flags and a seed, as the documentation has it: ``hold``, ``vary`` or ``raise``; and whether it is right
    then, where the bits are others than without the flags."""
    kernel, said, last = _flagged(subject, REPEATS if repeats.different else WITH_FLAGS, kernel=True)
    measures: dict[str, Measure] = {"flags": kernel}
    words, wrong = "so it is with PyTorch's deterministic algorithms", False
    if kernel != "hold":
        pytorch, _, _ = _flagged(subject, REPEATS, kernel=False)
        measures |= {"flags_pytorch": pytorch, "flags_said": said}
        words = f"with PyTorch's deterministic algorithms it {_DOES[kernel]} ({said}), and PyTorch {_DOES[pytorch]}"
        wrong = kernel == "vary" and pytorch == "hold"
    if last:
        measures["flags_difference"] = gap = _largest(last, repeats.last)
        spoilt = _spoilt_by_flags(subject) if gap else None
        if spoilt:
            return _Part(f"{words}; the results with them are wrong, and right without: {spoilt}", True, measures)
        words += f", where its results differ by up to {gap:.1e} from those without" if gap else ""
    return _Part(words, wrong, measures)


def _spoilt_by_flags(subject: Subject) -> str | None:
    """What is wrong with the flags and not without; both arms have them, so PyTorch's own changes count for nothing."""
    try:
        if _wrong(subject):  # for the checks themselves to say
            return None
        with deterministic():
            found = _wrong(subject)
    except ArmError:  # a refusal of another input than the dense one, by either arm
        return None
    return found.message if found else None


def _flagged(subject: Subject, calls: int, *, kernel: bool) -> tuple[str, str, Results]:
    """The word, what was said, and what the last call gave; nothing where one raised."""
    found = []
    try:
        with deterministic():
            for _ in range(calls):
                torch.manual_seed(SEED)
                last = results(subject, kernel=kernel)
                found.append(digest(last))
    except ArmError as error:
        return "raise", " ".join(str(error).split())[:400], {}
    different = sum(each != found[0] for each in found)
    return ("vary", f"{different} of {calls - 1} repeats differ", last) if different else ("hold", "", last)


def _cost(subject: Subject, timing: Timing) -> Mapping[str, Measure]:
    """Time with the flags over time without them, of the kernel arm, in counterbalanced pairs."""
    with_flags, without = (works(subject, partial(_renew, subject, on=on))[0] for on in (True, False))
    sampler = replace(timing.sampler(subject, without.phase), stopping=Stopping(looks=(COST_PAIRS,)))
    with deterministic():
        found = timed(sampler, arm_of(with_flags, kernel=True), arm_of(without, kernel=True)).interval
    if subject.case.mode.trains:
        subject.loaded.model.zero_grad(set_to_none=True)
    return {"flags_cost": found.ratio, "flags_cost_low": found.low, "flags_cost_high": min(found.high, SEVERAL)}


def _renew(subject: Subject, *, on: bool) -> None:
    subject.arms.use_kernels()
    torch.use_deterministic_algorithms(on)
