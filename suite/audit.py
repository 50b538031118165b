"""``python -m suite.audit --device xpu``: what is wrong with the default mapping, and what it would do on a device.

Needs no device: the mapping is that of the installed Transformers, names are read from its sources, and what kernels
would choose is forecast by its own order of modes. With a Hub that answers (``--hub``), pins are looked up as well:
newer versions, builds for the device, and whether kernels that serve one name take the same parameters. A run keeps the
same as ``audit.json``, for all devices at once.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import msgspec
from huggingface_hub.constants import ENDPOINT
from tabulate import tabulate

from cases.axes import Device
from reports.audit import AUDIT, Audit, Forecast, Remark, read_audit
from reports.store import RunError, write_whole
from suite.audit_hub import hub_remarks
from suite.forecast import forecast
from suite.mapping import default_mapping, defaults
from suite.mapping_audit import carried_names, remarks

__all__ = ["audit", "keep", "main"]


def audit(hub: str = "") -> Audit:
    """The audit of the installed stack. ``hub`` is the address of a Hub to ask about pins; empty: none is asked."""
    from transformers.integrations import hub_kernels

    entries, carried = default_mapping(), carried_names()
    found = set(remarks(entries, carried, getattr(hub_kernels, "_HUB_KERNEL_MAPPING", {})))
    problem = ""
    try:
        # One by one, so that what a Hub said before it went away is kept.
        for remark in hub_remarks(entries, hub) if hub else ():
            found.add(remark)
    except OSError as error:
        problem = " ".join(str(error).split())[:1000]
    return Audit(
        transformers=version("transformers"),
        kernels=version("kernels"),
        entries=entries,
        defaults=defaults(),
        carried=tuple(sorted(carried)),
        remarks=tuple(sorted(found)),
        forecast=tuple(line for device in Device for line in forecast(entries, carried, device)),
        hub=hub,
        hub_problem=problem,
    )


def keep(folder: Path, hub: str = "") -> None:
    """Write the audit into the folder of a run, if it is not there yet: at once, and again when the Hub was asked.

    Raises:
        OSError: it cannot be written.
    """
    known = None
    with suppress(RunError):
        known = read_audit(folder)
    if known is None or (known.transformers, known.kernels) != (version("transformers"), version("kernels")):
        known = _written(folder, audit())
    if hub and known.hub != hub:
        _written(folder, audit(hub))


def _written(folder: Path, made: Audit) -> Audit:
    write_whole(folder / AUDIT, msgspec.json.encode(made))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the audit; exit status 0, since a remark is no failure, or 2 if the Hub was asked and does not answer."""
    parser = argparse.ArgumentParser(prog="python -m suite.audit", description="Audit the default kernel mapping.")
    devices = ", ".join(Device)
    parser.add_argument("--device", type=Device, default=Device.CPU, choices=list(Device), metavar="TYPE", help=devices)
    parser.add_argument("--hub", action="store_true", help="also ask the Hub (HF_ENDPOINT) about pins and builds")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    options = parser.parse_args(arguments)
    made = audit(ENDPOINT if options.hub else "")
    if made.hub_problem:
        print(f"python -m suite.audit: the Hub does not answer: {made.hub_problem}", file=sys.stderr)
        return 2
    # A remark about another device is no business of this one.
    found = [remark for remark in made.remarks if remark.device in ("", options.device)]
    predicted = [line for line in made.forecast if line.device == options.device]
    if options.json:
        document = {"device": options.device, "remarks": found, "forecast": predicted}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return 0
    print(_text(options.device, found, predicted))
    return 0


def _text(device: Device, found: list[Remark], predicted: list[Forecast]) -> str:
    cells = [[remark.kind, remark.name, remark.device or "all", remark.text] for remark in found]
    lines = [
        [line.name, line.mode, line.kernel or "PyTorch", line.condition or line.reason or ""] for line in predicted
    ]
    engaged = sum(line.kernel is not None for line in predicted)
    return "\n\n".join(
        (
            f"{len(found)} remarks on the default mapping",
            tabulate(cells, headers=["about", "name", "device", "remark"], maxcolwidths=[None, None, None, 90]),
            f"Predicted, not measured: on {device}, {engaged} of {len(predicted)} names and modes get a kernel",
            tabulate(lines, headers=["name", "mode", "predicted", "only if, or why not"]),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
