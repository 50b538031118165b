"""Whether a kernel variant is signed, by whom, and whether the signature holds, by the verifier of kernels itself.

A signed variant has ``metadata.json.sigstore`` beside its metadata: a Sigstore bundle over ``metadata.json``, whose
digest covers the files. Loading does not look at it; ``kernels verify-signature`` does, and so does this, for every
variant that a run uses. The verifier fetches the newest roots of trust. Where there is no network the roots that came
with the installed sigstore are used, and the state says so.
"""

import functools
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from huggingface_hub import constants

__all__ = ["INVALID", "NOT_VERIFIED", "UNSIGNED", "VERIFIED", "state"]

UNSIGNED = "unsigned"
VERIFIED = "verified"
"""Begins the state of a variant whose signature holds and is of whom kernels expects; the identity follows."""
INVALID = "invalid"
"""Begins the state of a variant whose signature does not hold; the reason follows. Such a kernel fails its checks."""
NOT_VERIFIED = "not verified"
"""Begins the state of a variant whose signature could not be judged, or is of somebody else."""

BUNDLE = "metadata.json.sigstore"
LIMIT = 1 << 20
"""Bytes of a bundle: one has some ten thousand."""


@functools.cache
def state(variant: Path) -> str:
    """The state in words, at most 500 characters."""
    bundle = variant / BUNDLE
    if not bundle.is_file():
        return UNSIGNED
    if bundle.stat().st_size > LIMIT:
        return f"{INVALID}: {BUNDLE} has more than {LIMIT} bytes"
    return " ".join(_judged(variant).split())[:500]


def _judged(variant: Path) -> str:
    # Imported here: sigstore takes half a second, and most kernels are not signed.
    try:
        from kernels.verify import VerificationResult as Result
        from sigstore.errors import Error, VerificationError
    except ImportError as error:
        return f"{NOT_VERIFIED}: the installed kernels has no verifier ({error})"
    try:
        result, roots = _verified(variant)
        match result:
            case Result.Success():
                return f"{VERIFIED} ({_identity(variant)}{roots})"
            case Result.SignatureVerificationFailure(reason=reason):
                other, _ = _verified(variant, [_Anybody()])
                if isinstance(other, Result.Success):
                    return f"{NOT_VERIFIED}: signed by {_identity(variant)}, whom kernels does not expect{roots}"
                return f"{INVALID}: {reason}{roots}"
            case Result.SignatureBundleInvalid(reason=reason) | Result.MetadataInvalid(reason=reason):
                return f"{INVALID}: {reason}"
            case Result.DigestVerificationFailure(violations=violations):
                return f"{INVALID}: the files are not those that were signed ({'; '.join(map(str, violations[:3]))})"
            case _:
                return f"{INVALID}: the metadata has no digest, so the signature says nothing of the files"
    except Error as error:
        kind = INVALID if isinstance(error, VerificationError) else NOT_VERIFIED
        return f"{kind}: {type(error).__name__}: {error}"
    except Exception as error:  # whatever a hostile bundle provokes is no valid signature
        return f"{INVALID}: {type(error).__name__}: {error}"


def _verified(variant: Path, policies: Any = None) -> tuple[Any, str]:
    """What kernels says, and with which roots of trust if they are not the newest."""
    from kernels.verify import verify_variant
    from sigstore.errors import Error
    from sigstore.verify import Verifier

    why = "as this run asks no network"
    if not _stays_here():
        try:
            return verify_variant(variant, policies), ""
        except Error as error:
            why = f"since the newest could not be had ({type(error).__name__}: {error})"
    installed = functools.partial(Verifier.production, offline=True)
    with mock.patch.object(Verifier, "production", installed):
        return verify_variant(variant, policies), f"; by the roots of trust of the installed sigstore, {why}"


def _stays_here() -> bool:
    """Whether the run keeps off the network: it was told to, or its Hub is on loopback."""
    return bool(constants.HF_HUB_OFFLINE) or urlsplit(constants.ENDPOINT).hostname in ("127.0.0.1", "localhost")


class _Anybody:
    """The policy that any signer will do, to tell a stranger's signature from none."""

    def verify(self, certificate: Any) -> None:
        """Say yes."""


def _identity(variant: Path) -> str:
    """Who signed, as the certificate says: the address of a workflow, or of a person."""
    from cryptography.x509 import SubjectAlternativeName
    from sigstore.models import Bundle

    certificate = Bundle.from_json((variant / BUNDLE).read_bytes()).signing_certificate
    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    return ", ".join(str(name.value) for name in names)[:200]
