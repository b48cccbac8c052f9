"""Differences between the operator that acts and this operator, which only observes.

Two ways to differ over a pod: this operator would have deleted it, and it has stayed for a minute
in which that was decided again and again; or it was deleted, and this operator would have kept it.
The caches of StatefulSets and of pods are not of one moment, so that a delete is assessed anew for
a short while before it counts.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.cache.store import StatefulSetStore
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Replacement
from rollout_operator.planning.rollout.comparison import is_replaced, would_replace
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Grafana's operator reconciles every five seconds, and waits for caches and its own limits.
STAYS_FOR: Final = timedelta(minutes=1)
# So long one watch may be behind the other, and a decision behind its snapshot.
SETTLES_IN: Final = timedelta(seconds=2)
# Of a group, that settle at a time. Each costs a plan of the group; an operator that deletes more
# at once is no operator to compare with.
MOST_SETTLING: Final = 32


class Difference(StrEnum):
    """How two operators differ over a pod: the values of `metrics.SHADOW_DIFFERENCES`."""

    NOT_DELETED = "not_deleted"
    DELETED = "deleted"


class _Went(NamedTuple):
    """A pod that another operator deleted."""

    pod: Pod
    at: timedelta


class _Watched(msgspec.Struct):
    """The pods of one group that may differ."""

    wanted: dict[Uid, timedelta] = {}
    """Pods that this operator would delete, and since when, on the clock's `elapsed`."""
    dropped: dict[Uid, timedelta] = {}
    """Pods that it would have deleted until then."""
    went: list[_Went] = []
    reported: set[Uid] = set()
    """Pods of `wanted` that have been counted."""


class Differences:
    """Compares the decisions of this operator with what happens to pods."""

    def __init__(self, sets: StatefulSetStore, clock: Clock, metrics: Metrics) -> None:
        self._sets = sets
        self._clock = clock
        self._counter = metrics.shadow_differences
        self._groups: dict[GroupName, _Watched] = {}
        self.total = 0
        """How many there were since the start."""

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Take over a pod that changed."""
        if not (isinstance(old, Pod) and isinstance(new, Pod)) or old.owner_uid is None:
            return
        sts = self._sets.get_by_uid(old.owner_uid)
        if not isinstance(sts, StatefulSet) or not is_replaced(sts, old, new):
            return
        watched = None if sts.group is None else self._groups.get(sts.group)
        if watched is None or len(watched.went) >= MOST_SETTLING:
            return
        if old.uid not in watched.wanted and old.uid not in watched.dropped:
            watched.went.append(_Went(old, self._clock.elapsed()))

    async def compare(self, group: Group, wanted: Mapping[Uid, Replacement]) -> timedelta | None:
        """Take the pods of a group that this operator would delete now, and count what differs.

        Returns after how long to compare again where no event comes first.
        """
        watched, now = self._groups.setdefault(group.name, _Watched()), self._clock.elapsed()
        self._drop(watched, wanted, now)
        left = [
            self._compare_wanted(group.name, watched, replacement, now)
            for replacement in wanted.values()
        ]
        for gone in tuple(watched.went):
            wait = (
                None
                if would_replace(group, gone.pod)
                else self._compare_went(group.name, gone, now)
            )
            if wait is None:
                watched.went.remove(gone)
            left.append(wait)
            await asyncio.sleep(0)  # other tasks may run
        return min((wait for wait in left if wait is not None), default=None)

    def forget(self, group: GroupName) -> None:
        """Forget a group that is gone; an unknown name is fine."""
        self._groups.pop(group, None)

    def _compare_wanted(
        self, group: GroupName, watched: _Watched, replacement: Replacement, now: timedelta
    ) -> timedelta | None:
        """Count a pod that has stayed for too long, once; return how much longer it may stay."""
        uid = replacement.pod.uid
        if uid in watched.reported:
            return None
        left = watched.wanted.setdefault(uid, now) + STAYS_FOR - now
        if left > timedelta(0):
            return left
        watched.reported.add(uid)
        self._count(group, replacement.pod, Difference.NOT_DELETED, replacement.reason.text)
        return None

    def _compare_went(self, group: GroupName, went: _Went, now: timedelta) -> timedelta | None:
        """Count a pod that should have stayed, once nothing can show otherwise any more."""
        left = went.at + SETTLES_IN - now
        if left > timedelta(0):
            return left
        self._count(group, went.pod, Difference.DELETED, "it was not this pod's turn")
        return None

    def _drop(self, watched: _Watched, wanted: Mapping[Uid, Replacement], now: timedelta) -> None:
        for uid in watched.wanted.keys() - wanted.keys():
            del watched.wanted[uid]
            watched.reported.discard(uid)
            watched.dropped[uid] = now
        for uid, at in list(watched.dropped.items()):
            if now - at >= SETTLES_IN:
                del watched.dropped[uid]

    def _count(self, group: GroupName, pod: Pod, kind: Difference, why: str) -> None:
        self.total += 1
        self._counter.labels(group, kind).inc()
        messages = {
            Difference.NOT_DELETED: "This operator would have deleted a pod that stays",
            Difference.DELETED: "A pod was deleted that this operator would have kept",
        }
        log.warn(messages[kind], group=group, pod=pod.name, uid=pod.uid, why=why)
