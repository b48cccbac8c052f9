"""What this process has seen of the ordinals that upscales added: which never had a ready pod.

Fed by the watches, event by event: what a list tells after a gap may have another pod behind it,
and is taken as used. What survives a restart is written on the pods; see `names.NEWCOMER`. What
follows from it is decided in `planning.newcomers`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from rollout_operator.model.group import Newcomers
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable

# In a shorter time no pod is created, becomes ready and is gone again; one that was there may.
LONGEST_GAP: Final = timedelta(seconds=5)


class SetCache(Protocol):
    """What is needed of the cached StatefulSets."""

    def get_by_uid(self, uid: Uid) -> StatefulSet | Unreadable | None: ...

    def list_all(self) -> Sequence[StatefulSet | Unreadable]: ...


class PodCache(Protocol):
    """What is needed of the cached pods."""

    def list_by_owner(self, uid: Uid) -> Sequence[Pod | Unreadable]: ...


@dataclass(slots=True)
class _Seen:
    """One set: of the ordinals above `used` no pod was ready since they were added."""

    first_ordinal: int
    used: int
    strangers: set[Uid]
    """Pods above that were there before anything was seen of the set."""
    pods: dict[Uid, int] = field(default_factory=dict)
    """Those that came since, each the first of its ordinal, or after others never ready: places."""
    ahead: set[int] = field(default_factory=set)
    """Places of pods that were ready before the upscale that added them was seen."""
    marked: set[Uid] = field(default_factory=set)
    """Pods from before whose mark is believed."""

    def use(self, place: int, replicas: int) -> None:
        """Count a place as used; beyond the desired ones a pod is on its way out."""
        if self.used <= place < replicas:
            self.used = place + 1


class Arrivals:
    """Which pods came to ordinals that never had a ready one."""

    def __init__(self, sets: SetCache, pods: PodCache) -> None:
        self._sets = sets
        self._pods = pods
        self._seen: dict[Uid, _Seen] = {}
        self.has_come = asyncio.Event()
        """Set whenever a newcomer comes that carries no mark yet."""
        self._is_starting = True

    def end_start(self) -> None:
        """The caches are filled: from now on a mark is our own, or one that anybody may write."""
        self._is_starting = False

    def get(self, set_uid: Uid) -> Newcomers | None:
        """Return what has been seen of a set, None where nothing has."""
        seen = self._seen.get(set_uid)
        if seen is None:
            return None
        return Newcomers(used=seen.used, pods=frozenset(seen.pods), marked=frozenset(seen.marked))

    def list_unmarked(self) -> list[Pod]:
        """Return the newcomers that do not carry their mark yet."""
        return [
            pod
            for uid, seen in self._seen.items()
            if seen.pods
            for pod in self._pods.list_by_owner(uid)
            if pod.uid in seen.pods and isinstance(pod, Pod) and not pod.is_newcomer
        ]

    def on_list(self, gap: timedelta) -> None:
        """Everything was listed, and nothing seen for `gap` before: forget what may not hold."""
        before: dict[Uid, _Seen] = {}
        if gap > LONGEST_GAP:
            before, self._seen = self._seen, {}
        for sts in self._sets.list_all():
            if not isinstance(sts, StatefulSet):
                continue
            seen = self._seen.get(sts.uid)
            if seen is not None:
                self._forget_vanished(seen, sts)
            elif gap > LONGEST_GAP:
                self._seen[sts.uid] = self._begin(sts, before.get(sts.uid))

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """A StatefulSet came, changed or went."""
        if not isinstance(new, StatefulSet):
            gone = new or old
            if gone is not None:
                self._seen.pop(gone.uid, None)
            return
        seen = self._seen.get(new.uid)
        if seen is None or seen.first_ordinal != new.first_ordinal:
            seen = self._seen[new.uid] = self._begin(new)
        seen.used = min(seen.used, new.replicas)
        for pod in self._pods.list_by_owner(new.uid):
            # One that is still going after a downscale, say, and stays after all.
            if pod.uid not in seen.pods:
                seen.use(_find_place(new, pod), new.replicas)
        for place in seen.ahead:
            seen.use(place, new.replicas)
        seen.ahead = {place for place in seen.ahead if place >= new.replicas}

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """A pod came, changed or went."""
        pod = new or old
        if pod is None or pod.owner_uid is None:
            return
        seen, sts = self._seen.get(pod.owner_uid), self._sets.get_by_uid(pod.owner_uid)
        if seen is None or not isinstance(sts, StatefulSet):
            return
        place = _find_place(sts, pod)
        is_first = old is None and pod.uid not in seen.strangers
        has_come = is_first or pod.uid in seen.pods
        is_newcomer = has_come and not _was_ready(pod)
        if is_newcomer and new is not None and place >= seen.used:
            if is_first:
                seen.pods[pod.uid] = place
                self.has_come.set()
            return
        seen.pods.pop(pod.uid, None)
        if new is None:
            seen.strangers.discard(pod.uid)
            seen.marked.discard(pod.uid)
        if is_newcomer:
            return
        seen.use(place, sts.replicas)
        if has_come and place >= sts.replicas:
            seen.ahead.add(place)

    def _forget_vanished(self, seen: _Seen, sts: StatefulSet) -> None:
        """Count the places of pods as used whose end was not told: they may have been ready."""
        if not seen.pods:
            return
        here = {pod.uid for pod in self._pods.list_by_owner(sts.uid)}
        for uid in seen.pods.keys() - here:
            place = seen.pods.pop(uid)
            seen.use(place, sts.replicas)
            if place >= sts.replicas:
                seen.ahead.add(place)

    def _begin(self, sts: StatefulSet, before: _Seen | None = None) -> _Seen:
        """Return what is known of a set at first sight: all that is there may have been ready.

        But for the pods that an earlier process has marked, or this one `before` a gap.
        """
        used, pods = sts.replicas, self._pods.list_by_owner(sts.uid)
        strangers = {pod.uid for pod in pods if _find_place(sts, pod) >= used}
        marked = {pod.uid for pod in pods if isinstance(pod, Pod) and pod.is_newcomer}
        if not self._is_starting:
            marked &= set() if before is None else before.marked | before.pods.keys()
        return _Seen(first_ordinal=sts.first_ordinal, used=used, strangers=strangers, marked=marked)


def _was_ready(pod: Pod | Unreadable) -> bool:
    """Tell whether a pod is ready or has been, or may be."""
    return isinstance(pod, Unreadable) or pod.is_ready or pod.was_ready


def _find_place(sts: StatefulSet, pod: Pod | Unreadable) -> int:
    """Return the place of a pod from the first ordinal on; below zero for any other name."""
    ordinal = sts.ordinal_of(pod.name)
    return -1 if ordinal is None else ordinal - sts.first_ordinal
