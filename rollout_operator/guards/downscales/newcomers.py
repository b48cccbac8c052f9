"""Which ordinals this process saw an upscale add, and no pod become ready in ever since (D-67).

Fed by the watches, event by event, and kept in memory only: what was there at first sight, or after
a gap in a watch, may have held data, and so may whatever else is in doubt. Which of these ordinals
hold nothing is decided in `planning.rollout.newcomers`.
"""

import sys
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.group import Newcomers
from rollout_operator.model.names import PREPARE_DOWNSCALE, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, parse_ordinal
from rollout_operator.planning.downscales.request import is_labelled

# So long nothing may come or go at these ordinals before they count as never used: longer than a
# watch lags, than writers need that fight over a count, and than a pod needs to be replaced.
SETTLING: Final = timedelta(seconds=30)
# What was in use before a downscale may hold data for as long: its volumes are still there. After
# that, nobody has relied on it for longer than a person works on a zone.
FORGOTTEN: Final = timedelta(hours=1)
# In a shorter gap no pod is created, becomes ready and is gone again; one that was there may.
LONGEST_GAP: Final = timedelta(seconds=5)


@dataclass(slots=True, kw_only=True)
class _SetHistory:
    """What was seen of one StatefulSet. Places are ordinals, counted from the first one."""

    first_ordinal: int
    replicas: int
    generation: int
    used: int
    """No pod of the places above was ready since an upscale added them.

    A downscale that is not long ago leaves it higher than `replicas`.
    """
    changed_at: timedelta
    """When something came or went there last."""
    lost_at: timedelta
    """When a pod above went last, or the replicas became fewer, or either may have happened."""
    pods: dict[Uid, int] = field(default_factory=dict)
    """Pods above that came while this process watched, and were never ready: their places."""

    def use(self, place: int) -> None:
        """Count a desired place as used, and all below it."""
        if self.used <= place < self.replicas:
            self.used = place + 1
            self.pods = {uid: one for uid, one in self.pods.items() if one > place}


class Arrivals:
    """What this process saw come to the ordinals of upscales."""

    def __init__(self, sets: StatefulSetStore, pods: PodStore, clock: Clock) -> None:
        self._sets = sets
        self._pods = pods
        self._clock = clock
        self._seen: dict[Uid, _SetHistory] = {}

    def get(self, set_uid: Uid) -> Newcomers | None:
        """Return what was seen of a set, None where nothing was."""
        seen = self._seen.get(set_uid)
        if seen is None:
            return None
        left = seen.changed_at + SETTLING - self._clock.elapsed()
        return Newcomers(
            used=seen.used,
            pods=frozenset(seen.pods),
            generation=seen.generation,
            settles_in=max(left, timedelta(0)),
        )

    def on_list(self, gap: timedelta) -> None:
        """Take over a whole list, before which nothing was seen for `gap`.

        Where anything came or went meanwhile, it did so unseen: all of that set counts as used.
        """
        for sts in self._sets.list_all():
            if not isinstance(sts, StatefulSet):
                continue
            seen = self._seen.get(sts.uid)
            if seen is None or gap > LONGEST_GAP or self._differs(seen, sts):
                self._seen[sts.uid] = self._begin(sts, is_created=False)

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Take over a StatefulSet that came, changed or went."""
        if not isinstance(new, StatefulSet):
            gone = new or old
            if gone is not None:
                self._seen.pop(gone.uid, None)
            return
        seen = self._seen.get(new.uid)
        if seen is None or seen.first_ordinal != new.first_ordinal:
            self._seen[new.uid] = self._begin(new, is_created=seen is None)
            return
        seen.generation = new.generation
        if new.replicas < seen.replicas:
            self._scale_down(seen, new)
        elif new.replicas > seen.replicas:
            self._scale_up(seen, new)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Take over a pod that came, changed or went."""
        if old is not None and (new is None or new.owner_uid != old.owner_uid):
            self._take_gone(old)
        if new is not None:
            self._take_pod(new, is_first=old is None)

    def _take_gone(self, pod: Pod | Unreadable) -> None:
        seen = self._find(pod)
        if seen is None:
            return
        is_tracked = seen.pods.pop(pod.uid, None) is not None
        seen.changed_at = seen.lost_at = self._clock.elapsed()
        if not is_tracked or _may_have_been_ready(pod) or self._has_successor(pod):
            seen.use(_find_place(seen.first_ordinal, pod))

    def _take_pod(self, pod: Pod | Unreadable, *, is_first: bool) -> None:
        seen = self._find(pod)
        if seen is None:
            return
        place, is_tracked = _find_place(seen.first_ordinal, pod), pod.uid in seen.pods
        if _may_have_been_ready(pod) or not (is_first or is_tracked):
            seen.pods.pop(pod.uid, None)
            seen.changed_at = self._clock.elapsed()
            seen.use(place)
        elif not is_tracked:
            seen.pods[pod.uid] = place
            seen.changed_at = self._clock.elapsed()

    def _find(self, pod: Pod | Unreadable) -> _SetHistory | None:
        """Return what was seen of the set of a pod, None where its place is used anyway."""
        seen = None if pod.owner_uid is None else self._seen.get(pod.owner_uid)
        if seen is None or _find_place(seen.first_ordinal, pod) < seen.used:
            return None
        return seen

    def _has_successor(self, pod: Pod | Unreadable) -> bool:
        """Tell whether another pod of that name is there already: the watch missed an end."""
        owner = pod.owner_uid
        assert owner is not None, "else nothing was seen of its set"
        return any(one.name == pod.name for one in self._pods.list_by_owner(owner))

    def _scale_down(self, seen: _SetHistory, sts: StatefulSet) -> None:
        seen.replicas = sts.replicas
        seen.changed_at = seen.lost_at = self._clock.elapsed()

    def _scale_up(self, seen: _SetHistory, sts: StatefulSet) -> None:
        """Add places: used where pods were there, or may have been, until a moment ago."""
        now, before, seen.replicas = self._clock.elapsed(), seen.replicas, sts.replicas
        seen.changed_at = now
        if now - seen.lost_at < SETTLING:
            seen.use(sts.replicas - 1)
            return
        if now - seen.lost_at >= FORGOTTEN:
            seen.used = min(seen.used, before)
        for pod in self._pods.list_by_owner(sts.uid):
            # The watch of pods may have been faster, and shows the first of the new ones already.
            is_leaving = isinstance(pod, Pod) and pod.is_terminating
            if pod.uid not in seen.pods or is_leaving:
                seen.use(_find_place(seen.first_ordinal, pod))

    def _differs(self, seen: _SetHistory, sts: StatefulSet) -> bool:
        pods = self._pods.list_by_owner(sts.uid)
        here = {one.uid for one in pods if _find_place(seen.first_ordinal, one) >= seen.used}
        return sts.generation != seen.generation or here != seen.pods.keys()

    def _begin(self, sts: StatefulSet, *, is_created: bool) -> _SetHistory:
        """Return what is known of a set at first sight: all that is wanted may hold data.

        And all that was wanted a while ago, unless the pods of a downscale are prepared for it.
        """
        now = self._clock.elapsed()
        is_known = is_created or is_labelled(sts.labels, PREPARE_DOWNSCALE)
        return _SetHistory(
            first_ordinal=sts.first_ordinal,
            replicas=sts.replicas,
            generation=sts.generation,
            used=sts.replicas if is_known else sys.maxsize,
            changed_at=now,
            lost_at=now,
        )


def _may_have_been_ready(pod: Pod | Unreadable) -> bool:
    return isinstance(pod, Unreadable) or pod.is_ready or pod.was_ready


def _find_place(first_ordinal: int, pod: Pod | Unreadable) -> int:
    """Return the place of a pod from the first ordinal on; below zero for any other name."""
    ordinal = parse_ordinal(pod.name.rpartition("-")[2])
    return -1 if ordinal is None else ordinal - first_ordinal
