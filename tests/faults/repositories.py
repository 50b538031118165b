"""Makes the kernel repository of a fault or of its twin, in the Hub's layout, from one small source.

Nothing but the layer that is asked for goes in: a check that looks at a whole repository must find no fault in the
twin's. Each repository has an id of its own, as kernels wants it.
"""

import ast
import shutil
from pathlib import Path

from cases.axes import Device
from cases.kernels import Build, write
from tests.faults.records import ATTENTION, SOURCES, Fault, SetUp

__all__ = ["kernel_backend", "make", "source"]

_INIT = '"""{text}"""\n\nfrom {module} import {names}\n\n__all__ = [{listed}]\n'


def kernel_backend(device: Device) -> str:
    """The device by the name that kernels gives its builds."""
    return {Device.MPS: "metal", Device.NPU: "cann"}.get(device, device.value)


def source(fault: Fault, *, broken: bool) -> str:
    """The text of the kernel: one class of the two, or the source with or without its edit.

    Raises:
        ValueError: the source has not what the fault changes.
    """
    text = (SOURCES / f"{fault.source}.py").read_text(encoding="utf-8")
    if fault.edit is not None:
        old, new = fault.edit
        if old not in text:
            raise ValueError(f"{fault.id}: {fault.source}.py has no {old!r}; adapt the edit to the source")
        return text.replace(old, new) if broken else text
    kept = fault.layer(broken=broken)
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    if kept not in classes:
        raise ValueError(f"{fault.id}: {fault.source}.py has no class {kept}")
    lines = text.splitlines(keepends=True)
    for other in {"Broken", "Healthy"} - {kept}:
        if other in classes:
            node = classes[other]
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "".join(lines).replace('__all__ = ["Broken", "Healthy"]', f'__all__ = ["{kept}"]').rstrip() + "\n"


def make(folder: Path, fault: Fault, device: Device, *, broken: bool) -> Path:
    """Write the repository below ``folder`` and return its path. One that is there already is left alone."""
    name = fault.repository(broken=broken)
    root = folder / name
    if root.exists():
        return root
    cpu = Build(root / "build" / "torch-cpu", name, 1, "cpu")
    cpu.folder.mkdir(parents=True)
    if fault.target == ATTENTION:
        module, names = ".attention", ["flash_attn_func", "flash_attn_varlen_func"]
    else:
        module, names = ".", ["layers"]
    text = _INIT.format(
        text=f"faults/{name}",
        module=module,
        names=", ".join(names),
        listed=", ".join(f'"{each}"' for each in names),
    )
    (cpu.folder / "__init__.py").write_text(text, encoding="utf-8")
    file = "attention.py" if fault.target == ATTENTION else "layers.py"
    (cpu.folder / file).write_text(source(fault, broken=broken), encoding="utf-8")
    elsewhere = broken and fault.set_up is SetUp.OTHER_DEVICE
    backend = kernel_backend(device)
    if elsewhere:
        backend = "cuda" if backend != "cuda" else "xpu"
    write(cpu)
    if backend != "cpu":
        write(Build(root / "build" / f"torch-{backend}", name, 1, backend))
    if elsewhere:
        # Its files are links to the build that must not be there.
        real = root / "build" / "real"
        shutil.copytree(root / "build" / f"torch-{backend}", real)
        shutil.rmtree(root / "build" / f"torch-{backend}")
        shutil.rmtree(cpu.folder)
        real.rename(root / "build" / f"torch-{backend}")
    return root
