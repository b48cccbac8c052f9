"""Which ordinals an upscale added, as this process saw, at which no pod became ready since (D-67).

Fed by the watches, event by event, and kept in memory only. An ordinal counts as used where there
is any doubt: it was there at first sight, or after a gap in a watch. What a name had is remembered
for an hour whatever becomes of its StatefulSet: volumes outlive a StatefulSet that a person deletes
and creates again. `planning.readiness` decides which of these ordinals hold nothing.
"""

import sys
from collections import OrderedDict
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Newcomers, Pod, StatefulSet, Unreadable, parse_ordinal

# So long nothing may come or go at these ordinals before they count as never used: longer than a
# watch lags, than writers fight over a count, and than a pod needs to be replaced.
SETTLING: Final = timedelta(seconds=30)
# In a shorter gap no pod is created, becomes ready and is gone again; a pod that was there may be
# gone.
LONGEST_GAP: Final = timedelta(seconds=5)
# An upscale that adds more ordinals uses all of them: each is looked up.
MOST_ADDED: Final = 1000
# What was in use before a downscale may hold data for so long: its volumes are still there. After
# that, no pod has relied on it for longer than a person works on a zone.
FORGOTTEN: Final = timedelta(hours=1)
# More names than a person deletes in an hour; of each, a few hundred bytes are kept.
MOST_NAMES: Final = 4096
# An ordinal above all that exist.
UNKNOWN: Final = sys.maxsize


class _Past(NamedTuple):
    end: int
    gone_at: timedelta


class PastNames:
    """Names without a set, and below which ordinal each had pods lately.

    Kept for an hour, and for a bounded number of names, as any client who may create a set adds to
    them. A name that is dropped makes the table incomplete for as long as it would have stayed.
    """

    def __init__(self, now: timedelta) -> None:
        self._names: OrderedDict[tuple[str, str], _Past] = OrderedDict()
        self._complete_since = now

    def __len__(self) -> int:
        return len(self._names)

    def is_complete(self, now: timedelta) -> bool:
        """Return whether a name that is not here had no pods lately."""
        return now - self._complete_since >= FORGOTTEN

    def lose_track(self, now: timedelta) -> None:
        """Record that sets and pods of any name may have been there until now."""
        self._complete_since = now

    def add(self, namespace: str, name: str, end: int, now: timedelta) -> None:
        """Record that a name had pods below an ordinal until now."""
        if not name:
            self.lose_track(now)
            return
        end = max(end, self.take(namespace, name, now))
        self._names[namespace, name] = _Past(end, now)
        self._drop(now)

    def take(self, namespace: str, name: str, now: timedelta) -> int:
        """Return and forget below which ordinal a name had pods lately, 0 for none."""
        past = self._names.pop((namespace, name), None)
        return 0 if past is None or now - past.gone_at >= FORGOTTEN else past.end

    def _drop(self, now: timedelta) -> None:
        while self._names:
            oldest = next(iter(self._names.values()))
            if now - oldest.gone_at < FORGOTTEN:
                if len(self._names) <= MOST_NAMES:
                    return
                self._complete_since = max(self._complete_since, oldest.gone_at)
            self._names.popitem(last=False)


class _SetHistory(msgspec.Struct, kw_only=True):
    """The history of one StatefulSet. Places are ordinals, counted from the first."""

    first_ordinal: int
    replicas: int
    generation: int
    used: int
    """No pod of the places above was ready since an upscale added them.

    After a downscale, or an earlier set of that name, it is higher than `replicas` for a while.
    """
    changed_at: timedelta
    lost_at: timedelta
    """When a pod above went last, or the replicas became fewer; or when either may have."""
    pods: dict[Uid, int] = {}
    """The places of pods above that came while this process watched, and were never ready."""

    def use(self, place: int) -> None:
        """Count a place as used, and all below it."""
        if place >= self.used:
            self.used = place + 1
            self.pods = {uid: pod for uid, pod in self.pods.items() if pod > place}

    def forget(self, now: timedelta) -> None:
        """Forget the places above `replicas` where no pod was for an hour."""
        if now - self.lost_at >= FORGOTTEN:
            self.used = min(self.used, self.replicas)

    def is_next(self, sts: StatefulSet) -> bool:
        """Return whether no generation was missed between the last and that of `sts`."""
        return 0 <= sts.generation - self.generation <= 1

    def doubt(self, sts: StatefulSet, now: timedelta) -> None:
        """Count all places as used: a change of the set was missed, and perhaps a spec."""
        end = self.first_ordinal + max(self.used, self.replicas)
        if not self.is_next(sts):
            end = UNKNOWN
        self.first_ordinal, self.replicas = sts.first_ordinal, sts.replicas
        self.generation = sts.generation
        self.used = max(end - sts.first_ordinal, sts.replicas)
        self.pods.clear()
        self.changed_at = self.lost_at = now


class SeenNewcomers:
    """The pods that this process saw come to the ordinals of upscales."""

    def __init__(self, sets: StatefulSetStore, pods: PodStore, clock: Clock) -> None:
        self._sets = sets
        self._pods = pods
        self._clock = clock
        self._seen: dict[Uid, _SetHistory] = {}
        self._past = PastNames(clock.elapsed())

    def get(self, set_uid: Uid) -> Newcomers | None:
        seen = self._recall(set_uid)
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
        """Take over a whole list after a gap in the watch.

        Where anything came or went meanwhile, it did so unseen: all of that set counts as used.
        """
        now, is_gap = self._clock.elapsed(), gap > LONGEST_GAP
        if is_gap:
            self._past.lose_track(now)
        for sts in self._sets.list_all():
            if not isinstance(sts, StatefulSet):
                continue
            seen = self._recall(sts.uid)
            if seen is None:
                self._seen[sts.uid] = self._begin(sts, is_created=False)
            elif is_gap or self._differs(seen, sts):
                seen.doubt(sts, now)

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        if new is None:
            if old is not None:
                self._end(old)
        elif isinstance(new, StatefulSet):
            self._take_set(old, new)
        elif not new.name:
            # It may be any set.
            self._past.lose_track(self._clock.elapsed())

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        if old is not None and (new is None or new.owner_uid != old.owner_uid):
            self._take_gone(old)
        if new is not None:
            self._take_pod(new, is_first=old is None)

    def _end(self, sts: StatefulSet | Unreadable) -> None:
        """Keep the history of a name: another set may get its volumes, or its pods."""
        seen, end = self._recall(sts.uid), UNKNOWN
        if seen is not None and isinstance(sts, StatefulSet):
            end = seen.first_ordinal + seen.used
        self._seen.pop(sts.uid, None)
        self._past.add(sts.namespace, sts.name, end, self._clock.elapsed())

    def _take_set(self, old: StatefulSet | Unreadable | None, new: StatefulSet) -> None:
        seen, now = self._recall(new.uid), self._clock.elapsed()
        if seen is None:
            self._seen[new.uid] = self._begin(new, is_created=old is None)
            return
        is_renamed = new.first_ordinal != seen.first_ordinal
        if is_renamed or isinstance(old, Unreadable) or not seen.is_next(new):
            seen.doubt(new, now)
            return
        seen.generation = new.generation
        if new.replicas < seen.replicas:
            seen.replicas = new.replicas
            seen.changed_at = seen.lost_at = now
        elif new.replicas > seen.replicas:
            self._scale_up(seen, new)

    def _take_gone(self, pod: Pod | Unreadable) -> None:
        name, ordinal = _split(pod.name)
        if ordinal is None:
            return
        now, seen = self._clock.elapsed(), self._find(pod, name)
        if seen is None:
            self._past.add(pod.namespace, name, ordinal + 1, now)
            return
        place = ordinal - seen.first_ordinal
        if place < min(seen.used, seen.replicas):
            return
        is_tracked = seen.pods.pop(pod.uid, None) is not None
        seen.changed_at = seen.lost_at = now
        if not is_tracked or _may_have_been_ready(pod) or self._has_successor(pod):
            seen.use(place)

    def _take_pod(self, pod: Pod | Unreadable, *, is_first: bool) -> None:
        seen = self._recall(pod.owner_uid)
        if seen is None:
            return
        place, is_tracked = _compute_place(seen.first_ordinal, pod), pod.uid in seen.pods
        if place < seen.used:
            return
        if _may_have_been_ready(pod) or not (is_first or is_tracked):
            seen.pods.pop(pod.uid, None)
            seen.changed_at = self._clock.elapsed()
            seen.use(place)
        elif not is_tracked:
            seen.pods[pod.uid] = place
            seen.changed_at = self._clock.elapsed()

    def _find(self, pod: Pod | Unreadable, name: str) -> _SetHistory | None:
        # Not each pod of that name is the set's: a pod that another set left has the same volumes.
        seen = self._recall(pod.owner_uid)
        if seen is not None:
            return seen
        sts = self._sets.get(pod.namespace, name)
        return None if sts is None else self._recall(sts.uid)

    def _recall(self, set_uid: Uid | None) -> _SetHistory | None:
        """Return the history of a set, without what is too long ago to matter."""
        seen = None if set_uid is None else self._seen.get(set_uid)
        if seen is not None:
            seen.forget(self._clock.elapsed())
        return seen

    def _has_successor(self, pod: Pod | Unreadable) -> bool:
        """Return whether another pod of that name is there: the watch missed the end of one."""
        there = self._pods.get(pod.namespace, pod.name)
        return there is not None and there.uid != pod.uid

    def _scale_up(self, seen: _SetHistory, sts: StatefulSet) -> None:
        """Add places, which count as used where pods were there, or may have been, just now."""
        now, before = self._clock.elapsed(), seen.replicas
        seen.replicas, seen.changed_at = sts.replicas, now
        if now - seen.lost_at < SETTLING or sts.replicas - before > MOST_ADDED:
            seen.use(sts.replicas - 1)
            return
        for place in range(before, sts.replicas):
            pod = self._pods.get(sts.namespace, f"{sts.name}-{sts.first_ordinal + place}")
            # The watch of pods may be ahead, and show the first new pods already.
            is_leaving = isinstance(pod, Pod) and pod.is_terminating
            if pod is not None and (pod.uid not in seen.pods or is_leaving):
                seen.use(place)

    def _differs(self, seen: _SetHistory, sts: StatefulSet) -> bool:
        pods = self._pods.list_by_owner(sts.uid)
        here = {pod.uid for pod in pods if _compute_place(seen.first_ordinal, pod) >= seen.used}
        return sts.generation != seen.generation or here != seen.pods.keys()

    def _begin(self, sts: StatefulSet, *, is_created: bool) -> _SetHistory:
        """Return the history of a set at first sight: all places that it wants may hold data.

        So may all that its name had lately. That is known only of a set that was seen to be
        created, where no set of that name can have been there unseen.
        """
        now = self._clock.elapsed()
        is_known = is_created and self._past.is_complete(now)
        end = self._past.take(sts.namespace, sts.name, now)
        return _SetHistory(
            first_ordinal=sts.first_ordinal,
            replicas=sts.replicas,
            generation=sts.generation,
            used=max(sts.replicas, (end if is_known else UNKNOWN) - sts.first_ordinal),
            changed_at=now,
            lost_at=now,
        )


def _may_have_been_ready(pod: Pod | Unreadable) -> bool:
    return isinstance(pod, Unreadable) or pod.is_ready or pod.was_ready


def _compute_place(first_ordinal: int, pod: Pod | Unreadable) -> int:
    """Return the place of a pod from the first ordinal on, negative for any other name."""
    _, ordinal = _split(pod.name)
    return -1 if ordinal is None else ordinal - first_ordinal


def _split(pod: str) -> tuple[str, int | None]:
    name, _, digits = pod.rpartition("-")
    return name, parse_ordinal(digits)
