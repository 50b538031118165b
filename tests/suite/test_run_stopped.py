"""Runs of ``pytest suite`` that cannot begin, or are ended before their time: what they say and what they leave."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from cases.axes import Property
from reports.record import Outcome, Reason
from reports.store import read_run
from tests.suite.runs import ROOT, suite


def test_a_worker_that_cannot_begin_leaves_a_record_of_each_check_and_the_cause(tmp_path: Path) -> None:
    """Fault: a library of another release breaks the suite at import, and the report says UNKNOWN without a word."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n\nsys.modules['transformers'] = None  # importing it raises ModuleNotFoundError\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    done = suite(
        *("--device", "cpu", "--hub", "embedded", "--out", str(out)),
        *("--case", "llama-tiny/f32/inference/sdpa/bundled"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    records = read_run(out).records
    assert done.returncode == 1
    assert {record.outcome for record in records} == {Outcome.HARNESS_ERROR}
    assert all("transformers" in record.message for record in records)
    assert "HARNESS_ERROR" in done.stdout
    assert "transformers" in done.stdout


def test_an_interrupted_run_stops_its_workers_before_it_is_judged(tmp_path: Path) -> None:
    """Fault: a worker that goes on recording without its Hub, so that an unfinished run turns into a failed one."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "pytest", "suite", "--device", "cpu", "--hub", "embedded", "--benchmark-skip"]
    process = subprocess.Popen(
        [*command, "--tier", "smoke", "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell has its background processes ignore the signal, and they hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    results = out / "results.jsonl"
    for _ in range(1200):
        if process.poll() is not None or (results.is_file() and results.stat().st_size > 0):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=100)
    recorded = results.read_bytes()
    assert process.returncode == 2, said[-2000:]
    assert "INCOMPLETE" in said or "UNKNOWN" in said
    assert all(record.outcome is not Outcome.HARNESS_ERROR for record in read_run(out).records)
    time.sleep(2)
    assert results.read_bytes() == recorded, "nobody writes any more"


def test_packages_that_do_not_fit_each_other_are_one_failure_with_the_remedy(tmp_path: Path) -> None:
    """Fault: a release of kernels that Transformers does not support, told as eighty faults of the suite."""
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import metadata\n\n"
        "version = metadata.version\n"
        "metadata.version = lambda name: '0.1.0' if name == 'kernels' else version(name)\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    done = suite(
        *("--device", "cpu", "--hub", "embedded", "--out", str(out)),
        *("--case", "llama-tiny/f32/inference/sdpa/bundled", "--case", "statement/config.only"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    found = {(record.case, record.property): record for record in read_run(out).records}
    cause = found.pop(("statement/trouble.package", Property.STATEMENT))
    assert (done.returncode, cause.outcome) == (1, Outcome.FAIL)
    assert "pip install 'kernels>=" in cause.message
    assert "pip install 'kernels>=" in done.stdout
    resting = [record for record in found.values() if record.reason is Reason.DEPENDS]
    assert {record.case for record in resting} >= {"statement/config.only", "llama-tiny/f32/inference/sdpa/bundled"}
    assert {record.outcome for record in found.values()} <= {Outcome.PASS, Outcome.NOT_RUN}


def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    """Fault: a run on the CPU under the name of another device, or a traceback."""
    done = suite("--device", "xpu")
    assert done.returncode == 4
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert len(lines) == 1
    assert "there is no xpu device" in lines[0]
    assert "found: cpu" in lines[0]
