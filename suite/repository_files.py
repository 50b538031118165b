"""What the files of a kernel repository say, read without running any of them: variants, metadata, digest, source.

Everything here is untrusted: sizes are bounded, metadata is parsed by the library's own parser, source is parsed and
never executed. A finding is a sentence that says what is wrong, where, what was expected, and what to do.
"""

import ast
import functools
import importlib.machinery
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels import Metadata, variants
from kernels._rust import Digest, DigestValidationError

__all__ = ["Variant", "local_variant", "look", "sources"]

METADATA_LIMIT = 1 << 20
"""Bytes of a ``metadata.json``: a hundred thousand files could be listed in it, and no build has a thousand."""

SOURCE_LIMIT = 1 << 20
"""Bytes of a Python file that is parsed; the largest module of torch is smaller."""

FLAGS = frozenset({"can_torch_compile", "has_backward"})
"""The only members that a layer may have beside its forward."""


@dataclass(slots=True)
class Variant:
    """What is known of one variant folder. ``problems`` fail the check, ``notes`` are for whoever reads them."""

    folder: Path
    id: str | None = None
    version: int | None = None
    digest: str = "absent"
    """``matches``, ``absent``, or ``differs``."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The folder as messages name it."""
        return f"{self.folder.name}/metadata.json"


def local_variant(root: Path) -> tuple[Path | None, list[Path]]:
    """The variant of a local repository that the library would load here, and every variant that there is."""
    for base in (root, root / "build"):
        folders = {}
        for entry in sorted(base.iterdir()) if base.is_dir() else ():
            try:
                folders[variants.parse_variant(entry.name).variant_str] = entry
            except ValueError:  # any other folder of a repository
                continue
        if folders:
            chosen, _ = variants.resolve_variant([variants.parse_variant(name) for name in folders])
            return (None if chosen is None else folders[chosen.variant_str]), list(folders.values())
    # The path may be that of a variant itself.
    return (root, [root]) if (root / "metadata.json").is_file() else (None, [])


def look(folder: Path) -> Variant:
    """Check the metadata and the digest of a variant."""
    found = Variant(folder)
    metadata = _metadata(found)
    if metadata is not None:
        found.id, found.version = metadata.id, metadata.version
        _check_id(found, metadata.id)
        _check_backend(found, metadata)
        if metadata.version is None:
            found.notes.append(f"{found.where} has no version")
        if not metadata.license:
            found.notes.append(f"{found.where} has no license")
        _check_digest(found, metadata)
    if not any((folder / name).is_file() for name in _entries(metadata)):
        found.problems.append(f"{folder.name}: no __init__.py, so there is nothing to import; add the kernel's module")
    return found


def _entries(metadata: Any) -> tuple[str, ...]:
    # Older builds have their module in a folder of its name.
    return ("__init__.py",) if metadata is None else ("__init__.py", f"{metadata.name.python_name}/__init__.py")


def _metadata(found: Variant) -> Any:
    path = found.folder / "metadata.json"
    remedy = "write it with kernel-builder"
    try:
        size = path.stat().st_size
        if size > METADATA_LIMIT:
            found.problems.append(f"{found.where}: {size} bytes, and {METADATA_LIMIT} is more than any needs; {remedy}")
            return None
        return Metadata.from_bytes(path.read_bytes())
    except OSError as error:
        found.problems.append(f"{found.where}: {error.strerror or error}; every variant needs one, {remedy}")
    except ValueError as error:
        text = " ".join(str(error).split())[:300]
        found.problems.append(f"{found.where}: {text}; {remedy}")
    return None


def _check_id(found: Variant, identity: str) -> None:
    """The id becomes the name of a module in ``sys.modules``, where it must be a name, and no other module's."""
    if not identity.isidentifier():
        found.problems.append(
            f"{found.where}: id {identity[:80]!r} is no Python name, and it becomes the name of a module; expected "
            "letters, digits and underscores, as in _norm_cpu_1a2b3c"
        )
    elif _names_a_module(identity):
        found.problems.append(
            f"{found.where}: id {identity!r} is the name of an installed module, which loading the kernel would "
            "replace in the whole process; give the build an id of its own"
        )


@functools.cache
def _names_a_module(name: str) -> bool:
    if name in sys.stdlib_module_names:
        return True
    # Asks the finder for files only: nothing is imported, and the kernels that are loaded already are not found.
    return importlib.machinery.PathFinder.find_spec(name) is not None


def _check_backend(found: Variant, metadata: Any) -> None:
    try:
        named = variants.parse_variant(found.folder.name).arch
    except ValueError:  # a variant folder given by its own path may be called anything
        return
    expected = getattr(named, "backend_name", None)
    actual = str(metadata.backend.backend_type).lower()
    if expected is not None and expected != actual:
        found.problems.append(
            f"{found.where}: backend.type is {actual!r} in a variant for {expected!r}; one of them is wrong"
        )


def _check_digest(found: Variant, metadata: Any) -> None:
    if metadata.digest is None:
        found.notes.append(f"{found.where} has no digest, so nothing shows that its files are those that were built")
        return
    try:
        metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, found.folder))
        found.digest = "matches"
    except DigestValidationError as error:
        found.digest = "differs"
        listed = "; ".join(str(violation)[:200] for violation in error.violations[:5])
        more = f" and {len(error.violations) - 5} more" if len(error.violations) > 5 else ""
        found.problems.append(
            f"{found.where}: the files are not those that the digest names ({listed}{more}): they were changed after "
            "the build, or the digest is stale; build again"
        )
    except (OSError, RuntimeError) as error:
        found.digest = "differs"
        found.problems.append(f"{found.where}: the files cannot be hashed: {str(error)[:300]}")


@dataclass(slots=True)
class Source:
    """What the source of a layer says of it."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    """Members that a layer must not have, as far as its own source shows; the class shows them all."""


def sources(folder: Path, layer: str) -> Source:
    """Read the source of a layer class without running it. Says nothing of a class that comes from somewhere else."""
    found = Source()
    path = next((path for path in _layer_files(folder) if path.is_file()), None)
    if path is None:
        return found  # The import is going to say what is missing.
    where = path.relative_to(folder).as_posix()
    try:
        if path.stat().st_size > SOURCE_LIMIT:
            raise ValueError(f"more than {SOURCE_LIMIT} bytes")
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
        found.problems.append(f"{where}: cannot be parsed as Python: {str(error)[:200]}")
        return found
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == layer:
            _check_class(found, node, where)
    shared = sorted({name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names})
    if shared:
        found.notes.append(f"{where} keeps state outside the layer: global {', '.join(shared)[:200]}")
    return found


def _layer_files(folder: Path) -> list[Path]:
    bases = [folder, *(entry for entry in sorted(folder.iterdir()) if entry.is_dir())] if folder.is_dir() else []
    return [base / name for base in bases for name in ("layers.py", "layers/__init__.py")]


def _check_class(found: Source, node: ast.ClassDef, where: str) -> None:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == "forward":
            _check_forward(found, statement, node.name, where)
        found.members += [name for name in _defined(statement) if name not in FLAGS and name != "forward"]


def _defined(statement: ast.stmt) -> list[str]:
    """Names that a statement of a class body gives the class; a bare annotation gives none."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [] if statement.value is None else [statement.target]
    else:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("__")]


def _check_forward(found: Source, forward: ast.AST, layer: str, where: str) -> None:
    """The library checks for members of the class only; a forward that writes to ``self`` keeps state all the same."""
    for node in ast.walk(forward):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if (
                isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
                and isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            ):
                found.problems.append(
                    f"{where}:{node.lineno}: {layer}.forward writes to self.{target.attr}, which is the user's module; "
                    "a layer of a kernel must keep no state: pass it, or recompute it"
                )
