"""Decide whose the Secret of the certificate is, and so whether anything may be written to it.

A flag may name the Secret of another application, whose private key would be lost. Hence only a
Secret that is certainly ours is written: labelled by us, with a leaf that this operator or
grafana's has issued, empty, or the very object that this process has served from. What is in it is
served and published under the same condition only: no CA of others gets into a bundle (D-31). What
our own Secret needs is decided in `certificate`.
"""

from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.model.names import CERTIFICATE_LABEL
from rollout_operator.model.units import quote
from rollout_operator.planning.certificate import (
    BrokenCertificate,
    CertificateStep,
    Decision,
    UsableCertificate,
    Wanted,
    plan_certificate,
)

LEAF_NAME: Final = "rollout-operator"
"""Common name of every leaf that this operator and grafana's issue."""

_NAME_FLAG: Final = "-server-tls.self-signed-cert.secret-name"


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What says whose a Secret is."""

    is_labelled: bool = False
    """Whether it carries our label."""
    leaf_name: str = ""
    """Common name of the leaf in it, empty where none can be read."""
    is_empty: bool = False
    """Whether it is absent, or has no data and no type that says what its data is for."""
    is_known: bool = False
    """Whether it is the very object, by UID, that this process has served from."""
    is_immutable: bool = False

    @property
    def is_ours(self) -> bool:
        """Return whether it may be written."""
        is_issued = self.leaf_name == LEAF_NAME
        return self.is_labelled or is_issued or self.is_empty or self.is_known


def plan_secret(
    marks: Marks, facts: BrokenCertificate | UsableCertificate, wanted: Wanted, now: datetime
) -> Decision:
    """Return the next step for the Secret; `LEAVE` where only a person can help."""
    if not marks.is_ours:
        reason = (
            "not ours: it has data of its own, but neither the label"
            f" {CERTIFICATE_LABEL} nor a certificate of {LEAF_NAME}. Nothing is written: give"
            f" another name by {_NAME_FLAG}, or delete it where nothing else needs it"
        )
        return Decision(step=CertificateStep.LEAVE, reason=reason, may_serve=False)
    if isinstance(facts, UsableCertificate) and marks.leaf_name != LEAF_NAME:
        # Ours once, and overwritten since: neither served nor trusted.
        facts = BrokenCertificate(
            problem=f"cert: issued to {quote(marks.leaf_name)}, not to {LEAF_NAME}"
        )
    decision = plan_certificate(facts, wanted, now)
    if not marks.is_immutable or decision.step is CertificateStep.KEEP:
        return decision
    reason = (
        f"immutable, and has to be written: {decision.reason}. Delete it, or give another name by"
        f" {_NAME_FLAG}"
    )
    return Decision(step=CertificateStep.LEAVE, reason=reason, may_serve=decision.may_serve)
