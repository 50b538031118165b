"""Whole runs of ``pytest suite`` as a user starts them, each in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Property
from reports.record import Environment, Outcome, Reason, Speed
from reports.store import read_run
from tests.suite.runs import ROOT, records, suite


def kernel_repository(folder: Path, variant: str, source: str, backend: str) -> Path:
    """A local kernel repository with one variant."""
    build = folder / "build" / variant
    build.mkdir(parents=True)
    (build / "__init__.py").write_text("from . import layers\n\n__all__ = ['layers']\n", encoding="utf-8")
    (build / "layers.py").write_text(source, encoding="utf-8")
    metadata = {
        "id": f"{folder.name}_{variant.replace('-', '_')}",
        "name": folder.name,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
    }
    (build / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return folder


NORM = """
import torch

class Norm(torch.nn.Module):
    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states):
        return torch.nn.functional.rms_norm(
            hidden_states.float(), (hidden_states.shape[-1],), self.weight.float(), self.variance_epsilon
        ).to(hidden_states.dtype)
"""


CHOICES = (
    *("--tier", "smoke", "--budget", "0.05"),
    *("--case", "llama-tiny/f32/training/bundled/bundled"),
    *("--case", "qwen3-tiny/bf16/inference/sdpa/only-RMSNorm"),
    *("--case", "llama-tiny/f32/inference/sdpa/default"),
    *("--case", "llama-tiny/f32/inference/sdpa/pytorch"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One small run with everything in it: layer kernels, an attention kernel, training, a real width."""
    folder = tmp_path_factory.mktemp("run") / "out"
    done = suite("--device", "cpu", "--hub", "embedded", "--out", str(folder), *CHOICES)
    return done, folder


Run = tuple[subprocess.CompletedProcess[str], Path]


def test_a_clean_run_exits_with_0_and_leaves_everything_in_its_folder(run: Run) -> None:
    """Fault: results scattered, or a run that is green and has written nothing."""
    done, folder = run
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "results.jsonl",
        "environment.json",
        "kernels.lock.json",
        "report.html",
        "report.md",
        "audit.json",
        "logs",
    }
    assert str(folder / "report.html") in done.stdout


def test_a_pass_on_a_kernel_case_has_calls_of_a_known_kernel_at_a_known_commit(run: Run) -> None:
    """Fault: a pass without evidence that a kernel ran."""
    found = records(run[1])
    case = "llama-tiny/f32/training/bundled/bundled"
    for checked in (Property.ENGAGE, Property.FORWARD, Property.GRADIENT, Property.SPEED):
        record = found[case, checked]
        assert record.outcome is Outcome.PASS, record.message
        evidence = {entry.name: entry for entry in record.evidence}
        assert set(evidence) == {"RMSNorm", "SiLU", "rotary_pos_emb", "attention"}
        for entry in evidence.values():
            assert entry.calls > 0
            assert entry.bound == entry.modules > 0
            assert entry.reason is None
            assert entry.digest is not None
            assert entry.digest.startswith("sha256:")
            assert entry.resolved is not None
            repository, _, rest = entry.resolved.partition("@")
            assert repository.startswith("embedded/")
            assert len(rest.partition(":")[0]) == 40


def test_a_layer_outside_a_single_layer_mapping_stays_pytorch(run: Run) -> None:
    """Fault: inherit_mapping=False that inherits."""
    record = records(run[1])["qwen3-tiny/bf16/inference/sdpa/only-RMSNorm", Property.ENGAGE]
    assert [entry.name for entry in record.evidence] == ["RMSNorm"]


def test_a_default_mapping_without_a_promise_for_the_device_is_not_run_and_says_why(run: Run) -> None:
    """Fault: PyTorch ran, and the report says PASS, or FAIL."""
    record = records(run[1])["llama-tiny/f32/inference/sdpa/default", Property.ENGAGE]
    assert (record.outcome, record.reason) == (Outcome.NOT_RUN, Reason.NO_DEVICE)
    dependent = records(run[1])["llama-tiny/f32/inference/sdpa/default", Property.FORWARD]
    assert (dependent.outcome, dependent.reason) == (Outcome.NOT_RUN, Reason.DEPENDS)


def test_speed_comes_with_an_interval_and_its_raw_pairs(run: Run) -> None:
    """Fault: a ratio nobody can check."""
    record = records(run[1])["llama-tiny/f32/training/bundled/bundled", Property.SPEED]
    assert record.speed in (Speed.FASTER, Speed.SAME, Speed.SLOWER, Speed.INCONCLUSIVE)
    measures: dict[str, Any] = record.measures
    assert measures["low"] <= measures["ratio"] <= measures["high"]
    assert len(measures["logs"]) == measures["pairs"] >= 8
    assert record.speed is not Speed.INCONCLUSIVE or measures["unmet"]


def test_the_environment_says_with_what_the_run_was_made(run: Run) -> None:
    """Fault: a number without the stack it was measured on."""
    environment = read_run(run[1]).environment
    assert isinstance(environment, Environment)
    assert environment.device == "cpu"
    assert environment.hub == "embedded"
    assert {"torch", "transformers", "kernels", "huggingface_hub"} <= set(environment.packages)
    assert "kernel-config-accepts-cpu" in environment.shims
    assert environment.exit_status == 0
    assert {kernel.repo for kernel in environment.kernels} >= {"embedded/normalisation", "embedded/attention"}
    assert {kernel.signature for kernel in environment.kernels} == {"unsigned"}
    assert environment.planned == sum(not case.startswith("control/") for case, _ in records(run[1]))


def test_a_shim_is_named_in_every_record_it_touches(run: Run) -> None:
    """Fault: a result that unpatched code would not give, without a word about it."""
    found = records(run[1])
    assert found["qwen3-tiny/bf16/inference/sdpa/only-RMSNorm", Property.FORWARD].shims == (
        "kernel-config-accepts-cpu",
    )
    assert found["llama-tiny/f32/inference/sdpa/pytorch", Property.FORWARD].shims == ()


def test_every_record_has_the_command_that_runs_it_again(run: Run) -> None:
    """Fault: a failure that its reader cannot reproduce."""
    for (case, _), record in records(run[1]).items():
        if not case.startswith(("statement/", "control/")):
            assert record.repro == f"pytest suite --device cpu --hub embedded --case '{case}'"


def test_a_run_is_resumed_without_repeating_what_is_recorded(run: Run) -> None:
    """Fault: a resumed night that starts from the beginning."""
    before = set(records(run[1]))
    done = suite("--device", "cpu", "--hub", "embedded", "--resume", str(run[1]), *CHOICES)
    assert done.returncode == 0, done.stdout[-2000:]
    assert {key for key in records(run[1]) if not key[0].startswith("control/")} <= before
    assert json.loads((run[1] / "environment.json").read_text(encoding="utf-8"))["exit_status"] == 0


def test_a_run_is_not_resumed_with_other_choices(run: Run) -> None:
    """Fault: two plans in one folder, of which the second is green and the first was never finished."""
    before = (run[1] / "results.jsonl").read_bytes()
    done = suite("--device", "cpu", "--hub", "embedded", "--resume", str(run[1]))
    assert done.returncode == 4
    assert "other choices" in done.stderr
    assert "--case llama-tiny/f32/training/bundled/bundled" in done.stderr
    assert (run[1] / "results.jsonl").read_bytes() == before


def test_help_leaves_nothing_behind(tmp_path: Path) -> None:
    """Fault: an empty run for every look at the options."""
    command = [sys.executable, "-m", "pytest", str(ROOT / "suite"), "--rootdir", str(ROOT), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0
    assert "--tier" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_local_kernel_is_tested_by_its_path_and_not_supported_in_training_if_it_says_so(tmp_path: Path) -> None:
    """Fault: bring-your-own that quietly tests a bundled kernel; an honest flag punished as a failure."""
    source = NORM.replace("has_backward = True", "has_backward = False")
    repository = kernel_repository(tmp_path / "inference-only", "torch-cpu", source, "cpu")
    case, trained = "llama-tiny/f32/inference/sdpa/user", "llama-tiny/f32/training/sdpa/user"
    words = [
        "--device",
        "cpu",
        "--hub",
        "embedded",
        "-n",
        "0",
        "--case",
        case,
        "--case",
        trained,
        "-k",
        "load or forward",
    ]
    done = suite(*words, "--kernel", f"RMSNorm={repository}:Norm", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout[-3000:]
    found = records(tmp_path / "out")
    (entry,) = found[case, Property.FORWARD].evidence
    assert entry.resolved == f"{repository}:Norm (torch-cpu)"
    assert entry.calls > 0
    assert (found[trained, Property.LOAD].outcome, found[trained, Property.LOAD].reason) == (
        Outcome.NOT_SUPPORTED,
        Reason.NO_COMPATIBLE_MODE,
    )
    assert found[trained, Property.FORWARD].outcome is Outcome.NOT_RUN


def test_a_check_alone_fails_if_what_it_rests_on_would_have_failed(tmp_path: Path) -> None:
    """Fault: a check that is asked for alone, and green although the kernel does not even load."""
    repository = kernel_repository(tmp_path / "norm", "torch-cpu", NORM, "cpu")
    case = "llama-tiny/f32/inference/sdpa/user"
    words = ["--device", "cpu", "--hub", "embedded", "-n", "0", "--case", case, "-k", "forward"]
    done = suite(*words, "--kernel", f"RMSNorm={repository}:Nope", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert records(tmp_path / "out")[case, Property.FORWARD].outcome is Outcome.FAIL


def test_a_kernel_without_a_build_for_this_device_is_a_fallback_and_has_no_speed(tmp_path: Path) -> None:
    """Fault S22: results are right, since PyTorch computed them, and the kernel is credited."""
    repository = kernel_repository(tmp_path / "only-cuda", "torch-cuda", NORM, "cuda")
    out = tmp_path / "out"
    kernel = f"RMSNorm={repository}:Norm"
    case = "llama-tiny/f32/inference/sdpa/user"
    saved = tmp_path / "benchmarks.json"
    wide = "qwen3-0.6b-width/f32/inference/sdpa/user"
    words = ["--device", "cpu", "--hub", "embedded", "--kernel", kernel, "--case", case, "--case", wide]
    done = suite(*words, "--out", str(out), f"--benchmark-json={saved}")
    assert done.returncode == 1
    assert "Not saving anything" in done.stderr, "pytest-benchmark has no entry, and says so"
    assert not saved.exists()
    assert "FALLBACK" in done.stdout
    assert "CANNOT_LOAD" in done.stdout
    found = records(out)
    assert (found[case, Property.ENGAGE].outcome, found[case, Property.ENGAGE].reason) == (
        Outcome.FALLBACK,
        Reason.CANNOT_LOAD,
    )
    assert found[case, Property.SPEED].speed is Speed.NOT_MEASURED
    assert "ratio" not in found[case, Property.SPEED].measures
    assert found[wide, Property.BREAK_EVEN].reason is Reason.DEPENDS
    assert not found[wide, Property.BREAK_EVEN].measures


def test_listing_needs_no_torch_and_no_device(tmp_path: Path) -> None:
    """Fault: half a minute of imports to see what would run, or none at all on a machine without torch."""
    for name in ("torch", "transformers", "kernels", "huggingface_hub"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('listing must not import this')\n", encoding="utf-8")
    done = suite("--collect-only", "-q", "--device", "xpu", environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("test_forward[") > 100


def test_only_the_suite_imports_torch() -> None:
    """Fault: a report that needs an accelerator's software stack to be read."""
    script = (
        "import sys, pkgutil, importlib, cases, reports\n"
        "for package in (cases, reports):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
        "heavy = {'torch', 'transformers', 'kernels', 'huggingface_hub'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
