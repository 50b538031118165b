"""The file that a run recommends, put to use with an unmodified Transformers."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import transformers

from cases.axes import Phase, Property
from reports.kernel_config import FILE, configuration
from reports.record import Engagement, Outcome, Record, Speed
from reports.store import Run
from suite.hub import EmbeddedHub, bundled_repositories, environment_for

ROOT = Path(__file__).resolve().parents[2]
NORM = "embedded/normalisation@v2:RMSNorm"

USE = """
import runpy, sys
from pathlib import Path
import torch, transformers
from cases.models import MODELS
from suite import ledger, zoo
from suite.loading import accept_device

made = runpy.run_path(sys.argv[1])
path = zoo.build(MODELS["llama-tiny"], Path(sys.argv[2]))
accept_device("cpu")  # KernelConfig knows no CPU; every other device needs nothing

for config in (made["KERNEL_CONFIG"], made["kernel_config"]("RMSNorm")):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, use_kernels=True, kernel_config=config)
    model(torch.tensor([[3, 4, 5]]))
    norm, activation = model.model.norm.forward, model.model.layers[0].mlp.act_fn.forward
    print("bound:", ledger.origin(norm).repository, ledger.origin(activation))
"""


def file_of(folder: Path, promised: str) -> Path:
    """The file of a run in which one kernel was faster."""
    entry = Engagement(name="RMSNorm", promised=promised, resolved=promised, modules=1, bound=1, calls=1)
    record = Record(
        case="qwen3-0.6b-width/f32/inference/eager/only-RMSNorm",
        property=Property.SPEED,
        outcome=Outcome.PASS,
        phase=Phase.PREFILL,
        speed=Speed.FASTER,
        evidence=(entry,),
        measures={"ratio": 1.2, "low": 1.1, "high": 1.3},
    )
    target = folder / FILE
    target.write_text(configuration(Run(folder, (record,), None)), encoding="utf-8")
    return target


def test_the_file_makes_a_kernel_config_of_the_installed_transformers(tmp_path: Path) -> None:
    """Fault: a file for an interface that there is not, seen only when somebody uses it."""
    made = runpy.run_path(str(file_of(tmp_path, NORM)))
    config = made["KERNEL_CONFIG"]
    assert isinstance(config, transformers.KernelConfig)
    assert config.kernel_mapping == {"RMSNorm": ("embedded/normalisation:RMSNorm", {"version": 2})}
    assert config.inherit_mapping is False
    assert made["kernel_config"]() is not config


def test_from_pretrained_takes_the_file_and_binds_what_was_measured(tmp_path: Path) -> None:
    """Fault: a configuration that Transformers refuses, or that loads another kernel or leaves the default ones in."""
    file = file_of(tmp_path, NORM)
    with EmbeddedHub(bundled_repositories(ROOT / "cases" / "kernels")) as hub:
        environment = {**os.environ, **environment_for(hub.endpoint, tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", USE, str(file), str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("bound:")] == [
        "bound: embedded/normalisation None"
    ] * 2
