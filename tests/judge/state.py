"""The state that a history has led to: sets, pods, who is missing since when, who is on the way.

Moves on by one write at a time; what it means is judged elsewhere.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from tests.judge.book import FOREVER, Book, Track, Write
from tests.judge.objects import Pod, Set

# What a name had is promised to count as used for an hour (D-67), by a clock that may run twice as
# fast as it should.
REMEMBERED: Final = timedelta(minutes=30)


class Disruption(msgspec.Struct):
    """From the commit of a delete until a new pod of that name is ready, or it is not wanted.

    The delete may be what an eviction has led to.
    """

    pod: Pod
    begun: timedelta
    is_ghost: bool  # whether the process that requested it was dead when it happened
    is_eviction: bool = False
    """Whether another client requested it, and the operator only allowed it."""
    disturbs: bool = True  # whether its zone is shorter without the pod (D-88)


class World(msgspec.Struct):
    sets: dict[str, Set] = {}  # by UID
    past: dict[str, Track[Set]] = {}  # by UID, of sets that are gone as well
    gone_at: dict[str, timedelta] = {}  # by UID: when a set went away
    pods: dict[str, Pod] = {}  # by name
    wanted: set[str] = set()  # names of the pods that the sets want
    short_since: dict[str, timedelta] = {}
    """By pod name: since when a wanted ordinal has been unavailable without a break."""
    were_ready: dict[str, timedelta] = {}  # by UID, of pods that have been ready: since when first
    open: list[Disruption] = []
    unused: dict[str, timedelta] = {}
    """When an upscale added it, by name: no pod of that name has been ready since (D-67).

    One that had a ready pod lately is none: it comes back with its data.
    """
    idle: set[str] = set()
    """Ordinals that an upscale added, whatever they hold: no pod of them was ready since."""
    last_ready: dict[str, timedelta] = {}
    """By name: until when at least a pod of that name, of whatever set, was ready."""
    spares_new: bool = True
    """Whether ordinals that an upscale added are not missed until a pod of them was ready."""

    def take(self, write: Write) -> None:
        at = write.at
        match write.now or write.before:
            case Set(uid=uid):
                self._take_set(uid, write)
            case Pod(name=name):
                if isinstance(write.before, Pod) and write.before.is_ready:
                    self.last_ready[name] = at
                if isinstance(write.now, Pod):
                    self.pods[name] = write.now
                    if write.now.is_ready:
                        self.were_ready.setdefault(write.now.uid, at)
                else:
                    self.pods.pop(name, None)
                self._record(name, at)
        if self.open:
            self.open = [each for each in self.open if self.lacks(each.pod)]

    def is_available(self, name: str) -> bool:
        """Return whether a ready pod of that name exists and stays."""
        pod = self.pods.get(name)
        return pod is not None and pod.is_ready and not pod.is_terminating

    def serves(self, pod: Pod) -> bool:
        """Return whether a pod is up, or may come up by itself: its delete disturbs (D-88)."""
        return pod.is_ready or (pod.uid in self.were_ready and not pod.is_crash_looping)

    def lacks(self, ended: Pod) -> bool:
        """Return whether a pod that was ended is wanted, and no other one is ready yet."""
        zone, pod = self.sets.get(ended.owner), self.pods.get(ended.name)
        if zone is None or ended.name not in zone.pod_names:
            return False
        return pod is None or pod.uid == ended.uid or not self.is_available(ended.name)

    def members(self, group: str, since: timedelta) -> list[Set]:
        """Return the sets that are in a group, and have been since then."""
        return [
            one
            for one in self.sets.values()
            if one.group == group and self.past[one.uid].begins[0] <= since
            if all(state.group == group for state in self.past[one.uid].window(since))
        ]

    def window(self, uid: str, since: timedelta) -> Sequence[Set]:
        return self.past.get(uid, Track[Set]()).window(since)

    def find_owner(self, uid: str, since: timedelta) -> Set | None:
        """Return a set, or what it was last if it has gone away since then."""
        if uid in self.gone_at and self.gone_at[uid] >= since:
            return self.past[uid].states[-1] if uid in self.past else None
        return self.sets.get(uid)

    def list_short(self, zone: Set, before: timedelta) -> list[str]:
        """Return the wanted pods of a zone that have been unavailable since then or longer."""
        return [
            name
            for name, since in self.short_since.items()
            if since <= before and name.startswith(zone.name) and name in zone.pod_names
        ]

    def _take_set(self, uid: str, write: Write) -> None:
        self.sets.pop(uid, None)
        if isinstance(write.now, Set):
            self.sets[uid] = write.now
            self.past.setdefault(uid, Track()).add(write.at, write.now)
        else:
            self.gone_at[uid] = write.at
        old = write.before.pod_names if isinstance(write.before, Set) else None
        new = write.now.pod_names if isinstance(write.now, Set) else None
        if old == new:
            return
        is_change = old is not None and new is not None
        old, new = old or (), new or ()
        added = set(new).difference(old) if is_change and self.spares_new else set()
        # What had a ready pod lately, whatever set it was of, comes back with its data.
        long_ago = write.at - REMEMBERED
        fresh = added.difference(self.pods)
        self.unused.update(
            (name, write.at) for name in fresh if self.last_ready.get(name, long_ago) <= long_ago
        )
        self.idle.update(fresh)
        for name in set(old).difference(new):
            self.unused.pop(name, None)
            self.idle.discard(name)
        self.wanted.difference_update(old)
        self.wanted.update(new)
        for name in (*old, *new):
            self._record(name, write.at)

    def _record(self, name: str, at: timedelta) -> None:
        if self.is_available(name):
            self.unused.pop(name, None)
            self.idle.discard(name)
        if name not in self.wanted or name in self.unused or self.is_available(name):
            self.short_since.pop(name, None)
        else:
            self.short_since.setdefault(name, at)


def see(book: Book, at: timedelta = FOREVER) -> World:
    """Return the world as it was at a time."""
    world = World()
    for write in book.writes:
        if write.at > at:
            break
        world.take(write)
    return world
