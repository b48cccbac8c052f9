"""The frozen snapshot of one rollout group that one decision works on."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import TypeVar

import msgspec

from rollout_operator.model.downscale import Underway
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, parse_ordinal


@unique
class Deletion(StrEnum):
    """What we know of a pod that still looks untouched, and is or may be on its way out."""

    ACCEPTED = "accepted"
    """The API server said yes; the cache does not show it yet."""
    UNKNOWN = "unknown"
    """No answer came: it may be committed now, later or never."""
    GRANTED = "granted"
    """A client may disrupt it and has not visibly done so yet, e.g. an eviction was allowed."""


class Newcomers(msgspec.Struct, frozen=True, kw_only=True):
    """What this process has seen, without a gap, of the ordinals that an upscale added."""

    used: int
    """Of the ordinals above so many no pod was ready since they were added."""
    generation: int
    """Of the spec that was seen last."""
    pods: frozenset[Uid] = frozenset()
    """Those of these ordinals that came meanwhile."""
    settles_in: timedelta = timedelta(0)
    """How long nothing may come or go there still, before they count as never used."""


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of the group with the pods that it controls, by owner UID."""

    sts: StatefulSet
    pods: tuple[Pod, ...] = ()
    unreadable_pods: tuple[Unreadable, ...] = ()
    newcomers: Newcomers | None = None
    """None where nothing is known of them."""
    counts_for: timedelta | None = None
    """How long a zone counts that has left, short as it was; None for a zone that belongs there."""

    @property
    def own_pods(self) -> list[Pod]:
        """Return the pods that name the set as their controlling owner."""
        return [pod for pod in self.pods if pod.owner_uid == self.sts.uid]

    @property
    def own_unreadable(self) -> list[Unreadable]:
        """Return the pods that are the set's, or may be, and of which nothing more is known."""
        owners = (self.sts.uid, None)
        return [pod for pod in self.unreadable_pods if pod.owner_uid in owners]

    def list_pods(self, ordinals: range) -> list[tuple[int, Pod]]:
        """Return the own pods in a range, which may be of any length, by ordinal and UID.

        A cache that missed an event may hold two pods of one name: both are here.
        """
        if not ordinals:
            return []  # so it is for newcomers of nearly all zones, and ordinals take time to read
        pods = _with_ordinals(self.sts, self.own_pods, ordinals)
        return sorted(pods, key=lambda place: (place[0], place[1].uid))

    def by_ordinal(self, ordinals: range) -> dict[int, Pod | Unreadable]:
        """Return what holds the ordinals of a range; of two pods of one name the worse."""
        held: dict[int, Pod | Unreadable] = {}
        own: tuple[Pod | Unreadable, ...] = (*self.own_pods, *self.own_unreadable)
        for ordinal, pod in _with_ordinals(self.sts, own, ordinals):
            other = held.get(ordinal)
            held[ordinal] = pod if other is None else min(pod, other, key=_order_by_proof)
        return held


_Held = TypeVar("_Held", Pod, Pod | Unreadable)


def _with_ordinals(
    sts: StatefulSet, pods: Iterable[_Held], ordinals: range
) -> list[tuple[int, _Held]]:
    prefix = f"{sts.name}-"
    cut = len(prefix)
    return [
        (ordinal, pod)
        for pod in pods
        if pod.name.startswith(prefix)
        and (ordinal := parse_ordinal(pod.name[cut:])) is not None
        and ordinal in ordinals
    ]


def _order_by_proof(pod: Pod | Unreadable) -> tuple[int, str]:
    return (0, pod.uid) if isinstance(pod, Unreadable) else (1 + pod.is_ready, pod.uid)


class OtherRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Outdated ready pods of a group go one after the other, and not by this process (D-73)."""

    pods: tuple[str, ...]
    """The last two of them."""
    left: timedelta
    """How long the group is left alone still, unless another pod goes."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `plan_group` reads.

    `zones` are in any order. `deletions` are pods that go although `zones` may not show it yet, by
    UID. `snapshot_age` is the age of the oldest proof that the caches behind `zones` are live.
    """

    name: GroupName
    zones: tuple[Zone, ...]
    departed: tuple[Zone, ...] = ()
    """Zones that left while they were short: they hold the others, and are never acted upon."""
    now: datetime
    unreadable: tuple[Unreadable, ...] = ()
    deletions: Mapping[Uid, Deletion]
    snapshot_age: timedelta = timedelta(0)
    downscale: Underway | None = None
    """Of one of the zones; it may still persist, or be refused by another webhook."""
    other_rollout: OtherRollout | None = None
    """By another operator, which is left to it."""
    driver: str | None = None
    """The MultiAZRollout, by namespace and name, that replaces the pods instead of the label; empty
    where that is not known yet."""

    @property
    def counted(self) -> tuple[Zone, ...]:
        """Return all zones whose pods count, those that left while they were short included."""
        return (*self.zones, *self.departed)

    @property
    def owners(self) -> frozenset[Uid]:
        """Return the UIDs of all members, whether they can be read or not."""
        return frozenset(
            [zone.sts.uid for zone in self.zones] + [broken.uid for broken in self.unreadable]
        )
