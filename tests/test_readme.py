"""What the README says is true: its commands are accepted, its options exist, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.strip()]


def collect(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Let pytest understand a command of the README without running it."""
    command = [sys.executable, "-m", "pytest", *words, "--collect-only", "-q"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("pytest suite")])
def test_a_recipe_is_a_command_that_the_suite_understands(command: str) -> None:
    """Fault: an option of the README that was renamed long ago."""
    done = collect(shlex.split(command)[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests collected" in done.stdout


@pytest.mark.parametrize("name", ["main", "tests"])
def test_the_two_commands_are_one_line_each_and_end_in_pytest(name: str) -> None:
    """Fault: a set-up that the CI, which runs these two lines as they stand, does not exercise."""
    match = re.search(rf"<!-- command: {name} -->\n```bash\n(.*?)\n```", README, re.DOTALL)
    assert match is not None
    assert "\n" not in match[1]
    assert match[1].endswith({"main": ".venv/bin/pytest suite", "tests": ".venv/bin/pytest tests"}[name])
    assert "-c constraints.txt" in match[1]


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("python -m")])
def test_a_module_of_the_readme_has_the_subcommand(command: str) -> None:
    """Fault: a report command that does not exist."""
    _, _, module, *words = shlex.split(command)
    subcommand = [word for word in words[:1] if not word.startswith("-")]
    done = subprocess.run(
        [sys.executable, "-m", module, *subcommand, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_table_of_options_is_complete() -> None:
    """Fault: an option that nobody finds, or a row for one that is gone."""
    source = (ROOT / "conftest.py").read_text(encoding="utf-8")
    defined = set(re.findall(r'"(--[a-z]+)"', source))
    table = README.partition("## Options")[2].partition("## Recipes")[0]
    named = set(re.findall(r"--[a-z]+", table))
    assert defined <= named
    assert named <= defined | {"--timeout", "--collect", "--benchmark"}


def test_links_and_pictures_lead_to_files() -> None:
    """Fault: a README whose picture is broken."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_dependency_has_a_line_on_what_it_is_for() -> None:
    """Fault: a dependency that nobody remembers the reason of."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = set(re.findall(r'^  "([A-Za-z0-9_-]+)>=', project, re.MULTILINE))
    named |= set(re.findall(r'"(mypy|ruff|scipy|types-tabulate)', project))
    for name in named:
        assert name in README.partition("What each dependency is for")[2], name
