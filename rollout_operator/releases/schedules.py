"""Bring the gates of one schedule to the state that its hours require now.

Gates first, many at a time; then one status with their errors, and an Event where it is news.
`planning.schedules` decides the plan; a pass with nothing to do writes nothing. Own writes count
until the caches show them, for half a minute at most. Each write names the version of the gate that
the decision was made by.

A Rollout obeys the schedules of its namespace, and those of the cluster. A kind that the cluster
does not have holds nothing. A kind that may not be read, or whose list fails, may have a closed
schedule: that holds new versions, and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import gather_all
from rollout_operator.controllers.worker import RECHECK
from rollout_operator.kube.api import ROLLOUT_GATES, JsonObject, Precondition, TimedPatcher, Writer
from rollout_operator.kube.kinds import WatchedKind
from rollout_operator.kube.store import is_older
from rollout_operator.model import names
from rollout_operator.model.budget import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DecodeError,
    Denied,
    NotFound,
    Throttled,
    Uid,
)
from rollout_operator.model.objects import (
    AnyWatched,
    Unreadable,
    WatchedHead,
    WatchedObject,
    list_decoded,
)
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.releases.model.decode import decode_gate
from rollout_operator.releases.model.plan import ReleaseEvent
from rollout_operator.releases.model.releases import (
    CorrectGate,
    CreateGate,
    DeleteGate,
    GateAction,
    GatedRollout,
    LabelledNamespace,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseRollout,
    ScheduleObject,
    ScheduleSnapshot,
    ScheduleState,
    WantedGate,
)
from rollout_operator.releases.planning.schedules import (
    KnownSchedules,
    LoadZone,
    ScheduleReading,
    choose_schedule_events,
    list_holds,
    plan_schedule,
    read_schedule,
    render_schedule_status,
)
from rollout_operator.releases.sources import ObjectController
from rollout_operator.telemetry.logs import log

OWN_WRITES_LAST: Final = timedelta(seconds=30)
_LABELS: Final = (
    *(names.SCHEDULE_NAME, names.SCHEDULE_NAMESPACE, names.SCHEDULE_KIND),
    *(names.GATED_ROLLOUT, names.MANAGED_BY),
)


class GateClient(Writer, TimedPatcher, Protocol): ...


class KeptGates:
    """The gates of one namespace, or of the cluster, with the writes of this process."""

    def __init__(self, client: GateClient, cached: WatchedKind, clock: Clock) -> None:
        self._client, self._cached, self._clock = client, cached, clock
        self._written: dict[str, tuple[ReleaseGate, timedelta]] = {}
        self._deleted: dict[Uid, timedelta] = {}
        cached.on_change(self._on_change)

    def list_all(self) -> tuple[ReleaseGate, ...]:
        begin = self._clock.elapsed() - OWN_WRITES_LAST
        self._written = {key: own for key, own in self._written.items() if own[1] >= begin}
        self._deleted = {uid: at for uid, at in self._deleted.items() if at >= begin}
        gates: dict[str, ReleaseGate] = {}
        for watched in self._cached.store.list_all():
            if isinstance(watched, WatchedObject) and isinstance(watched.decoded, ReleaseGate):
                # With its version, which the cached object leaves out.
                gate, version = watched.decoded, watched.resource_version
                head = msgspec.structs.replace(gate.head, resource_version=version)
                gates[head.key] = msgspec.structs.replace(gate, head=head)
        for key, (gate, _) in self._written.items():
            cached = gates.get(key)
            if cached is None or is_older(cached.head.resource_version, gate.head.resource_version):
                gates[key] = gate
        return tuple(each for each in gates.values() if each.head.uid not in self._deleted)

    async def carry_out(
        self, action: GateAction, still_holds: Callable[[], bool] = lambda: True
    ) -> bool:
        """Create, correct or delete a gate; return whether the request was sent.

        It is not sent if the plan no longer holds when our own limits let it through. Raises as
        `Writer`, and DecodeError.
        """
        client = self._client
        match action:
            case CreateGate(wanted=wanted):
                self._log("Creating gate", wanted)
                body = render_gate(wanted)
                self._record(await client.create(ROLLOUT_GATES, wanted.namespace, body))
            case CorrectGate(head=head, wanted=wanted):
                place = (ROLLOUT_GATES, head.namespace, head.name)
                await client.wait_turn_to_patch(*place)
                if not still_holds():
                    return False
                self._log("Correcting gate", wanted)
                same: JsonObject = {"uid": head.uid, "resourceVersion": head.resource_version}
                metadata = {**same, **_render_metadata(wanted)}
                patch: JsonObject = {"metadata": metadata, "spec": _render_spec(wanted)}
                self._record(await client.patch(*place, patch, has_turn=True))
            case DeleteGate(head=head):
                log.info("Deleting gate", gate=head.key)
                is_this = Precondition(uid=head.uid, resource_version=head.resource_version)
                await client.delete(ROLLOUT_GATES, head.namespace, head.name, precondition=is_this)
                self._deleted[head.uid] = self._clock.elapsed()
        return True

    def _on_change(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        if old is not None and new is None:
            written, _ = self._written.get(f"{old.namespace}/{old.name}", (None, None))
            if written is not None and written.head.uid == old.uid:
                del self._written[written.head.key]

    def _record(self, body: bytes) -> None:
        gate = decode_gate(body)
        self._written[gate.head.key] = gate, self._clock.elapsed()

    def _log(self, message: str, wanted: WantedGate) -> None:
        log.info(message, gate=wanted.key, rollout=wanted.rollout, is_passing=wanted.is_passing)


def render_gate(wanted: WantedGate) -> JsonObject:
    metadata = _render_metadata(wanted)
    for part in ("labels", "annotations"):
        fields = metadata[part]
        assert isinstance(fields, dict)
        metadata[part] = {key: value for key, value in fields.items() if value is not None}
    return {
        "apiVersion": f"{ROLLOUT_GATES.group}/{ROLLOUT_GATES.version}",
        "kind": ROLLOUT_GATES.kind,
        "metadata": {"name": wanted.name, "namespace": wanted.namespace, **metadata},
        "spec": _render_spec(wanted),
    }


def _render_metadata(wanted: WantedGate) -> JsonObject:
    """Return labels, annotations and owners; null removes a field."""
    origin = wanted.origin
    return {
        "labels": {key: origin.labels.get(key) for key in _LABELS},
        "annotations": {
            names.PRETTY_NAME: origin.pretty_name,
            names.GATE_DESCRIPTION: origin.description,
        },
        "ownerReferences": [msgspec.to_builtins(owner) for owner in origin.owners],
    }


def _render_spec(wanted: WantedGate) -> JsonObject:
    return {"rolloutRef": {"name": wanted.rollout}, "passing": wanted.is_passing}


class ScheduleKinds(msgspec.Struct, frozen=True, kw_only=True):
    schedules: WatchedKind
    rollouts: WatchedKind
    gates: WatchedKind
    namespaces: WatchedKind | None = None
    """None for schedules of one namespace."""

    def list_kinds(self) -> tuple[WatchedKind, ...]:
        own = (self.schedules, self.rollouts, self.gates)
        return own if self.namespaces is None else (*own, self.namespaces)

    def find_lack(self) -> str | None:
        """Return why nothing may be decided yet: a kind is unknown, or its cache is too old."""
        for kind in self.list_kinds():
            if kind.lack is not None:
                return kind.named_lack
            if kind.age > SNAPSHOT_LIMIT:
                return f"{kind.kind}: the cache is {kind.age.total_seconds():.0f}s old"
        return None


class ScheduleObserver(msgspec.Struct, frozen=True, kw_only=True):
    kinds: ScheduleKinds
    gates: KeptGates
    now: Callable[[], datetime]
    """The API server's time."""
    compat: ReleaseCompat

    def observe(self, schedule: ScheduleObject) -> ScheduleSnapshot:
        gated = map(read_gated, self.kinds.rollouts.store.list_all())
        return ScheduleSnapshot(
            schedule=schedule,
            now=self.now(),
            rollouts=tuple(rollout for rollout in gated if rollout is not None),
            gates=self.gates.list_all(),
            namespaces=self._map_namespaces(),
            compat=self.compat,
        )

    def _map_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        followed = self.kinds.namespaces
        watched = () if followed is None else followed.store.list_all()
        namespaces = list_decoded(watched, LabelledNamespace)
        return {namespace.head.name: namespace.labels for namespace in namespaces}


def read_gated(watched: AnyWatched | None) -> GatedRollout | None:
    """Return a Rollout as schedules use it; one that cannot be read has gates, too."""
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


class ScheduleReader:
    """Reads each version of a schedule once a minute, for all Rollouts that it selects (LI-09).

    Rules begin and end with minutes, so that is exact. A hundred schedules of 256 rules each would
    take 24 ms of every pass over every Rollout.
    """

    def __init__(self, compat: ReleaseCompat, load: LoadZone = ZoneInfo) -> None:
        self.compat = compat
        self._load = load
        self._minute: datetime | None = None
        self._read: dict[str, tuple[ScheduleObject, ScheduleReading]] = {}

    def read(self, schedule: ScheduleObject, now: datetime) -> ScheduleReading:
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
    own: WatchedKind
    wide: ScheduleKinds | None
    """None if schedules of the cluster are ignored."""
    reader: ScheduleReader

    def find_lack(self) -> str | None:
        """Return why nothing may be decided yet: the first answers are awaited."""
        for kind in self._list_needed():
            if kind.is_awaited:
                return kind.named_lack
        return None

    def list_holds(
        self, rollout: ReleaseRollout, gates: Iterable[ReleaseGate], now: datetime
    ) -> tuple[str, ...]:
        """Return why schedules hold new versions of a Rollout beyond its gates."""
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

    def _list_needed(self) -> Iterator[WatchedKind]:
        yield self.own
        if self.wide is None:
            return
        yield self.wide.schedules
        # Nothing else of the cluster is followed before there is a schedule.
        if self.wide.namespaces is not None and self.wide.schedules.store.list_all():
            yield self.wide.namespaces

    def _list_lacks(self) -> Iterator[str]:
        for kind in (self.own, *([self.wide.schedules] if self.wide else ())):
            if kind.lack is not None:
                yield f"{kind.named_lack}; a closed one may be among them"
            elif lack := _find_lack(kind):
                yield lack

    def _list_schedules(self) -> Iterator[ScheduleObject]:
        """Yield those of the cluster first: any number of others must not hide them."""
        if self.wide is not None:
            yield from map(_read_schedule, self.wide.schedules.store.list_all())
        yield from map(_read_schedule, self.own.store.list_all())

    def _read_namespace(self, name: str) -> tuple[Mapping[str, Mapping[str, str]], str]:
        """Return the labels of a namespace, or why they are unknown."""
        followed = None if self.wide is None else self.wide.namespaces
        if followed is None:
            return {}, ""
        if lack := _find_lack(followed):
            return {}, lack  # labels that a schedule selects by may have changed meanwhile
        known = list_decoded([followed.store.get("", name)], LabelledNamespace)
        return {name: known[0].labels} if known else {}, ""


def _find_lack(kind: WatchedKind) -> str | None:
    """Return why a cache may be out of date, None where it is not."""
    if kind.lack is None and kind.age > SNAPSHOT_LIMIT:
        # Other errors change with each attempt, and each would be written.
        error = kind.watch_error
        why = f": {error}" if isinstance(error, Denied) else ""
        return f"{kind.kind}: the cache is too old{why}"
    return kind.named_lack


def _read_schedule(watched: AnyWatched) -> ScheduleObject:
    """Return a schedule; an unreadable one is invalid, and may select any Rollout."""
    if isinstance(watched, WatchedObject) and isinstance(watched.decoded, ScheduleObject):
        return watched.decoded
    assert isinstance(watched, Unreadable)
    head = WatchedHead(
        namespace=watched.namespace,
        name=watched.name,
        uid=watched.uid,
        resource_version=watched.resource_version,
    )
    return ScheduleObject(kind=watched.kind, head=head, problem=watched.error)


# Every schedule is reconciled this often when nothing happens.
RESYNC: Final = timedelta(minutes=5)
# To write many gates takes minutes, in which their wanted state may change: it is decided again.
_PASS_LIMIT: Final = timedelta(seconds=5)
# Gates that are written at a time: as many as Rollouts are recorded at a time, which share the
# requests a second with them.
_AT_A_TIME: Final = 16
# A gate that another client wrote meanwhile is tried again so often before the status says so.
_MOST_CONFLICTS: Final = 3


class _Written(msgspec.Struct):
    """The outcome of one pass; errors by namespace and name of a gate."""

    tried: list[GateAction] = []
    failed: dict[str, str] = {}
    conflicts: dict[str, str] = {}


@dataclass(slots=True, kw_only=True)
class ScheduleController(ObjectController):
    title = "Schedule"
    resync = RESYNC

    observer: ScheduleObserver
    gates: KeptGates
    report: Callable[[WatchedObject, Iterable[ReleaseEvent]], None]

    def _forget(self, name: str) -> None:
        self.attempts.record_success(("gates", name))

    async def _decide(self, watched: WatchedObject) -> timedelta | None:
        schedule = watched.decoded
        if not isinstance(schedule, ScheduleObject) or schedule.head.is_terminating:
            return None
        attempt = ("gates", watched.name)
        snapshot = self.observer.observe(schedule)
        plan = plan_schedule(snapshot, ZoneInfo)
        written = await self._carry_out(
            plan.actions, lambda: self._still_holds(schedule, plan.state)
        )
        conflicts, problems = written.conflicts, {**written.conflicts, **written.failed}
        if conflicts and self.attempts.count(attempt) < _MOST_CONFLICTS:
            return self.attempts.record_failure(attempt, next(iter(conflicts.values())))
        is_done = len(written.tried) == len(plan.actions)
        plan = msgspec.structs.replace(plan, actions=tuple(written.tried))
        status = render_schedule_status(snapshot, plan, problems)
        # Many gates share one write of the status; news that people wait for is written at once.
        if status != schedule.status and (is_done or status.active is not schedule.status.active):
            await self.statuses.write(watched, status)
            self.report(watched, choose_schedule_events(schedule.status, status))
        unfinished = timedelta(0) if written.tried else RECHECK
        again = min(plan.requeue_after or RESYNC, RESYNC) if is_done else unfinished
        if problems:
            again = min(self.attempts.record_failure(attempt, "; ".join(problems)), again)
            return again if is_done else max(again, RECHECK)
        self.attempts.record_success(attempt)
        # Once more when all caches show the writes.
        return min(again, OWN_WRITES_LAST) if plan.actions else again

    def _still_holds(self, schedule: ScheduleObject, state: ScheduleState | None) -> bool:
        """Return whether the schedule is unchanged, and its next transition has not come."""
        newest, head = self.newest.get(schedule.head.name), schedule.head
        if not isinstance(newest, WatchedObject) or not isinstance(newest.decoded, ScheduleObject):
            return False
        now = newest.decoded.head
        is_same = (now.uid, now.generation) == (head.uid, head.generation)
        end = None if state is None else state.next_transition
        is_due = end is not None and self.observer.now() >= end
        return is_same and not now.is_terminating and not is_due

    async def _carry_out(
        self, actions: Sequence[GateAction], still_holds: Callable[[], bool]
    ) -> _Written:
        written, now = _Written(), self.observer.now
        begin, turns = now(), iter(actions)

        async def write_in_turn() -> None:
            for action in turns:
                if now() - begin >= _PASS_LIMIT or not await self._write(
                    action, still_holds, written
                ):
                    return

        await gather_all(write_in_turn() for _ in actions[:_AT_A_TIME])
        return written

    async def _write(
        self, action: GateAction, still_holds: Callable[[], bool], written: _Written
    ) -> bool:
        key = _get_key(action)
        try:
            if not await self.gates.carry_out(action, still_holds):
                return False
        except Throttled as error:  # by our own limits
            log.debug("Gate waits", gate=key, err=error)
            return False
        except (Conflict, NotFound) as error:
            log.debug("Gate has changed meanwhile", gate=key, err=error)
            written.conflicts[key] = str(error)
        except (ApiError, DecodeError) as error:
            log.warn("Gate not written", gate=key, err=error)
            written.failed[key] = str(error)
        written.tried.append(action)
        return True


def _get_key(action: GateAction) -> str:
    match action:
        case CreateGate(wanted=wanted):
            return wanted.key
        case CorrectGate(head=head) | DeleteGate(head=head):
            return head.key


def report_schedule(
    record: Callable[[EventRecord], None], watched: WatchedObject, events: Iterable[ReleaseEvent]
) -> None:
    """Record Events; a schedule of the cluster has no namespace."""
    kind = EventKind.SCHEDULE if watched.namespace else EventKind.CLUSTER_SCHEDULE
    about = Regarding(kind, watched.namespace, watched.name, watched.uid)
    for event in events:
        record(event.record(about, EventAction.RELEASE))
