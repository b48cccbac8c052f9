"""Take the snapshot of a group that a decision is made by: from the caches, or live.

The snapshot of the caches is free and shows whether there is anything to do. The live snapshot
costs a list of the group's StatefulSets and one of their pods; it precedes every final act.

While many groups are due at once, each waits for a token of the process's own rate limits. The
first caller waits for the tokens of one read; all callers that wait when it is sent share it, as
long as it is one page. The age of a read counts from when it is sent.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import both
from rollout_operator.guards.departed import OwnedPods, compose_zone
from rollout_operator.guards.grants import InFlight
from rollout_operator.kube.api import PODS, STATEFULSETS, LiveReader, Resource
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.wire import decode_or_salvage
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    ApiError,
    GroupName,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import (
    AnyPod,
    AnySet,
    Group,
    HealthGate,
    Newcomers,
    OtherRollout,
    Pod,
    StatefulSet,
    Underway,
    Unreadable,
    Zone,
)

# SI-09: a live read must not be older when a delete is sent.
LIVE_READ_LASTS: Final = timedelta(seconds=5)
# An answer that takes longer is of no use, and records wait for it (LI-07).
_ANSWER_LASTS: Final = timedelta(seconds=8)
# A read that is too old so often in a row is reported as a failure.
EXPIRED_IN_A_ROW: Final = 3
# Groups that are read and acted upon at a time, where the API client has no rate limits.
MOST_LIVE_READS: Final = 32
# The deletes of groups that are read at a time have to be sent within this.
_DELETES_WITHIN: Final = timedelta(seconds=3)
_LIVE_PAGE: Final = 500
# A selector is part of a URL, of which proxies take 8 KiB; a comma becomes three characters.
_LONGEST_SELECTOR: Final = 3000

Decoded = TypeVar("Decoded", StatefulSet, Pod)


def choose_most_live_reads(qps: float) -> int:
    """Return how many groups may be acted upon at a time.

    More would wait for tokens until their live reads are too old (SI-09), and read again. Zero or
    less means no rate limits.
    """
    if qps <= 0:
        return MOST_LIVE_READS
    return min(max(int(qps * _DELETES_WITHIN.total_seconds()), 1), MOST_LIVE_READS)


def describe_slow(zone: str) -> str:
    lasts = f"{LIVE_READ_LASTS.total_seconds():g} s"
    return f"a live read of {zone} counts for {lasts} and took longer: the API server is slow"


def describe_slow_call(listed_in: timedelta, times_in: timedelta) -> str:
    call, took = "the lists of its group", listed_in
    if times_in > listed_in:
        call, took = "the read of the times of its group", times_in
    lasts = f"{LIVE_READ_LASTS.total_seconds():g} s"
    return f"a live read counts for {lasts}, and {call} took {took.total_seconds():.1f} s"


class _GroupRead(msgspec.Struct, frozen=True, kw_only=True):
    members: Sequence[AnySet]
    pods: OwnedPods
    """Pods of other groups may be among them."""
    sent_at: timedelta
    """When the first request was sent, on the clock's `elapsed`."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """A group that is to be read, until it has an `outcome`."""

    cached: Group
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: _GroupRead | ApiError | None = None


class GroupReader:
    """Live reads through one client, shared by the groups that wait for them."""

    def __init__(self, reader: LiveReader, namespace: str, clock: Clock) -> None:
        self._reader, self._namespace, self._clock = reader, namespace, clock
        self._line: list[_Waiter] = []
        self._is_led = False

    async def read(self, cached: Group) -> _GroupRead:
        """Return a group from requests that are sent after the call.

        Sets and pods are read at the same time, the pods in one list by the labels that the
        selectors of all cached members share; if there are none, in one list per member. Pods of
        members that only the cache cannot decode are read after that, by the selectors of the live
        read. Raises what `LiveReader.fetch_page` raises.
        """
        waiter = _Waiter(cached)
        self._line.append(waiter)
        try:
            while waiter.outcome is None:
                if self._is_led or waiter not in self._line:
                    await waiter.woken.wait()
                    waiter.woken.clear()
                else:
                    await self._lead(waiter)
        finally:
            if waiter in self._line:
                self._line.remove(waiter)
            self._wake_next()
        if isinstance(waiter.outcome, ApiError):
            raise waiter.outcome.with_traceback(None)
        return waiter.outcome

    async def read_selected(self, cached: Group, selector: str) -> _GroupRead:
        """Return the StatefulSets that a selector finds, and the pods of those in `cached`.

        As `read`, but not shared: the sets have no common label of ours.
        """
        pages = await self._wait_turns(cached)
        sent_at = self._clock.elapsed()
        try:
            async with asyncio.timeout(_ANSWER_LASTS.total_seconds()):
                members, pods = await both(
                    self._list(STATEFULSETS, decode_statefulset, selector, 1),
                    self.list_pods([zone.sts for zone in cached.counted], turns=pages),
                )
        except TimeoutError as error:
            raise _give_up() from error
        return _GroupRead(members=members, pods=_group_by_owner(pods), sent_at=sent_at)

    async def list_pods(self, sets: Sequence[StatefulSet], *, turns: int = 0) -> list[AnyPod]:
        """Return all pods of these sets from a live read, and perhaps others.

        The caller has waited for the turns of so many pages. Raises what `LiveReader.fetch_page`
        raises.
        """
        # A pod that several selectors match counts once.
        pods: dict[tuple[Uid, str], AnyPod] = {}
        for selector in choose_selectors(sets):
            for pod in await self._list(PODS, decode_pod, selector, turns):
                pods[pod.uid, pod.name] = pod
            turns = 0
        return list(pods.values())

    async def _lead(self, leader: _Waiter) -> None:
        """Wait for the turn of a read, and make it for all callers that wait by then."""
        self._is_led = True
        try:
            await asyncio.sleep(0)  # callers of this very moment join in
            pages = await self._wait_turns(leader.cached)
        finally:
            self._is_led = False
        together = _choose_together(leader, self._line)
        self._line = [each for each in self._line if each not in together]
        self._wake_next()
        try:
            await self._read_together(together, pages)
        finally:
            # An error that ends the leader, such as the end of its task, ends no other caller.
            left = [each for each in together if each.outcome is None and each is not leader]
            self._line = [*left, *self._line]
            for waiter in together:
                waiter.woken.set()

    async def _wait_turns(self, cached: Group) -> int:
        """Wait until all requests of a read may be sent; return how many pages of pods it has.

        A request that waited for its turn later would make those before it older.
        """
        pages = -(-_count_pods(cached) // _LIVE_PAGE) or 1
        for resource in (STATEFULSETS, *(PODS for _ in range(pages))):
            await self._reader.wait_turn(resource, self._namespace)
        return pages

    async def _read_together(self, together: Sequence[_Waiter], pages: int) -> None:
        groups = [waiter.cached for waiter in together]
        sets = [zone.sts for group in groups for zone in group.counted]
        sent_at = self._clock.elapsed()
        try:
            async with asyncio.timeout(_ANSWER_LASTS.total_seconds()):
                members, pods = await both(
                    self._fetch_members(groups), self.list_pods(sets, turns=pages)
                )
                pods += await self.list_pods(_list_decoded(groups, members))
        except (ApiError, TimeoutError) as failure:
            error = failure if isinstance(failure, ApiError) else _give_up()
            for waiter in together:
                waiter.outcome = error
            return
        owned = _group_by_owner(pods)
        for waiter in together:
            own = members.get(waiter.cached.name, ())
            waiter.outcome = _GroupRead(members=own, pods=owned, sent_at=sent_at)

    async def _fetch_members(self, groups: Sequence[Group]) -> Mapping[GroupName, Sequence[AnySet]]:
        names = {group.name for group in groups}
        sets: dict[GroupName, dict[Uid, AnySet]] = defaultdict(dict)
        for number, selector in enumerate(_group_selectors(groups)):
            turns = 0 if number else 1
            for sts in await self._list(STATEFULSETS, decode_statefulset, selector, turns):
                if sts.group in names:
                    sets[sts.group][sts.uid] = sts
        return {name: tuple(members.values()) for name, members in sets.items()}

    async def _list(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], Decoded],
        selector: str,
        turns: int,
    ) -> list[Decoded | Unreadable]:
        objects: list[Decoded | Unreadable] = []
        token = ""
        while True:
            page = await self._reader.fetch_page(
                resource,
                self._namespace,
                selector=selector,
                limit=_LIVE_PAGE,
                token=token,
                has_turn=turns > 0,
            )
            objects.extend(decode_or_salvage(resource.kind, decode, raw) for raw in page.items)
            token, turns = page.next_token, turns - 1
            if not token:
                return objects

    def _wake_next(self) -> None:
        if self._line and not self._is_led:
            self._line[0].woken.set()


def _group_by_owner(pods: Iterable[AnyPod]) -> OwnedPods:
    owned: dict[Uid | None, list[AnyPod]] = defaultdict(list)
    for pod in pods:
        owned[pod.owner_uid].append(pod)
    return owned


def _list_decoded(
    groups: Iterable[Group], members: Mapping[GroupName, Sequence[AnySet]]
) -> list[StatefulSet]:
    """Return the members that only the caches could not decode.

    Without its selector no pod of such a member was found.
    """
    return [
        member
        for group in groups
        for member in members.get(group.name, ())
        if isinstance(member, StatefulSet) and member.uid in {lost.uid for lost in group.unreadable}
    ]


def _give_up() -> Unreachable:
    lasts = f"{_ANSWER_LASTS.total_seconds():g} s"
    return Unreachable(f"cannot read groups live: no answer within {lasts}", call="list")


def _choose_together(leader: _Waiter, line: Iterable[_Waiter]) -> list[_Waiter]:
    """Return the callers that share the leader's read: as many as its pages serve."""
    chosen, keys = [leader], _find_keys(leader.cached)
    if keys is None:
        return chosen
    room = _LIVE_PAGE - _count_pods(leader.cached)
    length = _measure_selectors(leader.cached)
    for waiter in line:
        pods, added = _count_pods(waiter.cached), _measure_selectors(waiter.cached)
        is_alike = waiter is not leader and _find_keys(waiter.cached) == keys
        if is_alike and pods <= room and length + added <= _LONGEST_SELECTOR:
            chosen.append(waiter)
            room -= pods
            length += added
    return chosen


def _find_keys(group: Group) -> frozenset[str] | None:
    """Return the keys of the selectors of all members, None if the group must be read alone."""
    keys = {frozenset(zone.sts.selector) for zone in group.counted}
    if len(keys) != 1 or not group.name:  # an empty value in a set of values is hard to read
        return None
    return next(iter(keys)) or None


def _count_pods(group: Group) -> int:
    shown = sum(len(zone.pods) + len(zone.unreadable_pods) for zone in group.counted)
    wanted = sum(zone.sts.replicas for zone in group.counted)
    # Any number may be wanted; hardly more than a page of pods comes while the cache is behind.
    return min(max(shown, wanted), shown + _LIVE_PAGE)


def _measure_selectors(group: Group) -> int:
    values = [value for zone in group.counted for value in zone.sts.selector.values()]
    return len(group.name) + sum(len(value) + len("%2C") for value in values)


def _group_selectors(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return selectors that find every member: two if the long spelling of the label is used."""
    names = [f"{group.name}" for group in groups]
    first = _choose_values(GROUP_LABEL, names)
    members = [zone.sts.labels for group in groups for zone in group.zones]
    members += [broken.labels for group in groups for broken in group.unreadable]
    if all(GROUP_LABEL in labels for labels in members):
        return (first,)
    return (first, f"{_choose_values(GROUP_LABEL_LONG, names)},!{GROUP_LABEL}")


def choose_selectors(sets: Sequence[StatefulSet]) -> tuple[str, ...]:
    """Return selectors that match all pods of the sets, such as `name in (zone-a,zone-b)`.

    A pod has the selector labels of the set that controls it, or the controller releases it.
    """
    if not sets:
        return ()
    shared = set(sets[0].selector).intersection(*(sts.selector for sts in sets))
    if shared:
        parts = (_choose_values(key, [sts.selector[key] for sts in sets]) for key in sorted(shared))
        return (",".join(parts),)
    selectors = (
        ",".join(f"{key}={value}" for key, value in sorted(sts.selector.items())) for sts in sets
    )
    return tuple(dict.fromkeys(selectors))


def _choose_values(key: str, values: Iterable[str]) -> str:
    values = sorted(set(values))
    return f"{key}={values[0]}" if len(values) == 1 else f"{key} in ({','.join(values)})"


class _Freshness(Protocol):
    @property
    def age(self) -> timedelta: ...


@dataclass(slots=True, kw_only=True)
class Observer:
    namespace: str
    reader: LiveReader
    clock: Clock
    sets: StatefulSetStore
    pods: PodStore
    watches: tuple[_Freshness, ...]
    in_flight: InFlight
    now: Callable[[], datetime]
    """The API server's time."""
    find_downscale: Callable[[GroupName, Iterable[StatefulSet]], Underway | None] = (
        lambda name, sets: None
    )
    find_newcomers: Callable[[Uid], Newcomers | None] = lambda uid: None
    find_other_rollout: Callable[[GroupName, Sequence[StatefulSet]], OtherRollout | None] = (
        lambda name, sets: None
    )
    find_driver: Callable[[GroupName], str | None] = lambda name: None
    find_gates: Callable[[Group], Mapping[Uid, HealthGate]] = lambda group: {}
    find_departed: Callable[[GroupName, OwnedPods | None], tuple[Zone, ...]] = lambda name, live: ()
    """Returns the zones that left while they were short, with live or cached pods."""
    _reads: GroupReader = field(init=False)

    def __post_init__(self) -> None:
        self._reads = GroupReader(self.reader, self.namespace, self.clock)

    def observe(self, name: GroupName) -> Group:
        return self.observe_members(name, self.sets.list_group(name))

    def observe_members(self, name: GroupName, members: Sequence[AnySet]) -> Group:
        """Return StatefulSets under a name, with their cached pods."""
        owned = {member.uid: self.pods.list_by_owner(member.uid) for member in members}
        age = max((watch.age for watch in self.watches), default=timedelta(0))
        return self._compose(name, members, owned, age)

    async def observe_live(self, cached: Group) -> Group:
        """Return the group from a live read. Raises what `Reader.fetch_page` raises.

        Its `snapshot_age` counts from when the first request was sent. Pods of a member that the
        cache does not know are not found: such a snapshot differs from that of the caches, and
        nothing is done by it.
        """
        read = await self._reads.read(cached)
        return self._compose_live(cached.name, read.members, read)

    async def observe_selected(self, cached: Group, selector: str) -> Group:
        """Return the StatefulSets that a selector finds, from a live read.

        StatefulSets that are being deleted, and were not there before, are left out.
        """
        read = await self._reads.read_selected(cached, selector)
        members = [
            member
            for member in read.members
            if member.uid in cached.owners
            or not (isinstance(member, StatefulSet) and member.is_terminating)
        ]
        return self._compose_live(cached.name, members, read)

    async def observe_alone(self, name: str) -> Group:
        """Return one StatefulSet from a live read, as if it were a group of its own.

        Raises what `Reader` raises, and DecodeError.
        """
        body = await self.reader.fetch(STATEFULSETS, self.namespace, name)
        sts = decode_statefulset(body)
        # Without `matchLabels` this lists all pods of the namespace: the owner decides.
        pods = await self._reads.list_pods([sts])
        owned = {sts.uid: [pod for pod in pods if pod.owner_uid == sts.uid]}
        return self._compose(sts.group or GroupName(""), (sts,), owned, timedelta(0))

    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[AnyPod]:
        return await self._reads.list_pods(sets)

    def _compose_live(self, name: GroupName, members: Sequence[AnySet], read: _GroupRead) -> Group:
        owned = {member.uid: read.pods.get(member.uid, ()) for member in members}
        return self._compose(name, members, owned, self.clock.elapsed() - read.sent_at, read.pods)

    def _compose(
        self,
        name: GroupName,
        members: Iterable[AnySet],
        owned: Mapping[Uid, Sequence[AnyPod]],
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
        group = Group(
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
        return self.judge(group)

    def judge(self, group: Group) -> Group:
        """Return a group with what health checks say of it as it is."""
        gates = self.find_gates(group)
        return msgspec.structs.replace(group, gates=gates) if gates or group.gates else group
