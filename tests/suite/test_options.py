"""The command line: what is understood, and how what cannot be is refused."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from cases.axes import DType, Mode, Tier
from cases.ladder import rungs
from cases.statements import BASE, STATEMENTS
from suite.options import OptionError, read, shard_of
from suite.session import open_session


def namespace(**given: Any) -> argparse.Namespace:
    """A parsed command line with everything at its default but ``given``."""
    defaults: dict[str, Any] = {
        **{
            name: []
            for name in ("model", "dtype", "mode", "attention", "mapping", "kernel", "trust", "case", "waivers")
        },
        **dict.fromkeys(("kernels", "shard", "budget", "out", "resume", "baseline"), None),
        "device": "auto",
        "tier": None,
        "ladder": None,
        "hub": "auto",
        "qualify": False,
        "strict": False,
    }
    return argparse.Namespace(**{**defaults, **given})


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({"device": "gpu"}, "xpu"),
        ({"device": "xpu:one"}, "xpu:1"),
        ({"device": "cpu:0"}, "cpu"),
        ({"tier": "quick"}, "smoke, core, full"),
        ({"model": ["llama"]}, "llama-tiny"),
        ({"dtype": ["fp16"]}, "f32, bf16, f16"),
        ({"mode": ["train"]}, "inference, training"),
        ({"attention": ["flash"]}, "eager, sdpa, bundled"),
        ({"mapping": ["all"]}, "bundled"),
        ({"hub": "offline"}, "auto, embedded, online"),
        ({"kernel": ["RMSNorm"]}, "LAYER=ORG/REPO"),
        ({"kernel": ["RMSNorm=/no/such/folder:X"]}, "no folder /no/such/folder"),
        ({"kernel": ["NoSuchLayer=org/repo:X"]}, "RMSNorm"),
        ({"kernel": ["RMSNorm=cases/kernels:X"]}, "absolute path, /"),
        ({"kernel": ["RMSNorm=org/a:X", "RMSNorm=org/b:X"]}, "given twice"),
        ({"kernel": ["RMSNorm=org/a:X"], "mapping": ["default"]}, "give one of them"),
        ({"kernels": "/no/such/file.toml"}, "[kernels]"),
        ({"ladder": "RMSNorm"}, "LAYER=ORG/REPO:NAME"),
        ({"ladder": "RMSNorm=org/repo"}, "LAYER=ORG/REPO:NAME"),
        ({"ladder": "RMSNorm=/home/me/norm:Norm"}, "a repository on a Hub"),
        ({"ladder": "RMSNorm=org/repo@v2:Norm"}, "takes no pin"),
        ({"ladder": "NoSuchLayer=org/repo:X"}, "registered are"),
        ({"ladder": "RMSNorm=org/a:X", "kernel": ["RMSNorm=org/a:X"]}, "give one of them"),
        ({"ladder": "RMSNorm=org/a:X", "mapping": ["default"]}, "give one of them"),
        ({"case": ["llama-tiny/f32/inference/sdpa/user@v1"]}, "--ladder LAYER=ORG/REPO:NAME"),
        ({"trust": ["org"]}, "ORG/NAME"),
        ({"waivers": ["/no/such/file.toml"]}, "[[waiver]]"),
        ({"shard": "3/2"}, "1 <= I <= N"),
        ({"shard": "1"}, "2/4"),
        ({"budget": "-1"}, "above 0"),
        ({"budget": "nan"}, "above 0"),
        ({"resume": "/no/such/run"}, "results.jsonl"),
        ({"out": "a", "resume": "b"}, "give one of them"),
        ({"baseline": "/no/such/run"}, "--baseline /no/such/run: no results.jsonl there"),
    ],
)
def test_an_impossible_value_is_refused_with_what_would_be_accepted(given: dict[str, Any], accepted: str) -> None:
    """Fault: a misspelt value that silently selects nothing, or a traceback for a user's mistake."""
    with pytest.raises(OptionError) as refusal:
        read(namespace(**given))
    assert accepted in str(refusal.value)
    assert any(f"--{option}" in str(refusal.value) for option in given)


def test_statements_are_asked_as_a_part_of_the_whole_plan_or_by_their_id() -> None:
    """Fault: a minute of statements in a run of one kernel, or a misspelt statement that asks nothing."""
    assert read(namespace()).statements() == tuple(STATEMENTS.values())
    base = [STATEMENTS[name] for name in BASE]
    for given in ({"model": ["llama-tiny"]}, {"case": ["llama-tiny/f32/inference/sdpa/pytorch"]}):
        assert list(read(namespace(**given)).statements()) == base
    assert list(read(namespace(case=["statement/attn.hub"])).statements()) == [*base, STATEMENTS["attn.hub"]]
    shards = [read(namespace(shard=f"{part}/3")).statements() for part in (1, 2, 3)]
    assert {statement.id for shard in shards for statement in shard} == set(STATEMENTS)
    assert sum(len(shard) for shard in shards) == len(STATEMENTS) + 2 * len(BASE)
    with pytest.raises(OptionError, match=r"statement/attn\.hubb: no such statement; did you mean attn\.hub"):
        read(namespace(case=["statement/attn.hubb"])).statements()


def test_choices_that_leave_no_case_are_an_error() -> None:
    """Fault: zero cases reported as a green run."""
    options = read(namespace(model=["gpt2-tiny"], kernel=["RMSNorm=org/repo:X"]))
    with pytest.raises(OptionError, match="leave no case"):
        options.cases()


@pytest.mark.parametrize(
    ("text", "version", "revision"),
    [
        ("RMSNorm=org/repo:Norm", 1, None),
        ("RMSNorm=org/repo@v3:Norm", 3, None),
        ("RMSNorm=org/repo@v3.0.0:Norm", None, "v3.0.0"),
        ("RMSNorm=org/repo@main:Norm", None, "main"),
    ],
)
def test_a_pin_is_a_version_or_a_revision(text: str, version: int | None, revision: str | None) -> None:
    """Fault: a tag taken for a version, so that another build is tested than was asked for."""
    ((name, reference),) = read(namespace(kernel=[text])).selection.kernels
    assert (name, reference.layer, reference.version, reference.revision) == ("RMSNorm", "Norm", version, revision)


def test_a_ladder_is_climbed_when_its_revisions_are_known() -> None:
    """Fault: a plan without revisions that runs, or revisions that are no part of what a run is resumed with."""
    options = read(namespace(ladder="RMSNorm=org/norm:Norm", model=["llama-tiny"], dtype=["f32"]))
    assert options.selection.tier is Tier.SMOKE
    assert (options.own, options.climbed(options.cases())) == ({}, options.cases())
    climbed = options.on(rungs({"v1.0.0": "1" * 40}, {"v2": "2" * 40}))
    assert {case.mapping for case in climbed.climbed(climbed.cases())} == {"user@v1.0.0", "user@v2"} == set(climbed.own)
    assert climbed.own["user@v2"]["RMSNorm"].version == 2
    assert climbed.choices != options.choices
    moved = options.on(rungs({"v1.0.0": "1" * 40}, {"v2": "3" * 40}))
    assert moved.choices != climbed.choices
    assert options.rerun == "pytest suite --device auto --ladder RMSNorm=org/norm:Norm"


@pytest.mark.parametrize("case", ["llama-tiny/f32/inference/sdpa/user@v9", "ladder/v9", "repository/RMSNorm@v9"])
def test_a_revision_that_is_not_on_the_ladder_is_refused(case: str) -> None:
    """Fault: a misspelt revision that checks nothing."""
    options = read(namespace(ladder="RMSNorm=org/norm:Norm", case=[case]))
    with pytest.raises(OptionError, match=r"no revision 'v9'; there are v1, v2$"):
        options.on(rungs({}, {"v1": "1" * 40, "v2": "2" * 40}))


def test_kernels_can_come_from_a_file(tmp_path: Path) -> None:
    """Fault: a matrix of kernels that cannot be kept under version control."""
    file = tmp_path / "kernels.toml"
    file.write_text(f"[kernels]\nRMSNorm = '{tmp_path}:Norm'\nSiLU = 'org/act@v2:SiLU'\n", encoding="utf-8")
    kernels = dict(read(namespace(kernels=str(file))).selection.kernels)
    assert kernels["RMSNorm"].repository == str(tmp_path)
    assert kernels["SiLU"].version == 2


def test_filters_are_kept_and_the_plan_obeys_them() -> None:
    """Fault: a filter that is read and then forgotten."""
    options = read(namespace(tier="full", dtype=["bf16"], mode=["training"], model=["llama-tiny"], attention=["sdpa"]))
    cases = options.cases()
    assert cases
    assert {(case.model, case.dtype, case.mode, case.attention) for case in cases} == {
        ("llama-tiny", DType.BFLOAT16, Mode.TRAINING, "sdpa")
    }
    assert options.selection.tier is Tier.FULL


def test_shards_divide_the_models_without_loss_or_overlap() -> None:
    """Fault: a case that no shard runs, or one that two run."""
    whole = set(read(namespace()).cases())
    parts = [set(read(namespace(shard=f"{part}/3")).cases()) for part in (1, 2, 3)]
    assert set().union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    assert shard_of("llama-tiny", 3) == shard_of("llama-tiny", 3)


def test_the_command_to_run_again_keeps_what_a_case_depends_on() -> None:
    """Fault: a repro command that tests the bundled kernel instead of the user's."""
    options = read(namespace(device="cpu", kernel=["RMSNorm=org/repo@v2:Norm"], trust=["org/repo"], tier="full"))
    assert options.rerun == "pytest suite --device cpu --kernel RMSNorm=org/repo@v2:Norm --trust org/repo --tier full"


def test_the_cap_on_timing_is_one_on_maps_too() -> None:
    """Fault: a minute for a map where the user allowed fifteen seconds."""
    assert (read(namespace(budget="15")).budget, read(namespace(budget="15")).map_seconds) == (15, 15)
    assert read(namespace(tier="full")).map_seconds > read(namespace(tier="core")).map_seconds


@pytest.mark.parametrize(("name", "value"), [("USE_HUB_KERNELS", "off"), ("DISABLE_KERNEL_MAPPING", "1")])
def test_an_environment_that_switches_kernels_off_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: every kernel reported as broken, since a variable from last week is still set."""
    monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=f"{name}={value} is set"):
        open_session(read(namespace(device="cpu")), 1)


def test_a_baseline_that_cannot_be_read_is_refused_before_anything_is_checked(tmp_path: Path) -> None:
    """Fault: a night that ends in a traceback over the run it was to be held against."""
    (tmp_path / "results.jsonl").touch()
    (tmp_path / "environment.json").write_text("[]", encoding="utf-8")
    with pytest.raises(OptionError, match=r"--baseline: .*environment\.json: not readable"):
        open_session(read(namespace(device="cpu", baseline=str(tmp_path))), 1)
