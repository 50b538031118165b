"""Two runs held against each other: what got worse is found, named and decides the exit status."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cases.axes import Phase, Property
from reports.__main__ import main
from reports.audit import AUDIT, Audit, Entry, Kind, Remark
from reports.compare import Kind as Change
from reports.compare import compare
from reports.compare_text import comparison_markdown, comparison_text
from reports.record import Determinism, Environment, LoadedKernel, Outcome, Reason, Record, Speed
from reports.store import ENVIRONMENT, read_run
from reports.waivers import FILE, InUse, Waiver
from tests.reports.synthetic import engaged, environment, write_run

CASE = "llama-tiny/f32/inference/eager/bundled"


def record(outcome: Outcome = Outcome.PASS, **changes: Any) -> Record:
    fields: dict[str, Any] = {"case": CASE, "property": Property.FORWARD, "outcome": outcome}
    return Record(**{**fields, **changes})


def speed(ratio: float, verdict: Speed, width: float = 0.02) -> Record:
    return record(
        property=Property.SPEED,
        phase=Phase.PREFILL,
        speed=verdict,
        evidence=(engaged("RMSNorm"),),
        measures={"ratio": ratio, "low": ratio - width, "high": ratio + width},
    )


def run(folder: Path, *found: Record, **changes: Any) -> Path:
    write_run(folder, list(found))
    made: Environment = msgspec.structs.replace(environment(len(found)), **changes)
    (folder / ENVIRONMENT).write_bytes(msgspec.json.encode(made))
    return folder


def kinds(tmp_path: Path, before: list[Record], after: list[Record]) -> list[Change]:
    first, second = run(tmp_path / "before", *before), run(tmp_path / "after", *after)
    return [change.kind for change in compare(read_run(first), read_run(second)).changes]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (record(), record(Outcome.FAIL), Change.REGRESSED),
        (record(Outcome.FALLBACK), record(Outcome.CRASH), Change.REGRESSED),
        (record(Outcome.WAIVED), record(Outcome.FAIL), Change.REGRESSED),
        (None, record(Outcome.FAIL), Change.REGRESSED),
        (record(), record(Outcome.NOT_RUN, reason=Reason.DEPENDS), Change.LOST),
        (record(), None, Change.LOST),
        (record(Outcome.FAIL), None, Change.LOST),
        (record(), record(Outcome.WAIVED), Change.WAIVED),
        (record(Outcome.WAIVED), record(), Change.MENDED),
        (record(Outcome.FAIL), record(), Change.MENDED),
        (record(Outcome.NOT_RUN), record(), Change.GAINED),
        (None, record(), Change.GAINED),
        (record(determinism=Determinism.BITWISE), record(determinism=Determinism.TOLERANT), Change.OTHERWISE),
        (record(), record(message="in other words", seconds=3.0), None),
        (record(Outcome.NOT_RUN), None, None),
    ],
)
def test_what_became_of_a_check(
    before: Record | None, after: Record | None, kind: Change | None, tmp_path: Path
) -> None:
    """Fault: a check that fails or vanished, passed over since it is not in both runs or still is not green."""
    # A record that stays, so that neither run is empty.
    stays = record(property=Property.LOAD)
    found = kinds(tmp_path, [each for each in (before, stays) if each], [each for each in (after, stays) if each])
    assert found == ([kind] if kind else [])


def test_a_check_that_the_choices_of_the_later_run_leave_out_is_no_step_back(tmp_path: Path) -> None:
    """Fault: a comparison of the short tier with the long one that calls a thousand checks lost."""
    both = [record(), record(property=Property.LOAD)]
    first = run(tmp_path / "first", *both, choices="tier='core'")
    for choices, kind in (("tier='core'", Change.LOST), ("tier='smoke'", Change.UNPLANNED)):
        second = run(tmp_path / choices, both[1], choices=choices)
        found = compare(read_run(first), read_run(second))
        assert [change.kind for change in found.changes] == [kind]
        assert found.worse is (kind is Change.LOST)


def test_a_step_back_is_the_exit_status_and_the_first_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fault: a nightly job that stays green over a regression."""
    good, bad = run(tmp_path / "good", record()), run(tmp_path / "bad", record(Outcome.FAIL, message="off by 3"))
    assert main(["compare", str(good), str(bad)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("WORSE, from ")
    assert f"{CASE} forward: PASS to FAIL" in said
    assert "off by 3" in said
    assert main(["compare", str(bad), str(good)]) == 0
    assert capsys.readouterr().out.startswith("NOT WORSE, from ")
    assert main(["compare", str(good), str(tmp_path / "nothing")]) == 2
    assert "nothing there" in capsys.readouterr().err


def test_a_run_that_passed_and_does_not_any_more_is_worse_whatever_its_records_say(tmp_path: Path) -> None:
    """Fault: a run of which nobody knows whether it is complete, called no worse than one that passed."""
    proved = record(evidence=(engaged("RMSNorm"),))
    first, second = run(tmp_path / "first", proved), run(tmp_path / "second", proved)
    assert not compare(read_run(first), read_run(second)).worse
    (second / ENVIRONMENT).unlink()
    assert compare(read_run(first), read_run(second)).worse


def test_entries_of_the_mapping_that_changed_are_named(tmp_path: Path) -> None:
    """Fault: a release that moves a pin, and nobody is told."""

    def entry(name: str, version: int) -> Entry:
        return Entry(name, "cuda", "INFERENCE", "kernels-community/norm", "Norm", version, None, trusted=False)

    def audit(*entries: Entry, remarks: tuple[Remark, ...] = (), flash: int = 3) -> bytes:
        known: dict[str, Any] = {"carried": (), "forecast": (), "remarks": remarks, "entries": entries}
        known["defaults"] = {"org/flash without a pin": f"v{flash}"}
        return msgspec.json.encode(Audit(transformers="5", kernels="0", **known))

    first, second = run(tmp_path / "first", record()), run(tmp_path / "second", record())
    assert "unknown: a run without audit.json" in comparison_text(compare(read_run(first), read_run(second)))
    (first / AUDIT).write_bytes(audit(entry("RMSNorm", 1), entry("SiLU", 1)))
    dead = Remark(Kind.DEAD_NAME, "GeLU", "", "nothing carries it")
    (second / AUDIT).write_bytes(audit(entry("RMSNorm", 2), entry("GeLU", 1), remarks=(dead,), flash=4))
    said = comparison_text(compare(read_run(first), read_run(second)))
    place = "on cuda, INFERENCE: "
    assert f"RMSNorm {place}kernels-community/norm@v1:Norm to kernels-community/norm@v2:Norm" in said
    assert f"SiLU {place}kernels-community/norm@v1:Norm to nothing" in said
    assert f"GeLU {place}nothing to kernels-community/norm@v1:Norm" in said
    assert "org/flash without a pin: v3 to v4" in said
    assert "new remark, dead name: GeLU: nothing carries it" in said


def test_known_faults_that_came_or_went_are_named(tmp_path: Path) -> None:
    """Fault: a fault of the stack that a release mended or brought, hidden behind its waiver."""
    waiver = msgspec.convert(
        {
            "id": "V6-slash",
            "check": CASE,
            "package": "transformers",
            "versions": ">=1",
            "seen": "x",
            "reason": "A pin is not understood",
            "link": "FINDINGS.md#v6",
            "owner": "us",
            "expires": "2099-01-01",
        },
        Waiver,
    )
    packages = {"transformers": "5.22.2"}
    first = run(tmp_path / "first", record(Outcome.WAIVED, waiver="V6-slash"), packages=packages)
    second = run(tmp_path / "second", record(), packages=packages)
    for folder in (first, second):
        (folder / FILE).write_bytes(msgspec.json.encode(InUse((waiver,))))
    found = compare(read_run(first), read_run(second))
    assert [(each.id, each.before, each.after) for each in found.findings] == [("V6", "seen", "not seen")]
    assert compare(read_run(first), read_run(first)).findings == ()
    for outcome, state in ((Outcome.PASS, "not seen"), (Outcome.FAIL, "not known here")):
        later = run(tmp_path / outcome, record(outcome), packages={"transformers": "0.9"})
        (later / FILE).write_bytes(msgspec.json.encode(InUse((waiver,))))
        assert [each.after for each in compare(read_run(first), read_run(later)).findings] == [state]


def test_packages_and_kernels_that_differ_are_named(tmp_path: Path) -> None:
    """Fault: a difference blamed on a kernel, where driver or release differ too; other bytes under one revision."""

    def kernel(digest: str) -> LoadedKernel:
        return LoadedKernel(name="norm", repo="embedded/norm", revision="a" * 40, variant="torch-cpu", digest=digest)

    first = run(tmp_path / "a", record(), packages={"torch": "2.13.0"}, kernels=(kernel("sha256:1"),))
    second = run(tmp_path / "b", record(), packages={"torch": "2.14.0"}, kernels=(kernel("sha256:2"),))
    found = compare(read_run(first), read_run(second))
    assert [(each.name, each.before, each.after) for each in found.environment] == [("torch", "2.13.0", "2.14.0")]
    assert [(each.before, each.after) for each in found.kernels] == [("sha256:1", "sha256:2")]


def test_a_speed_moved_only_if_its_verdict_did_or_the_intervals_do_not_meet(tmp_path: Path) -> None:
    """Fault: noise reported as a step back, or a kernel that lost its speedup reported as nothing."""

    def moved(before: Record, after: Record) -> list[bool]:
        first, second = run(tmp_path / "before", before), run(tmp_path / "after", after)
        return [change.worse for change in compare(read_run(first), read_run(second)).speeds]

    assert moved(speed(1.50, Speed.FASTER), speed(1.48, Speed.FASTER)) == []
    assert moved(speed(1.50, Speed.FASTER), speed(1.20, Speed.FASTER)) == [False]
    assert moved(speed(1.05, Speed.FASTER), speed(1.00, Speed.SAME)) == [True]
    assert moved(speed(0.80, Speed.SLOWER), speed(1.20, Speed.FASTER)) == [False]
    assert moved(speed(1.05, Speed.FASTER), speed(1.03, Speed.INCONCLUSIVE, 0.1)) == []
    assert moved(speed(0.98, Speed.INCONCLUSIVE), speed(0.08, Speed.SLOWER)) == [True]
    assert moved(speed(1.50, Speed.FASTER), speed(1.02, Speed.INCONCLUSIVE)) == [True]
    assert moved(speed(0.80, Speed.SLOWER), speed(0.40, Speed.SLOWER)) == [True]
    assert moved(speed(0.985, Speed.SAME, 0.004), speed(1.005, Speed.SAME, 0.004)) == []


@pytest.mark.parametrize("changes", [{"device_name": "another"}, {"quarantined": "busy"}])
def test_speeds_of_another_or_an_unfit_machine_are_not_held_against_each_other(
    changes: dict[str, str], tmp_path: Path
) -> None:
    """Fault: a kernel called slower than before since the other machine is another one."""
    first = run(tmp_path / "first", speed(1.5, Speed.FASTER))
    second = run(tmp_path / "second", speed(0.8, Speed.SLOWER), **changes)
    found = compare(read_run(first), read_run(second))
    assert found.speeds == ()
    assert not found.worse
    assert "not held against each other" in comparison_text(found)


def test_what_records_say_is_made_safe_and_lists_are_bounded(tmp_path: Path) -> None:
    """Fault: a hostile record that writes markup or escape codes into somebody's page or terminal, or floods it."""
    evil = "\x1b[31m<script>alert(1)</script> | `x`"
    many = [record(Outcome.FAIL, case=f"{CASE}-{number}", message=evil) for number in range(500)]
    first, second = run(tmp_path / "first", record()), run(tmp_path / "second", record(), *many)
    found = compare(read_run(first), read_run(second))
    for text in (comparison_text(found), comparison_markdown(found)):
        assert "\x1b" not in text
        assert len(text.splitlines()) < 200
        assert "and 460 more" in text
    assert "<script>" not in comparison_markdown(found)
