"""What the section on determinism says of a mapping, in words and figures, and which checks it names."""

from pathlib import Path
from typing import Any

from cases.axes import Property
from reports.determinism import Cost, notable, repeatability
from reports.html import render_html
from reports.record import Determinism, Outcome, Reason, Record
from reports.store import read_run
from tests.reports.synthetic import write_run

BITWISE = Determinism.BITWISE


def checked(case: str, grade: Determinism | None = BITWISE, **measures: Any) -> Record:
    outcome = Outcome.FAIL if grade is Determinism.VARIES else Outcome.PASS if grade else Outcome.NOT_RUN
    return Record(
        case=f"{case}/f32/inference/eager/mine",
        property=Property.DETERMINISM,
        outcome=outcome,
        reason=Reason.NONDETERMINISTIC if outcome is Outcome.FAIL else None,
        message=f"what {case} said",
        determinism=grade,
        measures=measures,
    )


def forward(case: str, bits: float, top1: float) -> Record:
    return Record(
        case=f"{case}/f32/inference/eager/mine",
        property=Property.FORWARD,
        outcome=Outcome.PASS,
        measures={"match_bits": bits, "match_top1": top1},
    )


RECORDS = [
    checked("a", fresh_process="same", batch_kernel=0.0, batch_pytorch=0.0, flags="hold"),
    checked("b", fresh_process="not asked", batch_kernel=1e-7, batch_pytorch=0.0, flags="raise"),
    checked("c", Determinism.TOLERANT, fresh_process="other", batch_kernel=1e-7, batch_pytorch=1e-7, flags="hold"),
    checked("d", Determinism.VARIES, flags="vary", flags_cost=1.4, flags_cost_low=1.3, flags_cost_high=1.5),
    checked("e", flags="hold", flags_cost=1.1, flags_cost_low=1.0, flags_cost_high=1.2),
    checked("f", flags="hold", flags_cost=1.2, flags_cost_low=1.1, flags_cost_high=1.3),
    checked("g", None),
    *(forward(case, bits, top1) for case, bits, top1 in (("a", 0.2, 1.0), ("b", 0.97, 1.0), ("c", 0.99, 0.5))),
]


def test_a_mapping_is_counted_by_what_each_part_found() -> None:
    """Fault: a silence counted as agreement, or a difference that PyTorch has too as the kernel's."""
    (row,) = repeatability(RECORDS)
    assert row.mapping == "mine"
    assert row.counts == {BITWISE: 4, Determinism.TOLERANT: 1, Determinism.VARIES: 1}
    assert row.ungraded == 1
    assert (row.fresh_same, row.fresh_other) == (1, 1)
    assert (row.batches, row.batch_kernel, row.batch_pytorch, row.batch_lost) == (3, 1, 2, 1)
    assert row.flags == {"hold": 4, "vary": 1, "raise": 1}
    assert row.cost == Cost(1.2, 1.1, 1.3, 3)
    assert (row.match_bits, row.match_top1) == (0.97, 1.0)


def test_what_does_not_hold_is_named_the_gravest_first_and_the_list_is_bounded() -> None:
    """Fault: a failure below what is only worth knowing, or a page of ten thousand lines."""
    found = notable(RECORDS)
    assert [record.case[0] for record in found.items] == ["d", "c", "b"]
    bounded = notable(RECORDS, limit=1)
    assert (len(bounded.items), bounded.left_out) == (1, 2)


def test_figures_from_elsewhere_are_not_trusted() -> None:
    """Fault: a page that cannot be made, since somebody wrote a word where a number belongs."""
    (row,) = repeatability(
        [checked("a", batch_kernel="x", batch_pytorch=True, flags=[1.0], fresh_process=[1.0], flags_cost=None)]
    )
    assert (row.batches, row.flags, row.cost) == (0, {}, None)


def test_the_page_says_it_in_words(tmp_path: Path) -> None:
    """Fault: colours only, which say nothing to a third of the readers and to nobody on paper."""
    page = render_html(read_run(write_run(tmp_path / "run", RECORDS)))
    section = page.partition('<section id="determinism"')[2].partition("</section>")[0]
    for words in (
        "1 same, <strong>1 other bits</strong>",
        "kernel 1, PyTorch 2 of 3; <strong>1 lost by the kernel</strong>",
        "4 hold, 1 vary, 1 raise",
        "1.200× (1.100 – 1.300), the middle of 3 cases",
        "97.0 %",
        "what d said",
    ):
        assert words in section
