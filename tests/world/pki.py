"""Certificates and keys of a test control plane: a CA, and what it signed for loopback names."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Longer than any run of a suite, shorter than anything that would outlive it by accident.
LIFE: Final = timedelta(days=2)
LOOPBACK_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default.svc")
LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1", "10.0.0.1")


class Pki(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of PEM files: everything listening in the test world serves `cert` with `key`."""

    ca: Path
    cert: Path
    key: Path
    accounts_key: Path
    """Signs tokens of service accounts."""


def make_pki(folder: Path, *, more_names: Sequence[str] = (), age: timedelta = timedelta(0)) -> Pki:
    """Write a fresh CA, one serving certificate for loopback, and a key for tokens."""
    now = datetime.now(UTC) - age
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test world CA")])
    ca = _certificate(ca_name, ca_key, ca_name, now, x509.BasicConstraints(True, 0)).sign(
        ca_key, hashes.SHA256()
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test world")])
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in (*LOOPBACK_NAMES, *more_names)]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in LOOPBACK_ADDRESSES]
    cert = (
        _certificate(name, key, ca_name, now, x509.BasicConstraints(False, None))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Pki(
        ca=_written(folder / "ca.crt", ca.public_bytes(pem)),
        cert=_written(folder / "serving.crt", cert.public_bytes(pem)),
        key=_written(folder / "serving.key", _key_pem(key)),
        accounts_key=_written(
            folder / "accounts.key", _key_pem(ec.generate_private_key(ec.SECP256R1()))
        ),
    )


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    now: datetime,
    constraints: x509.BasicConstraints,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFE)
        .add_extension(constraints, critical=True)
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # The API server reads EC keys for tokens in this older format only.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _written(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
