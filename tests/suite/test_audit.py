"""The audit of the default mapping, and the forecast for a device that is not here."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from transformers.integrations import hub_kernels

from cases.axes import Device, Mode
from cases.documentation import TABLE
from reports.audit import AUDIT, Entry, Kind, read_audit
from reports.record import Reason
from reports.store import write_whole
from suite.audit import audit, keep, main
from suite.audit_hub import hub_remarks, parameters
from suite.documented.repositories import write
from suite.forecast import forecast
from suite.hub import EmbeddedHub, Repository
from suite.mapping import default_mapping
from suite.mapping_audit import carried_names, pins, table_differences, trusted, unmatched_names

NORM = "import torch\n\nclass Norm(torch.nn.Module):\n    def forward(self, {}):\n        return x\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a Hub of the tests serves does not belong into the cache of whoever runs them."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def entry(**changes: object) -> Entry:
    fields: dict[str, object] = {
        "name": "RMSNorm",
        "device": "xpu",
        "mode": "INFERENCE",
        "repository": "kernels-community/rmsnorm",
        "layer": "Norm",
        "version": 1,
        "revision": None,
        "trusted": False,
        "capabilities": None,
    }
    return Entry(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_mapping_is_read_from_the_installed_package_and_left_alone() -> None:
    """Fault: a copy that is out of date next week, or an audit that registers kernels in its process."""
    from kernels.layer.globals import _KERNEL_MAPPING

    before = dict(_KERNEL_MAPPING.get())
    found = default_mapping()
    assert dict(_KERNEL_MAPPING.get()) == before
    names = {each.name for each in found}
    assert {"RMSNorm", "SiLU", "rotary_pos_emb", "MegaBlocksMoeMLP"} <= names
    builder = getattr(hub_kernels, "get_kernel_mapping_transformers", None)
    if builder is not None:
        assert names == set(builder())
    assert any(each.capabilities == (121, 121) for each in found if each.name == "Qwen3_5GatedDeltaNet") or (
        "Qwen3_5GatedDeltaNet" not in names
    )


def test_names_are_read_from_the_sources_without_their_comments() -> None:
    """Fault: a tag that is commented out counts as carried, or one in the documentation of the decorator."""
    names = carried_names()
    assert {"RMSNorm", "RMSNormZeroCentered", "rotary_pos_emb", "chunk_gated_delta_rule"} <= names
    assert "Llama4TextMoe" not in names
    assert "layer_name" not in names


def test_dead_names_and_orphan_tags_are_told_apart() -> None:
    """Fault: a mapped name that nothing carries, which does nothing and looks as if it did."""
    dead, orphans = unmatched_names([entry(), entry(name="Linear")], frozenset({"RMSNorm", "Router"}))
    assert (dead, orphans) == (["Linear"], ["Router"])


def test_pins_that_move_and_consent_that_is_given_for_the_user_are_named() -> None:
    """Fault: another kernel tomorrow under the same pin; foreign code that nobody agreed to."""
    entries = [entry(), entry(version=None, revision="main"), entry(version=None, revision="a" * 40, trusted=True)]
    assert [(remark.kind, "main" in remark.text) for remark in pins(entries)] == [(Kind.MUTABLE_PIN, True)]
    assert [remark.kind for remark in trusted(entries)] == [Kind.TRUST]


def test_the_table_is_compared_in_both_directions() -> None:
    """Fault: only what the table promises is looked for, and not what it denies."""
    rows = [row for row in TABLE if row.title in ("RMSNorm", "Linear")]
    found = table_differences([entry(), entry(name="Linear", repository="kernels-community/liger-kernels")], rows)
    said = {(remark.name, remark.device) for remark in found}
    assert said == {("RMSNorm", "cuda"), ("RMSNorm", "rocm"), ("Linear", "xpu"), ("Linear", "cuda")}


def test_a_forecast_follows_the_modes_and_says_why_not() -> None:
    """Fault: a forecast that promises a kernel without backward for training, or is taken for a measurement."""
    entries = [
        entry(mode="INFERENCE|TORCH_COMPILE"),
        entry(name="GatedDelta", device="cuda", capabilities=(121, 121), mode="FALLBACK"),
    ]
    lines = {
        (line.name, line.mode): line for line in forecast(entries, ["RMSNorm", "GatedDelta", "Router"], Device.XPU)
    }
    assert lines["RMSNorm", Mode.INFERENCE].kernel == "kernels-community/rmsnorm@v1:Norm"
    assert lines["RMSNorm", Mode.TRAINING].reason is Reason.NO_COMPATIBLE_MODE
    assert lines["GatedDelta", Mode.INFERENCE].reason is Reason.NO_DEVICE
    assert lines["Router", Mode.INFERENCE].reason is Reason.NO_LAYER
    assert all(line.predicted for line in lines.values())
    (on_cuda,) = [line for line in forecast(entries, ["GatedDelta"], Device.CUDA) if line.mode is Mode.TRAINING_COMPILE]
    assert on_cuda.kernel
    assert on_cuda.condition.startswith("compute capability 12.1 to 12.1")


def test_the_forecast_for_this_machine_is_what_kernels_chooses_here() -> None:
    """Fault: an order of modes of our own that has drifted from that of kernels."""
    from kernels.layer.repos import _MODE_FALLBACK_PRIORITY

    from suite.forecast import ORDER
    from suite.loading import kernel_mode
    from suite.mapping import mode_name

    for mode, order in ORDER.items():
        assert [mode_name(each) for each in _MODE_FALLBACK_PRIORITY[kernel_mode(mode)]] == list(order)


def test_the_command_needs_no_device_and_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Fault: an audit that only runs where it is least needed."""
    assert main(["--device", "xpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["device"] == "xpu"
    assert {"dead name", "orphan tag", "table"} <= {remark["kind"] for remark in document["remarks"]}
    assert all(line["predicted"] for line in document["forecast"])
    assert {remark["device"] for remark in document["remarks"]} <= {"", "xpu"}
    assert main(["--device", "rocm"]) == 0
    assert "Predicted, not measured: on rocm" in capsys.readouterr().out


def test_a_run_keeps_the_audit_of_its_stack_for_all_devices_at_once(tmp_path: Path) -> None:
    """Fault: two runs cannot be compared by what their mappings promised; each worker that starts writes it again."""
    keep(tmp_path)
    made = read_audit(tmp_path)
    assert made is not None
    assert made.entries == default_mapping()
    assert made.carried == tuple(sorted(carried_names()))
    assert made.transformers == version("transformers")
    places = {(line.name, line.device, line.mode) for line in made.forecast}
    assert len(places) == len(made.forecast) == len(made.carried) * len(Device) * len(Mode)
    assert {"", "xpu"} <= {remark.device for remark in made.remarks}
    assert not made.hub
    before = (tmp_path / AUDIT).stat().st_ino
    keep(tmp_path)
    assert (tmp_path / AUDIT).stat().st_ino == before
    write_whole(tmp_path / AUDIT, msgspec.json.encode(msgspec.structs.replace(made, transformers="4.0", entries=())))
    keep(tmp_path)
    assert read_audit(tmp_path) == made


def test_a_hub_that_does_not_answer_leaves_the_rest_of_the_audit_and_its_reason(
    hub: EmbeddedHub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a traceback of the HTTP client; or pins that nobody looked up, in a report that says nothing of it."""
    keep(tmp_path, hub.endpoint)
    asked = read_audit(tmp_path)
    assert asked is not None
    assert (asked.hub, asked.hub_problem) == (hub.endpoint, "")
    assert any(remark.kind is Kind.NO_BUILD and "not on this Hub" in remark.text for remark in asked.remarks)
    hub.__exit__(None, None, None)
    assert audit(hub.endpoint).hub_problem
    monkeypatch.setattr("suite.audit.ENDPOINT", hub.endpoint)
    assert main(["--hub"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EmbeddedHub]:
    def norm(name: str, builds: list[str], parameters: str) -> Path:
        return write(tmp_path / name, name, {"__init__.py": "", "layers.py": NORM.format(parameters)}, builds)

    with EmbeddedHub(
        [
            Repository("org/one", {"v1": norm("one", ["xpu"], "x"), "v2": norm("newer", ["xpu", "cuda"], "x")}),
            Repository("org/two", {"v1": norm("two", ["cuda"], "x, eps")}),
        ]
    ) as served:
        yield served


def test_a_hub_tells_of_newer_versions_missing_builds_and_other_parameters(hub: EmbeddedHub) -> None:
    """Fault: pins that are found to be stale, or without a build, only when a model is loaded on the device."""
    entries = [
        entry(repository="org/one"),
        entry(repository="org/one", device="cuda"),
        entry(repository="org/two", device="cuda", mode="TRAINING"),
        entry(repository="org/none", name="SiLU"),
    ]
    found = {(remark.kind, remark.name, remark.device): remark.text for remark in hub_remarks(entries, hub.endpoint)}
    assert "v2 is there" in found[Kind.STALE_PIN, "RMSNorm", "xpu"]
    assert "has no build for cuda; there are torch-xpu" in found[Kind.NO_BUILD, "RMSNorm", "cuda"]
    assert "not on this Hub" in found[Kind.NO_BUILD, "SiLU", "xpu"]
    assert "(x); org/two (cuda): (x, eps)" in found[Kind.PARAMETERS, "RMSNorm", ""]


def test_parameters_are_read_and_never_run() -> None:
    """Fault: an audit that runs foreign code."""
    source = "raise SystemExit\nclass Norm:\n    def forward(self, hidden, gate=None): ...\n"
    assert parameters(source, "Norm") == ("hidden", "gate")
    assert parameters(source, "Other") is None
    assert parameters("class", "Norm") is None
