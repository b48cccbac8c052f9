"""A downscale on its way: what it takes away, whom it asks, what is remembered of it."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from rollout_operator.model.names import Uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one pod is called: its own address, under the name that its set gives it.

    Every part has been checked: nothing of it is taken from a pod or an annotation as it is.
    """

    pod: str
    uid: Uid
    ip: str
    """Of the pod's own status."""
    host: str
    """DNS name, for the `Host` header and certificates only: nobody looks it up."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decrease:
    """What a review asks for: fewer replicas of one object."""

    resource: str
    """Plural, such as `statefulsets`."""
    namespace: str
    name: str
    replicas_from: int
    replicas_to: int

    @property
    def text(self) -> str:
        """Return it as the messages of all releases begin."""
        return (
            f"downscale of {self.resource}/{self.name} in {self.namespace} "
            f"from {self.replicas_from} to {self.replicas_to} replicas"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What makes two reviews the same downscale, whatever their UIDs (D-24)."""

    set_uid: Uid
    replicas_from: int
    replicas_to: int


class Note(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The story of a downscale, as pods carry it for a restarted process."""

    replicas_from: int
    replicas_to: int
    at: datetime
    """When it began, in the API server's time."""
    by: str = ""
    """The process that wrote it, which remembers what became of it; empty where it is not told."""
    first: Uid = Uid("")
    """The pod that goes first: where it is gone, the downscale has happened. Empty for none."""

    @classmethod
    def of(cls, key: Key, at: datetime, *, first: Uid) -> "Note":
        """Return the story of a downscale that begins now."""
        return cls(replicas_from=key.replicas_from, replicas_to=key.replicas_to, at=at, first=first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Underway:
    """A downscale that may still persist: it holds back everything else in its group (D-25)."""

    zone: str
    """Name of the StatefulSet."""
    replicas_from: int
    replicas_to: int
