"""Reads what names kernels on the command line: ``--kernel``, ``--kernels`` and ``--ladder``.

Runs in the pytest controller and knows no torch. Every message names the option, the value, and what is accepted.
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from cases.ladder import Ladder
from cases.mappings import KernelReference
from cases.models import MODELS

__all__ = ["OptionError", "kernels_file", "parse_kernel", "parse_ladder", "repository_name", "unique_layers"]


_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


class OptionError(Exception):
    """An option has a value that cannot be."""


def parse_kernel(text: str) -> tuple[str, KernelReference]:
    """Read ``LAYER=REPO[@PIN]:NAME``. A pin ``v2`` is a version, anything else a revision; no pin is version 1.

    Raises:
        OptionError: not of that form, or a local folder that is not there.
    """
    form = "expected LAYER=ORG/REPO[@PIN]:NAME or LAYER=/absolute/folder:NAME, as in RMSNorm=/home/me/norm:MyNorm"
    layer, repository, name = _parts(f"--kernel {text!r}", text, form)
    if repository.startswith("/"):
        if not Path(repository).is_dir():
            raise OptionError(f"--kernel {text!r}: there is no folder {repository}; {form}")
        return layer, KernelReference(repository, name, version=None)
    if Path(repository).is_dir():
        raise OptionError(
            f"--kernel {text!r}: {repository} is a folder; write its absolute path, {Path(repository).resolve()}"
        )
    repository, _, pin = repository.partition("@")
    repository_name(f"--kernel {text!r}:", repository)
    if not pin:
        return layer, KernelReference(repository, name, version=1)
    if re.fullmatch(r"v\d+", pin):
        return layer, KernelReference(repository, name, version=int(pin[1:]))
    return layer, KernelReference(repository, name, version=None, revision=pin)


def parse_ladder(text: str) -> Ladder:
    """Read ``LAYER=ORG/REPO:NAME``.

    Raises:
        OptionError: not of that form.
    """
    form = "expected LAYER=ORG/REPO:NAME, a repository on a Hub, as in RMSNorm=my-org/my-norm:MyNorm"
    layer, repository, name = _parts(f"--ladder {text!r}", text, form)
    if "@" in repository:
        raise OptionError(f"--ladder {text!r}: a ladder goes over every revision and takes no pin; {form}")
    if not _REPOSITORY.fullmatch(repository):
        raise OptionError(f"--ladder {text!r}: {form}")
    return Ladder(layer, repository, name)


def _parts(where: str, text: str, form: str) -> tuple[str, str, str]:
    """Registered name, repository as it is written, and class."""
    layer, equals, rest = text.partition("=")
    repository, colon, name = rest.rpartition(":")
    if not (layer and equals and colon and repository and re.fullmatch(r"\w+", name)):
        raise OptionError(f"{where}: {form}")
    known = sorted({registered for model in MODELS.values() for registered in model.carries})
    if layer not in known:
        raise OptionError(f"{where}: no model registers {layer!r}; registered are {', '.join(known)}")
    return layer, repository, name


def repository_name(option: str, text: str) -> str:
    """The text, if it is the name of a repository.

    Raises:
        OptionError: it is not.
    """
    if not _REPOSITORY.fullmatch(text):
        raise OptionError(f"{option} {text!r}: expected a repository as ORG/NAME")
    return text


def kernels_file(path: Path) -> list[tuple[str, KernelReference]]:
    """Read the kernels of ``--kernels``.

    Raises:
        OptionError: the file cannot be read, or holds something else.
    """
    form = "expected a TOML file with a table [kernels] whose entries are LAYER = 'REPO[@PIN]:NAME'"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("kernels")
    except OSError as error:
        raise OptionError(f"--kernels {path}: {error.strerror or error}; {form}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"--kernels {path}: {error}; {form}") from None
    if not isinstance(table, dict) or not table or not all(isinstance(value, str) for value in table.values()):
        raise OptionError(f"--kernels {path}: {form}")
    return [parse_kernel(f"{layer}={value}") for layer, value in table.items()]


def unique_layers(layers: Iterable[str]) -> None:
    """Check that no registered name is given a kernel twice.

    Raises:
        OptionError: one is.
    """
    seen: set[str] = set()
    for layer in layers:
        if layer in seen:
            raise OptionError(f"--kernel {layer}=…: given twice; a layer has one kernel in one run")
        seen.add(layer)
