"""The state that a history has led to, for its policies: outages, pauses, what is on the way.

Beside `state.World`: here a pod counts as available only when its `minReadySeconds` are over.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.judge.book import Write
from tests.judge.deletes import Delete
from tests.judge.objects import Pod, Set
from tests.judge.policies import Owned, RecordedBatch
from tests.judge.state import World

NO_TIME: Final = timedelta(0)


class PolicyDisruption(msgspec.Struct, frozen=True, kw_only=True):
    """A delete of the operator for a policy; it lasts until a new pod of that name is up."""

    pod: Pod
    delete: Delete
    batch: RecordedBatch | None
    revision: str
    """The update revision of the set at that time."""
    begun: timedelta
    disturbs: bool = True
    """Whether its zone was shorter after it (D-88)."""


class Outage(msgspec.Struct, frozen=True):
    """When a wanted pod was not available; the end is that of its `minReadySeconds`."""

    begun: timedelta
    ended: timedelta | None = None

    def lasts(self, known: timedelta, at: timedelta) -> bool:
        """Return whether it is one at a time, and had begun when it had to be known."""
        return self.begun <= known and (self.ended is None or self.ended > at)


class Pause(msgspec.Struct):
    """Since when the pods of a policy are whole, for the pause that counts from it."""

    batch: RecordedBatch | None = None
    """The last one of which a pod was deleted."""
    short_since: timedelta | None = None
    is_open: bool = False
    """Whether a pod was deleted since all of them were available last."""
    begun: timedelta | None = None

    def take(self, shorts: Iterable[Outage], interval: timedelta, at: timedelta) -> None:
        """Move on to a moment at which these outages were the last of its pods, or are."""
        ends = [one.ended for one in shorts]
        if None in ends:
            self.short_since = at if self.short_since is None else self.short_since
        elif self.short_since is not None:
            is_running = self.begun is not None and self.short_since < self.begun + interval
            if self.is_open or is_running:
                self.begun = max([at, *(one for one in ends if one is not None)])
            self.short_since, self.is_open = None, False


class PolicyWorld(msgspec.Struct):
    """Where a history has come to, for its policies."""

    world: World
    outages: dict[str, Outage] = {}
    """By pod name, the newest of each."""
    pauses: dict[str, Pause] = {}
    """By UID of a policy."""
    open: list[PolicyDisruption] = []

    def take(self, write: Write, owned: Mapping[str, Owned]) -> None:
        """Move on by one write."""
        self.world.take(write)
        self._take_outages(write.at)
        self.open = [one for one in self.open if self.world.lacks(one.pod)]
        for policy in {one.policy.uid: one.policy for one in owned.values()}.values():
            uids = {uid for uid, one in owned.items() if one.policy.uid == policy.uid}
            pause = self.pauses.setdefault(policy.uid, Pause())
            pause.take(self._list_outages(uids), policy.interval, write.at)

    def forget_left(self, owned: Mapping[str, Owned]) -> None:
        """Forget batches whose StatefulSet a policy owns no more: they are over (MAZ-47)."""
        kept = {(one.policy.uid, self.world.sets[uid].name) for uid, one in owned.items()}
        for policy, pause in self.pauses.items():
            if pause.batch is not None and (policy, pause.batch.set_name) not in kept:
                self.pauses[policy] = Pause()

    def disrupt(self, one: PolicyDisruption, policies: Iterable[str]) -> None:
        """Record a delete of the operator."""
        self.open.append(one)
        for uid in policies:
            pause = self.pauses.setdefault(uid, Pause())
            pause.is_open, pause.batch = True, one.batch or pause.batch

    def list_short(self, zone: Set, known: timedelta, at: timedelta) -> list[str]:
        """Return the wanted pods of a set that are not available, and that must be known to be."""
        named = ((name, self.outages.get(name)) for name in zone.pod_names)
        return [name for name, outage in named if outage and outage.lasts(known, at)]

    def _take_outages(self, at: timedelta) -> None:
        shorts = self.world.short_since
        for name, begun in shorts.items():
            if name not in self.outages or self.outages[name].ended is not None:
                before = self.outages.get(name)
                is_same = before is not None and before.lasts(at, at)
                self.outages[name] = Outage(before.begun if is_same and before else begun)
        for name, outage in self.outages.items():
            if outage.ended is None and name not in shorts:
                self.outages[name] = replace(outage, ended=at + self._get_patience(name))

    def _get_patience(self, name: str) -> timedelta:
        pod = self.world.pods.get(name)
        zone = self.world.sets.get(pod.owner) if pod else None
        return zone.min_ready if zone else NO_TIME

    def _list_outages(self, uids: Collection[str]) -> list[Outage]:
        sets = [self.world.sets[uid] for uid in uids if uid in self.world.sets]
        names = [name for zone in sets for name in zone.pod_names]
        known = [self.outages[name] for name in names if name in self.outages]
        # A new pod of an upscale that was deleted before it was ever ready had none.
        unknown = [one for one in self.open if one.pod.owner in uids and not self._is_known(one)]
        return [*known, *(Outage(one.begun) for one in unknown)]

    def _is_known(self, one: PolicyDisruption) -> bool:
        outage = self.outages.get(one.pod.name)
        return outage is not None and (outage.ended is None or outage.ended >= one.begun)
