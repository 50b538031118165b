"""The command-line options of ``pytest suite``, and nothing else. What they mean is in ``suite/options.py``."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; defaults of None mean that the tier or the machine decides."""
    group = parser.getgroup("kernel suite", "Hub kernels in Transformers (pytest suite)")
    add = group.addoption
    add("--device", default="auto", metavar="TYPE[:INDEX]", help="cpu, cuda, rocm, xpu, mps, npu (default: auto)")
    add("--tier", default=None, metavar="TIER", help="smoke, core (default; smoke for a ladder) or full")
    add("--model", action="append", default=[], metavar="NAME", help="only this model of the zoo; repeatable")
    add("--dtype", action="append", default=[], metavar="DTYPE", help="only f32, bf16 or f16; repeatable")
    add("--mode", action="append", default=[], metavar="MODE", help="only inference, training, …; repeatable")
    add(
        "--attention",
        action="append",
        default=[],
        metavar="NAME",
        help="only eager, sdpa, bundled, or a kernel of your own: org/repo[@revision]; repeatable",
    )
    add("--mapping", action="append", default=[], metavar="NAME", help="only this kernel mapping; repeatable")
    add(
        "--kernel",
        action="append",
        default=[],
        metavar="LAYER=REPO[@PIN]:NAME",
        help="test this kernel (org/repo, or /absolute/path for a local one) instead of the bundled ones; repeatable",
    )
    add("--kernels", default=None, metavar="FILE", help="the same from a TOML file: a table [kernels] of LAYER = '…'")
    add(
        "--ladder",
        default=None,
        metavar="LAYER=REPO:NAME",
        help="test this kernel at every tag and version branch of its repository, and show what changed between them",
    )
    add(
        "--waivers",
        action="append",
        default=[],
        metavar="FILE",
        help="your own known faults, instead of those of the suite; /dev/null for none; repeatable",
    )
    # "--strict" is pytest's own. Here it also fails a run for waivers that are healed, expired or unmatched.
    add("--trust", action="append", default=[], metavar="REPO", help="allow this untrusted repository; repeatable")
    add("--hub", default="auto", metavar="WHICH", help="auto (default), embedded or online")
    add("--case", action="append", default=[], metavar="ID", help="only the case with this id; repeatable")
    add("--shard", default=None, metavar="I/N", help="part I of N, divided by model")
    add("--budget", default=None, metavar="SECONDS", help="cap on timing per case (default: by tier)")
    add("--qualify", action="store_true", help="first run the seeded faults on this device: does the suite find them?")
    add("--out", default=None, metavar="DIR", help="folder of the run (default: runs/<UTC time>-<device>)")
    add(
        "--baseline",
        default=None,
        metavar="DIR",
        help="an earlier run; repeats each speed whose verdict is another one",
    )
    add("--resume", default=None, metavar="DIR", help="go on with the run in this folder; skips what is recorded")
