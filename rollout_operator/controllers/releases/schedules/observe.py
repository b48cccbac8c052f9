"""What caches know of schedules: for a decision on one, and for the Rollouts that obey them.

A Rollout obeys the schedules of its namespace, and those of the cluster. What they say is decided
in `planning.releases.schedules.holds`. A kind that the cluster does not have holds nothing. A kind
that may not be read, or whose list fails, may have a closed schedule: that holds new versions, and
nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from rollout_operator.controllers.releases.schedules.gates import KeptGates
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.model.objects import AnyWatched, Unreadable, WatchedObject, list_decoded
from rollout_operator.model.releases.rollout import (
    LabelledNamespace,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseHead,
    ReleaseRollout,
)
from rollout_operator.model.releases.schedule import GatedRollout, ScheduleObject, ScheduleSnapshot
from rollout_operator.planning.releases.schedules.holds import (
    KnownSchedules,
    ScheduleReading,
    list_holds,
    read_schedule,
)
from rollout_operator.planning.releases.schedules.hours import LoadZone
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT


class ScheduleKinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds that schedules depend on: of one namespace, or of the cluster."""

    schedules: FollowedKind
    rollouts: FollowedKind
    gates: FollowedKind
    namespaces: FollowedKind | None = None
    """None where schedules are of one namespace."""

    def list_kinds(self) -> tuple[FollowedKind, ...]:
        """Return all followed kinds."""
        own = (self.schedules, self.rollouts, self.gates)
        return own if self.namespaces is None else (*own, self.namespaces)

    def find_lack(self) -> str | None:
        """Say why nothing may be decided yet: a kind is not known, or its cache is too old."""
        for kind in self.list_kinds():
            if kind.lack is not None:
                return kind.lack
            if kind.age > SNAPSHOT_LIMIT:
                return f"{kind.kind}: the cache is {kind.age.total_seconds():.0f}s old"
        return None


class ScheduleObserver(msgspec.Struct, frozen=True, kw_only=True):
    """Takes the snapshots of schedules."""

    kinds: ScheduleKinds
    gates: KeptGates
    now: Callable[[], datetime]
    """The API server's time."""
    compat: ReleaseCompat

    def observe(self, schedule: ScheduleObject) -> ScheduleSnapshot:
        """Return the snapshot of now."""
        return ScheduleSnapshot(
            schedule=schedule,
            now=self.now(),
            rollouts=tuple(self._list_rollouts()),
            gates=self.gates.list_all(),
            namespaces=self._map_namespaces(),
            compat=self.compat,
        )

    def _list_rollouts(self) -> Iterator[GatedRollout]:
        for watched in self.kinds.rollouts.store.list_all():
            rollout = read_gated(watched)
            if rollout is not None:
                yield rollout

    def _map_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        followed = self.kinds.namespaces
        namespaces = (
            () if followed is None else list_decoded(followed.store.list_all(), LabelledNamespace)
        )
        return {namespace.head.name: namespace.labels for namespace in namespaces}


def read_gated(watched: AnyWatched | None) -> GatedRollout | None:
    """Return a Rollout as schedules use it; also a Rollout that cannot be read has gates."""
    if isinstance(watched, Unreadable):
        return GatedRollout(namespace=watched.namespace, name=watched.name, labels=watched.labels)
    if not isinstance(watched, WatchedObject):
        return None
    rollout = watched.decoded
    if not isinstance(rollout, ReleaseRollout | RefusedRelease):
        return None
    return GatedRollout(
        namespace=watched.namespace,
        name=watched.name,
        labels=rollout.labels,
        is_terminating=rollout.head.is_terminating,
    )


class WideSchedules(msgspec.Struct):
    """Schedules of the cluster, and whether there may be any."""

    kinds: ScheduleKinds
    is_followed: bool = False
    """Whether their kind is there, and this process may read it."""
    problem: str | None = "no answer yet"
    """Why that is not known; None where it is."""
    is_awaited: bool = True
    """Whether nothing is known yet, not even what stands in the way."""
    _on_news: list[Callable[[], None]] = []

    def on_news(self, callback: Callable[[], None]) -> None:
        """Call back when it is known whether there may be any, or not known any more."""
        self._on_news.append(callback)

    def set_followed(self, *, is_followed: bool, problem: str | None = None) -> None:
        """Record whether they are followed from now on, or why that is not known."""
        is_news = (self.is_awaited, self.is_followed, self.problem) != (False, is_followed, problem)
        self.is_awaited, self.is_followed, self.problem = False, is_followed, problem
        for callback in self._on_news if is_news else ():
            callback()


class ScheduleReader:
    """Reads each version of a schedule once a minute, for all Rollouts that it selects (LI-09).

    That is exact: rules begin and end with minutes. A hundred schedules of 256 rules each would
    take 24 ms of every pass over every Rollout.
    """

    def __init__(self, compat: ReleaseCompat, load: LoadZone = ZoneInfo) -> None:
        self.compat = compat
        self._load = load
        self._minute: datetime | None = None
        self._read: dict[str, tuple[ScheduleObject, ScheduleReading]] = {}

    def read(self, schedule: ScheduleObject, now: datetime) -> ScheduleReading:
        """Return what a schedule says now."""
        if (minute := now.replace(second=0, microsecond=0)) != self._minute:
            self._minute = minute
            self._read.clear()
        uid = schedule.head.uid
        known, reading = self._read.get(uid, (None, None))
        # The very object of the cache, in which no resource version is kept.
        if known is not schedule or reading is None:
            reading = read_schedule(schedule, now, self._load, self.compat)
            self._read[uid] = schedule, reading
        return reading


class FollowedSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """What Rollouts of one namespace obey."""

    own: FollowedKind
    wide: WideSchedules | None
    """None where those of the cluster do not count."""
    reader: ScheduleReader

    def find_lack(self) -> str | None:
        """Say why nothing may be decided yet: the first answers are on their way."""
        wide = self.wide
        if wide is not None and wide.is_awaited:
            return f"{wide.kinds.schedules.kind}: {wide.problem}"
        for kind in self._list_needed():
            if kind.is_awaited:
                return kind.lack
        return None

    def list_holds(
        self, rollout: ReleaseRollout, gates: Iterable[ReleaseGate], now: datetime
    ) -> tuple[str, ...]:
        """Return what schedules say against new versions of a Rollout, and none of its gates."""
        head = rollout.head
        labels, lack = self._read_namespace(head.namespace)
        known = KnownSchedules(
            schedules=tuple(self._list_schedules()),
            namespaces=labels,
            namespaces_lack=lack,
            lacks=tuple(self._list_lacks()),
            compat=self.reader.compat,
        )
        gated = GatedRollout(namespace=head.namespace, name=head.name, labels=rollout.labels)
        return list_holds(known, gated, gates, lambda schedule: self.reader.read(schedule, now))

    def _list_needed(self) -> Iterator[FollowedKind]:
        yield self.own
        if self.wide is None or not self.wide.is_followed:
            return
        kinds = self.wide.kinds
        yield kinds.schedules
        # Nothing else of the cluster is followed before there is a schedule.
        if kinds.namespaces is not None and kinds.schedules.store.list_all():
            yield kinds.namespaces

    def _list_lacks(self) -> Iterator[str]:
        wide = self.wide
        if wide is not None and wide.problem is not None:
            yield f"{wide.kinds.schedules.kind}: {wide.problem}"
        for kind in (self.own, *([wide.kinds.schedules] if wide and wide.is_followed else ())):
            if kind.lack is not None:
                yield f"{kind.lack}; a closed one may be among them"
            elif lack := _find_lack(kind):
                yield lack

    def _list_schedules(self) -> Iterator[ScheduleObject]:
        """Yield those of the cluster first: no number of others hides what they say."""
        if self.wide is not None and self.wide.is_followed:
            yield from map(_read_schedule, self.wide.kinds.schedules.store.list_all())
        yield from map(_read_schedule, self.own.store.list_all())

    def _read_namespace(self, name: str) -> tuple[Mapping[str, Mapping[str, str]], str]:
        """Return the labels of a namespace where they are known, or why they are not."""
        followed = None if self.wide is None else self.wide.kinds.namespaces
        if followed is None:
            return {}, ""
        if lack := _find_lack(followed):
            return {}, lack  # labels that a schedule selects by may have changed meanwhile
        known = list_decoded([followed.store.get("", name)], LabelledNamespace)
        return {name: known[0].labels} if known else {}, ""


def _find_lack(kind: FollowedKind) -> str | None:
    """Say why what is known of a kind may no longer be so; None where it is."""
    if kind.lack is None and kind.age > SNAPSHOT_LIMIT:
        # Other errors differ from one attempt to the next, and each would be written.
        why = "" if kind.refusal is None else f": {kind.refusal}"
        return f"{kind.kind}: the cache is too old{why}"
    return kind.lack


def _read_schedule(watched: AnyWatched) -> ScheduleObject:
    """Return a schedule; an unreadable schedule is invalid, and may select any Rollout."""
    if isinstance(watched, WatchedObject) and isinstance(watched.decoded, ScheduleObject):
        return watched.decoded
    assert isinstance(watched, Unreadable)
    head = ReleaseHead(
        namespace=watched.namespace,
        name=watched.name,
        uid=watched.uid,
        resource_version=watched.resource_version,
    )
    return ScheduleObject(kind=watched.kind, head=head, problem=watched.error)
