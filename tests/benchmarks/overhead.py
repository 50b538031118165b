"""How much of a run's wall time the harness itself takes, read from the run; nothing is run here.

    python tests/benchmarks/overhead.py runs/<a run>

What a check takes is in its record; loading is a check of its own. What is left of the wall time is the harness:
starting processes, importing, planning, writing, the report.
"""

import argparse
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tabulate import tabulate

from reports.store import read_run


def main() -> None:
    """Print the shares of a run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    run = read_run(parser.parse_args().run)
    if run.environment is None or run.environment.ended is None:
        raise SystemExit("this run did not end, so nobody knows how long it took")
    began, ended = (datetime.fromisoformat(text) for text in (run.environment.started, run.environment.ended))
    wall = max(1.0, (ended - began).total_seconds())
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for record in run.records:
        seconds[record.property.value].append(record.seconds)
    rows = [[name, len(each), f"{sum(each):.1f}", f"{sum(each) / wall:.0%}"] for name, each in seconds.items()]
    inside = sum(sum(each) for each in seconds.values())
    rows.append(["outside of checks", "", f"{wall - inside:.1f}", f"{(wall - inside) / wall:.0%}"])
    align = ("left", "right", "right", "right")
    print(tabulate(rows, headers=["", "records", "seconds", "share"], colalign=align, disable_numparse=True))
    verdicts = [record.seconds for record in run.records if "ratio" in record.measures and record.speed is not None]
    if verdicts:
        print(f"\n{sum(verdicts) / len(verdicts):.2f} s a verdict on speed, over {len(verdicts)}")


if __name__ == "__main__":
    main()
