"""Downscales that were allowed, remembered until they have happened or been reverted.

One reservation per StatefulSet: fewer replicas were granted, and pods were prepared. It is open
while the request may still persist, then settled by what the set really wants; until then it holds
back the whole group. Pods that were prepared and stay have to be un-prepared. What must survive a
crash is written on the pods; see `pod_records`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.downscales.backlog import (
    PreparedPod,
    UnansweredCancels,
    UnprepareBacklog,
)
from rollout_operator.guards.downscales.intents import Intents
from rollout_operator.guards.downscales.last_downscales import LastDownscales
from rollout_operator.model.downscale import Key, Target, Underway
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.tracker import TrackerEntry
from rollout_operator.planning.downscales.reservation import spares

# An API server gives up on a write 34 s after it began (`requestTimeoutUpperBound`), and a review
# begins later than that. So long after the last review nothing that it allowed can persist.
PERSIST_LIMIT: Final = timedelta(seconds=36)
# No webhook may be given more time by its configuration.
LONGEST_REVIEW: Final = timedelta(seconds=30)
# A record says when the first review began. The same review may have been repeated for so long from
# its answer on, and be written within as long again.
LATEST_REPEAT: Final = LONGEST_REVIEW + 2 * PERSIST_LIMIT


class ReservationState(StrEnum):
    """How far a reservation has come."""

    PREPARING = "preparing"
    """Pods are being called; nothing is answered yet."""
    OPEN = "open"
    """Allowed: the API server may or may not write it."""
    PERSISTED = "persisted"
    """The set wants fewer replicas; its pods are on their way out."""


class DownscaleReservation(msgspec.Struct, kw_only=True):
    """A downscale of one StatefulSet that pods have been prepared for."""

    key: Key
    namespace: str
    name: str
    group: GroupName | None
    begun: datetime
    """In the API server's time; from its first answer on, the time of the answer."""
    requested_at: timedelta
    """When the newest review of it came, on the clock's `elapsed`."""
    seen_version: str
    """`resourceVersion` of the set when it was reserved: an older version says nothing of it."""
    state: ReservationState = ReservationState.PREPARING
    pods: dict[Uid, PreparedPod] = {}
    """Those that were prepared, or may have been."""
    prepared: set[Uid] = set()
    """Those of them that have confirmed."""
    is_adopted: bool = False
    """Whether another process began it."""
    latest: datetime | None = None
    """The latest time at which it can have happened, where its time was on record when it was
    adopted."""
    replaced_at: datetime | None = None
    """When the newest of its pods came, where some were replaced before it was adopted: then it has
    happened, no later than that, and was reverted."""
    entry: TrackerEntry | None = None
    """The entry in the zone tracker for it, or about to be: taken out where it does not happen."""
    answer: asyncio.Future[Verdict] | None = None
    """Shared by reviews that request the same while pods are being called."""


class _Announced(msgspec.Struct, frozen=True):
    """A downscale that the operator itself is writing."""

    group: GroupName | None
    underway: Underway


class Downscales:
    """All reservations, and the pods that are to be un-prepared."""

    def __init__(self, clock: Clock, *, late_calls: timedelta) -> None:
        """`late_calls`: so long after its caller has given up a call may still reach a pod."""
        self._clock = clock
        self.late_calls = late_calls
        self.backlog = UnprepareBacklog(clock)
        self.unanswered = UnansweredCancels(clock, late_calls)
        self._reservations: dict[Uid, DownscaleReservation] = {}
        self.last = LastDownscales()
        self.intents = Intents(clock)
        self._unrecorded: dict[Uid, datetime] = {}
        self._entries: dict[Uid, TrackerEntry] = {}
        self._announced: dict[Uid, _Announced] = {}
        self._callbacks: list[Callable[[Uid, GroupName | None], None]] = []

    def on_change(self, callback: Callable[[Uid, GroupName | None], None]) -> None:
        """Call back with set and group whenever a reservation came, changed or went."""
        self._callbacks.append(callback)

    def get(self, set_uid: Uid) -> DownscaleReservation | None:
        """Return the reservation on a set."""
        return self._reservations.get(set_uid)

    def remembers(self, set_uid: Uid) -> bool:
        """Return whether any downscale or call of a set is not settled."""
        return any(set_uid in each for each in self._unsettled)

    def list_sets(self) -> list[Uid]:
        """Return the sets of which any downscale or call is not settled."""
        return list(dict.fromkeys(uid for each in self._unsettled for uid in each))

    @property
    def _unsettled(self) -> tuple[Mapping[Uid, object], ...]:
        # What was not answered keeps the records on pods: a restarted process must know, too.
        unanswered = self.unanswered.by_set
        return self._reservations, self.backlog.by_set, self._unrecorded, self._entries, unanswered

    def count(self, state: ReservationState) -> int:
        """Return how many reservations are in a state."""
        return sum(reservation.state is state for reservation in self._reservations.values())

    def find_underway(
        self, group: GroupName | None, sets: Iterable[StatefulSet] = (), *, but: Uid | None = None
    ) -> Underway | None:
        """Return a downscale of the group that may still persist; `but` leaves a set out.

        It is a downscale of this process, or a downscale that a mark on `sets`, those of the group,
        announces.
        """
        if group is None:
            return None
        for reservation in self._reservations.values():
            is_other = reservation.group == group and reservation.key.set_uid != but
            if is_other and reservation.state is not ReservationState.PERSISTED:
                return _underway(reservation)
        for set_uid, announced in self._announced.items():
            if announced.group == group and set_uid != but:
                return announced.underway
        return self.intents.find(sets, but=but)

    def announce(self, sts: StatefulSet, replicas: int) -> None:
        """Record that we write fewer replicas next: nothing else of the group may begin then.

        No review comes for a set without the label; a set with it gets a reservation, too.
        """
        underway = Underway(zone=sts.name, replicas_from=sts.replicas, replicas_to=replicas)
        self._announced[sts.uid] = _Announced(sts.group, underway)

    def end_announcement(self, set_uid: Uid) -> None:
        """End an announcement: its write is done, or never will be. An unknown set is fine."""
        announced = self._announced.pop(set_uid, None)
        if announced is not None:
            for callback in self._callbacks:
                callback(set_uid, announced.group)

    def record_revoked(self, sts: StatefulSet, text: str, version: str) -> None:
        """Record that a mark is gone from its set: waiters for its downscale go on."""
        self.intents.record_gone(sts.uid, text, version)
        for callback in self._callbacks:
            callback(sts.uid, sts.group)

    def record_refused(self, sts: StatefulSet, text: str) -> None:
        """Record that the API server will not remove a mark: the wait for it ends some day."""
        if self.intents.record_refused(sts.uid, text):
            for callback in self._callbacks:
                callback(sts.uid, sts.group)

    def begin(
        self, sts: StatefulSet, key: Key, begun: datetime, pods: Iterable[tuple[Uid, str]]
    ) -> DownscaleReservation:
        """Reserve a downscale before any pod is called.

        What is due to the same pods there, and to the zone tracker, is taken over. An older
        reservation on the set must have persisted, be of the same downscale, or be too old to be
        written any more: its pods become part of this reservation, because they may still be there
        when the set is scaled up again. Pods that are called elsewhere now stay due a call to
        un-prepare them where they were, and so do those that this downscale does not take away.
        """
        called = {uid: PreparedPod(pod, key.target) for uid, pod in pods}
        self.backlog.take_over(key.set_uid, called)
        older = self._reservations.get(key.set_uid)
        pods_of_both = dict(called)
        if older is not None:
            left = {uid: pod for uid, pod in older.pods.items() if not spares(key, sts, pod.pod)}
            pods_of_both = {**left, **called}
            elsewhere = {
                uid: pod for uid, pod in older.pods.items() if pods_of_both.get(uid) != pod
            }
            self.backlog.add(key.set_uid, older.seen_version, elsewhere)
        entry = self._entries.pop(key.set_uid, None)
        if older is not None and older.state is not ReservationState.PERSISTED:
            entry = older.entry
        reservation = DownscaleReservation(
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
        self._reservations[key.set_uid] = reservation
        self._notify(reservation)
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

        `begun` and `replaced_at` are times of the API server, never the time in a record;
        `latest` may go by that: forged, it has no more effect than a record that was removed.
        Whether its pods were reached is not known: a review of the same calls them again. They may
        have to be un-prepared at `earlier` targets, too.
        """
        called = list(pods)
        reservation = self.begin(sts, key, begun, called)
        self.unanswered.suspect(key.set_uid, reservation.pods, key.target)
        for target in earlier:
            there = {uid: PreparedPod(pod, target) for uid, pod in called}
            self.backlog.add(key.set_uid, reservation.seen_version, there)
            self.unanswered.suspect(key.set_uid, there, target)
        reservation.state = ReservationState.OPEN
        reservation.is_adopted = True
        reservation.latest = latest
        reservation.replaced_at = replaced_at
        self._notify(reservation)
        return reservation

    def renew(self, reservation: DownscaleReservation, pods: Iterable[tuple[Uid, str]]) -> None:
        """Extend a reservation whose review was repeated, with these pods as well."""
        called = {uid: PreparedPod(pod, reservation.key.target) for uid, pod in pods}
        self.backlog.take_over(reservation.key.set_uid, called)
        reservation.pods |= called
        reservation.requested_at = self._clock.elapsed()
        self._notify(reservation)

    def allow(self, reservation: DownscaleReservation, at: datetime | None = None) -> None:
        """Record that all pods have confirmed, and the request is allowed; `at` by the API server.

        Without `at` an earlier answer stands.
        """
        reservation.state = ReservationState.OPEN
        if at is not None:
            reservation.begun = max(reservation.begun, at)
        self._notify(reservation)

    def time_left(self, reservation: DownscaleReservation) -> timedelta:
        """Return for how long the request may still persist; zero or less for no longer."""
        return reservation.requested_at + PERSIST_LIMIT - self._clock.elapsed()

    def granted_at(self, reservation: DownscaleReservation) -> timedelta | None:
        """Return when the newest review of it came, None where nothing can persist any more."""
        return reservation.requested_at if self.time_left(reservation) > timedelta(0) else None

    def record_persisted(self, reservation: DownscaleReservation, now: datetime) -> None:
        """Record that the set wants fewer replicas now: `now` is the API server's time."""
        if reservation.state is ReservationState.PERSISTED:
            return
        # It may have happened long ago, and be seen late. When a downscale of another process
        # happened only its record says, which any client may have written: it counts from when it
        # was found, or from the last repetition that its record allows, so that zones wait too long
        # rather than too short (SI-11).
        latest = reservation.latest or now + self.time_left(reservation)
        self._persist(reservation, max(min(now, latest), reservation.begun), reservation.begun)

    def record_reverted(self, reservation: DownscaleReservation, replaced_at: datetime) -> None:
        """Record that it had happened before it was adopted, by then, and was reverted."""
        self._persist(reservation, replaced_at, replaced_at)

    def _persist(self, reservation: DownscaleReservation, at: datetime, begun: datetime) -> None:
        reservation.state = ReservationState.PERSISTED
        self.last.record(reservation.key.set_uid, at)
        self._unrecorded[reservation.key.set_uid] = begun
        self._notify(reservation)

    def find_unrecorded(self, set_uid: Uid) -> datetime | None:
        """Return when a downscale of a set began that may not be recorded on it yet."""
        return self._unrecorded.get(set_uid)

    def record_written(self, set_uid: Uid, begun: datetime) -> None:
        """Record that the set carries the time of the downscale that began then."""
        if self._unrecorded.get(set_uid) == begun:
            del self._unrecorded[set_uid]

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

        They are called `after` that time, and `again` after another: a call that was slow to arrive
        may make a pod forget that it stays. Those that `are_going` are called if they come back.
        """
        if self._reservations.get(reservation.key.set_uid) is not reservation:
            return
        del self._reservations[reservation.key.set_uid]
        if reservation.entry is not None and reservation.state is not ReservationState.PERSISTED:
            self._entries[reservation.key.set_uid] = reservation.entry
        called = {uid: reservation.pods[uid] for uid in un_prepare if uid in reservation.pods}
        self.backlog.add(
            reservation.key.set_uid,
            reservation.seen_version,
            called,
            after=after,
            again=again,
            are_going=are_going,
        )
        self._notify(reservation)

    def find_entry(self, set_uid: Uid) -> TrackerEntry | None:
        """Return the entry that the zone tracker may have for a downscale that did not happen."""
        return self._entries.get(set_uid)

    def record_restored(self, set_uid: Uid) -> None:
        """Record that the zone tracker is as before a downscale that did not happen."""
        self._entries.pop(set_uid, None)

    def forget_set(self, set_uid: Uid) -> None:
        """Forget a set that is gone, and all calls to its pods."""
        reservation = self._reservations.pop(set_uid, None)
        self.backlog.forget(set_uid)
        self.unanswered.forget(set_uid)
        self.last.forget(set_uid)
        self._unrecorded.pop(set_uid, None)
        self._entries.pop(set_uid, None)
        if reservation is not None:
            self._notify(reservation)

    def _notify(self, reservation: DownscaleReservation) -> None:
        for callback in self._callbacks:
            callback(reservation.key.set_uid, reservation.group)


def _underway(reservation: DownscaleReservation) -> Underway:
    return Underway(
        zone=reservation.name,
        replicas_from=reservation.key.replicas_from,
        replicas_to=reservation.key.replicas_to,
    )
