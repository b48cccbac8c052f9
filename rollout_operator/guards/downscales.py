"""Downscales that were allowed, remembered until they have happened or been reverted.

One reservation per StatefulSet: fewer replicas were granted, and pods were prepared. It is open
while the request may still persist, then settled by the replicas that the set really has; until
then it holds back the whole group. Pods that were prepared and stay have to be un-prepared. For a
crash all of this is written on the pods, see `guards.prepared_pods`; the times of downscales are
written on the sets, here, or in the zone tracker, see `guards.tracker`. `planning.downscales`
decides whether a time forbids a downscale, `controllers.replicas` writes and removes marks.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.prepared_pods import (
    BacklogEntry,
    PreparedPod,
    UnansweredCancels,
    UnprepareBacklog,
    describe_unreached,
)
from rollout_operator.kube.api import STATEFULSETS, JsonObject, Patcher
from rollout_operator.kube.store import is_older
from rollout_operator.model.decode.objects import decode_version
from rollout_operator.model.names import (
    DOWNSCALE_INTENT,
    LAST_DOWNSCALE,
    GroupName,
    InvalidInput,
    Uid,
)
from rollout_operator.model.objects import Key, StatefulSet, Target, Underway, Unreadable
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import TimesSource, TrackerEntry, ZoneMap
from rollout_operator.model.units import format_next_second, parse_rfc3339
from rollout_operator.planning.downscales import Blocker, spares
from rollout_operator.planning.requests import differ_in_intent, find_intent
from rollout_operator.telemetry.logs import log


class LastDownscales:
    """When sets were scaled down last, until their records show it (D-66).

    A cached object from before the record was written proves nothing, and what was seen counts; a
    newer one shows the record, or what a person has made of it since, and that alone counts.
    """

    def __init__(self) -> None:
        self._times: dict[Uid, datetime] = {}
        self._shown_from: dict[Uid, str] = {}

    @property
    def times(self) -> Mapping[Uid, datetime]:
        return self._times

    def record(self, set_uid: Uid, at: datetime) -> None:
        """Remember that a set was scaled down; no record shows it yet. No time moves back."""
        self._times[set_uid] = max(at, self._times.get(set_uid, at))
        self._shown_from.pop(set_uid, None)

    def record_shown(self, set_uid: Uid, at: datetime, version: str) -> None:
        """Remember from which version on a time is shown, unless a later time was seen."""
        if self._times.get(set_uid) == at:
            self._shown_from[set_uid] = version

    def map_unshown(self, versions: Mapping[Uid, str]) -> dict[Uid, datetime]:
        """Return the times that objects of these versions, by set, do not show."""
        return {
            uid: self._times[uid]
            for uid, version in versions.items()
            if uid in self._times and not self._is_shown(uid, version)
        }

    def forget(self, set_uid: Uid) -> None:
        self._times.pop(set_uid, None)
        self._shown_from.pop(set_uid, None)

    def _is_shown(self, set_uid: Uid, version: str) -> bool:
        since = self._shown_from.get(set_uid)
        return since is not None and not is_older(version, than=since)


# The writer of a mark that is not ours has ended, or is elected no more, and writes nothing more.
# What it sent is stored within 90 s (`COMMIT_LIMIT`) or never.
REFUSED_LIMIT: Final = timedelta(minutes=5)


class _KnownMark(msgspec.Struct, frozen=True):
    text: str
    is_ours: bool = True
    """Whether this process wrote it, or a write that relies on it."""
    is_void: bool = False
    """Whether no write relies on it any more, or ever will."""
    gone_from: str = ""
    """The version of the set that shows it removed; empty where it may be there."""
    refused_at: timedelta | None = None
    """When the API server refused for the first time to remove it, on the clock's `elapsed`."""


class Intents:
    """The last mark of each set, as far as this process knows it.

    A mark means that a downscale of its set may still happen, unless this process has got the
    answer to the write, has removed the mark, or was refused that for longer than the write can
    take. `planning.requests` has its format.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[Uid, _KnownMark] = {}

    def begin(self, set_uid: Uid, text: str) -> None:
        """Record that this process is about to write a mark, or a write that relies on it."""
        self._marks[set_uid] = _KnownMark(text)

    def record_void(self, set_uid: Uid, text: str) -> None:
        """Record that the write that relies on a mark has its answer, or is not sent at all."""
        mark = self._marks.get(set_uid)
        if mark is not None and mark.text == text:
            self._marks[set_uid] = replace(mark, is_void=True)

    def record_gone(self, set_uid: Uid, text: str, version: str) -> None:
        """Record that a mark is removed from its set from that version on."""
        is_ours = self.is_ours(set_uid, text)
        self._marks[set_uid] = _KnownMark(text, is_ours=is_ours, gone_from=version)

    def record_refused(self, set_uid: Uid, text: str) -> bool:
        """Record that the API server will not remove a mark; return whether that is new.

        While this process may still write by its own mark, only the removal ends it.
        """
        mark = self._marks.get(set_uid)
        if mark is None or mark.text != text:
            mark = _KnownMark(text, is_ours=False)
        may_be_sent = mark.is_ours and not mark.gone_from
        if may_be_sent or mark.refused_at is not None:
            return False
        self._marks[set_uid] = replace(mark, refused_at=self._clock.elapsed())
        return True

    def forget(self, set_uid: Uid) -> None:
        self._marks.pop(set_uid, None)

    def find(self, sets: Iterable[StatefulSet], *, but: Uid | None = None) -> Underway | None:
        """Return a downscale that a mark announces and that may still happen; `but` is left out."""
        marked = [sts for sts in sets if sts.uid != but and self._may_happen(sts)]
        if not marked:
            return None
        first = min(marked, key=lambda sts: sts.name)
        underway = find_intent(first)
        return None if underway is None else replace(underway, left=self.time_left(first))

    def time_left(self, sts: StatefulSet) -> timedelta | None:
        """Return how long the mark of a set still counts (SI-18); None until it is removed."""
        mark = self._marks.get(sts.uid)
        is_same = mark is not None and mark.text == sts.annotations.get(DOWNSCALE_INTENT)
        if mark is None or not is_same or mark.refused_at is None:
            return None
        return max(mark.refused_at + REFUSED_LIMIT - self._clock.elapsed(), timedelta(0))

    def list_left(self, sets: Iterable[StatefulSet]) -> list[StatefulSet]:
        """Return the sets with a mark that is to be removed."""
        return [sts for sts in sets if self._is_there(sts)]

    def is_ours(self, set_uid: Uid, text: str | None) -> bool:
        """Return whether this process wrote a mark, or a write that relies on it."""
        mark = self._marks.get(set_uid)
        return mark is not None and mark.text == text and mark.is_ours

    def is_idle(self, sts: StatefulSet) -> bool:
        """Return whether a set has a mark of this process that no write relies on any more."""
        mark = self._marks.get(sts.uid)
        is_void = mark is not None and mark.is_void
        is_same = mark is not None and mark.text == sts.annotations.get(DOWNSCALE_INTENT)
        return is_void and is_same and self._is_there(sts)

    def concerns_us_only(self, old: StatefulSet, new: StatefulSet) -> bool:
        """Return whether a mark of this process is all that has changed of a set."""
        texts = {version.annotations.get(DOWNSCALE_INTENT) for version in (old, new)} - {None}
        is_ours = len(texts) == 1 and self.is_ours(new.uid, texts.pop())
        return is_ours and differ_in_intent(old, new)

    def _is_there(self, sts: StatefulSet) -> bool:
        text, mark = sts.annotations.get(DOWNSCALE_INTENT), self._marks.get(sts.uid)
        if text is None or mark is None or mark.text != text:
            return text is not None
        # Seen in a version after its removal, it is back: a write relies on it again.
        return not (mark.gone_from and is_older(sts.resource_version, than=mark.gone_from))

    def _may_happen(self, sts: StatefulSet) -> bool:
        is_over = self.is_idle(sts) or self.time_left(sts) == timedelta(0)
        return self._is_there(sts) and not is_over


# An API server gives up on a write 34 s after it began (`requestTimeoutUpperBound`), and a review
# begins later than that. So long after the last review nothing that it allowed can be stored.
PERSIST_LIMIT: Final = timedelta(seconds=36)
# No webhook may be given more time by its configuration.
_LONGEST_REVIEW: Final = timedelta(seconds=30)
# A record says when the first review began. The same review may have been repeated for so long from
# its answer on, and be written within as long again.
LATEST_REPEAT: Final = _LONGEST_REVIEW + 2 * PERSIST_LIMIT


class ReservationState(StrEnum):
    PREPARING = "preparing"
    """Pods are being called; nothing is answered yet."""
    OPEN = "open"
    """Allowed: the API server may or may not store it."""
    PERSISTED = "persisted"
    """The set wants fewer replicas; its pods are on their way out."""


class DownscaleReservation(msgspec.Struct, kw_only=True):
    """A downscale of one StatefulSet whose pods have been prepared."""

    key: Key
    namespace: str
    name: str
    group: GroupName | None
    begun: datetime
    """By the API server's clock; from the first answer on, when that was given."""
    requested_at: timedelta
    """When the newest review of it came, on the clock's `elapsed`."""
    seen_version: str
    """`resourceVersion` of the set when it was reserved: older versions do not count."""
    state: ReservationState = ReservationState.PREPARING
    pods: dict[Uid, PreparedPod] = {}
    """Those that were prepared, or may have been."""
    prepared: set[Uid] = set()
    """Those that have confirmed."""
    neighbours: frozenset[Uid] = frozenset()
    """The other sets of the group when it was judged."""
    is_adopted: bool = False
    """Whether another process began it."""
    latest: datetime | None = None
    """The latest time at which it can have happened, if an adopted record has it."""
    replaced_at: datetime | None = None
    """When the newest of its pods came, if some were replaced before it was adopted: then it
    happened before that, and was reverted."""
    entry: TrackerEntry | None = None
    """Its entry in the zone tracker, removed again if it does not happen."""
    answer: asyncio.Future[Verdict] | None = None
    """Shared by equal reviews while pods are being called."""


class _Announced(msgspec.Struct, frozen=True):
    group: GroupName | None
    underway: Underway


class _Unrecorded(msgspec.Struct, frozen=True):
    """A downscale that has happened, and that may not be recorded on its set yet."""

    begun: datetime
    group: GroupName | None
    underway: Underway
    until: timedelta
    """No longer than this it holds its group, on the clock's `elapsed`."""


class SetDownscales:
    """What is remembered of the downscales of one StatefulSet."""

    def __init__(self, clock: Clock, late_calls: timedelta) -> None:
        self.reservation: DownscaleReservation | None = None
        self.backlog = UnprepareBacklog(clock)
        self.unanswered = UnansweredCancels(clock, late_calls)
        self.unrecorded: _Unrecorded | None = None
        self.entry: TrackerEntry | None = None
        """Of a downscale that did not happen, which the tracker may still have."""

    @property
    def is_settled(self) -> bool:
        """Return whether a restarted process need not know of it.

        Until then its records stay on pods.
        """
        is_known = self.reservation is None and self.unrecorded is None and self.entry is None
        return is_known and not self.backlog.due and self.unanswered.is_empty


class Downscales:
    """All reservations, and the pods that are to be un-prepared."""

    def __init__(self, clock: Clock, *, late_calls: timedelta) -> None:
        """`late_calls`: for how long a call may reach a pod after its caller has given up."""
        self._clock = clock
        self.late_calls = late_calls
        self._sets: dict[Uid, SetDownscales] = {}
        self.last = LastDownscales()
        self.intents = Intents(clock)
        self._announced: dict[Uid, _Announced] = {}
        self._callbacks: list[Callable[[Uid, GroupName | None], None]] = []

    def on_change(self, callback: Callable[[Uid, GroupName | None], None]) -> None:
        """Call back with set and group whenever a downscale of a group came, changed or went."""
        self._callbacks.append(callback)

    def of(self, set_uid: Uid) -> SetDownscales:
        """Return what is remembered of a set until it is forgotten."""
        memory = self._sets.get(set_uid)
        if memory is None:
            memory = self._sets[set_uid] = SetDownscales(self._clock, self.late_calls)
        return memory

    def get(self, set_uid: Uid) -> DownscaleReservation | None:
        memory = self._sets.get(set_uid)
        return None if memory is None else memory.reservation

    def remembers(self, set_uid: Uid) -> bool:
        memory = self._sets.get(set_uid)
        return memory is not None and not memory.is_settled

    def list_sets(self) -> list[Uid]:
        return [uid for uid, memory in self._sets.items() if not memory.is_settled]

    def count_due(self) -> int:
        """Return how many pods are to be un-prepared, without those on their way out."""
        return self._count(lambda entry: not entry.is_dormant)

    def count_unreached(self) -> int:
        """Return how many of them could not be reached when that was last tried."""
        return self._count(lambda entry: entry.failures > 0)

    def _count(self, counts: Callable[[BacklogEntry], bool]) -> int:
        return sum(memory.backlog.count(counts) for memory in self._sets.values())

    def describe_unreached(self) -> str | None:
        due = (memory.backlog.due.values() for memory in self._sets.values())
        return describe_unreached(chain.from_iterable(due))

    def count(self, state: ReservationState) -> int:
        return sum(reservation.state is state for reservation in self._list_reservations())

    def _list_reservations(self) -> list[DownscaleReservation]:
        held = (memory.reservation for memory in self._sets.values())
        return [reservation for reservation in held if reservation is not None]

    def find_underway(
        self, group: GroupName | None, sets: Iterable[StatefulSet] = (), *, but: Uid | None = None
    ) -> Underway | None:
        """Return a downscale of the group that may still persist; `but` leaves a set out.

        It is of this process, or announced by a mark on `sets`, those of the group. What began
        before one of them came to the group counts as well. One that is not recorded yet holds
        pods, and the next downscale of its own set: the record on a pod must stay until then.
        """
        members = tuple(sets)
        uids = {sts.uid for sts in members}

        def is_of(set_uid: Uid, other: GroupName | None) -> bool:
            return set_uid != but and (set_uid in uids or (group is not None and other == group))

        for reservation in self._list_reservations():
            is_over = reservation.state is ReservationState.PERSISTED
            if not is_over and is_of(reservation.key.set_uid, reservation.group):
                return _underway(reservation)
        for set_uid, announced in self._announced.items():
            if is_of(set_uid, announced.group):
                return announced.underway
        now = self._clock.elapsed()
        for set_uid, memory in self._sets.items():
            late = memory.unrecorded
            if late is None or late.until <= now:
                continue
            if any(sts.uid == set_uid and is_annotated(sts, late.begun) for sts in members):
                continue  # the answer to its review has recorded it
            if set_uid == but or (but is None and is_of(set_uid, late.group)):
                return replace(late.underway, left=late.until - now)
        return self.intents.find(members, but=but)

    def find_among(self, sets: Iterable[StatefulSet]) -> Underway | None:
        """Return a downscale of any of `sets`, or of their groups, that may still persist."""
        groups: dict[GroupName | None, list[StatefulSet]] = {}
        for sts in sets:
            groups.setdefault(sts.group, []).append(sts)
        found = (self.find_underway(group, members) for group, members in groups.items())
        return next((underway for underway in found if underway is not None), None)

    def announce(self, sts: StatefulSet, replicas: int) -> None:
        """Record that we write fewer replicas next: no other change of the group may begin.

        No review comes for a set without the label; a set with it gets a reservation as well.
        """
        underway = Underway(zone=sts.name, replicas_from=sts.replicas, replicas_to=replicas)
        self._announced[sts.uid] = _Announced(sts.group, underway)

    def end_announcement(self, set_uid: Uid) -> None:
        """End an announcement: its write is done, or never will be."""
        announced = self._announced.pop(set_uid, None)
        if announced is not None:
            self._notify(set_uid, announced.group)

    def record_revoked(self, sts: StatefulSet, text: str, version: str) -> None:
        """Record that a mark is gone from its set: waiters for its downscale go on."""
        self.intents.record_gone(sts.uid, text, version)
        self._notify(sts.uid, sts.group)

    def record_refused(self, sts: StatefulSet, text: str) -> None:
        """Record that the API server will not remove a mark, so that the wait for it ends."""
        if self.intents.record_refused(sts.uid, text):
            self._notify(sts.uid, sts.group)

    def begin(
        self, sts: StatefulSet, key: Key, begun: datetime, pods: Iterable[tuple[Uid, str]]
    ) -> DownscaleReservation:
        """Reserve a downscale before any pod is called.

        An older reservation on the set must have persisted, be of the same downscale, or be too old
        to be stored: its pods become part of this one, as they may still be there when the set is
        scaled up again. Pods that are called elsewhere now, or that this downscale does not remove,
        are still to be un-prepared where they were.
        """
        memory, called = self.of(key.set_uid), _map_called(pods, key.target)
        memory.backlog.take_over(called)
        older = memory.reservation
        pods_of_both = dict(called)
        if older is not None:
            left = {uid: pod for uid, pod in older.pods.items() if not spares(key, sts, pod.pod)}
            pods_of_both = {**left, **called}
            elsewhere = {
                uid: pod for uid, pod in older.pods.items() if pods_of_both.get(uid) != pod
            }
            memory.backlog.add(older.seen_version, elsewhere)
        entry, memory.entry = memory.entry, None
        if older is not None and older.state is not ReservationState.PERSISTED:
            entry = older.entry
        memory.reservation = reservation = DownscaleReservation(
            key=key,
            namespace=sts.namespace,
            name=sts.name,
            group=sts.group,
            begun=begun,
            requested_at=self._clock.elapsed(),
            seen_version=sts.resource_version,
            pods=pods_of_both,
            entry=entry,
        )
        self._notify(key.set_uid, sts.group)
        return reservation

    def adopt(
        self,
        sts: StatefulSet,
        key: Key,
        begun: datetime,
        pods: Iterable[tuple[Uid, str]],
        *,
        earlier: Iterable[Target] = (),
        latest: datetime | None = None,
        replaced_at: datetime | None = None,
    ) -> DownscaleReservation:
        """Take over the downscale of another process; its time to persist begins now.

        `begun` and `replaced_at` are times of the API server. `latest` may be that of a record: a
        forged time has no more effect than a record that was removed. Whether its pods were reached
        is not known: a review of the same calls them again. They may have to be un-prepared at
        `earlier` targets, too.
        """
        called, memory = list(pods), self.of(key.set_uid)
        reservation = self.begin(sts, key, begun, called)
        memory.unanswered.suspect(reservation.pods, key.target)
        for target in earlier:
            there = _map_called(called, target)
            memory.backlog.add(reservation.seen_version, there)
            memory.unanswered.suspect(there, target)
        reservation.state = ReservationState.OPEN
        reservation.is_adopted = True
        reservation.latest = latest
        reservation.replaced_at = replaced_at
        self._notify(key.set_uid, sts.group)
        return reservation

    def renew(self, reservation: DownscaleReservation, pods: Iterable[tuple[Uid, str]]) -> None:
        called = _map_called(pods, reservation.key.target)
        self.of(reservation.key.set_uid).backlog.take_over(called)
        reservation.pods |= called
        reservation.requested_at = self._clock.elapsed()
        self._notify(reservation.key.set_uid, reservation.group)

    def allow(self, reservation: DownscaleReservation, at: datetime | None = None) -> None:
        """Record that all pods have confirmed; without `at`, an earlier answer stands."""
        reservation.state = ReservationState.OPEN
        if at is not None:
            reservation.begun = max(reservation.begun, at)
        self._notify(reservation.key.set_uid, reservation.group)

    def time_left(self, reservation: DownscaleReservation) -> timedelta:
        return reservation.requested_at + PERSIST_LIMIT - self._clock.elapsed()

    def granted_at(self, reservation: DownscaleReservation) -> timedelta | None:
        """Return when the newest review of it came, None where it can persist no more."""
        return reservation.requested_at if self.time_left(reservation) > timedelta(0) else None

    def record_persisted(self, reservation: DownscaleReservation, now: datetime) -> None:
        """Record that the set has fewer replicas now; `now` is the API server's time."""
        if reservation.state is ReservationState.PERSISTED:
            return
        # It may be seen long after it happened. When a downscale of another process happened only
        # its record says, which any client may have written: it counts from when it was found, or
        # from the last repetition that its record allows, so that zones rather wait too long
        # (SI-11).
        latest = reservation.latest or now + self.time_left(reservation)
        self._persist(reservation, max(min(now, latest), reservation.begun), reservation.begun)

    def record_written(self, set_uid: Uid, begun: datetime) -> None:
        """Record that a set shows the downscale that began then: its group goes on."""
        memory = self.of(set_uid)
        late = memory.unrecorded
        if late is not None and late.begun == begun:
            memory.unrecorded = None
            self._notify(set_uid, late.group)

    def record_reverted(self, reservation: DownscaleReservation, replaced_at: datetime) -> None:
        """Record that it had happened before it was adopted, by then, and was reverted."""
        self._persist(reservation, replaced_at, replaced_at)

    def _persist(self, reservation: DownscaleReservation, at: datetime, begun: datetime) -> None:
        reservation.state = ReservationState.PERSISTED
        self.last.record(reservation.key.set_uid, at)
        self.of(reservation.key.set_uid).unrecorded = _Unrecorded(
            begun=begun,
            group=reservation.group,
            underway=replace(_underway(reservation), is_unrecorded=True),
            until=self._clock.elapsed() + REFUSED_LIMIT,
        )
        self._notify(reservation.key.set_uid, reservation.group)

    def close(
        self,
        reservation: DownscaleReservation,
        un_prepare: Iterable[Uid],
        *,
        after: timedelta = timedelta(0),
        again: timedelta | None = None,
        are_going: bool = False,
    ) -> None:
        """Forget a reservation; pods in `un_prepare` are still to be un-prepared.

        They are called `after` that time, and `again` after another: a late call may still prepare
        a pod that stays. Those that `are_going` are called if they come back.
        """
        memory = self.of(reservation.key.set_uid)
        if memory.reservation is not reservation:
            return
        memory.reservation = None
        if reservation.entry is not None and reservation.state is not ReservationState.PERSISTED:
            memory.entry = reservation.entry
        called = {uid: reservation.pods[uid] for uid in un_prepare if uid in reservation.pods}
        memory.backlog.add(
            reservation.seen_version, called, after=after, again=again, are_going=are_going
        )
        self._notify(reservation.key.set_uid, reservation.group)

    def forget_set(self, set_uid: Uid) -> None:
        """Forget a set that is gone, and all calls to its pods."""
        memory = self._sets.pop(set_uid, None)
        self.last.forget(set_uid)
        held = memory and (memory.reservation or memory.unrecorded)
        if held:
            self._notify(set_uid, held.group)

    def _notify(self, set_uid: Uid, group: GroupName | None) -> None:
        for callback in self._callbacks:
            callback(set_uid, group)


def _map_called(pods: Iterable[tuple[Uid, str]], target: Target | None) -> dict[Uid, PreparedPod]:
    return {uid: PreparedPod(pod, target) for uid, pod in pods}


def _underway(reservation: DownscaleReservation) -> Underway:
    return Underway(
        zone=reservation.name,
        replicas_from=reservation.key.replicas_from,
        replicas_to=reservation.key.replicas_to,
    )


Member = StatefulSet | Unreadable


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a group by one read of its records."""

    times: Mapping[Uid, datetime] = {}
    """When its zones were scaled down last, beyond their annotations."""
    zone_map: ZoneMap | None = None
    """The zone tracker that has them."""


class DownscaleGrant(msgspec.Struct, frozen=True, kw_only=True):
    reservation: DownscaleReservation
    sts: StatefulSet
    others: tuple[StatefulSet, ...]
    seen: GroupTimes
    """The times that the decision was made by."""
    at: datetime
    """By the API server's clock."""


class AnnotationTimes:
    """Times on the sets themselves: the answer to a review carries them where it can (D-23).

    `Tracker` keeps them elsewhere, by the same methods.
    """

    source = TimesSource.ANNOTATIONS

    def __init__(self, client: Patcher, downscales: Downscales) -> None:
        self._client = client
        self._downscales = downscales

    def recall(self, sets: Sequence[Member]) -> Mapping[Uid, datetime]:
        """Return the times of these sets of a group as they were read last.

        Without those that annotations show. A time that this process has seen counts until the
        record shows it; from then on the record does, as a person may change it (D-66).
        """
        # Annotations are read with the sets: only these cached versions may be too old.
        return self._downscales.last.map_unshown({sts.uid: sts.resource_version for sts in sets})

    async def read(self, sets: Sequence[Member]) -> Mapping[Uid, datetime]:
        """Return the same from a live read.

        Raises ApiError, and InvalidInput with a text for the client.
        """
        return self.recall(sets)

    async def refresh(self) -> bool:
        """Read again what is not cached, unless that was done lately; return whether it changed."""
        return False

    async def fetch_times(self, sets: Sequence[Member], *, but: Uid) -> GroupTimes:
        """Return times as `read` does, without that of `but`, and what a write needs."""
        return GroupTimes(times=self.recall(sets))

    async def record(self, grant: DownscaleGrant) -> Blocker | None:
        """Record a downscale before it is allowed, or return why it must not happen after all.

        The reservation remembers what was written. Here nothing is: the object is under review.
        """
        return None

    async def keep(self, sts: StatefulSet, at: datetime) -> str:
        """Record a downscale that has happened, unless a later time is there.

        The answer to a review may have done so, perhaps with too early a time. Returns the version
        that shows it. Raises ApiError; Conflict where another client wrote meanwhile: read again.
        """
        if is_annotated(sts, at):
            return sts.resource_version
        text = format_next_second(at)
        # With the version, so that a slow patch does not put back the time of a later downscale.
        patch: JsonObject = {
            "metadata": {
                "uid": sts.uid,
                "resourceVersion": sts.resource_version,
                "annotations": {LAST_DOWNSCALE: text},
            }
        }
        body = await self._client.patch(STATEFULSETS, sts.namespace, sts.name, patch)
        log.info("Recorded downscale", zone=sts.name, at=text, reason=Code.DOWNSCALE_RECORDED)
        return decode_version("StatefulSet", body)

    async def restore(self, sts: StatefulSet, entry: TrackerEntry) -> None:
        """Put back the time from before a downscale that did not happen, if its own is there.

        A downscale that was not stored has left no time on the set.
        """


def is_annotated(sts: StatefulSet, at: datetime) -> bool:
    """Return whether a set carries this time of a downscale, or a later time."""
    try:
        return parse_rfc3339(sts.annotations.get(LAST_DOWNSCALE, "")) >= at
    except InvalidInput:
        return False
