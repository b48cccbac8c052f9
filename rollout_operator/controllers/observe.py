"""Take the snapshot of a group that one decision works on: from the caches, or live.

The snapshot of the caches is free and says whether there is anything to do. The live snapshot costs
a list of the group's StatefulSets and one of their pods, read from the store (see `live_reads`); it
is taken before every act that is final.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.live_reads import GroupReader
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.snapshots import compose_zone
from rollout_operator.guards.departed import OwnedPods
from rollout_operator.kube.api import STATEFULSETS, LiveReader
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.downscale import Underway
from rollout_operator.model.group import Group, Newcomers, OtherRollout, Zone
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable


class Freshness(Protocol):
    """The age of the newest proof that a cache is live."""

    @property
    def age(self) -> timedelta: ...


@dataclass(slots=True, kw_only=True)
class Observer:
    """The source of snapshots of groups."""

    namespace: str
    reader: LiveReader
    clock: Clock
    sets: StatefulSetStore
    pods: PodStore
    watches: tuple[Freshness, ...]
    in_flight: InFlight
    now: Callable[[], datetime]
    """The API server's time, which shows how long a pod has been ready."""
    find_downscale: Callable[[GroupName, Iterable[StatefulSet]], Underway | None] = (
        lambda name, sets: None
    )
    find_newcomers: Callable[[Uid], Newcomers | None] = lambda uid: None
    find_other_rollout: Callable[[GroupName, Sequence[StatefulSet]], OtherRollout | None] = (
        lambda name, sets: None
    )
    find_driver: Callable[[GroupName], str | None] = lambda name: None
    find_departed: Callable[[GroupName, OwnedPods | None], tuple[Zone, ...]] = lambda name, live: ()
    """Returns the zones that left while they were short, with live pods or by the caches."""
    _reads: GroupReader = field(init=False)

    def __post_init__(self) -> None:
        self._reads = GroupReader(self.reader, self.namespace, self.clock)

    def observe(self, name: GroupName) -> Group:
        """Return the group as the caches show it."""
        return self.observe_members(name, self.sets.list_group(name))

    def observe_members(
        self, name: GroupName, members: Sequence[StatefulSet | Unreadable]
    ) -> Group:
        """Return StatefulSets under a name, with their pods as the caches show them."""
        owned = {member.uid: self.pods.list_by_owner(member.uid) for member in members}
        age = max((watch.age for watch in self.watches), default=timedelta(0))
        return self._compose(name, members, owned, age)

    async def observe_live(self, cached: Group) -> Group:
        """Return the group as the store has it now. Raises what `Reader.fetch_page` raises.

        Its `snapshot_age` counts from when the first request was sent. Other pods in the read are
        left out by owner, and pods of a member that the cache does not know are not found: such a
        snapshot is not that of the caches, and nothing is done on it.
        """
        read = await self._reads.read(cached)
        owned = {member.uid: read.pods.get(member.uid, ()) for member in read.members}
        age = self.clock.elapsed() - read.sent_at
        return self._compose(cached.name, read.members, owned, age, read.pods)

    async def observe_selected(self, cached: Group, selector: str) -> Group:
        """Return the StatefulSets that a selector finds in the store now, as `observe_live` does.

        StatefulSets that are being deleted, and were not there before, are left out.
        """
        read = await self._reads.read_selected(cached, selector)
        members = [
            member
            for member in read.members
            if member.uid in cached.owners
            or not (isinstance(member, StatefulSet) and member.is_terminating)
        ]
        owned = {member.uid: read.pods.get(member.uid, ()) for member in members}
        age = self.clock.elapsed() - read.sent_at
        return self._compose(cached.name, members, owned, age, read.pods)

    async def observe_alone(self, name: str) -> Group:
        """Return one StatefulSet as the store has it now, as if it were a group of its own.

        Raises what `Reader` raises, and DecodeError.
        """
        body = await self.reader.fetch(STATEFULSETS, self.namespace, name)
        sts = decode_statefulset(body)
        # Without `matchLabels` this lists all pods of the namespace: the owner decides, as ever.
        pods = await self._reads.list_pods([sts])
        owned = {sts.uid: [pod for pod in pods if pod.owner_uid == sts.uid]}
        return self._compose(sts.group or GroupName(""), (sts,), owned, timedelta(0))

    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[Pod | Unreadable]:
        """Return all pods of these sets as the store has them now, and perhaps others.

        Raises what `Reader.fetch_page` raises.
        """
        return await self._reads.list_pods(sets)

    def _compose(
        self,
        name: GroupName,
        members: Iterable[StatefulSet | Unreadable],
        owned: Mapping[Uid, Sequence[Pod | Unreadable]],
        age: timedelta,
        live: OwnedPods | None = None,
    ) -> Group:
        members, now = tuple(members), self.now()
        zones = tuple(
            compose_zone(member, owned[member.uid], self.find_newcomers(member.uid))
            for member in members
            if isinstance(member, StatefulSet)
        )
        sets = [zone.sts for zone in zones]
        departed = self.find_departed(name, live)
        owners = {*(member.uid for member in members), *(zone.sts.uid for zone in departed)}
        pods = (pod for zone in (*zones, *departed) for pod in zone.pods)
        return Group(
            name=name,
            zones=zones,
            departed=departed,
            unreadable=tuple(member for member in members if isinstance(member, Unreadable)),
            now=now,
            deletions=self.in_flight.map_going(owners, pods, now),
            snapshot_age=age,
            downscale=self.find_downscale(name, sets),
            other_rollout=self.find_other_rollout(name, sets),
            driver=self.find_driver(name),
        )
