"""Decide what the serving certificate needs next, from what its Secret holds.

One step at a time: the caller reads again after each. Whatever is served must verify against every
CA bundle that a caller may still use. So a leaf is renewed under the CA that callers trust, and a
new CA is published before it is used. `pki` parses and issues, and knows whether a bundle is
published.

A flag may name the Secret of another application, whose key would be lost. So only a Secret that is
certainly ours is written, served or published (D-31): labelled by us, with a leaf issued by this
operator or grafana's, empty, or the very object that this process has served from.
"""

from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.names import CERTIFICATE_LABEL, ConfigError
from rollout_operator.model.units import format_duration, format_rfc3339, quote

# Clocks differ: a new certificate must be valid on a node that is behind.
BACKDATING: Final = timedelta(minutes=5)
# An API server may use a replaced bundle for another minute. Another replica learns of the next CA
# within 20 s.
OVERLAP: Final = timedelta(seconds=90)
# The same as a share of a short life: a change of CA must fit into a third of it.
_OVERLAP_SHARE: Final = 12
# A replica that could not read the Secret for this long still serves a leaf of the old CA.
_KEEP_OLD: Final = timedelta(days=1)
_KEEP_OLD_SHARE: Final = 6
# How many overlaps to wait for bundles when the end is near.
_PATIENCE: Final = 5
# The share of an expiration that a CA must have left to sign: normally, as the next CA, and where a
# leaf is needed at once.
_ROOM: Final = 3 / 4
_ROOM_NEXT: Final = 1 / 4
_ROOM_AT_ONCE: Final = 1 / 8
_SHORTEST_CA: Final = timedelta(days=365)
_CA_LIVES: Final = 5
# Common name of every leaf issued by this operator and grafana's.
LEAF_NAME: Final = "rollout-operator"
_NAME_FLAG: Final = "-server-tls.self-signed-cert.secret-name"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    names: tuple[str, ...]
    """DNS names; callers use the first."""
    organisation: str
    expiration: timedelta
    """How long a leaf lasts."""
    ca_life: timedelta
    """At least `expiration`."""


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    start: datetime
    end: datetime

    def covers(self, now: datetime) -> bool:
        return self.start <= now < self.end

    def text(self) -> str:
        return f"{format_rfc3339(self.start)} to {format_rfc3339(self.end)}"


class BrokenCertificate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Missing, unreadable, or parts that do not fit together."""

    problem: str


class UsableCertificate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A leaf with its key, and the CA that signed it."""

    names: tuple[str, ...]
    """DNS names in the leaf."""
    leaf: Validity
    """Of the whole served chain."""
    ca: Validity
    may_sign: bool = False
    """Whether the key of the CA is there."""
    next_ca: Validity | None = None
    """A CA with its key, to be used next."""
    next_published_for: timedelta | None = None
    """How long every caller's bundle has held the next CA."""
    old_ca: Validity | None = None


@unique
class CertificateStep(StrEnum):
    KEEP = "keep"
    ISSUE_LEAF = "issue_leaf"
    """Under the CA that is in use."""
    INTRODUCE_CA = "introduce_ca"
    """Make a next CA and publish it beside the CA in use."""
    SWITCH_CA = "switch_ca"
    """Issue a leaf under the next CA, publish the CA before as well."""
    DROP_OLD_CA = "drop_old_ca"
    START_OVER = "start_over"
    """A new CA and a new leaf at once."""
    LEAVE = "leave"
    """Nothing, though something is wrong: the Secret must not, or cannot, be written."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    step: CertificateStep
    reason: str
    may_serve: bool = True
    """Whether callers accept the current leaf until the step is done."""
    trusts_old: bool = False
    """Whether the CA stays published after START_OVER: other replicas may still use it."""
    requeue_at: datetime | None = None
    """When to decide again at the latest, after KEEP."""


class _Case:
    """What is held and wanted, and the times that follow."""

    def __init__(self, held: UsableCertificate, wanted: Wanted, now: datetime) -> None:
        self.held = held
        self.wanted = wanted
        self.now = now
        # Leaves are backdated: their intended life counts.
        self.life = min(held.leaf.end - held.leaf.start, wanted.expiration)
        self.end = min(held.leaf.end, held.ca.end)
        self.overlap = min(OVERLAP, self.life / _OVERLAP_SHARE)

    def has_room(self, ca: Validity, share: float, *, at: datetime | None = None) -> bool:
        """Return whether a CA is valid now, and at `at` has a share of an expiration left."""
        left = ca.end - max(self.now, at or self.now)
        return ca.covers(self.now) and left >= self.wanted.expiration * share

    @property
    def third(self) -> datetime:
        """Return when a third of the life is left."""
        return self.end - self.life / 3

    @property
    def may_issue(self) -> bool:
        """Return whether the current CA signs the next leaf."""
        return self.held.may_sign and self.has_room(self.held.ca, _ROOM, at=self.third)

    @property
    def usable_next(self) -> Validity | None:
        ca = self.held.next_ca
        return ca if ca is not None and self.has_room(ca, _ROOM_NEXT) else None

    @property
    def due(self) -> datetime:
        """Return when to renew: a change of CA must be over before a third is left."""
        return self.third - (timedelta(0) if self.may_issue else 2 * self.overlap)

    def forced(self, next_ca: Validity) -> datetime:
        """Return how long to wait for the next CA to be published everywhere."""
        introduced = next_ca.start + BACKDATING
        patience = min(introduced + _PATIENCE * self.overlap, self.end - 2 * self.overlap)
        return max(self.end - self.life / 8, patience)

    def drop_due(self, old: Validity) -> datetime:
        switched = self.held.leaf.start + BACKDATING
        return min(switched + min(_KEEP_OLD, self.life / _KEEP_OLD_SHARE), old.end)


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of whose a Secret is."""

    is_labelled: bool = False
    leaf_name: str = ""
    """Common name of its leaf."""
    is_empty: bool = False
    """Absent, or without data and of no specific type."""
    is_known: bool = False
    """The very object, by UID, that this process has served from."""
    is_immutable: bool = False

    @property
    def is_ours(self) -> bool:
        is_issued = self.leaf_name == LEAF_NAME
        return self.is_labelled or is_issued or self.is_empty or self.is_known


def plan_secret(
    marks: Marks, facts: BrokenCertificate | UsableCertificate, wanted: Wanted, now: datetime
) -> Decision:
    """Return the next step for the Secret: `LEAVE` where only a person can help."""
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


def plan_certificate(
    facts: BrokenCertificate | UsableCertificate, wanted: Wanted, now: datetime
) -> Decision:
    if isinstance(facts, BrokenCertificate):
        return Decision(step=CertificateStep.START_OVER, reason=facts.problem, may_serve=False)
    case = _Case(facts, wanted, now)
    if decision := _repair(case) or _renewal(case):
        return decision
    old, times = facts.old_ca, [case.due]
    if old is not None:
        if now >= case.drop_due(old):
            reason = "no server needs the old ca any more"
            return Decision(step=CertificateStep.DROP_OLD_CA, reason=reason)
        times.append(case.drop_due(old))
    reason = f"the certificate is good until {format_rfc3339(case.end)}"
    return Decision(step=CertificateStep.KEEP, reason=reason, requeue_at=min(times))


def choose_names(dns_name: str, cluster_domain: str) -> tuple[str, ...]:
    """Return the names of a leaf: `dns_name`, and its long form for a Service.

    Raises ConfigError.
    """
    if not dns_name or not dns_name.isascii() or not dns_name.isprintable() or " " in dns_name:
        raise ConfigError(f"-server-tls.self-signed-cert.dns-name: {quote(dns_name)} is no name")
    domain = cluster_domain.rstrip(".")
    if not dns_name.endswith(".svc") or not domain.isascii() or not domain:
        return (dns_name,)
    return (dns_name, f"{dns_name}.{domain}")


def choose_ca_life(expiration: timedelta) -> timedelta:
    return max(expiration * _CA_LIVES, _SHORTEST_CA)


def matches_name(pattern: str, name: str) -> bool:
    """Return whether a certificate's name covers `name`; `*` stands for one label."""
    pattern, name = pattern.lower(), name.lower()
    if pattern.startswith("*."):
        return pattern[1:] == name[name.find(".") :]
    return pattern == name


def _repair(case: _Case) -> Decision | None:
    """Return what to do at once where callers refuse the current leaf."""
    held = case.held
    if not held.ca.covers(case.now):
        return _replace(case, f"the ca is not valid now, but from {held.ca.text()}")
    if not held.leaf.covers(case.now):
        return _replace(case, f"the certificate is not valid now, but from {held.leaf.text()}")
    name = case.wanted.names[0]
    if not any(matches_name(pattern, name) for pattern in held.names):
        names = ", ".join(held.names) or "no name"
        return _replace(case, f"the certificate is for {names}, not for {name}")
    return None


def _replace(case: _Case, reason: str) -> Decision:
    held = case.held
    if held.may_sign and case.has_room(held.ca, _ROOM_AT_ONCE):
        return Decision(step=CertificateStep.ISSUE_LEAF, reason=reason, may_serve=False)
    if case.usable_next is not None:
        return Decision(step=CertificateStep.SWITCH_CA, reason=reason, may_serve=False)
    is_trusted = held.ca.covers(case.now)
    return Decision(
        step=CertificateStep.START_OVER, reason=reason, may_serve=False, trusts_old=is_trusted
    )


def _renewal(case: _Case) -> Decision | None:
    if case.now < case.due:
        return None
    next_ca = case.usable_next
    if next_ca is not None:
        return _change(case, next_ca)
    ends = f"the certificate ends at {format_rfc3339(case.held.leaf.end)}"
    if case.may_issue:
        return Decision(
            step=CertificateStep.ISSUE_LEAF, reason=f"{ends}: a third of its life is left"
        )
    lack = (
        f"ends at {format_rfc3339(case.held.ca.end)}"
        if case.held.may_sign
        else "has no key to sign with"
    )
    return Decision(step=CertificateStep.INTRODUCE_CA, reason=f"{ends}, and its ca {lack}")


def _change(case: _Case, next_ca: Validity) -> Decision:
    published = case.held.next_published_for
    if published is not None and published >= case.overlap:
        reason = f"the next ca has been published for {format_duration(published)}"
        return Decision(step=CertificateStep.SWITCH_CA, reason=reason)
    forced = case.forced(next_ca)
    if case.now >= forced:
        reason = f"the certificate ends at {format_rfc3339(case.end)}: no more waiting for bundles"
        return Decision(step=CertificateStep.SWITCH_CA, reason=reason)
    if published is None:
        return Decision(
            step=CertificateStep.KEEP,
            reason="not every webhook configuration holds the next ca",
            requeue_at=min(case.now + case.overlap / 6, forced),
        )
    return Decision(
        step=CertificateStep.KEEP,
        reason=f"the next ca is published, and used {format_duration(case.overlap)} later",
        requeue_at=min(case.now + case.overlap - published, forced),
    )
