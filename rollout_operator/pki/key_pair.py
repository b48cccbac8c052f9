"""The parts of a certificate Secret, as PEM; keys never show in a text of it."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pair:
    """A certificate and its private key."""

    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({fingerprint(self.cert)})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyMaterial:
    """Everything that serving needs, and what renewing needs later. Empty where absent."""

    cert: bytes = b""
    """The leaf first, then further certificates of its chain."""
    key: bytes = b""
    ca: bytes = b""
    ca_key: bytes = b""
    next_ca: bytes = b""
    next_ca_key: bytes = b""
    old_ca: bytes = b""

    @property
    def served(self) -> Pair:
        """Return the part that TLS shows and uses."""
        return Pair(cert=self.cert, key=self.key)

    def __repr__(self) -> str:
        return f"Material(cert={fingerprint(self.cert)}, ca={fingerprint(self.ca)})"


def fingerprint(pem: bytes) -> str:
    """Return a short text that is the same for the same PEM, for logs."""
    return hashlib.sha256(pem).hexdigest()[:12] if pem else "none"
