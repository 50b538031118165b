"""Speeds of whole runs: what pytest-benchmark is given, and that what is wrong has no speed anywhere."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Phase, Property
from reports.record import Outcome, Reason, Record, Speed
from reports.store import read_run

ROOT = Path(__file__).resolve().parents[2]

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
    command = [sys.executable, "-m", "pytest", "suite", "--device", "cpu", "--hub", "embedded", "--budget", "0.05"]
    saved = folder / "benchmarks.json"
    done = subprocess.run(
        [*command, "--out", str(folder / "run"), f"--benchmark-json={saved}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
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


def test_only_benchmarks_gives_both_arms_of_both_phases_to_pytest_benchmark(tmp_path: Path) -> None:
    """Fault: xdist switches pytest-benchmark off, and its options do nothing without a word."""
    case = "llama-tiny/f32/inference/sdpa/bundled"
    done, content, records = suite(tmp_path, "--benchmark-only", "--case", case)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = speeds(records)
    assert {record.phase for record in found} == {Phase.PREFILL, Phase.DECODE}
    assert {record.property for record in records if not record.case.startswith("control/")} == {Property.SPEED}
    assert {"control/aa-1", "control/fitness-before", "control/fitness-after"} <= {record.case for record in records}
    assert {entry["group"] for entry in content["benchmarks"]} == {f"{case} prefill", f"{case} decode"}
    assert len(content["benchmarks"]) == 4
    for entry in content["benchmarks"]:
        assert entry["extra_info"]["ratio"] > 0
        assert entry["extra_info"]["verdict"] in set(Speed)
        assert len(entry["stats"]["data"]) == entry["stats"]["rounds"] >= 8
    assert f"benchmark '{case} decode': 2 tests" in done.stdout
    for record in found:
        assert record.measures["kernel_tokens_per_second"]
        assert record.evidence, "a speed stands on the ledger"


@pytest.mark.parametrize("disable", [False, True])
def test_what_is_wrong_or_not_timed_has_no_speed_anywhere(tmp_path: Path, disable: bool) -> None:
    """Fault: a wrong kernel that is fast, timed because nobody asked first whether it is right."""
    case = "llama-tiny/f32/inference/sdpa/user"
    if disable:
        kernels = ["--benchmark-disable", "--case", "llama-tiny/f32/inference/sdpa/bundled", "-k", "test_speed"]
    else:
        kernels = ["--benchmark-only", "--case", case, "--kernel", f"RMSNorm={repository(tmp_path, WRONG)}:Norm"]
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
