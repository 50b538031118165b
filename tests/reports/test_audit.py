"""``audit.json`` as it is read and shown: it comes from somewhere else, and may say anything."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from cases.axes import Device, Mode, Property
from reports.audit import AUDIT, Audit, Entry, Forecast, Kind, Remark, read_audit
from reports.audit_view import view
from reports.evidence import Ledger
from reports.html import render_html
from reports.record import Engagement, Outcome, Reason, Record
from reports.store import RunError, read_run
from tests.reports.synthetic import write_run

AUDITED = Audit(
    transformers="5.22.0",
    kernels="0.17.0",
    entries=(Entry("RMSNorm", "xpu", "INFERENCE", "org/norm", "Norm", 1, None, False),),
    carried=("RMSNorm", "SiLU"),
    remarks=(Remark(Kind.ORPHAN_TAG, "SiLU", "", "carried, and no device has a kernel for it"),),
    forecast=(
        Forecast("RMSNorm", Device.XPU, Mode.INFERENCE, "org/norm@v1:Norm", None),
        Forecast("SiLU", Device.XPU, Mode.INFERENCE, None, Reason.NO_LAYER),
    ),
)


def test_an_audit_is_read_as_it_was_written_and_none_is_no_error(tmp_path: Path) -> None:
    """Fault: a run of an earlier version that cannot be shown any more."""
    assert read_audit(tmp_path) is None
    (tmp_path / AUDIT).write_bytes(msgspec.json.encode(AUDITED))
    assert read_audit(tmp_path) == AUDITED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not readable"),
        (b"[" * 100_000, "not readable"),
        (b" " * (5 * 2**20), "more than"),
        (b'{"schema": 99}', "later version"),
        (msgspec.json.encode(replace(AUDITED, hub="x" * 1000)), "not readable"),
        (msgspec.json.encode(AUDITED).replace(b'"mode":"inference"', b'"mode":"sideways"'), "not readable"),
        (msgspec.json.encode(replace(AUDITED, carried=("x",) * 30_000)), "not readable"),
    ],
)
def test_an_audit_that_cannot_be_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    """Fault: a traceback, or a report that shows whatever a file holds."""
    (tmp_path / AUDIT).write_bytes(content)
    with pytest.raises(RunError, match=said) as refused:
        read_audit(tmp_path)
    assert "\n" not in str(refused.value)


def engaged(name: str, **changes: object) -> Record:
    """What a case with the default mapping saw of one name."""
    fields: dict[str, object] = {"name": name, "promised": "pytorch", "modules": 2, **changes}
    return Record(
        case="llama-tiny/f32/inference/sdpa/default",
        property=Property.ENGAGE,
        outcome=Outcome.PASS,
        evidence=(Engagement(**fields),),  # type: ignore[arg-type]
    )


def page(folder: Path, records: Sequence[Record] = (), audit: Audit = AUDITED) -> str:
    """The section of a report."""
    write_run(folder, list(records) or [engaged("SiLU", reason=Reason.NO_LAYER)])
    (folder / AUDIT).write_bytes(msgspec.json.encode(audit))
    document = render_html(read_run(folder))
    return document[document.index('<section id="audit"') :].partition("</section>")[0]


def test_the_section_tells_remarks_from_forecasts_and_both_from_what_was_seen(tmp_path: Path) -> None:
    """Fault: a prediction that is taken for a result; remarks about another device that bury those about this one."""
    remark = Remark(Kind.TRUST, "Other", "cuda", "runs without the user's consent")
    shown = page(tmp_path, audit=replace(AUDITED, remarks=(*AUDITED.remarks, remark)))
    assert "Predicted, not measured" in shown
    assert "could not be looked up" in shown
    assert "as predicted: 1 of 1" in shown
    near, _, far = shown.partition("Remarks on other devices")
    assert "no device has a kernel for it" in near
    assert "user&#39;s consent" in far
    assert "norm@v1" in shown
    assert 'xpu <span class="tag">this run</span>' in shown


def test_a_run_without_an_audit_shows_nothing_and_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Fault: reports of earlier runs that end in a traceback; or a damaged file that looks like none."""
    write_run(tmp_path, [engaged("SiLU")])
    assert 'id="audit"' not in render_html(read_run(tmp_path))
    (tmp_path / AUDIT).write_text("{")
    document = render_html(read_run(tmp_path))
    assert "audit.json: not readable" in document
    assert "Engagement and fallbacks" in document


def test_markup_in_an_audit_stays_text(tmp_path: Path) -> None:
    """Fault: a page that runs what a file holds."""
    attack = "<img src=x onerror=alert(1)>\x1b[2J\u202e{{ 7 * 7 }}"
    hostile = Audit(
        transformers=attack,
        kernels=attack,
        entries=(),
        carried=(attack,),
        remarks=tuple(Remark(kind, attack, attack, attack * 100) for kind in Kind),
        forecast=tuple(Forecast(attack, Device.XPU, mode, attack, None, attack * 100) for mode in Mode),
        hub=attack,
        hub_problem=attack * 100,
    )
    shown = page(tmp_path, audit=hostile)
    assert "&lt;img" in shown
    for sign in ("<img", "\x1b", "\u202e", "49"):
        assert sign not in shown
    many = replace(hostile, remarks=hostile.remarks * 2_000, forecast=hostile.forecast * 2_000)
    assert len(page(tmp_path / "many", audit=many)) < 400_000


RESOLVED = f"org/norm@{'a' * 40}:Norm (torch-xpu)"


@pytest.mark.parametrize(
    ("record", "differs"),
    [
        (engaged("RMSNorm", bound=2, calls=4, resolved=RESOLVED), False),
        (engaged("RMSNorm", reason=Reason.SHADOWED), False),
        (engaged("RMSNorm", reason=Reason.CONDITION), False),
        (engaged("RMSNorm", reason=Reason.CANNOT_LOAD), True),
        (engaged("RMSNorm", bound=2, calls=4, resolved=RESOLVED.replace("org/norm", "org/other")), True),
        (engaged("RMSNorm", bound=2, calls=4, resolved=RESOLVED.replace(":Norm", ":Other")), True),
        (engaged("SiLU", reason=Reason.NO_LAYER), False),
        (engaged("SiLU", bound=2, calls=4, resolved=RESOLVED), True),
    ],
)
def test_what_was_seen_is_held_against_the_forecast(record: Record, differs: bool) -> None:
    """Fault: a forecast that nobody checks where it can be checked; or one that is blamed for what a model does."""
    found = view(AUDITED, Ledger([record]), "xpu")
    assert found.compared == 1
    assert bool(found.differences.items) is differs
    assert view(AUDITED, Ledger([record]), "cuda").compared == 0
