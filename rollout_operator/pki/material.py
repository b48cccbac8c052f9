"""Certificates and keys as PEM, and what there is to know and to do about them.

Who holds them needs no cryptography: `pki.manager` has `pki.certificates` answer in a process of
its own.
"""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from rollout_operator.planning.certificate import (
    BrokenCertificate,
    Decision,
    UsableCertificate,
    Wanted,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pair:
    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({_fingerprint(self.cert)})"


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
        return Pair(cert=self.cert, key=self.key)

    def __repr__(self) -> str:
        return f"Material(cert={_fingerprint(self.cert)}, ca={_fingerprint(self.ca)})"


def _fingerprint(pem: bytes) -> str:
    """Return a short text that is the same for the same PEM, for logs."""
    import hashlib  # only for logs: a process that answers one question needs none

    return hashlib.sha256(pem).hexdigest()[:12] if pem else "none"


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """A step to carry out."""

    decision: Decision
    wanted: Wanted
    now: datetime


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What does the material hold: as it is, or once a step has been carried out?"""

    material: KeyMaterial
    issue: Issue | None = None


class Examined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer, for material without or after the step."""

    material: KeyMaterial
    facts: BrokenCertificate | UsableCertificate
    leaf_name: str = ""
    bundle: bytes = b""
    """The PEM of all CAs that callers must trust."""
    may_call: bool = False
    """Whether the leaf may be shown to a server."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The answer where the material does not allow the step."""

    why: str
