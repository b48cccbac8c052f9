"""Zones that left their group, budget or policy while they were short: they count still (D-82).

A person deletes a StatefulSet without its pods to give it larger volumes, a tool takes a label off,
a selector changes: the pods that were down a moment ago are as much down as before. Such a zone
counts for the others until a StatefulSet of its name is there and whole, at most for `COUNTS_FOR`.
A zone that was whole when it left counts no more, whatever becomes of its pods.

Fed by the watches in every replica, so that a failover forgets nothing. Kept in memory only: after
a restart what is left of it are pods without a StatefulSet that are not ready.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.group import Deletion, Newcomers, Zone
from rollout_operator.model.labels import selects
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, find_group, parse_ordinal
from rollout_operator.planning.rollout.readiness import (
    Readiness,
    measure_readiness,
    render_readiness,
)
from rollout_operator.telemetry.logs import log

# A person who makes volumes larger needs minutes; whoever removes a zone for good waits no longer.
COUNTS_FOR: Final = timedelta(minutes=10)
# Any client who may label a StatefulSet adds to the memory: of more, the oldest is forgotten.
MOST_DEPARTED: Final = 4096
# Of a StatefulSet that is gone so many pods are looked up by name; more count as absent.
MOST_PODS: Final = 10_000

Scope: TypeAlias = tuple[str, str]
"""What a zone belongs to: a group, a budget or a policy, by kind and name."""
OwnedPods: TypeAlias = Mapping[Uid | None, Sequence[Pod | Unreadable]]
"""Pods by the UID of their owner; None for those without one."""


def group_scope(name: GroupName) -> Scope:
    """Return the scope of a rollout group by label."""
    return ("group", name)


def budget_scope(name: str) -> Scope:
    """Return the scope of a ZoneAwarePodDisruptionBudget."""
    return ("budget", name)


def policy_scope(name: str) -> Scope:
    """Return the scope of a MultiAZRollout."""
    return ("policy", name)


class _Departed(NamedTuple):
    sts: StatefulSet
    """As it was when it belonged to the scope."""
    at: timedelta


class DepartedZones:
    """The zones of one namespace that left while they were short."""

    def __init__(
        self,
        sets: StatefulSetStore,
        pods: PodStore,
        clock: Clock,
        *,
        map_going: Callable[[Collection[Uid], Iterable[Pod], datetime], Mapping[Uid, Deletion]],
        now: Callable[[], datetime],
        find_newcomers: Callable[[Uid], Newcomers | None],
    ) -> None:
        """`map_going` returns the pods of these owners that go although they look untouched.

        `now` is the API server's time.
        """
        self._sets = sets
        self._pods = pods
        self._map_going = map_going
        self._clock = clock
        self._now = now
        self._find_newcomers = find_newcomers
        self._finders: list[Callable[[Mapping[str, str]], Iterable[Scope]]] = []
        self._callbacks: list[Callable[[Scope], None]] = []
        self._records: dict[str, dict[Scope, _Departed]] = {}
        """By name of the StatefulSet, the oldest first."""
        self._whole_at_end: dict[Uid, bool] = {}
        """Of StatefulSets that are being deleted: whether they were whole when that began."""

    def add_scopes(self, find: Callable[[Mapping[str, str]], Iterable[Scope]]) -> None:
        """Have `find` return the scopes of a StatefulSet with these labels, beside its group."""
        self._finders.append(find)

    def on_change(self, callback: Callable[[Scope], None]) -> None:
        """Call back with the scope for which a departed zone counts, whenever it changes."""
        self._callbacks.append(callback)

    def list_zones(self, scope: Scope, live: OwnedPods | None = None) -> tuple[Zone, ...]:
        """Return the zones that count for a scope and belong to it no more.

        With the pods that the caches show, or with those of a live read. All of them appear as
        owned by the zone.
        """
        if not self._records:
            return ()
        self._forget_old()
        names = [name for name, departed in self._records.items() if scope in departed]
        zones = (self._compose(self._records[name][scope], scope, live) for name in names)
        return tuple(zone for zone in zones if zone is not None)

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Take over a StatefulSet that came, changed or went.

        Before what is known of its newcomers is forgotten by the same change.
        """
        if old is not None and (new is None or new.labels != old.labels):
            stays = set() if new is None else self._find_scopes(new.labels)
            self.on_left(self._find_scopes(old.labels) - stays, old, new)
        if old is not None and new is None:
            self._whole_at_end.pop(old.uid, None)
        elif isinstance(old, StatefulSet) and _begins_to_go(old, new):
            self._whole_at_end[old.uid] = self._measure(old).is_whole
        for name in {version.name for version in (old, new) if version is not None}:
            self._look_at(name)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Take over a pod that came, changed or went."""
        if self._records:
            for version in (new or old,):
                if version is not None:
                    self._look_at(version.name.rpartition("-")[0])

    def on_left(
        self,
        scopes: Iterable[Scope],
        old: StatefulSet | Unreadable,
        new: StatefulSet | Unreadable | None,
    ) -> None:
        """Record that a StatefulSet belongs to these scopes no more, where it is short.

        `new` is None where the StatefulSet itself is gone.
        """
        scopes = sorted(scopes)
        # Pods that go with their StatefulSet were whole when that began.
        if not scopes or (new is None and self._whole_at_end.get(old.uid)):
            return
        sts = self._read(old, new)
        readiness = self._measure(sts)
        if readiness.is_whole:
            return
        departed = self._records.pop(sts.name, {})
        self._records[sts.name] = departed
        for scope in scopes:
            departed[scope] = _Departed(sts, self._clock.elapsed())
            kind, name = scope
            log.warn(
                "Zone left while it was short, and counts still",
                **{kind: name}, zone=sts.name, at_most=COUNTS_FOR, why=render_readiness(readiness),
            )  # fmt: skip
            self._notify(scope)
        while sum(map(len, self._records.values())) > MOST_DEPARTED:
            del self._records[next(iter(self._records))]

    def _find_scopes(self, labels: Mapping[str, str]) -> set[Scope]:
        group = find_group(labels)
        scopes = set() if group is None else {group_scope(group)}
        return scopes.union(*(find(labels) for find in self._finders))

    def _read(
        self, old: StatefulSet | Unreadable, new: StatefulSet | Unreadable | None
    ) -> StatefulSet:
        """Return a StatefulSet as it was when it belonged to a scope, as far as that is known."""
        if isinstance(old, StatefulSet):
            return old
        if isinstance(new, StatefulSet):
            return replace(new, labels=old.labels)
        pods = self._pods.list_by_owner(old.uid)
        return _imagine(old.namespace, old.name, old.uid, old.labels, pods)

    def _compose(self, departed: _Departed, scope: Scope, live: OwnedPods | None) -> Zone | None:
        """Return a zone as it is now, None where it belongs to the scope again."""
        sts, present = _without_status(departed.sts), self._find_present(departed.sts)
        if present is not None:
            if scope in self._find_scopes(present.labels):
                return None
            sts = replace(present, labels=departed.sts.labels)
        left = departed.at + COUNTS_FOR - self._clock.elapsed()
        return replace(self._make_zone(sts, live), counts_for=left)

    def _make_zone(self, sts: StatefulSet, live: OwnedPods | None = None) -> Zone:
        """Return a zone of the pods that a StatefulSet owns, and of those that nothing owns."""
        pods: list[Pod | Unreadable] = []
        if live is not None:
            pods += (*live.get(sts.uid, ()), *live.get(None, ()))
        else:
            pods += self._pods.list_by_owner(sts.uid)
            names = (f"{sts.name}-{ordinal}" for ordinal in sts.ordinals[:MOST_PODS])
            found = (self._pods.get(sts.namespace, name) for name in names)
            pods += (pod for pod in found if pod is not None and pod.owner_uid is None)
        own = [_adopt(sts, pod) for pod in pods if pod.owner_uid == sts.uid or _fits(sts, pod)]
        return Zone(
            sts=sts,
            pods=tuple(pod for pod in own if isinstance(pod, Pod)),
            unreadable_pods=tuple(pod for pod in own if isinstance(pod, Unreadable)),
        )

    def _measure(self, sts: StatefulSet, *, has_newcomers: bool = True) -> Readiness:
        zone, now = self._make_zone(sts), self._now()
        if has_newcomers:
            zone = replace(zone, newcomers=self._find_newcomers(sts.uid))
        going = self._map_going({sts.uid}, zone.pods, now)
        return measure_readiness(zone, going, now)

    def _find_present(self, sts: StatefulSet) -> StatefulSet | None:
        present = self._sets.get(sts.namespace, sts.name)
        return present if isinstance(present, StatefulSet) else None

    def _is_whole_again(self, departed: Mapping[Scope, _Departed]) -> bool:
        """Return whether a StatefulSet of the name is there and whole, its new pods included."""
        present = self._find_present(next(iter(departed.values())).sts)
        return present is not None and self._measure(present, has_newcomers=False).is_whole

    def _look_at(self, name: str) -> None:
        """Take over a change of a zone that has left."""
        departed = self._records.get(name)
        if departed is None:
            return
        scopes = tuple(departed)
        if self._is_whole_again(departed):
            log.info("Zone that left while it was short is whole", zone=name)
            del self._records[name]
        for scope in scopes:
            self._notify(scope)

    def _forget_old(self) -> None:
        """Forget zones whose time is over, and those that time alone has made whole."""
        now = self._clock.elapsed()
        for name, departed in list(self._records.items()):
            for scope, record in list(departed.items()):
                if now - record.at >= COUNTS_FOR:
                    log.info("Zone that left while it was short counts no more", zone=name)
                    del departed[scope]
            if not departed or self._is_whole_again(departed):
                del self._records[name]

    def _notify(self, scope: Scope) -> None:
        for callback in self._callbacks:
            callback(scope)


def _begins_to_go(old: StatefulSet, new: StatefulSet | Unreadable | None) -> bool:
    return isinstance(new, StatefulSet) and new.is_terminating and not old.is_terminating


def _imagine(
    namespace: str,
    name: str,
    uid: Uid,
    labels: Mapping[str, str],
    pods: Iterable[Pod | Unreadable],
) -> StatefulSet:
    """Return a StatefulSet that cannot be read, as its pods let suppose it."""
    ordinals = [parse_ordinal(pod.name.removeprefix(f"{name}-")) for pod in pods]
    known = [ordinal for ordinal in ordinals if ordinal is not None]
    return StatefulSet(
        namespace=namespace,
        name=name,
        uid=uid,
        resource_version="",
        labels=labels,
        replicas=max(known, default=0) + 1,
    )


def _without_status(sts: StatefulSet) -> StatefulSet:
    """Return a StatefulSet that is gone: nothing counts its pods any more but they themselves."""
    return replace(
        sts,
        is_terminating=False,
        observed_generation=sts.generation,
        status_replicas=sts.replicas,
        ready_replicas=sts.replicas,
        available_replicas=sts.replicas,
    )


def _fits(sts: StatefulSet, pod: Pod | Unreadable) -> bool:
    """Return whether a pod without an owner is one that a StatefulSet of this name adopts."""
    is_free = pod.owner_uid is None and sts.ordinal_of(pod.name) is not None
    return is_free and (isinstance(pod, Unreadable) or selects(sts.selector, pod.labels))


def _adopt(sts: StatefulSet, pod: Pod | Unreadable) -> Pod | Unreadable:
    return pod if pod.owner_uid == sts.uid else replace(pod, owner_uid=sts.uid)
