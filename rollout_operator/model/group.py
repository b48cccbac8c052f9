"""The frozen picture of one rollout group that one decision works on."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, unique

from rollout_operator.model.downscale import Underway
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable


@unique
class Deletion(StrEnum):
    """What we know of a pod that still looks untouched, and is or may be on its way out."""

    ACCEPTED = "accepted"
    """The API server said yes; the cache does not show it yet."""
    UNKNOWN = "unknown"
    """No answer came: it may be committed now, later or never."""
    GRANTED = "granted"
    """Somebody may disrupt it and has not visibly done so yet, e.g. an eviction was allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomers:
    """What this process has seen, without a gap, of the ordinals that an upscale added."""

    used: int
    """Of the ordinals above so many no pod was ready since they were added."""
    generation: int
    """Of the spec that was seen last."""
    pods: frozenset[Uid] = frozenset()
    """Those of these ordinals that came meanwhile."""
    settles_in: timedelta = timedelta(0)
    """How long nothing may come or go there still, before they count as never used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """One StatefulSet of the group with the pods that it controls, by owner UID."""

    sts: StatefulSet
    pods: tuple[Pod, ...] = ()
    unreadable_pods: tuple[Unreadable, ...] = ()
    newcomers: Newcomers | None = None
    """None where nothing is known of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Everything that `plan_group` reads.

    `zones` are in any order. `deletions` are pods that go although `zones` may not show it yet, by
    UID. `view_age` is the age of the oldest proof that the caches behind `zones` are live.
    """

    name: GroupName
    zones: tuple[Zone, ...]
    now: datetime
    unreadable: tuple[Unreadable, ...] = ()
    deletions: Mapping[Uid, Deletion]
    view_age: timedelta = timedelta(0)
    downscale: Underway | None = None
    """Of one of the zones; it may still persist, or be refused by somebody else."""

    @property
    def owners(self) -> frozenset[Uid]:
        """Return the UIDs of all members, whether they can be read or not."""
        return frozenset(
            [zone.sts.uid for zone in self.zones] + [one.uid for one in self.unreadable]
        )
