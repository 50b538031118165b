"""Runs all faults and twins on one device, and writes what the suite said of each: one line of JSON per fault.

A process of its own, since the libraries read where the Hub is when they are imported, and since a broken kernel must
not take the caller with it. ``pytest tests/faults`` starts it, and so does ``pytest suite --qualify``.
"""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], help="id of a fault; repeatable")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="MECHANISM:ID",
        help="run this fault once more with this mechanism switched off; repeatable",
    )
    arguments = parser.parse_args()
    folder: Path = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    from cases.axes import Device
    from suite import hub
    from tests.faults import repositories
    from tests.faults.records import ATTENTION, FAULTS

    device = Device(arguments.device)
    chosen = [fault for fault in FAULTS if not arguments.only or fault.id in arguments.only]
    served = hub.bundled_repositories()
    names = set()
    for fault in chosen:
        for broken in (True, False):
            path = repositories.make(folder / "repositories", fault, device, broken=broken)
            if fault.target == ATTENTION and path.name not in names:
                names.add(path.name)
                served.append(hub.Repository(f"faults/{path.name}", {"v1": path, "main": path}))
    with hub.EmbeddedHub(served, {**hub.PUBLISHERS, "faults": True}) as server:
        # Before torch and huggingface_hub are imported, which the next import does.
        os.environ.update(hub.environment_for(server.endpoint, folder / "cache"))
        from tests.faults import judging

        without = [text.partition(":") for text in arguments.without]
        judging.run_all(chosen, folder, device, [(fault, mechanism) for mechanism, _, fault in without])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
