"""Maintenance of the bundled kernels: ``python -m cases.kernels`` rewrites what is derived, ``--check`` reports it."""

import argparse
import sys

from cases.kernels import builds, write


def main() -> int:
    """Write or check; the exit status is 1 if a check found something stale."""
    parser = argparse.ArgumentParser(prog="python -m cases.kernels", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if anything is stale")
    options = parser.parse_args()
    if not options.check:
        for build in builds():
            write(build)
        print(f"{len(builds())} builds written")
        return 0
    wrong = [sentence for build in builds() for sentence in build.stale()]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if wrong:
        print("Run `python -m cases.kernels` to bring them up to date.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
