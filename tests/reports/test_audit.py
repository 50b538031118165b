"""``audit.json`` as it is read: it comes from somewhere else, and may say anything."""

from pathlib import Path

import msgspec
import pytest

from cases.axes import Device, Mode
from reports.audit import AUDIT, Audit, Entry, Forecast, Kind, Remark, read_audit
from reports.record import Reason
from reports.store import RunError

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
        (msgspec.json.encode(msgspec.structs.replace(AUDITED, hub="x" * 1000)), "not readable"),
        (msgspec.json.encode(AUDITED).replace(b'"mode":"inference"', b'"mode":"sideways"'), "not readable"),
        (msgspec.json.encode(msgspec.structs.replace(AUDITED, carried=("x",) * 30_000)), "not readable"),
    ],
)
def test_an_audit_that_cannot_be_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    """Fault: a traceback, or a report that shows whatever a file holds."""
    (tmp_path / AUDIT).write_bytes(content)
    with pytest.raises(RunError, match=said) as refused:
        read_audit(tmp_path)
    assert "\n" not in str(refused.value)
