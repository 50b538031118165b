"""The documented statements: complete, well-formed, and citable."""

import subprocess
import sys
from pathlib import Path

import pytest

from cases import requirements
from cases.requirements import Exercise, Level, check_cited, load_requirements

GROUPS = [
    "env",
    "attn",
    "infer",
    "layers",
    "mode",
    "config",
    "fusion",
    "local",
    "off",
    "trouble",
    "determinism",
    "quant",
    "train",
    "dist",
]


def write(tmp_path: Path, *entries: str) -> Path:
    file = tmp_path / "requirements.toml"
    file.write_text('[documents]\nA = "Document"\n' + "".join(f"[[requirement]]\n{entry}\n" for entry in entries))
    return file


ENTRY = 'id = "a.b"\nlevel = "MUST"\nsources = ["A: Section"]\nstatement = "It is so."\ncpu = ["real"]'


def test_every_statement_is_a_sentence_with_source_and_a_way_to_exercise_it() -> None:
    """A row that a reader of the report can make nothing of."""
    found = load_requirements()
    assert len(found) == 63
    for name, requirement in found.items():
        assert requirement.id == name
        assert requirement.statement.endswith(".")
        assert len(requirement.statement) > 30
        assert requirement.sources
        assert all(source.startswith("Transformers documentation: ") for source in requirement.sources)
        assert requirement.cpu
    assert list(dict.fromkeys(requirement.group for requirement in found.values())) == GROUPS


def test_what_needs_a_device_alone_is_a_small_part() -> None:
    """Statements marked as out of reach for convenience: most can be exercised on a CPU, and only these cannot."""
    out_of_reach = {name for name, r in load_requirements().items() if r.cpu == (Exercise.DEVICE,)}
    assert out_of_reach == {"env.select", "env.order", "env.capability", "layers.rocm", "dist.zero"}


def test_an_entry_is_read_as_it_is_written(tmp_path: Path) -> None:
    """A field that is dropped or mixed up."""
    [requirement] = load_requirements(write(tmp_path, ENTRY)).values()
    assert requirement.level is Level.MUST
    assert requirement.sources == ("Document, Section",)
    assert requirement.cpu == (Exercise.REAL,)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([ENTRY, ENTRY], "requirement a.b stands there twice"),
        ([ENTRY.replace("MUST", "MAY")], "requirement a.b: 'MAY' is not a valid Level"),
        ([ENTRY.replace('"real"', '"maybe"')], "requirement a.b: 'maybe' is not a valid Exercise"),
        ([ENTRY.replace("A: ", "Z: ")], "requirement a.b: 'Z' is missing or no document"),
        ([ENTRY.replace("statement", "text")], "requirement a.b: 'statement' is missing or no document"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_entry(tmp_path: Path, entries: list[str], message: str) -> None:
    """A typing error that shows up as a KeyError without a place."""
    with pytest.raises(ValueError, match=message):
        load_requirements(write(tmp_path, *entries))


def test_citing_what_does_not_exist_is_refused_with_what_was_meant() -> None:
    """A misspelt citation that leaves its statement unchecked in silence."""
    check_cited(["attn.trust", "config.only"])
    with pytest.raises(ValueError, match=r"'attn\.pin_tags' is no requirement .*: did you mean attn\.pin_tag"):
        check_cited(["attn.trust", "attn.pin_tags"])
    with pytest.raises(ValueError, match="the groups are env, attn, "):
        check_cited(["xyzzy"])
    with pytest.raises(ValueError, match="no requirement is cited"):
        check_cited([])


def test_the_table_is_read_on_first_use_and_without_torch() -> None:
    """Listing cases that takes seconds because a table drags torch in, or reads its file at import."""
    code = (
        "import sys, cases.requirements as r; assert r.load_requirements.cache_info().misses == 0;"
        "assert r.REQUIREMENTS['env.available'].group == 'env'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])
    assert requirements.REQUIREMENTS is load_requirements()
    with pytest.raises(AttributeError, match="no attribute 'NOTHING'"):
        _ = requirements.NOTHING
