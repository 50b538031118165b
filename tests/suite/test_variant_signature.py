"""The state of a variant's signature: as the verifier of kernels sees it, and as the records of a run say it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from sigstore.errors import TUFError
from sigstore.verify import Verifier

from cases.axes import Property
from cases.kernels import ROOT
from reports.record import Outcome, Reason
from reports.store import read_run
from suite import variant_signature
from tests.suite.runs import records, suite
from tests.suite.signing import EXPECTED, Sigstore

STRANGER = "https://github.com/somebody/kernels/.github/workflows/build.yaml@refs/heads/main"


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    """A bundled variant, to be signed."""
    folder = tmp_path / "repository" / "build" / "torch-cpu"
    shutil.copytree(ROOT / "activation" / "v1" / "build" / "torch-cpu", folder)
    return folder


@pytest.fixture
def sigstore(monkeypatch: pytest.MonkeyPatch) -> Sigstore:
    """A Sigstore that the verifier of kernels trusts in the place of the real one."""
    made = Sigstore()
    verifier = made.verifier()
    monkeypatch.setattr(Verifier, "production", lambda *, offline=False: verifier)
    return made


def state(variant: Path) -> str:
    variant_signature.state.cache_clear()
    return variant_signature.state(variant)


def test_a_bundled_kernel_is_unsigned_and_that_is_no_failure() -> None:
    """Fault: a signature taken for granted, or asked of everybody."""
    found = {state(folder) for folder in ROOT.glob("*/v*/build/torch-*")}
    assert found == {"unsigned"}


def test_a_signature_that_holds_is_verified_with_its_identity(variant: Path, sigstore: Sigstore) -> None:
    """Fault: a state that nobody ever sees as anything but unsigned."""
    sigstore.sign(variant)
    assert state(variant) == f"verified ({EXPECTED})"


def test_a_stranger_is_named_and_not_believed(variant: Path, sigstore: Sigstore) -> None:
    """Fault: whoever signs is verified; or a publisher of his own is called a forger."""
    sigstore.sign(variant, STRANGER)
    assert state(variant) == f"not verified: signed by {STRANGER}, whom kernels does not expect"


@pytest.mark.parametrize("what", ["a file", "the metadata", "the digest", "the signer", "the bundle", "its size"])
def test_whatever_is_tampered_with_is_invalid(variant: Path, sigstore: Sigstore, what: str) -> None:
    """Fault: files, metadata or signature exchanged after the build, and the kernel runs as verified."""
    (Sigstore() if what == "the signer" else sigstore).sign(variant)
    metadata, bundle = variant / "metadata.json", variant / "metadata.json.sigstore"
    if what == "a file":
        (variant / "layers.py").write_text("import os\n")
    elif what == "the metadata":
        metadata.write_text(metadata.read_text() + "\n")
    elif what == "the digest":
        document = {key: value for key, value in json.loads(metadata.read_text()).items() if key != "digest"}
        metadata.write_text(json.dumps(document))
        sigstore.sign(variant)
    elif what == "the bundle":
        bundle.write_text('{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}')
    elif what == "its size":
        bundle.write_text(" " * 2 * variant_signature.LIMIT)
    found = state(variant)
    assert found.startswith("invalid: "), found
    assert "\n" not in found
    assert len(found) <= 500


def test_without_network_the_roots_of_the_installed_sigstore_decide(
    variant: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fault: a machine without network on which no signature is ever looked at, or each one waits for the network."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    Sigstore().sign(variant)
    found = state(variant)
    assert found.startswith("invalid: failed to build")
    assert "by the roots of trust of the installed sigstore" in found


def test_roots_that_cannot_be_renewed_are_told(
    variant: Path, sigstore: Sigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a verdict by old roots that looks like one by the newest; or a traceback where there is no network."""
    trusted = Verifier.production()

    def production(*, offline: bool = False) -> Any:
        if not offline:
            raise TUFError("no way there")
        return trusted

    monkeypatch.setattr(Verifier, "production", production)
    sigstore.sign(variant)
    found = state(variant)
    assert found.startswith(f"verified ({EXPECTED}; by the roots of trust of the installed sigstore, since")
    assert "no way there" in found


def test_a_run_fails_a_kernel_whose_signature_does_not_hold_and_writes_it_down(variant: Path, tmp_path: Path) -> None:
    """Fault: a forged kernel that is measured, and recommended."""
    (variant / "metadata.json.sigstore").write_text("{}")
    case, out = "llama-tiny/f32/inference/sdpa/user", tmp_path / "out"
    kernel = f"SiLU={variant.parent.parent}:SiLU"
    words = ["--device", "cpu", "--hub", "embedded", "-n", "0", "--kernel", kernel, "--case", case, "--out", str(out)]
    done = suite(*words, "-k", "repository or load or engage or forward")
    assert done.returncode == 1
    found = records(out)
    repository = found["repository/SiLU", Property.REPOSITORY]
    assert repository.outcome is Outcome.FAIL
    assert str(repository.measures["signature"]).startswith("invalid: ")
    engage = found[case, Property.ENGAGE]
    assert (engage.outcome, engage.reason) == (Outcome.FAIL, Reason.BAD_SIGNATURE)
    assert found[case, Property.FORWARD].reason is Reason.DEPENDS
    (locked,) = read_run(out).lock
    assert locked["signature"].startswith("invalid: ")
    assert "invalid: failed to load bundle" in (out / "report.html").read_text(encoding="utf-8")
