"""The table of a pin ladder and what it says has changed, from records alone."""

from pathlib import Path
from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.html import render_html
from reports.ladder import Aspect, changes, steps
from reports.ladder_table import Row, section, table
from reports.record import Determinism, Engagement, Outcome, Reason, Record
from reports.store import Run
from reports.style import MARKDOWN, TERMINAL

CASE = "llama-tiny/f32/inference/sdpa/user"
Measures = dict[str, Any]


def rung(name: str, position: int, **measures: Any) -> Record:
    known: Measures = {
        "position": position,
        "commit": f"{position + 1:040x}",
        "names": name,
        "builds": "torch-cpu",
        "parameters": "hidden_states",
        "has_backward": "True",
        "can_torch_compile": "not said",
    }
    return Record(case=f"ladder/{name}", property=Property.LADDER, outcome=Outcome.PASS, measures=known | measures)


def check(name: str, kind: Property, outcome: Outcome = Outcome.PASS, **fields: Any) -> Record:
    return Record(case=f"{CASE}@{name}", property=kind, outcome=outcome, **fields)


def repeats(name: str, digest: str, grade: Determinism = Determinism.BITWISE) -> Record:
    return check(name, Property.DETERMINISM, determinism=grade, measures={"digest": digest})


def speed(name: str, ratio: float, width: float = 0.01, phase: Phase = Phase.PREFILL) -> Record:
    measures = {"ratio": ratio, "low": ratio * (1 - width), "high": ratio * (1 + width)}
    return check(name, Property.SPEED, phase=phase, measures=measures)


def changed(records: list[Record]) -> list[tuple[Aspect, str, str]]:
    return [(change.aspect, change.was, change.now) for change in changes(steps(records))]


def rows(records: list[Record]) -> dict[str, Row]:
    return {
        row.name: row for row in table(records, [each for each in records if each.property is Property.SPEED]).items
    }


def test_revisions_are_in_the_order_of_the_ladder_not_of_the_file() -> None:
    """Fault: several workers, and a table in the order in which they were done."""
    found = steps(
        [rung("v10", 2), rung("v2", 1), check("v2", Property.LOAD), rung("v1", 0), check("v1", Property.LOAD)]
    )
    assert [step.name for step in found] == ["v1", "v2", "v10"]
    assert [len(step.checks) for step in found] == [1, 1, 0]


def test_what_the_files_offer_is_compared_with_the_revision_before() -> None:
    """Fault: a build that is lost, or a parameter that is renamed, without a word."""
    records = [
        rung("v1", 0, builds="torch-cpu, torch-cuda"),
        rung("v2", 1, builds="torch-cpu, torch-xpu", parameters="x", has_backward="False"),
        rung("v3", 2, builds="torch-cpu, torch-xpu", parameters=None),
    ]
    assert [aspect for aspect, _, _ in changed(records)] == [Aspect.BUILDS, Aspect.FORWARD]
    second = rows(records)["v2"]
    assert second.cells["builds"].change == "new: torch-xpu; gone: torch-cuda"
    assert second.cells["forward"].text == "(x), has_backward False, can_torch_compile not said"
    assert second.changed == "builds, forward"


def test_an_outcome_is_compared_check_by_check_and_the_first_that_fails_is_named() -> None:
    """Fault: a failure that depends on another one looked for instead of it; a speed taken for an outcome."""
    records = [
        *(rung("v1", 0), rung("v2", 1)),
        *(check("v1", kind) for kind in (Property.LOAD, Property.ENGAGE, Property.FORWARD, Property.SPEED)),
        check("v2", Property.SPEED, Outcome.NOT_RUN, reason=Reason.DEPENDS),
        check("v2", Property.FORWARD, Outcome.FAIL, reason=Reason.TOLERANCE),
        *(check("v2", kind) for kind in (Property.LOAD, Property.ENGAGE)),
    ]
    ((change),) = changes(steps(records))
    assert (change.aspect, change.was, change.now) == (Aspect.OUTCOME, "PASS", "FAIL TOLERANCE")
    assert change.check is not None
    assert change.check.property is Property.FORWARD
    assert rows(records)["v2"].cells["outcome"].change == "was PASS"
    assert rows(records)["v2"].worst is Outcome.FAIL


def test_a_waiver_of_one_revision_makes_no_change() -> None:
    """Fault: a known fault that is looked for at the revision whose waiver has another name."""
    waived = {"reason": Reason.TOLERANCE, "unwaived": Outcome.FAIL, "waiver": "known"}
    records = [
        *(rung("v1", 0), rung("v2", 1)),
        check("v1", Property.FORWARD, Outcome.FAIL, reason=Reason.TOLERANCE),
        check("v2", Property.FORWARD, Outcome.WAIVED, **waived),
    ]
    assert changed(records) == []


def test_other_bits_are_a_change_only_where_each_revision_repeats_its_own() -> None:
    """Fault: a kernel with atomics, every revision of which seems to be another one."""
    records = [
        *(rung(f"v{number}", number) for number in range(4)),
        *(repeats("v0", "a"), repeats("v1", "b"), repeats("v2", "c", Determinism.TOLERANT), repeats("v3", "d")),
    ]
    assert [(aspect, now) for aspect, _, now in changed(records)] == [(Aspect.OUTPUT, "b")]
    found = rows(records)
    assert found["v1"].cells["difference"].change == "other bits than v0, as llama-tiny f32 inference shows"
    assert found["v2"].cells["difference"].change == ""
    assert found["v2"].cells["repeats"].change == "was BITWISE"


def test_the_worst_error_and_the_largest_difference_are_shown() -> None:
    """Fault: the error of whatever case came last."""
    records = [
        rung("v1", 0),
        check("v1", Property.FORWARD, measures={"error_ratio": 1.5, "difference": 3e-7, "first": "v1"}),
        check("v1", Property.GRADIENT, measures={"error_ratio": 1.9}),
        check("v1", Property.PROBE, measures={"error_ratio": 99.0}),
    ]
    cells = rows(records)["v1"].cells
    assert (cells["error"].text, cells["difference"].text) == ("1.9×", "3e-07")


def test_a_difference_from_another_revision_than_the_first_is_not_shown() -> None:
    """Fault: a run that was resumed without the outputs of its first part, and says that nothing has changed."""
    records = [
        *(rung(f"v{number}", number) for number in range(3)),
        check("v1", Property.FORWARD, measures={"difference": 0.0, "first": "v1"}),
        check("v2", Property.FORWARD, measures={"difference": 0.0, "first": "v2"}),
    ]
    assert [row.cells["difference"].text for row in rows(records).values()] == ["–", "0", "–"]


def test_a_speed_is_a_change_only_where_the_intervals_say_so() -> None:
    """Fault: noise reported as a slower release; a release compared on other cases than the one before."""
    both = [Phase.PREFILL, Phase.DECODE]
    records = [
        *(rung(f"v{number}", number) for number in range(4)),
        *(speed("v0", 1.00, phase=phase) for phase in both),
        *(speed("v1", 1.01, phase=phase) for phase in both),
        *(speed("v2", 0.80, phase=phase) for phase in both),
        speed("v3", 0.80, width=0.3, phase=Phase.PREFILL),
    ]
    cells = {name: row.cells["speed"] for name, row in rows(records).items()}
    assert cells["v0"].text == "1.000× (0.993 – 1.007) of 2"  # two half widths of 1 % in quadrature, over two
    assert cells["v1"].change == ""
    assert cells["v2"].change == "slower than v1, 0.792×"
    assert cells["v3"].change == ""
    faster = [rung("v0", 0), rung("v1", 1), speed("v0", 0.8), speed("v1", 1.0, phase=Phase.DECODE)]
    assert rows(faster)["v1"].cells["speed"].change == "", "no case was measured on both"
    assert rows([*faster, speed("v1", 1.0)])["v1"].cells["speed"].change == "faster than v0, 1.250×"


def test_the_same_build_at_two_revisions_is_seen() -> None:
    """Fault: a release that only changed its description, taken for another kernel."""

    def loaded(name: str, digest: str) -> Record:
        entry = Engagement(name="RMSNorm", promised=f"org/norm@{name}:N", digest=f"sha256:{digest}", bound=1, calls=1)
        return check(name, Property.ENGAGE, evidence=(entry,))

    found = rows([*(rung(f"v{n}", n) for n in range(3)), loaded("v0", "aa"), loaded("v1", "aa"), loaded("v2", "bb")])
    assert [row.cells["digest"].change for row in found.values()] == ["", "", "another build than v1"]


def test_a_commit_that_was_found_and_one_that_was_not_are_said() -> None:
    """Fault: a search that gave up, and a reader who takes its silence for a result."""
    searched = {
        "first_outcome": "f" * 40,
        "first_outcome_tried": 4,
        "first_outcome_between": 12,
        "first_outcome_seen": "was PASS, is FAIL TOLERANCE",
        "first_output": None,
        "first_output_seen": "no answer within 120 s for all",
    }
    found = rows([rung("v1", 0), rung("v2", 1, **searched)])["v2"].found
    assert found == (
        "outcome first differs at ffffffffff (between v1 and v2; 4 of 12 commits tried): was PASS, is FAIL TOLERANCE",
        "output: not narrowed down between v1 and v2: no answer within 120 s for all",
    )


def test_a_run_without_a_ladder_has_no_such_table() -> None:
    """Fault: an empty section in every report."""
    records = (Record(case=f"{CASE}", property=Property.LOAD, outcome=Outcome.PASS),)
    assert section(records, (), TERMINAL) == ""
    assert 'id="ladder"' not in render_html(Run(Path(), records, None))


@pytest.mark.parametrize("attack", ["<script>alert(1)</script>", "a|b\n# c", "\x1b[2J", "\u202egpj", "x" * 5000])
def test_strings_of_a_ladder_are_made_safe_and_short(attack: str) -> None:
    """Fault: the name of a tag, or the file of a foreign repository, that takes over a report."""
    hostile: Measures = dict.fromkeys(("names", "commit", "builds", "parameters", "has_backward", "position"), attack)
    found = {f"first_{aspect}{word}": attack for aspect in Aspect for word in ("", "_tried", "_between", "_seen")}
    name = attack.replace("\n", " ")
    records = [
        rung("v1", 0),
        Record(case=f"ladder/{name}", property=Property.LADDER, outcome=Outcome.PASS, measures=hostile | found),
        Record(case=f"{CASE}@{name}", property=Property.FORWARD, outcome=Outcome.FAIL),
    ]
    page = render_html(Run(Path(), tuple(records), None))
    assert "<script>alert(1)" not in page
    for text in (section(records, (), TERMINAL), section(records, (), MARKDOWN)):
        assert len(text) < 8_000
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_long_ladder_is_cut_to_its_newest_revisions() -> None:
    """Fault: a thousand tags that bury the summary of a run."""
    records = [rung(f"v{number}", number, builds=f"torch-{number}") for number in range(1000)]
    text = section(records, (), TERMINAL)
    assert len(text.splitlines()) < 120
    assert "v999 " in text
    assert "940 earlier revisions" in text
    assert table(records, ()).left_out == 940
