"""The recommendation of a run as a Python file that makes a ``KernelConfig``. Strings of records are comments cut to a
line, or literals by ``repr``: nothing of a results file becomes code.
"""

import re

from reports.clean import one_line
from reports.evidence import Ledger
from reports.never_slower import ATTENTION, Choice, Recommendation, recommend
from reports.store import Run
from reports.verdict import judge

__all__ = ["FILE", "configuration", "kernel_config"]

FILE = "kernel_config.py"
"""The file's name in the folder of a run."""

_PROMISED = re.compile(r"(?P<repository>/.+|[^@:]+)(?:@(?P<pin>[^:]+))?:(?P<layer>\w+)")

_CODE = '''\
from transformers import KernelConfig

KERNELS = {{{kernels}}}
ATTENTION = {attention}  # for attn_implementation


def kernel_config(*names):
    """A KernelConfig of these kernels, or of those of the given names only.

    Transformers refuses a name that the model does not register, and a KernelConfig serves one model: make one for
    each.
    """
    chosen = {{name: KERNELS[name] for name in names or KERNELS}}
    return KernelConfig(chosen, use_local_kernel={local}, inherit_mapping=False)


KERNEL_CONFIG = kernel_config()
'''


def configuration(run: Run) -> str:
    """The file for a run."""
    verdict = judge(run.records, run.environment)
    return kernel_config(run, recommend(verdict, Ledger(run.records)))


def kernel_config(run: Run, found: Recommendation) -> str:
    """The file for a run whose recommendation is known. Without trustworthy speeds it has no kernel, and says why."""
    device, name = (run.environment.device, run.environment.device_name) if run.environment else ("unknown", "unknown")
    used = [choice for choice in found.used if choice.name != ATTENTION]
    local = any(choice.promised.startswith("/") for choice in used)
    load = (
        "model.set_use_kernels(True, kernel_config())"
        if local
        else "AutoModel….from_pretrained(…, use_kernels=True, kernel_config=kernel_config())"
    )
    lines = [
        f"{one_line(name, 80)} ({one_line(device, 20)}): kernels that were FASTER than PyTorch and never SLOWER.",
        f"Use: {load}",
        *([] if found.used else [found.headline]),
        *(one_line(text, 300) for text in found.warnings),
        *(_comment(choice) for choice in found.choices),
    ]
    if found.unknown:
        lines.append(f"Not timed at the widths of a real model: {one_line(', '.join(found.unknown), 600)}.")
    if found.regret:
        lines.append(found.regret)
    if any(choice.promised.startswith("embedded/") for choice in found.used):
        lines.append("embedded/… is served by the Hub of the suite alone; its folders are in cases/kernels.")
    if any(not choice.promised.startswith(("/", "embedded/", "kernels-community/")) for choice in used):
        lines.append('A publisher that is not trusted needs "trust_remote_code": True too, which is yours to add.')
    attention = next((choice.promised for choice in found.used if choice.name == ATTENTION), None)
    entries = "".join(f"\n    {choice.name!r}: {_entry(choice.promised)}," for choice in used)
    code = _CODE.format(kernels=f"{entries}\n" if entries else "", attention=repr(attention), local=local)
    return "".join(f"# {line}\n" for line in lines) + code


def _comment(choice: Choice) -> str:
    return (
        f"{'used' if choice.used else 'left out'}: {one_line(choice.name, 60)}, {one_line(choice.promised, 120)}, "
        f"{choice.mean or 'no ratio'} over {choice.measured} ({choice.faster} FASTER, {choice.slower} SLOWER): "
        f"{one_line(choice.why, 300)}"
    )


def _entry(promised: str) -> str:
    match = _PROMISED.fullmatch(promised)
    if match is None:
        return repr(promised)
    text = f"{match['repository']}:{match['layer']}"
    pin = match["pin"]
    if pin is None:
        return repr(text)
    version = re.fullmatch(r"v(\d+)", pin)
    return repr((text, {"version": int(version[1])} if version else {"revision": pin}))
