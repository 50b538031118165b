"""Two revisions of one kernel in one process, loaded by the kernels library itself."""

from pathlib import Path

import kernels

from cases.mappings import KernelReference
from suite.apart import Apart
from suite.documented.repositories import write

FILES = {
    "__init__.py": "from . import layers\n\ndef late():\n    from . import layers\n    return layers.VERSION\n",
    "layers.py": "VERSION = {}\n",
}


def revision(root: Path, number: int) -> Path:
    """A revision as a Hub client keeps it; both builds have the id ``_norm_v1_cpu``."""
    files = {name: text.format(number) if name == "layers.py" else text for name, text in FILES.items()}
    return write(root / "kernels--org--norm" / "snapshots" / f"{number:040x}", "apart-norm", files, ["cpu"])


def test_two_builds_of_one_id_keep_their_own_parts(tmp_path: Path) -> None:
    """Fault: the second revision of a ladder computes with the code of the first, under its own name."""
    folders = [revision(tmp_path, number) for number in (1, 2)]
    pins = [KernelReference("org/norm", "Norm", number) for number in (1, 2)]
    apart = Apart()
    modules = []
    for pin, folder in zip(pins, folders, strict=True):
        apart.enter(pin)
        modules.append(kernels.get_local_kernel(folder))
    assert [module.layers.VERSION for module in modules] == [1, 2]
    for number in (1, 2, 2, 1):
        apart.enter(pins[number - 1])
        assert modules[number - 1].late() == number, "a part that is imported only when it is called"
