"""Waivers: which failure one turns, which it does not, and what a strict run says of it."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cases.axes import Property
from cases.statements import STATEMENTS
from reports.html import render_html
from reports.record import Environment, Outcome, Record
from reports.store import Run
from reports.summary import text_summary
from reports.verdict import Overall, judge
from reports.waivers import (
    FILE,
    SHIPPED,
    InUse,
    Waiver,
    WaiverError,
    apply,
    judge_run,
    read,
    usage,
    waived,
)

PACKAGES = {"transformers": "5.22.2", "kernels": "0.17.2"}
TODAY = date(2026, 12, 1)


def waiver(**changes: object) -> Waiver:
    entry: dict[str, object] = {
        "id": "V6",
        "check": "statement/attn.pin_semver",
        "package": "transformers",
        "versions": ">=5.20,<5.23",
        "seen": "Revision Not Found",
        "reason": "a constraint is taken for a revision",
        "link": "FINDINGS.md#v6",
        "owner": "somebody",
        "expires": "2027-06-01",
    }
    return msgspec.convert({**entry, **changes}, Waiver)


def failure(**changes: object) -> Record:
    record = Record(
        case="statement/attn.pin_semver",
        property=Property.STATEMENT,
        outcome=Outcome.FAIL,
        message="raised ValueError: 404.\n\nRevision Not Found for url …",
    )
    return msgspec.structs.replace(record, **changes)


def test_the_failure_that_a_waiver_knows_is_waived_and_keeps_its_message() -> None:
    """Fault: a known fault that fails the run, or whose message is lost."""
    record = waived(failure(), [waiver()], PACKAGES, "cpu")
    assert (record.outcome, record.waiver, record.unwaived) == (Outcome.WAIVED, "V6", Outcome.FAIL)
    assert record.message == failure().message
    assert judge([record], None).outcomes == {Outcome.WAIVED: 1}


def test_another_failure_of_the_same_check_stays_a_failure_and_says_why() -> None:
    """Fault: a waiver that hides a new fault behind an old one."""
    record = waived(failure(message="raised MemoryError"), [waiver()], PACKAGES, "cpu")
    assert record.outcome is Outcome.FAIL
    assert "waiver V6 does not apply: it knows a failure that says 'Revision Not Found'" in record.message


def test_of_several_waivers_for_one_check_the_one_that_knows_the_failure_counts() -> None:
    """Fault: the first waiver in the file speaks for the check, and another release's known fault fails the run."""
    known = [waiver(id="V1", seen="no attribute"), waiver(), waiver(id="V41", versions="<5.21")]
    assert waived(failure(), known, PACKAGES, "cpu").waiver == "V6"
    neither = waived(failure(), [known[0], known[2]], PACKAGES, "cpu")
    assert neither.outcome is Outcome.FAIL
    assert all(f"waiver {name} does not apply" in neither.message for name in ("V1", "V41"))


@pytest.mark.parametrize("versions", ["<5.22", ">=5.22.3", "==5.21.*"])
def test_outside_its_versions_a_waiver_does_not_apply_and_says_so(versions: str) -> None:
    """Fault: a fault that was thought to be mended, waived for ever."""
    record = waived(failure(), [waiver(versions=versions)], PACKAGES, "cpu")
    assert record.outcome is Outcome.FAIL
    assert f"waiver V6 does not apply: it is for transformers {versions}, and installed is 5.22.2" in record.message


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.TIMEOUT, Outcome.HARNESS_ERROR, Outcome.FALLBACK])
def test_only_the_outcome_that_is_named_is_waived(outcome: Outcome) -> None:
    """Fault: a crash, or a fault of the suite, under the name of a known failure."""
    assert waived(failure(outcome=outcome), [waiver()], PACKAGES, "cpu").outcome is outcome
    named = waived(failure(outcome=outcome), [waiver(outcome=outcome.value)], PACKAGES, "cpu")
    assert named.outcome is Outcome.WAIVED


def test_a_waiver_can_be_for_one_device_and_one_property() -> None:
    """Fault: a fault of one driver that is waived everywhere."""
    assert waived(failure(), [waiver(device="xpu")], PACKAGES, "cpu").outcome is Outcome.FAIL
    assert waived(failure(), [waiver(device="xpu")], PACKAGES, "xpu").outcome is Outcome.WAIVED
    assert waived(failure(), [waiver(property="forward")], PACKAGES, "cpu").outcome is Outcome.FAIL
    assert waived(failure(), [waiver(check="statement/*")], PACKAGES, "cpu").outcome is Outcome.WAIVED


def test_records_can_be_judged_again_with_other_waivers() -> None:
    """Fault: an adopter who has to run for a night to see what another file would have said."""
    before = waived(failure(), [waiver()], PACKAGES, "cpu")
    (bare,) = apply([before], [], PACKAGES, "cpu")
    assert bare == failure()
    (again,) = apply([bare], [waiver(id="mine")], PACKAGES, "cpu")
    assert (again.outcome, again.waiver) == (Outcome.WAIVED, "mine")
    (moved,) = apply([again], [waiver(versions="<5")], PACKAGES, "cpu")
    assert moved.outcome is Outcome.FAIL


def test_a_strict_run_names_what_is_healed_unmatched_and_expired() -> None:
    """Fault: a file of waivers that nobody cleans up."""
    healed = waiver(id="healed", check="statement/attn.hub")
    gone = waiver(id="gone", check="statement/no.such.check")
    old = waiver(id="old", expires="2026-12-01")
    other = waiver(id="other", versions="<5")
    records = [failure(case="statement/attn.hub", outcome=Outcome.PASS), waived(failure(), [old], PACKAGES, "cpu")]
    found = usage(records, [healed, gone, old, other], PACKAGES, "cpu", strict=True, today=TODAY)
    assert [
        [entry.id for entry in part] for part in (found.healed, found.unmatched, found.expired, found.elsewhere)
    ] == [
        ["healed"],
        ["gone"],
        ["old"],
        ["other"],
    ]
    assert [(entry.id, number) for entry, number in found.used] == [("old", 1)]
    assert [sentence.split()[2] for sentence in found.objections] == ["healed", "gone", "old"]
    lenient = usage(records, [healed, gone, old], PACKAGES, "cpu", today=TODAY)
    assert lenient.objections == ()


def test_a_waiver_of_a_statement_that_this_run_left_out_is_not_unmatched() -> None:
    """Fault: a smoke run, or one shard, in which every waiver is an error."""
    assert usage([], [waiver()], PACKAGES, "cpu", strict=True, today=TODAY).objections == ()


def environment() -> Environment:
    texts: dict[str, Any] = dict.fromkeys(
        ("suite_commit", "command", "started", "device_name", "driver", "python", "platform"), "x"
    )
    return Environment(
        **texts,
        device="cpu",
        device_count=1,
        memory_bytes=1,
        packages=PACKAGES,
        threads=1,
        hub="x",
        tier="core",
        planned=2,
    )


def test_the_verdict_of_a_run_and_its_summary_hold_the_waivers(tmp_path: Path) -> None:
    """Fault: an exit status that nothing in the report explains."""
    sound = failure(case="statement/attn.hub", outcome=Outcome.PASS)
    healed = waiver(id="V12", check="statement/attn.hub")
    records = (sound, waived(failure(), [waiver()], PACKAGES, "cpu"))
    for strict, overall in ((False, Overall.PASS), (True, Overall.FAIL)):
        (tmp_path / FILE).write_bytes(msgspec.json.encode(InUse((waiver(), healed), strict)))
        run = Run(tmp_path, records, environment())
        assert judge_run(run).overall is overall
        text = text_summary(run)
        assert "1 in use: known faults, described in cases/FINDINGS.md: V6" in text
        assert "1 healed: the check passes, remove them: V12 (statement/attn.hub)" in text
        assert ("Strict: waiver V12 is healed" in text) is strict
    (tmp_path / FILE).write_bytes(b"torn")
    assert judge_run(Run(tmp_path, records, environment())).overall is Overall.PASS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[waiver", "expected a TOML file"),
        ('[[waiver]]\nid = "V1"\n', "waiver V1: .*missing required field `check`"),
        ("[[waivers]]\n", "unknown field `waivers`"),
        ('waiver = "V1"\n', "expected a TOML file"),
        ("versions", "waiver V6: versions 'new' is no range; expected one like '>=5.20,<5.23'"),
        ("seen", "waiver V6: seen .* is no regular expression"),
        ("expires", "waiver V6: .*expires"),
        ("twice", "two waivers 'V6'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place_and_the_remedy(tmp_path: Path, text: str, words: str) -> None:
    """Fault: a misspelt field that waives nothing, or a traceback."""
    file = tmp_path / "waivers.toml"
    good = "[[waiver]]\n" + "\n".join(
        f"{name} = {msgspec.json.encode(value).decode()}"
        for name, value in msgspec.to_builtins(waiver()).items()
        if value is not None
    )
    broken = {
        "versions": good.replace(">=5.20,<5.23", "new"),
        "seen": good.replace("Revision Not Found", "("),
        "expires": good.replace("2027-06-01", "some day"),
        "twice": f"{good}\n{good}",
    }
    file.write_text(broken.get(text, text), encoding="utf-8")
    with pytest.raises(WaiverError, match=words) as caught:
        read([file])
    assert str(file) in str(caught.value)


def test_an_empty_file_means_none_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    """Fault: /dev/null that is refused, or a misspelt path that waives nothing."""
    assert read([Path("/dev/null")]) == ()
    with pytest.raises(WaiverError, match=r"none\.toml: No such file"):
        read([tmp_path / "none.toml"])


def test_every_shipped_waiver_is_of_a_check_that_exists_and_described() -> None:
    """Fault: a waiver whose reader finds nothing about it, or a finding that cannot be run again."""
    findings = SHIPPED.with_name("FINDINGS.md").read_text(encoding="utf-8")
    sections = {
        title.lower(): text for title, text in re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", findings, re.M | re.S)
    }
    shipped = read([SHIPPED])
    assert len({entry.link for entry in shipped}) >= 22
    for entry in shipped:
        assert entry.check.removeprefix("statement/") in STATEMENTS, entry.id
        name, _, anchor = entry.link.partition("#")
        assert name == "FINDINGS.md"
        text = sections[anchor]
        for part in ("Documented: ", "Seen: ", "```python\n", f"--case '{entry.check}'", entry.package):
            assert part in text, (entry.id, part)
        assert "*" not in entry.check, "a pattern would hide the next fault"


def test_without_waivers_every_statement_that_fails_is_named(tmp_path: Path) -> None:
    """Fault: "… and 38 more" where somebody has to know which."""
    names = [name for name in STATEMENTS if "#" in name][:30]
    records = tuple(failure(case=f"statement/{name}", message=f"fault of {name}") for name in names)
    text = text_summary(Run(tmp_path, records, environment()))
    line = text.partition("30 documented statements that fail:\n")[2].partition("\n")[0]
    assert line.strip().split(", ") == names


def test_a_report_shows_the_statements_and_the_waivers(tmp_path: Path) -> None:
    """Fault: waived faults that only the terminal shows, or a waiver whose text is markup."""
    hostile = waiver(reason="<script>alert(1)</script>")
    (tmp_path / FILE).write_bytes(msgspec.json.encode(InUse((hostile,))))
    record = waived(failure(requirements=("attn.pin_semver",)), [hostile], PACKAGES, "cpu")
    html = render_html(Run(tmp_path, (record,), environment()))
    section = html.partition('<section id="statements"')[2].partition("</section>")[0]
    assert "@&gt;=2.0,&lt;3.0 after the repository" in section
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in section
    assert "FINDINGS.md#v6" in section
