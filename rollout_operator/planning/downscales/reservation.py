"""May a downscale be reserved now, and whose pods are still to be called for it.

Decides what an earlier downscale of the same set means for it; the rest of the group, and which
pods must confirm, are judged in `rule`. Works on what one live read of the group showed.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime

from rollout_operator.model.downscale import Decrease, Endpoint, Key, Target
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.request import RETRY, refuse_decrease
from rollout_operator.planning.downscales.rule import (
    PreparePods,
    assess_neighbours,
    choose_pods_to_prepare,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierDownscale:
    """What is remembered of the last downscale of a set that was reserved."""

    key: Key
    is_preparing: bool
    """Its pods are being called; nothing is answered yet."""
    is_persisted: bool
    is_adopted: bool
    """Another process began it, and may never have granted it."""
    is_late: bool
    """Nothing that began with it can persist any more: its client keeps trying."""
    prepared: Set[Uid]
    """Its pods that have confirmed."""

    def may_be(self, key: Key) -> bool:
        """Return whether it is the requested downscale, and may still happen."""
        return not self.is_persisted and self.key.may_be(key)

    def is_repeated_by(self, key: Key) -> bool:
        """Return whether the request is for this downscale again, which is not judged again.

        What was granted holds the others back (D-24). What another process began it may never have
        granted; and so late it is another request: the cluster has changed, and so has the time to
        record.
        """
        return self.may_be(key) and not self.is_adopted and not self.is_late

    def may_persist_beside(self, target: Target) -> bool:
        """Return whether it may still be written while another downscale is requested.

        A write is taken only of the very version that was reviewed: the set has been changed since,
        where it names another target now.
        """
        if self.is_persisted:
            return False
        return self.is_preparing or self.key.target in (None, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class DownscaleSnapshot:
    """What a reservation rests on."""

    decrease: Decrease
    key: Key
    target: Target
    """Where the pods of the set are called, as it says itself."""
    zone: Zone
    group: Group
    """As a live read showed it, with `now` in the API server's time, and other downscales."""
    is_grouped: bool
    """Whether the set belongs to a rollout group, which has a say."""
    times: Mapping[Uid, datetime] | None
    """When other zones went last; None where that was not read, as it was requested before."""
    source: TimesSource
    earlier: EarlierDownscale | None
    cluster_domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationPlan:
    """What may be reserved."""

    pods: PreparePods
    missing: tuple[Endpoint, ...]
    """The pods that have not confirmed yet."""
    is_repeated: bool
    """Whether it is the same request again: then the time of the first answer stands."""


def plan_reservation(snapshot: DownscaleSnapshot) -> ReservationPlan | Verdict:
    """Return what may be reserved, or why nothing may."""
    decrease, zone, earlier = snapshot.decrease, snapshot.zone, snapshot.earlier
    is_same = earlier is not None and earlier.may_be(snapshot.key)
    if earlier is not None and not is_same and earlier.may_persist_beside(snapshot.target):
        why = f"statefulset {zone.sts.name} is already in process of updating replicas"
        return refuse_decrease(decrease, Code.OTHER_DOWNSCALE_UNDERWAY, why, status=RETRY)
    is_repeated = earlier is not None and earlier.is_repeated_by(snapshot.key)
    if snapshot.is_grouped and not is_repeated:
        if snapshot.times is None:
            why = "the same was requested before, and is over meanwhile; try again"
            return refuse_decrease(decrease, Code.CHANGED_MEANWHILE, why, status=RETRY)
        refusal = assess_neighbours(
            decrease, zone.sts, snapshot.group, snapshot.times, snapshot.source
        )
        if refusal is not None:
            return refusal
    pods = choose_pods_to_prepare(decrease, zone, snapshot.target, snapshot.cluster_domain)
    if isinstance(pods, Verdict):
        return pods
    confirmed = earlier.prepared if earlier is not None and is_repeated else frozenset[Uid]()
    missing = tuple(endpoint for endpoint in pods.endpoints if endpoint.uid not in confirmed)
    return ReservationPlan(pods=pods, missing=missing, is_repeated=is_repeated)
