"""Take the picture of a group that one decision works on: from the caches, or live.

The cached picture is free and says whether there is anything to do. The live one costs a list of
the group's StatefulSets and one of their pods, read from the store; it is taken before every act
that cannot be undone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

import msgspec

from rollout_operator.aio.tasks import both
from rollout_operator.guards.pending import Pending
from rollout_operator.kube.api import PODS, STATEFULSETS, Reader, Resource
from rollout_operator.model.decode import decode_pod, decode_statefulset, salvage
from rollout_operator.model.downscale import Underway
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable

LIVE_PAGE: Final = 500

View = TypeVar("View", StatefulSet, Pod)


class StatefulSetCache(Protocol):
    """What we need of the cached StatefulSets."""

    def list_group(self, group: GroupName) -> Sequence[StatefulSet | Unreadable]: ...


class PodCache(Protocol):
    """What we need of the cached pods."""

    def list_by_owner(self, uid: Uid) -> Sequence[Pod | Unreadable]: ...


class Freshness(Protocol):
    """How old the newest proof is that a cache is live."""

    @property
    def age(self) -> timedelta: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Where pictures of groups come from."""

    namespace: str
    reader: Reader
    sets: StatefulSetCache
    pods: PodCache
    watches: tuple[Freshness, ...]
    pending: Pending
    now: Callable[[], datetime]
    """The API server's time: whether a pod has been ready for long enough is told by its clock."""
    find_downscale: Callable[[GroupName], Underway | None] = lambda name: None

    def observe(self, name: GroupName) -> Group:
        """Return the group as the caches show it."""
        members = self.sets.list_group(name)
        owned = {member.uid: self.pods.list_by_owner(member.uid) for member in members}
        age = max((watch.age for watch in self.watches), default=timedelta(0))
        return self._compose(name, members, owned, age)

    async def observe_live(self, cached: Group) -> Group:
        """Return the group as the store has it now. Raises what `Reader.fetch_page` raises.

        Sets and pods are read at the same time, the pods in one list by the labels that the
        selectors of all cached members have; where they have none in common, in one list per
        member. Whatever else matches is left out by owner, and pods of a member that the cache does
        not know are not found: such a picture is not the cached one, and nothing is done on it.
        """
        sets = [zone.sts for zone in cached.zones]
        members, pods = await both(self._list_members(cached), self.fetch_pods(sets))
        owned: dict[Uid, list[Pod | Unreadable]] = {member.uid: [] for member in members}
        for pod in pods:
            if pod.owner_uid is not None and pod.owner_uid in owned:
                owned[pod.owner_uid].append(pod)
        return self._compose(cached.name, members, owned, timedelta(0))

    async def observe_alone(self, name: str) -> Group:
        """Return one StatefulSet as the store has it now, as if it were a group of its own.

        Raises what `Reader` raises, and DecodeError.
        """
        body = await self.reader.fetch(STATEFULSETS, self.namespace, name)
        sts = decode_statefulset(body)
        # Without `matchLabels` this lists all pods of the namespace: the owner decides, as ever.
        pods = await self._list(PODS, decode_pod, _join(sts.selector))
        owned = {sts.uid: [pod for pod in pods if pod.owner_uid == sts.uid]}
        return self._compose(sts.group or GroupName(""), (sts,), owned, timedelta(0))

    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[Pod | Unreadable]:
        """Return all pods of these sets as the store has them now, and perhaps others.

        Raises what `Reader.fetch_page` raises.
        """
        # Several selectors may match one pod, which must count once.
        found: dict[tuple[Uid, str], Pod | Unreadable] = {}
        for selector in _choose_selectors(sets):
            for one in await self._list(PODS, decode_pod, selector):
                found[one.uid, one.name] = one
        return list(found.values())

    async def _list_members(self, cached: Group) -> list[StatefulSet | Unreadable]:
        found: dict[Uid, StatefulSet | Unreadable] = {}
        for selector in _group_selectors(cached):
            for one in await self._list(STATEFULSETS, decode_statefulset, selector):
                if one.group == cached.name:
                    found[one.uid] = one
        return list(found.values())

    async def _list(
        self, resource: Resource, decode: Callable[[msgspec.Raw], View], selector: str
    ) -> list[View | Unreadable]:
        objects: list[View | Unreadable] = []
        token = ""
        while True:
            page = await self.reader.fetch_page(
                resource, self.namespace, selector=selector, limit=LIVE_PAGE, token=token
            )
            objects.extend(_decode(resource, decode, raw) for raw in page.items)
            token = page.next_token
            if not token:
                return objects

    def _compose(
        self,
        name: GroupName,
        members: Iterable[StatefulSet | Unreadable],
        owned: Mapping[Uid, Sequence[Pod | Unreadable]],
        age: timedelta,
    ) -> Group:
        members, now = tuple(members), self.now()
        zones = tuple(
            Zone(
                sts=member,
                pods=tuple(one for one in owned[member.uid] if isinstance(one, Pod)),
                unreadable_pods=tuple(
                    one for one in owned[member.uid] if isinstance(one, Unreadable)
                ),
            )
            for member in members
            if isinstance(member, StatefulSet)
        )
        pods = (pod for zone in zones for pod in zone.pods)
        return Group(
            name=name,
            zones=zones,
            unreadable=tuple(one for one in members if isinstance(one, Unreadable)),
            now=now,
            deletions=self.pending.list_going({member.uid for member in members}, pods, now),
            view_age=age,
            downscale=self.find_downscale(name),
        )


def _decode(
    resource: Resource, decode: Callable[[msgspec.Raw], View], raw: msgspec.Raw
) -> View | Unreadable:
    try:
        return decode(raw)
    except DecodeError as error:
        return salvage(resource.kind, raw, error)


def _group_selectors(cached: Group) -> tuple[str, ...]:
    """Return selectors that find every member: one, or two where the long spelling is in use."""
    first = f"{GROUP_LABEL}={cached.name}"
    members = [zone.sts.labels for zone in cached.zones] + [one.labels for one in cached.unreadable]
    if all(GROUP_LABEL in labels for labels in members):
        return (first,)
    return (first, f"{GROUP_LABEL_LONG}={cached.name},!{GROUP_LABEL}")


def _choose_selectors(sets: Sequence[StatefulSet]) -> tuple[str, ...]:
    """Return selectors that together match all pods of the sets: one where they share any key.

    A pod that a set controls carries the set's selector labels, else the controller lets it go. So
    `name in (zone-a,zone-b)` finds the pods of both.
    """
    if not sets:
        return ()
    shared = set(sets[0].selector).intersection(*(one.selector for one in sets))
    if shared:
        return (",".join(_choose_values(key, sets) for key in sorted(shared)),)
    return tuple(dict.fromkeys(_join(one.selector) for one in sets))


def _choose_values(key: str, sets: Sequence[StatefulSet]) -> str:
    values = sorted({one.selector[key] for one in sets})
    return f"{key}={values[0]}" if len(values) == 1 else f"{key} in ({','.join(values)})"


def _join(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
