"""A downscale on its way: what it takes away, which pods it calls, what is remembered of it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.names import DOWNSCALE_INTENT, Uid


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pod is called: its own address, under the name that its set gives it.

    Every part has been checked: nothing of it is taken from a pod or an annotation as it is.
    """

    pod: str
    uid: Uid
    ip: str
    """Of the pod's own status."""
    host: str
    """DNS name, for the `Host` header and certificates only: it is never resolved."""
    port: int
    path: str
    """Without a leading slash."""
    scheme: str = "http"
    """`http` or `https`; the certificate of the latter must name `host`."""
    query: str = ""
    """Without the question mark, empty for none."""
    shows_port: bool = True
    """Whether the `Host` header names the port; where not, it is the default of the scheme."""

    @property
    def authority(self) -> str:
        """Return the value of the `Host` header."""
        return f"{self.host}:{self.port}" if self.shows_port else self.host


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the pods of a set are called: what the endpoints of all of them share, checked."""

    port: int
    path: str
    """Without a leading slash."""
    service: str
    scheme: str = "http"


class Decrease(msgspec.Struct, frozen=True, kw_only=True):
    """What a review requests: fewer replicas of one object, or ordinals that leave some out."""

    resource: str
    """Plural, such as `statefulsets`."""
    namespace: str
    name: str
    replicas_from: int
    replicas_to: int
    first_from: int = 0
    first_to: int = 0
    """The first ordinals, before and after."""

    @property
    def moves_ordinals(self) -> bool:
        """Return whether other ordinals go than the highest."""
        return self.first_from != self.first_to

    @property
    def text(self) -> str:
        """Return the words that begin its messages, the same in all releases."""
        if self.replicas_to >= self.replicas_from:
            return (
                f"change of spec.ordinals.start of {self.resource}/{self.name} in {self.namespace} "
                f"from {self.first_from} to {self.first_to}, which removes pods,"
            )
        return (
            f"downscale of {self.resource}/{self.name} in {self.namespace} "
            f"from {self.replicas_from} to {self.replicas_to} replicas"
        )


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two reviews the same downscale, whatever their UIDs (D-24)."""

    set_uid: Uid
    replicas_from: int
    replicas_to: int
    target: Target | None = None
    """Where pods are called; None in records of earlier releases, which did not record it."""

    def may_be(self, other: "Key") -> bool:
        """Return whether another downscale is the same, as far as is known."""
        counts = (self.set_uid, self.replicas_from, self.replicas_to)
        return counts == (other.set_uid, other.replicas_from, other.replicas_to) and (
            self.target is None or self.target == other.target
        )


# An annotation is no place for more, and hostile annotations must not have pods called a thousand
# times.
MOST_EARLIER: Final = 8


class DownscaleRecord(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The record of a downscale, as pods carry it for a restarted process."""

    replicas_from: int
    replicas_to: int
    at: datetime
    """When it began, in the API server's time."""
    by: str = ""
    """The process that wrote it, which remembers its outcome; empty where it is not recorded."""
    target: Target | None = None
    """Where pods are called; None in records of earlier releases, which did not record it."""
    earlier: tuple[Target, ...] = ()
    """Where else pods may wait for a cancellation, of downscales before this."""

    @classmethod
    def of(
        cls, key: Key, at: datetime, *, earlier: Iterable[Target | None] = ()
    ) -> "DownscaleRecord":
        """Return the record of a downscale that begins now; pods were called at `earlier`, too."""
        return cls(
            replicas_from=key.replicas_from,
            replicas_to=key.replicas_to,
            at=at,
            target=key.target,
            earlier=tuple(
                target for target in earlier if target is not None and target != key.target
            )[-MOST_EARLIER:],
        )


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that may still persist: it holds back everything else in its group (D-25)."""

    zone: str
    """Name of the StatefulSet."""
    replicas_from: int
    replicas_to: int
    is_marked: bool = False
    """Whether this process knows it by a mark on the StatefulSet only."""
    unreadable: str = ""
    """What a mark says that cannot be read, quoted: it counts as a downscale that takes all."""
    left: timedelta | None = None
    """After what time it can persist no more, where that is known: its mark may not be removed."""

    @property
    def way_out(self) -> str:
        """Return what a person can do where the operator may not remove a mark; empty for none."""
        if not self.is_marked:
            return ""
        command = f"kubectl annotate statefulset {self.zone} {DOWNSCALE_INTENT}-"
        return f"; if the operator cannot remove its mark: {command}"

    @property
    def text(self) -> str:
        """Return `zone-a is being scaled down from 3 to 2 replicas`."""
        if self.unreadable:
            field = f"StatefulSet {self.zone}: annotation {DOWNSCALE_INTENT}"
            return f"{field}: {self.unreadable} is no mark of a downscale, and counts as one of all"
        counts = f"from {self.replicas_from} to {self.replicas_to} replicas"
        return f"{self.zone} is being scaled down {counts}"
