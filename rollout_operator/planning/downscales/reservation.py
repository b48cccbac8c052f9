"""May a downscale be reserved now, what became of it, and which pods stay after all.

Decides what an earlier downscale of the same set means for it; the rest of the group, and which
pods must confirm, are judged in `rule`. Works on what one live read of the group showed. Only the
set itself says whether a downscale happened: its answer may have been lost, refused by another
webhook, or reverted by a person right after.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.downscale import Decrease, Endpoint, Key, Target
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.request import RETRY, refuse_decrease
from rollout_operator.planning.downscales.rule import (
    PreparePods,
    assess_neighbours,
    choose_pods_to_prepare,
)

# A pod carries the whole second in which it came, and a record a time up to a second ahead.
_ROUNDING: Final = timedelta(seconds=2)


class EarlierDownscale(msgspec.Struct, frozen=True, kw_only=True):
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


class DownscaleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
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


class ReservationPlan(msgspec.Struct, frozen=True, kw_only=True):
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


@unique
class DownscaleOutcome(StrEnum):
    """What the replicas that a set wants say of a downscale."""

    OPEN = "open"
    HAPPENED = "happened"
    FAILED = "failed"


def judge_downscale(key: Key, sts: StatefulSet, *, may_persist: bool) -> DownscaleOutcome:
    """Return what became of a downscale; `may_persist`: the API server may still write it.

    A downscale that happened and was reverted is open again for as long: the same may be requested
    twice, and a pod that a downscale may still take away must not be un-prepared (SI-12).
    """
    if sts.replicas <= key.replicas_to:
        return DownscaleOutcome.HAPPENED
    return DownscaleOutcome.OPEN if may_persist else DownscaleOutcome.FAILED


def choose_staying(
    sts: StatefulSet, pods: Iterable[Pod], called: Mapping[Uid, str]
) -> dict[Uid, Pod]:
    """Return the pods to un-prepare, by the UID that was prepared, in order of ordinals.

    `called` has the names. A pod that has gone meanwhile, and is wanted, is followed by another pod
    of its name, which may find on its disk that it is to go: it is called when it runs.
    """
    present = {pod.name: pod for pod in pods if not pod.is_terminating}
    candidates: list[tuple[int, Uid, Pod]] = []
    for uid, name in called.items():
        pod, ordinal = present.get(name), sts.find_ordinal(name, sts.ordinals)
        if pod is not None and ordinal is not None and (pod.uid == uid or pod.ip):
            candidates.append((ordinal, uid, pod))
    return {uid: pod for _, uid, pod in sorted(candidates, key=lambda pair: pair[0])}


def took_pods(sts: StatefulSet, pods: Iterable[Pod], called: Mapping[Uid, str]) -> bool:
    """Return whether a pod that was prepared has gone, or is going, though its set wants it.

    Then the downscale has happened and was reverted, whether or not a watch has shown it.
    `called` has the names.
    """
    present = {pod.uid for pod in pods if not pod.is_terminating}
    return any(uid not in present and is_wanted(sts, name) for uid, name in called.items())


def find_replaced(
    key: Key, sts: StatefulSet, pods: Iterable[Pod], at: datetime, now: datetime
) -> datetime | None:
    """Return when the newest pod came of a downscale of about `at`, None where none came after it.

    Then it has happened, and was reverted: `now` where a pod is still to come. The answer is a
    time of the API server, however `at` was forged: at most it says what is so.
    """
    taken = range(sts.first_ordinal + key.replicas_to, sts.first_ordinal + key.replicas_from)
    wanted = range(taken.start, min(taken.stop, sts.ordinals.stop))
    came = [pod.created for pod in pods if sts.find_ordinal(pod.name, wanted) is not None]
    if len(came) < len(wanted):
        return now
    newest = max((now if time is None else time for time in came), default=None)
    return newest if newest is not None and at - newest <= _ROUNDING else None


def is_wanted(sts: StatefulSet, name: str) -> bool:
    """Return whether a set wants a pod of that name."""
    return sts.find_ordinal(name, sts.ordinals) is not None


def spares(key: Key, sts: StatefulSet, pod: str) -> bool:
    """Return whether a downscale surely leaves the pod of that name where it is."""
    ordinal = sts.ordinal_of(pod)
    return ordinal is not None and ordinal < sts.first_ordinal + key.replicas_to


def is_over(pods: Iterable[Pod], called: Collection[Uid]) -> bool:
    """Return whether all pods that were prepared are gone or on their way out."""
    return not any(pod.uid in called and not pod.is_terminating for pod in pods)
