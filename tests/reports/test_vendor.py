"""The vendored JavaScript is what it says, and draws what Altair writes."""

import hashlib
import re
from pathlib import Path

import altair

import reports.html

VENDOR = Path(reports.html.__file__).parent / "static" / "vendor"
ROW = re.compile(r"^\| (\S+\.js) \| ([a-z-]+)@(\S+) \| ([0-9a-f]{64}) \|$", re.MULTILINE)


def test_every_vendored_file_has_the_digest_in_the_table() -> None:
    """Catches a file that was edited, exchanged or added without its origin."""
    rows = ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8"))
    found = {name: digest for name, _, _, digest in rows}
    assert found == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")}


def test_every_vendored_package_has_its_licence() -> None:
    """Catches an update that forgets the licence of the new version."""
    licences = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    for _, package, version, _ in ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"\b{package} {re.escape(version)}\b", licences)


def test_the_vendored_library_draws_what_altair_writes() -> None:
    """Catches an Altair that moved on to a grammar the vendored library does not know."""
    versions = {
        package: version for _, package, version, _ in ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8"))
    }
    assert versions["vega-lite"].split(".")[0] == altair.VEGALITE_VERSION.split(".")[0]
    assert versions["vega"].split(".")[0] == altair.VEGA_VERSION.split(".")[0]
    assert versions["vega-embed"].split(".")[0] == altair.VEGAEMBED_VERSION.split(".")[0]
