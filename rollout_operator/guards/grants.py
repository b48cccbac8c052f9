"""Requests to the arbiter, its refusals, and the pods that are on their way out.

A pod that goes may still look untouched. Three sources show it: our own delete that the cache does
not show yet, a grant of this process, and a record on the pod, which any process may have written.
All of them count as down. `planning.budgets` decides which pods may go, `guards.arbiter` how a
grant comes about, and `controllers.budgets` when a record that was not released is removed.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import REFUSED_EVICTIONS
from rollout_operator.kube.api import PODS, JsonObject, TimedPatcher
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import Budget, DisruptionSource, Record
from rollout_operator.model.names import (
    DISRUPTION_RECORD,
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    Uid,
    UnknownOutcome,
)
from rollout_operator.model.objects import Deletion, Pod
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.units import check_time
from rollout_operator.planning.budgets import BudgetSnapshot, Refusal, assess_disruption
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.planning.requests import RETRY
from rollout_operator.telemetry.logs import log

# Without records it is unknown what an earlier process has just granted, which an API server that
# waits for an answer as long as by default may still act upon: so long nothing is granted.
QUARANTINE: Final = timedelta(seconds=12)
# Lets a client repeat its request at once, where nothing but the moment was wrong.
MOMENT: Final = timedelta(seconds=1)


class DisruptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that an eviction or a rollout is to remove."""

    pod: Pod
    engine: DisruptionSource
    limit: int = 0
    """`rollout-max-unavailable` of the zone; for the rollout only."""
    lasts: timedelta = timedelta(0)
    """For how long from now the requester may act on the answer: the API server's timeout."""
    dry_run: bool = False


class GrantedPod(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    """Its newest version, which a delete must name."""
    budget: str = ""
    """The budget by which it may go; empty where none covers it."""


Answer = GrantedPod | Refusal


class GrantState(Enum):
    REQUESTED = auto()
    """Being recorded and confirmed: it may come to nothing within moments."""
    GRANTED = auto()
    """An answer said that the pod may go."""
    DOUBTFUL = auto()
    """Given up, but a record of it may have been written: the controller must read the pod."""


class Grant(msgspec.Struct, kw_only=True):
    pod: Pod
    """The pod as it was decided on; once recorded, as it was seen last."""
    engine: DisruptionSource
    budget: str
    begun: timedelta
    """On the clock's `elapsed`: from before the record was sent."""
    lasts: timedelta = timedelta(0)
    """How long after that the requester may act on the answer."""
    record: str = ""
    """The annotation as sent; empty where none was."""
    state: GrantState = GrantState.REQUESTED
    was_granted: bool = False
    """Whether the answer was that the pod may go: a doubt that follows does not change it."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with its record: it may go if a live read that begins after it shows no reason."""

    request: DisruptionRequest
    budget: Budget
    grant: Grant
    record: Record | None
    """None where the role forbids writing a record."""


def refuse(code: Code, text: str, *, severity: Severity = Severity.INFO) -> Refusal:
    """Return a refusal after which a client may soon try again."""
    reason = Reason(code=code, text=text, severity=severity)
    return Refusal(reason=reason, status=RETRY, requeue_after=MOMENT)


# An API server ends every request after 60 s (`--request-timeout`); a write that it holds cannot be
# committed later than that. The rest is room for a connection that was slow to deliver it.
COMMIT_LIMIT: Final = timedelta(seconds=90)
# Decisions rest on caches that show by then whether it was committed. A group reads it back before
# that, unless its StatefulSet has left.
_SHOWN_WITHIN: Final = COMMIT_LIMIT + SNAPSHOT_LIMIT
# A list is reported in steps, between which groups are reconciled: pods that it shows on their way
# out are forgotten before all are reported.
_REPORTED_WITHIN: Final = timedelta(minutes=1)


class _OwnDelete(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    state: Deletion
    sent_at: timedelta
    """When the newest request was sent, on the clock's `elapsed`."""
    accepted_at: timedelta | None = None
    was_sent_before: bool = False
    """An earlier request for the same pod got no answer and may still be carried out."""


class OwnDeletes:
    """All deletes of this process that the cache does not show yet, by UID of the pod.

    Such a pod looks ready, and counts as gone from before the request is sent until the cache shows
    it terminating, replaced or absent. A delete without an answer is read back, and counts as long
    as it may still be committed. Owners are UIDs: a set that moves to another group takes its pods.
    """

    def __init__(self, pods: PodStore, clock: Clock) -> None:
        self._pods, self._clock = pods, clock
        self._by_uid: dict[Uid, _OwnDelete] = {}
        self._seen: dict[Uid, timedelta] = {}
        """When the cache showed each delete that was forgotten, the oldest first."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def begin(self, pod: Pod) -> None:
        """Remember a delete before it is sent: from now on its outcome may be unknown."""
        self._by_uid[pod.uid] = _OwnDelete(
            pod=pod,
            state=Deletion.UNKNOWN,
            sent_at=self._clock.elapsed(),
            was_sent_before=pod.uid in self._by_uid,
        )

    def accept(self, pod: Pod) -> None:
        """Record that the API server accepted the delete, or that it was carried out."""
        deleted = self._by_uid.get(pod.uid)
        if deleted is not None:
            now = self._clock.elapsed()
            self._by_uid[pod.uid] = replace(deleted, state=Deletion.ACCEPTED, accepted_at=now)

    def drop(self, pod: Pod) -> None:
        """Forget a pod: no delete of it that was sent can be carried out any more."""
        self._by_uid.pop(pod.uid, None)

    def refuse(self, pod: Pod) -> None:
        """Record that this request was refused; an earlier request may still be carried out."""
        deleted = self._by_uid.get(pod.uid)
        if deleted is not None and not deleted.was_sent_before:
            del self._by_uid[pod.uid]

    def map_deletions(self, owners: Collection[Uid]) -> Mapping[Uid, Deletion]:
        """Return the deletes that the cache does not show yet, and forget those that it shows."""
        now = self._clock.elapsed()
        for uid, own in list(self._by_uid.items()):
            if _has_left(self._pods, own.pod):
                del self._by_uid[uid]
                self._seen[uid] = now
            elif own.state is Deletion.UNKNOWN and now - own.sent_at >= _SHOWN_WITHIN:
                del self._by_uid[uid]
        while self._seen and now - next(iter(self._seen.values())) >= _REPORTED_WITHIN:
            del self._seen[next(iter(self._seen))]
        return {own.pod.uid: own.state for own in self._of(owners)}

    def is_ours(self, pod: Uid) -> bool:
        """Return whether this process deleted a pod a moment ago, or may have."""
        return pod in self._by_uid or pod in self._seen

    def list_unknown(self, owners: Collection[Uid]) -> tuple[_OwnDelete, ...]:
        return tuple(own for own in self._of(owners) if own.state is Deletion.UNKNOWN)

    def may_still_commit(self, own: _OwnDelete) -> bool:
        return self._clock.elapsed() - own.sent_at < COMMIT_LIMIT

    def longest_unseen(self, owners: Collection[Uid]) -> timedelta:
        now = self._clock.elapsed()
        accepted = [own.accepted_at for own in self._of(owners) if own.accepted_at is not None]
        return now - min(accepted, default=now)

    def _of(self, owners: Collection[Uid]) -> Iterator[_OwnDelete]:
        return (own for own in self._by_uid.values() if own.pod.owner_uid in owners)


def _has_left(pods: PodStore, pod: Pod) -> bool:
    """Return whether the cache shows a pod on its way out, replaced or absent."""
    cached = pods.get(pod.namespace, pod.name)
    if cached is None or cached.uid != pod.uid:
        return True
    return isinstance(cached, Pod) and cached.is_terminating


# A right may be added to the Role at any time.
TRY_AGAIN: Final = timedelta(minutes=1)
# A write without an answer for so long has an unknown outcome: its pod counts as going, and its
# budget and the lock of its group are held meanwhile. Live reads are waited for as long.
WRITE_LASTS: Final = timedelta(seconds=8)
# A record is removed long before; where no process is left to do it, it expires (LI-07).
RECORD_COUNTS: Final = timedelta(minutes=2)

_RECORD: Final = msgspec.json.Decoder(Record)
_PATH: Final = f"/metadata/annotations/{DISRUPTION_RECORD.replace('/', '~1')}"


def read_record(pod: Pod) -> Record | None:
    """Return the record of a pod, None without one. Raises InvalidInput naming pod and value."""
    if not pod.disruption:
        return None
    try:
        record = _RECORD.decode(pod.disruption)
        check_time(record.at)
    except (msgspec.MsgspecError, RecursionError, InvalidInput) as error:
        text = f"Pod {pod.name}: annotation {DISRUPTION_RECORD}: {error}"
        raise InvalidInput(text) from error
    return record if record.uid == pod.uid else None


def is_recorded(pod: Pod, now: datetime) -> bool:
    """Return whether a record makes a pod count as going; one that cannot be read does."""
    if not pod.disruption:
        return False
    try:
        record = read_record(pod)
    except InvalidInput:
        return True
    return record is not None and now - record.at < RECORD_COUNTS


def wins(record: Record | None, live: BudgetSnapshot) -> bool:
    """Return whether the pod may go once all weaker records of other processes are removed.

    The earlier record wins; a tie is broken by names, the same for both processes.
    """
    if record is None:
        return False
    pods = (pod for zone in live.zones for pod in zone.pods)
    weaker = {pod.uid for pod in pods if _is_weaker(pod, record)}
    if not weaker:
        return False
    going = {uid: how for uid, how in live.deletions.items() if uid not in weaker}
    return assess_disruption(replace(live, deletions=going)) is None


def _is_weaker(pod: Pod, record: Record) -> bool:
    try:
        other = read_record(pod)
    except InvalidInput:
        return False
    if other is None or other.by == record.by:
        return False
    return (other.at, other.by, other.uid) > (record.at, record.by, record.uid)


class Recorder:
    """Writes and removes the records of one process.

    Those of two processes of one namespace differ by the name `by`.
    """

    def __init__(self, client: TimedPatcher, clock: Clock, by: str) -> None:
        self._client, self._clock, self._by = client, clock, by
        self._forbidden_at: timedelta | None = None

    @property
    def is_forbidden(self) -> bool:
        """Return whether the role may not patch pods: grants live in memory only then."""
        at = self._forbidden_at
        return at is not None and self._clock.elapsed() - at < TRY_AGAIN

    async def write(self, grant: Grant, now: Callable[[], datetime]) -> Record | None:
        """Record a grant on the pod as it was decided on; None where the role forbids it.

        It counts from when it is sent: a grant that is given up before that leaves no record. `now`
        returns the API server's time. Raises Conflict where the pod has changed since,
        UnknownOutcome without an answer within `WRITE_LASTS`, and what `TimedPatcher` raises.
        """
        if self.is_forbidden:
            return None
        pod = grant.pod
        await self._client.wait_turn_to_patch(PODS, pod.namespace, pod.name)
        grant.begun = self._clock.elapsed()
        record = Record(uid=pod.uid, by=self._by, at=now(), engine=grant.engine, lasts=grant.lasts)
        grant.record = msgspec.json.encode(record).decode()
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {DISRUPTION_RECORD: grant.record},
        }
        try:
            async with asyncio.timeout(WRITE_LASTS.total_seconds()):
                await self._patch(pod, {"metadata": metadata}, has_turn=True)
        except TimeoutError as error:
            lasts = f"{WRITE_LASTS.total_seconds():g} s"
            raise UnknownOutcome(f"no answer within {lasts}", call="patch pods") from error
        except Denied as error:
            if not error.is_by_role:
                raise
            grant.record = ""
            self._report_forbidden(error)
            return None
        self._forbidden_at = None
        return record

    async def remove(self, grant: Grant) -> bool:
        """Remove a record that is still as it was written; return whether it is gone."""
        if not grant.record:
            return True
        steps: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": grant.pod.uid},
            {"op": "test", "path": _PATH, "value": grant.record},
            {"op": "remove", "path": _PATH},
        ]
        try:
            await self._patch(grant.pod, steps)
        except (Conflict, NotFound):
            return True  # the pod, or the record, is another by now
        except ApiError as error:
            log.debug("Record of a disruption was not removed", pod=grant.pod.name, err=error)
            return False
        return True

    async def wait_turn(self, pod: Pod) -> None:
        """Wait until a record may be removed at once. Raises Throttled."""
        await self._client.wait_turn_to_patch(PODS, pod.namespace, pod.name)

    async def clear(self, pod: Pod) -> None:
        """Remove whatever record a pod has, unless the pod has changed since it was seen.

        The caller has waited for its turn.
        """
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {DISRUPTION_RECORD: None},
        }
        await self._patch(pod, {"metadata": metadata}, has_turn=True)

    async def _patch(
        self, pod: Pod, patch: JsonObject | Sequence[JsonObject], *, has_turn: bool = False
    ) -> None:
        await self._client.patch(PODS, pod.namespace, pod.name, patch, has_turn=has_turn)

    def _report_forbidden(self, error: ApiError) -> None:
        if self._forbidden_at is None:
            log.warn(
                "Disruptions are not recorded on pods: a restart, or a second replica, would not"
                " know of them",
                err=error,
            )
        self._forbidden_at = self._clock.elapsed()


# After so long without another unused grant a pod is like any other.
REMEMBERED: Final = timedelta(hours=1)
# More pods than one node holds; beyond that the pod that was remembered first is forgotten.
MOST_PODS: Final = 1_000
# As long as an answer may take: waiters for this grant wait no longer.
RECORD_REMOVAL_LIMIT: Final = timedelta(seconds=4)


class _Unused(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    times: int
    at: timedelta
    """When the last grant was released, on the clock's `elapsed`."""


class UnusedGrants:
    """Pods that were granted and stayed: each time, the next eviction is allowed later.

    Another webhook or a PodDisruptionBudget may refuse an eviction that was allowed here. Its grant
    holds all other pods of the budget while it stands, so it is not repeated at once.
    """

    def __init__(self, pods: PodStore, clock: Clock) -> None:
        self._pods, self._clock = pods, clock
        self._by_uid: dict[Uid, _Unused] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def record(self, pod: Pod) -> None:
        times = self.count(pod.uid) + 1
        self._by_uid.pop(pod.uid, None)  # the newest comes last
        self._by_uid[pod.uid] = _Unused(pod=pod, times=times, at=self._clock.elapsed())
        for uid, entry in list(self._by_uid.items()):
            if len(self._by_uid) > MOST_PODS or not self._is_valid(entry):
                del self._by_uid[uid]

    def count(self, pod: Uid) -> int:
        entry = self._by_uid.get(pod)
        return entry.times if entry is not None and self._is_valid(entry) else 0

    def wait_before(self, pod: Uid) -> timedelta:
        """Return how long a pod is not to be granted again, zero where it may be."""
        entry = self._by_uid.get(pod)
        if entry is None:
            return timedelta(0)
        left = entry.at + REFUSED_EVICTIONS.bound(entry.times) - self._clock.elapsed()
        return max(left, timedelta(0))

    def _is_valid(self, entry: _Unused) -> bool:
        if self._clock.elapsed() - entry.at >= REMEMBERED:
            return False
        cached = self._pods.get(entry.pod.namespace, entry.pod.name)
        return cached is not None and cached.uid == entry.pod.uid


class InFlight:
    """All pods that are on their way out: grants of this process, records and own deletes."""

    def __init__(self, pods: PodStore, deletes: OwnDeletes, clock: Clock) -> None:
        self._pods, self._deletes, self._clock = pods, deletes, clock
        self._grants: dict[Uid, Grant] = {}
        self._callbacks: list[Callable[[Pod], None]] = []
        self.unused = UnusedGrants(pods, clock)

    def __len__(self) -> int:
        return len(self._grants)

    def on_change(self, callback: Callable[[Pod], None]) -> None:
        """Call back with the pod whenever a grant is settled or released."""
        self._callbacks.append(callback)

    def reserve(
        self, pod: Pod, engine: DisruptionSource, budget: str, lasts: timedelta = timedelta(0)
    ) -> Grant:
        """Count a pod as going from now on. It must not have a grant."""
        grant = Grant(
            pod=pod, engine=engine, budget=budget, begun=self._clock.elapsed(), lasts=lasts
        )
        self._grants[pod.uid] = grant
        return grant

    def confirm(self, grant: Grant, seen: Pod) -> None:
        """Record that the pod may go; `seen` is its newest version."""
        grant.pod, grant.state, grant.was_granted = seen, GrantState.GRANTED, True
        self._notify(grant)

    def doubt(self, grant: Grant) -> None:
        """Record that there was no answer, while a record may have been written."""
        grant.state = GrantState.DOUBTFUL
        self._notify(grant)

    def release_open(self, grant: Grant) -> None:
        """End a grant that is not settled; the controller finds out what was written, if any."""
        if not self.is_open(grant):
            return
        if grant.record:
            self.doubt(grant)
        else:
            self.release(grant)

    def is_open(self, grant: Grant) -> bool:
        """Return whether a grant is requested: neither given, in doubt, nor released."""
        return self._grants.get(grant.pod.uid) is grant and grant.state is GrantState.REQUESTED

    def release_untouched(self, grant: Grant) -> bool:
        """Release the grant of an untouched pod; return whether an eviction was allowed in vain."""
        self.release(grant)
        is_unused = grant.was_granted and grant.engine is DisruptionSource.EVICTION
        if is_unused:
            self.unused.record(grant.pod)
        return is_unused

    def release(self, grant: Grant) -> None:
        """Release a grant; one that is unknown by now is fine."""
        if self._grants.get(grant.pod.uid) is grant:
            del self._grants[grant.pod.uid]
            self._notify(grant)

    def get(self, uid: Uid) -> Grant | None:
        return self._grants.get(uid)

    def list_requested(self, budget: str) -> tuple[Uid, ...]:
        """Return the pods under a budget whose grants are not settled."""
        return tuple(
            uid
            for uid, grant in self._grants.items()
            if grant.state is GrantState.REQUESTED and grant.budget == budget
        )

    def map_going(
        self, owners: Collection[Uid], pods: Iterable[Pod], now: datetime
    ) -> Mapping[Uid, Deletion]:
        """Return the pods that go although they may look untouched.

        `pods` are those that a decision counts, `now` is the API server's time.
        """
        self.forget_seen()
        going = {pod.uid: Deletion.GRANTED for pod in pods if is_recorded(pod, now)}
        for uid, grant in self._grants.items():
            if grant.pod.owner_uid in owners:
                going[uid] = Deletion.GRANTED
        going.update(self._deletes.map_deletions(owners))
        return going

    def forget_seen(self) -> None:
        """Forget the grants of pods that the cache shows on their way out, or gone."""
        for grant in list(self._grants.values()):
            # A grant that is being requested is settled by the requester.
            if grant.state is not GrantState.REQUESTED and _has_left(self._pods, grant.pod):
                self.release(grant)

    def _notify(self, grant: Grant) -> None:
        for callback in self._callbacks:
            callback(grant.pod)


class GrantReleases:
    """Releases grants of pods that will not go, in the background while `run` runs.

    A client that hangs up, or an answer that comes too late, leaves a record that was not reported.
    It is removed in the background, so that others need not wait until the pod is proven untouched
    (LI-09). A record that cannot be removed soon stays in doubt: the controller of disruptions
    finds out whether the pod is untouched.
    """

    def __init__(self, in_flight: InFlight, recorder: Recorder) -> None:
        self._in_flight, self._recorder = in_flight, recorder
        self._abandoned: asyncio.Queue[Grant] | None = None

    async def release(self, grant: Grant) -> None:
        """Remove the record of a grant that nobody will act on, and release the grant."""
        if await self._recorder.remove(grant):
            self._in_flight.release(grant)
        else:
            self._in_flight.doubt(grant)

    def abandon(self, grant: Grant) -> None:
        """Release a grant in the background; a settled grant is fine."""
        if not self._in_flight.is_open(grant):
            return
        if self._abandoned is None or not grant.record:
            self._in_flight.release_open(grant)
        else:
            self._abandoned.put_nowait(grant)

    async def run(self) -> None:
        """Release abandoned grants until cancelled; the rest stays in doubt then."""
        queue: asyncio.Queue[Grant] = asyncio.Queue()
        self._abandoned = queue
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    grant = await queue.get()
                    work = self._release_soon(grant)
                    tasks.create_task(work, name=f"release of {grant.pod.name}")
        finally:
            self._abandoned = None
            while not queue.empty():
                self._in_flight.release_open(queue.get_nowait())

    async def _release_soon(self, grant: Grant) -> None:
        try:
            async with asyncio.timeout(RECORD_REMOVAL_LIMIT.total_seconds()):
                await self.release(grant)
        except TimeoutError:
            log.debug("Record of a disruption was not removed in time", pod=grant.pod.name)
        finally:
            self._in_flight.release_open(grant)
