"""A Sigstore of our own: it signs the metadata of kernel variants as the real one does, with keys that a test trusts.

The authority issues a certificate for an identity, the certificate log and the transparency log countersign, and all of
it goes into a bundle beside the metadata. The verifier of kernels checks every part of it, from the roots of trust on.
"""

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sigstore.models import TrustedRoot
from sigstore.verify import Verifier
from sigstore_models.trustroot import v1 as trustroot

EXPECTED = "https://github.com/huggingface/kernels-community/.github/workflows/build.yaml@refs/heads/main"
"""The workflow whose signature kernels expects."""

ISSUER = "https://token.actions.githubusercontent.com"
SIGNED = datetime(2026, 1, 1, 12, tzinfo=UTC)
START, END = SIGNED - timedelta(hours=1), SIGNED + timedelta(hours=1)
SHA256 = ec.ECDSA(hashes.SHA256())
CLAIMS = "1.3.6.1.4.1.57264.1."
"""Begins the extensions in which a certificate says what the signer proved about itself."""


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _identifier(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _der(tag: int, content: bytes) -> bytes:
    length = bytes([len(content)]) if len(content) < 128 else bytes([0x82, *len(content).to_bytes(2, "big")])
    return bytes([tag]) + length + content


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Sigstore:
    """One authority and two logs."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    """Key of the log of certificates."""
    log: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    """Key of the log of signatures."""

    def verifier(self) -> Verifier:
        """A verifier that trusts this Sigstore and no other."""
        log, certificates = self._trusted_log(self.log), self._trusted_log(self.certificates)
        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log],
            "ctlogs": [certificates],
            "timestampAuthorities": [],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "a test", "commonName": "authority"},
                    "uri": "https://authority.invalid",
                    "certChain": {"certificates": [{"rawBytes": _text(self._root().public_bytes(Encoding.DER))}]},
                    "validFor": {"start": START.isoformat()},
                }
            ],
        }
        return Verifier(trusted_root=TrustedRoot(trustroot.TrustedRoot.from_json(json.dumps(document))))

    def sign(self, variant: Path, identity: str = EXPECTED) -> None:
        """Sign the metadata of a variant, as somebody of this identity."""
        content, key = (variant / "metadata.json").read_bytes(), _key()
        certificate = self._certificate(key, identity)
        signature = key.sign(content, SHA256)
        body = self._body(content, signature, certificate)
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _text(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self._entry(body)],
            },
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": _text(hashlib.sha256(content).digest())},
                "signature": _text(signature),
            },
        }
        (variant / "metadata.json.sigstore").write_text(json.dumps(bundle))

    def _trusted_log(self, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
        return {
            "baseUrl": "https://log.invalid",
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": _text(_public(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": {"start": START.isoformat()},
            },
            "logId": {"keyId": _text(_identifier(key))},
        }

    def _root(self) -> x509.Certificate:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        return (
            x509.CertificateBuilder(_name("authority"), _name("authority"), self.authority.public_key(), 1, START, END)
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    def _certificate(self, key: ec.EllipticCurvePrivateKey, identity: str) -> x509.Certificate:
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        repository = "/".join(identity.split("/")[:5])
        builder = (
            x509.CertificateBuilder(_name("authority"), x509.Name([]), key.public_key(), 2, START, END)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
            .add_extension(self._claim(1, ISSUER.encode()), critical=False)
        )
        for number, claim in ((8, ISSUER), (9, identity), (12, repository)):
            builder = builder.add_extension(self._claim(number, _der(0x0C, claim.encode())), critical=False)
        draft = builder.sign(self.authority, hashes.SHA256())
        stamp = _der(0x04, self._stamp(draft))
        return builder.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2"), stamp), critical=False
        ).sign(self.authority, hashes.SHA256())

    @staticmethod
    def _claim(number: int, value: bytes) -> x509.UnrecognizedExtension:
        return x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{CLAIMS}{number}"), value)

    def _stamp(self, draft: x509.Certificate) -> bytes:
        """The word of the log of certificates on one that has not got it yet (RFC 6962), as a list of one."""
        moment, content = int(SIGNED.timestamp() * 1000), draft.tbs_certificate_bytes
        signed = struct.pack("!BBQH", 0, 0, moment, 1) + _identifier(self.authority)
        signed += len(content).to_bytes(3, "big") + content + b"\0\0"
        signature = self.certificates.sign(signed, SHA256)
        stamp = struct.pack("!B32sQHBBH", 0, _identifier(self.certificates), moment, 0, 4, 3, len(signature))
        stamp += signature
        return struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp

    @staticmethod
    def _body(content: bytes, signature: bytes, certificate: x509.Certificate) -> bytes:
        """What the log of signatures holds of a signature."""
        specification = {
            "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}},
            "signature": {
                "content": _text(signature),
                "publicKey": {"content": _text(certificate.public_bytes(Encoding.PEM))},
            },
        }
        entry = {"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": specification}
        return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()

    def _entry(self, body: bytes) -> dict[str, Any]:
        """The entry in a log that has no other, with its promise, its proof and the signed head of the log."""
        moment, identifier = int(SIGNED.timestamp()), _identifier(self.log)
        promise = {"body": _text(body), "integratedTime": moment, "logID": identifier.hex(), "logIndex": 0}
        promised = json.dumps(promise, sort_keys=True, separators=(",", ":")).encode()
        root = hashlib.sha256(b"\0" + body).digest()
        head = f"log.invalid - 1\n1\n{_text(root)}\n"
        signature = _text(identifier[:4] + self.log.sign(head.encode(), SHA256))
        return {
            "logIndex": "0",
            "logId": {"keyId": _text(identifier)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(moment),
            "inclusionPromise": {"signedEntryTimestamp": _text(self.log.sign(promised, SHA256))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _text(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{head}\n\N{EM DASH} log.invalid {signature}\n"},
            },
            "canonicalizedBody": _text(body),
        }
