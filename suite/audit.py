"""``python -m suite.audit --device xpu``: what is wrong with the default mapping, and what it would do on a device.

Needs no device: the mapping is that of the installed Transformers, names are read from its sources, and what kernels
would choose is forecast by its own order of modes. With a Hub that answers (``--hub``), pins are looked up as well:
newer versions, builds for the device, and whether kernels that serve one name take the same parameters.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tabulate import tabulate

from cases.axes import Device
from suite.audit_hub import hub_remarks
from suite.forecast import Forecast, forecast
from suite.mapping import default_mapping
from suite.mapping_audit import Remark, carried_names, remarks

__all__ = ["audit", "main"]


def audit(device: Device, *, hub: bool) -> tuple[list[Remark], list[Forecast]]:
    """All remarks, and the forecast for one device type.

    Raises:
        OSError: the Hub was to be asked, and does not answer.
    """
    from transformers.integrations import hub_kernels

    entries, carried = default_mapping(), carried_names()
    lazy = getattr(hub_kernels, "_HUB_KERNEL_MAPPING", {})
    found = remarks(entries, carried, lazy)
    if hub:
        found = sorted({*found, *hub_remarks(entries)})
    # A remark about another device is no business of this one.
    return [remark for remark in found if remark.device in ("", device)], forecast(entries, carried, device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the audit; exit status 0, since a remark is no failure, or 2 if the Hub was asked and does not answer."""
    parser = argparse.ArgumentParser(prog="python -m suite.audit", description="Audit the default kernel mapping.")
    devices = ", ".join(Device)
    parser.add_argument("--device", type=Device, default=Device.CPU, choices=list(Device), metavar="TYPE", help=devices)
    parser.add_argument("--hub", action="store_true", help="also ask the Hub (HF_ENDPOINT) about pins and builds")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    options = parser.parse_args(arguments)
    try:
        found, predicted = audit(options.device, hub=options.hub)
    except OSError as error:
        print(f"python -m suite.audit: the Hub does not answer: {error}", file=sys.stderr)
        return 2
    if options.json:
        document = {
            "device": options.device,
            "remarks": [asdict(remark) for remark in found],
            "forecast": [asdict(line) for line in predicted],
        }
        print(json.dumps(document, indent=2))
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
