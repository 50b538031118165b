"""Builds runs that look like real ones, of any size and always the same, without running anything."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cases.axes import Phase, Property
from reports.record import (
    Determinism,
    Engagement,
    Environment,
    LoadedKernel,
    Outcome,
    Reason,
    Record,
    Speed,
    encode,
)

MODELS = ("llama", "qwen3", "gemma2", "mistral-window", "gpt-oss", "mixtral", "gpt2", "clip", "mamba", "qwen3-next")
DTYPES = ("f32", "bf16", "f16")
MODES = ("inference", "training")
ATTENTIONS = ("eager", "sdpa", "bundled")
MAPPINGS = ("bundled", "default", "rms-only", "fused-mlp")
LAYERS = ("RMSNorm", "rotary_pos_emb", "SiLU", "LigerMLP")
COMMIT = "4f2c1e9ab37d50c64f2c1e9ab37d50c64f2c1e9a"


def environment(planned: int) -> Environment:
    """An accelerator that does not exist."""
    return Environment(
        suite_commit="0123456789abcdef",
        command="pytest suite --device xpu --tier core",
        started="2026-01-15T09:30:00Z",
        ended="2026-01-15T09:41:12Z",
        device="xpu",
        device_name="Example Accelerator 1100",
        device_count=1,
        driver="1.6.33578",
        memory_bytes=48 * 2**30,
        packages={"torch": "2.13.0", "transformers": "5.20.0", "kernels": "0.17.0", "accelerate": "1.12.0"},
        python="3.12.4",
        platform="Linux-6.8 x86_64",
        threads=8,
        hub="embedded",
        tier="core",
        planned=planned,
        kernels=tuple(
            LoadedKernel(
                name=layer,
                repo=f"bundled/{layer.lower()}",
                revision=COMMIT,
                variant="torch-xpu",
                digest="sha256:" + "ab" * 32,
            )
            for layer in LAYERS
        ),
    )


def engaged(layer: str, modules: int = 5) -> Engagement:
    """A ledger line of a kernel that ran."""
    return Engagement(
        name=layer,
        promised=f"bundled/{layer.lower()}@v1:{layer}",
        resolved=f"bundled/{layer.lower()}@{COMMIT}:{layer} (torch-xpu)",
        digest="sha256:" + "ab" * 32,
        modules=modules,
        bound=modules,
        calls=modules * 3,
    )


def fallen_back(layer: str, reason: Reason = Reason.CANNOT_LOAD) -> Engagement:
    """A ledger line of a kernel that did not run."""
    return Engagement(
        name=layer,
        promised=f"bundled/{layer.lower()}@v1:{layer}",
        modules=5,
        reason=reason,
        detail="Cannot find a build variant for this system: torch 2.13, xpu. Available: torch210-cxx11-cu128.",
    )


def records(number: int, seed: int = 0, faults: bool = True) -> Iterator[Record]:
    """The given number of records. Without ``faults`` all that ran pass."""
    chance = random.Random(seed)
    # Spelt out, so that a property more in the suite does not change what is drawn here.
    kinds = [
        *(Property.LOAD, Property.ENGAGE, Property.FORWARD, Property.GRADIENT),
        *(Property.DETERMINISM, Property.GENERATE, Property.MEMORY, Property.SPEED),
    ]
    made = 0
    round_ = 0
    while True:
        for mapping in MAPPINGS:
            for attention in ATTENTIONS:
                for mode in MODES:
                    for dtype in DTYPES:
                        for model in MODELS:
                            name = model if round_ == 0 else f"{model}-{round_}"
                            case = f"{name}/{dtype}/{mode}/{attention}/{mapping}"
                            state = chance.random() if faults else 1.0
                            for kind in kinds:
                                if made == number:
                                    return
                                yield _record(case, kind, state, chance)
                                made += 1
        round_ += 1


def _record(case: str, kind: Property, state: float, chance: random.Random) -> Record:
    trains = "/training/" in case
    base = Record(
        case=case,
        property=kind,
        outcome=Outcome.PASS,
        repro=f"pytest suite --device xpu --case '{case}' --property {kind}",
        seconds=round(chance.expovariate(2), 3),
        requirements=("layers.default", "mode.follow"),
    )
    if state < 0.012 and kind is not Property.LOAD:
        lost = kind is Property.ENGAGE
        return replace(
            base,
            outcome=Outcome.FALLBACK if lost else Outcome.NOT_RUN,
            reason=Reason.CANNOT_LOAD if lost else Reason.DEPENDS,
            message="RMSNorm ran in PyTorch: no build for this device and torch." if lost else "engage did not pass.",
            evidence=(fallen_back("RMSNorm"), engaged("SiLU")),
            speed=Speed.NOT_MEASURED if kind is Property.SPEED else None,
        )
    evidence = tuple(engaged(layer) for layer in LAYERS[: 1 + len(case) % 4])
    if not trains and kind is Property.GRADIENT:
        return replace(
            base, outcome=Outcome.NOT_RUN, reason=Reason.NOT_APPLICABLE, message="No gradients in inference."
        )
    measures: dict[str, float | int | str | bool | list[float] | None] = {}
    outcome, message = Outcome.PASS, ""
    reason: Reason | None = None
    speed: Speed | None = None
    grade: Determinism | None = None
    phase: Phase | None = None
    if kind in (Property.FORWARD, Property.GRADIENT, Property.GENERATE):
        ratio = math.exp(chance.gauss(-0.1, 0.22))
        if 0.5 < state < 0.505:
            ratio = 3.7
        measures = {
            "error_ratio": ratio,
            "limit": 2.0,
            "error_kernel": ratio * 0.0031,
            "error_pytorch": 0.0031,
            "match_bits": 0.93,
            "match_top1": 1.0,
        }
        if ratio > 2:
            outcome, reason = Outcome.FAIL, Reason.TOLERANCE
            message = f"The error is {ratio:.2f} times PyTorch's own; the limit is 2. The worst row is 17 of 128."
    if kind is Property.DETERMINISM:
        grade = Determinism.BITWISE if chance.random() < 0.95 else Determinism.TOLERANT
        measures = {
            "repeats": 10,
            "digest": "sha256:" + "ab" * 32,
            "fresh_process": "same" if trains else "not repeated: another case shows the same",
            "batch_kernel": 1e-7 if case.endswith(MAPPINGS[0]) else 0.0,
            "batch_pytorch": 0.0,
            "flags": "raise" if trains else "hold",
            "flags_cost": 1.03,
            "flags_cost_low": 1.01,
            "flags_cost_high": 1.05,
        }
    if kind is Property.MEMORY:
        measures = {"ratio": round(chance.uniform(0.8, 1.05), 3)}
    if kind is Property.SPEED:
        phase = Phase.TRAIN_STEP if trains else Phase.PREFILL
        centre, width = math.exp(chance.gauss(0.22, 0.3)), chance.uniform(0.006, 0.07)
        low, high = centre * math.exp(-width), centre * math.exp(width)
        speed = (
            Speed.FASTER
            if low > 1.02
            else Speed.SLOWER
            if high < 0.98
            else Speed.SAME
            if low > 0.98 and high < 1.02
            else Speed.INCONCLUSIVE
        )
        measures = {
            "ratio": centre,
            "low": low,
            "high": high,
            "pairs": 32,
            "pytorch_ms": 4.1,
            "kernel_ms": 4.1 / centre,
        }
        measures["logs"] = [round(chance.gauss(math.log(centre), width), 4) for _ in range(8)]
    if 0.9 < state < 0.903 and kind is Property.FORWARD:
        outcome, reason, message = Outcome.CRASH, None, "The worker died with signal 11 while this was being checked."
    return replace(
        base,
        outcome=outcome,
        reason=reason,
        message=message,
        speed=speed,
        determinism=grade,
        phase=phase,
        evidence=evidence,
        measures=measures,
    )


def write_run(folder: Path, found: list[Record], planned: int | None = None) -> Path:
    """Write a run as the suite does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").write_bytes(b"".join(encode(record) + b"\n" for record in found))
    pairs = len({(record.case, record.property) for record in found})
    (folder / "environment.json").write_bytes(msgspec.json.encode(environment(pairs if planned is None else planned)))
    return folder
