"""Speeds of whole runs: what pytest-benchmark is given, and that what is wrong has no speed anywhere."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.record import Outcome, Reason, Record, Speed
from reports.store import read_run
from tests.suite import runs

CASE = "llama-tiny/f32/inference/sdpa/bundled"
WIDE = "qwen3-0.6b-width/f32/inference/sdpa/user"

WRONG = """
import torch

class Norm(torch.nn.Module):
    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states):
        return hidden_states * self.weight
"""


def suite(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], list[Record]]:
    """Run, and return also pytest-benchmark's file, empty where there is none, and the records of the run."""
    saved = folder / "benchmarks.json"
    given = ["--device", "cpu", "--hub", "embedded", "--budget", "0.05", "--out", str(folder / "run")]
    done = runs.suite(*given, f"--benchmark-json={saved}", *words)
    content = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() and saved.stat().st_size else {}
    return done, content, list(read_run(folder / "run").records)


def repository(folder: Path, source: str) -> Path:
    """A local kernel repository for the CPU."""
    build = folder / "norm" / "build" / "torch-cpu"
    build.mkdir(parents=True)
    (build / "__init__.py").write_text("from . import layers\n\n__all__ = ['layers']\n", encoding="utf-8")
    (build / "layers.py").write_text(source, encoding="utf-8")
    metadata = {
        "id": "norm_torch_cpu",
        "name": "norm",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (build / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return folder / "norm"


def speeds(records: list[Record]) -> list[Record]:
    return [record for record in records if record.property is Property.SPEED and record.case.count("/") > 1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Any, dict[str, Any], list[Record]]]:
    """A run of one case whose speeds are saved; the folder of the run and of the storage, and what came out."""
    folder = tmp_path_factory.mktemp("saved")
    words = ["--benchmark-only", "--benchmark-save=before", f"--benchmark-storage=file://{folder}/storage"]
    return folder, suite(folder, *words, "--case", CASE)


def test_only_benchmarks_gives_both_arms_of_both_phases_to_pytest_benchmark(
    saved: tuple[Path, tuple[Any, dict[str, Any], list[Record]]],
) -> None:
    """Fault: xdist switches pytest-benchmark off, and its options do nothing without a word."""
    folder, (done, content, records) = saved
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = speeds(records)
    assert {record.phase for record in found} == {Phase.PREFILL, Phase.DECODE}
    assert {record.property for record in records if not record.case.startswith("control/")} == {Property.SPEED}
    assert {"control/aa-1", "control/fitness-before", "control/fitness-after"} <= {record.case for record in records}
    assert {entry["group"] for entry in content["benchmarks"]} == {f"{CASE} prefill", f"{CASE} decode"}
    assert len(content["benchmarks"]) == 4
    for entry in content["benchmarks"]:
        assert entry["extra_info"]["ratio"] > 0
        assert entry["extra_info"]["verdict"] in set(Speed)
        assert len(entry["stats"]["data"]) == entry["stats"]["rounds"] >= 8
    assert f"benchmark '{CASE} decode': 2 tests" in done.stdout
    for record in found:
        assert record.measures["kernel_tokens_per_second"]
        assert record.evidence, "a speed stands on the ledger"
    (file,) = (folder / "storage").glob("*/0001_before.json")
    kept = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    assert [entry["fullname"] for entry in kept] == [entry["fullname"] for entry in content["benchmarks"]]


def test_a_run_is_compared_with_a_saved_one_and_fails_where_it_became_slower(
    saved: tuple[Path, tuple[Any, dict[str, Any], list[Record]]], tmp_path: Path
) -> None:
    """Fault: names that change from run to run, so that nothing is compared; or a regression that is green."""
    (file,) = (saved[0] / "storage").glob("*/0001_before.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    for entry in content["benchmarks"]:
        if entry["params"] == {"case": CASE, "phase": "decode", "arm": "kernel"}:
            entry["stats"]["min"] /= 100  # no noise is as large as this
    before = tmp_path / "storage" / file.parent.name / file.name
    before.parent.mkdir(parents=True)
    before.write_text(json.dumps(content), encoding="utf-8")
    words = [
        f"--benchmark-storage=file://{tmp_path}/storage",
        "--benchmark-compare",
        "--benchmark-compare-fail=min:900%",
    ]
    done, _, _ = suite(tmp_path, "--benchmark-only", *words, "--case", CASE)
    assert done.returncode == 1
    for arm in ("pytorch", "kernel"):
        for run in ("0001_before", "NOW"):
            assert f"[{CASE}-decode-{arm}] ({run})" in done.stdout
    regressed = [line for line in done.stderr.splitlines() if "has failed" in line]
    assert len(regressed) == 1
    assert f"{CASE}-decode-kernel" in regressed[0]
    assert "Traceback" not in done.stdout + done.stderr
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("disable", [False, True])
def test_what_is_wrong_or_not_timed_has_no_speed_anywhere(tmp_path: Path, disable: bool) -> None:
    """Fault: a wrong kernel that is fast, timed because nobody asked first whether it is right."""
    case = "llama-tiny/f32/inference/sdpa/user"
    if disable:
        kernels = ["--benchmark-disable", "--case", CASE, "-k", "test_speed"]
    else:
        kernel = f"RMSNorm={repository(tmp_path, WRONG)}:Norm"
        kernels = ["--benchmark-only", "--case", case, "--case", WIDE, "--kernel", kernel]
    done, content, records = suite(tmp_path, *kernels)
    assert content == {}, "pytest-benchmark has nothing to write"
    found = speeds(records)
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    for record in found:
        assert record.outcome is Outcome.NOT_RUN
        assert record.speed in (None, Speed.NOT_MEASURED)
        assert record.reason is (Reason.DISABLED if disable else Reason.DEPENDS)
        assert not {"ratio", "kernel_seconds", "kernel_ms"} & set(record.measures)
    assert "speedup of" not in done.stdout
    maps = [record for record in records if record.property is Property.BREAK_EVEN]
    assert [(record.case, record.reason) for record in maps] == ([] if disable else [(WIDE, Reason.DEPENDS)])
    assert not any(record.measures for record in maps)
