"""Release grants of disruptions that did not happen, and write the status of budgets.

An eviction that we allowed may be refused by the API server, and a process may die between a record
and its effect. Any process that sees the record on an untouched pod removes it, so that the budget
is free again (LI-07). `planning.budgets` decides which pods may go.

The status of a budget is for `kubectl get` and `kubectl describe`; no decision reads it. So it is
the last of all that this process sends: changes are gathered for a while, a few are written each
second, and none where the role forbids it or the installed kind drops it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import BUDGET_STATUSES
from rollout_operator.controllers.worker import Result
from rollout_operator.guards.arbiter import BudgetAccount
from rollout_operator.guards.grants import GrantState, InFlight, Recorder, read_record
from rollout_operator.kube.api import (
    PODS,
    ZONE_BUDGETS,
    JsonObject,
    LiveReader,
    Patcher,
    Reader,
    list_items,
)
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import BudgetStatus
from rollout_operator.model.decode.custom import decode_budget_status
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DecodeError,
    Denied,
    InvalidInput,
    NotElected,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code
from rollout_operator.planning.describe_budgets import render_budget_status
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import DisruptionMetrics

# An answer leaves within 4 s of its record (`ANSWER_LIMIT`), and an API server with our manifests
# waits no longer than 5 s and acts at once. With the rest the budget is free again within ten
# seconds (LI-07).
UNTOUCHED_FOR: Final = timedelta(seconds=8)
# A webhook configuration allows no more time (30 s), whatever a record has.
LONGEST: Final = timedelta(seconds=34)
# A connection that died unnoticed costs no more than this.
LIVE_READ_LIMIT: Final = timedelta(seconds=3)
# If the pod has changed during the read, and after an error.
REQUEUE_AFTER: Final = timedelta(milliseconds=500)
RETRY: Final = timedelta(seconds=5)
# If the role forbids it: by then a readable record has expired.
RETRY_FORBIDDEN: Final = timedelta(minutes=5)
_DONE: Final = timedelta(0)

PodKey = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class DisruptionController:
    """Reconciles pods with a grant or a record, by namespace and name."""

    pods: PodStore
    in_flight: InFlight
    recorder: Recorder
    client: LiveReader
    clock: Clock
    metrics: DisruptionMetrics
    _seen: dict[PodKey, tuple[Uid, str, timedelta]] = field(default_factory=dict, init=False)
    """Since when which record is known, on the clock's `elapsed`."""

    async def reconcile(self, key: PodKey) -> Result:
        """Release the grant of a pod that did not go in time."""
        cached = self.pods.get(*key)
        if not isinstance(cached, Pod) or cached.is_terminating:
            self.in_flight.forget_seen()
            return self._forget(key)
        if self.in_flight.get(cached.uid) is None and not cached.disruption:
            return self._forget(key)
        left = self._time_left(cached)
        if left <= _DONE:
            try:
                left = await self._remove_record(cached)
            except TimeoutError:
                left = REQUEUE_AFTER
            except ApiError as error:
                log.debug("Grant not released yet", pod=cached.name, err=error)
                left = RETRY
        return Result(again=left) if left > _DONE else self._forget(key)

    async def _remove_record(self, cached: Pod) -> timedelta:
        """Return when to reconcile again, _DONE for never.

        Raises ApiError, and TimeoutError if the API server does not answer in time; our own rate
        limits may take longer.
        """
        await self.client.wait_turn(PODS, cached.namespace)
        try:
            async with asyncio.timeout(LIVE_READ_LIMIT.total_seconds()):
                body = await self.client.fetch(PODS, cached.namespace, cached.name, has_turn=True)
            pod = decode_pod(body)
        except NotFound:
            return _DONE
        except InvalidInput as error:
            log.warn("Pod cannot be read", pod=cached.name, err=error)
            return RETRY
        if pod.uid != cached.uid or pod.is_terminating:
            return _DONE  # the cache will show it
        left = self._time_left(pod)  # it may have been granted again, here or elsewhere
        if left > _DONE:
            return left
        again = _DONE
        if pod.disruption:
            await self.recorder.wait_turn(pod)
            try:
                async with asyncio.timeout(LIVE_READ_LIMIT.total_seconds()):
                    await self.recorder.clear(pod)
            except (Conflict, NotFound):
                return REQUEUE_AFTER
            except Denied as error:  # then it expires, see `RECORD_COUNTS`
                log.warn("Record of a disruption cannot be removed", pod=pod.name, err=error)
                again = RETRY_FORBIDDEN
        self._release(pod)
        return again

    def _release(self, pod: Pod) -> None:
        log.info(
            "Releasing a grant: the pod is untouched",
            pod=pod.name,
            reason=Code.GRANT_TAKEN_BACK,
            after=UNTOUCHED_FOR,
        )
        grant = self.in_flight.get(pod.uid)
        if grant is not None and self.in_flight.release_untouched(grant):
            self.metrics.unused.inc()

    def _time_left(self, pod: Pod) -> timedelta:
        """Return how long a grant of a pod may still be used, by this process or another."""
        grant = self.in_flight.get(pod.uid)
        if grant is None:
            return self._time_left_of_record(pod)
        if grant.state is GrantState.REQUESTED:
            return UNTOUCHED_FOR  # the requester settles it, which wakes this key
        own = grant.begun + _choose_span(grant.lasts) - self.clock.elapsed()
        if pod.disruption in ("", grant.record):
            return own
        return max(own, self._time_left_of_record(pod))  # another process granted it again

    def _time_left_of_record(self, pod: Pod) -> timedelta:
        """Return how long the grant in a record may still be used.

        It counts from when the record was first seen: the time in it may be wrong.
        """
        elapsed = self.clock.elapsed()
        key, what = (pod.namespace, pod.name), (pod.uid, pod.disruption)
        recorded = self._seen.get(key)
        if recorded is None or recorded[:2] != what:
            recorded = self._seen[key] = (*what, elapsed)
        try:
            record = read_record(pod)
        except InvalidInput as error:
            log.warn("Record of a disruption cannot be read", pod=pod.name, err=error)
            return recorded[2] + UNTOUCHED_FOR - elapsed
        if record is None:
            return _DONE  # it is of another pod
        return recorded[2] + _choose_span(record.lasts) - elapsed

    def _forget(self, key: PodKey) -> Result:
        self._seen.pop(key, None)
        return Result()


def _choose_span(lasts: timedelta) -> timedelta:
    """Return after what time an untouched pod proves that a grant was not used."""
    return min(max(lasts, UNTOUCHED_FOR), LONGEST)


# Changes of a budget within this time are one write.
SETTLE: Final = timedelta(seconds=2)
# Between two writes, of any budgets.
_WRITE_PAUSE: Final = timedelta(milliseconds=300)
# Between two reconciles, which may take some milliseconds each.
_RECONCILE_PAUSE: Final = timedelta(milliseconds=20)
# Time alone makes a pod available that has to be ready for a while.
STATUS_REQUEUE_AFTER: Final = timedelta(seconds=30)
# All budgets are read this often: a status that a person wrote lasts no longer.
READ_AGAIN: Final = timedelta(minutes=5)
# A person has to change the role, or the definition.
TRY_AGAIN: Final = timedelta(minutes=10)


class _StatusClient(Reader, Patcher, Protocol): ...


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a budget as the API server shows it."""

    uid: Uid
    status: BudgetStatus
    requested: BudgetStatus | None = None
    """The status that this process wrote, if another was stored: a kind that lacks a field drops
    it, and writing it again would change nothing."""

    @property
    def newest(self) -> BudgetStatus:
        return self.requested or self.status


@dataclass(slots=True, kw_only=True)
class BudgetStatuses:
    """Reconciles the status of budgets, by their names; one at a time."""

    client: _StatusClient
    namespace: str
    find_account: Callable[[str], BudgetAccount | None]
    now: Callable[[], datetime]
    """The API server's time."""
    clock: Clock
    _shown: dict[str, _Shown] = field(default_factory=dict, init=False)
    _failures: dict[str, int] = field(default_factory=dict, init=False)
    _read_at: timedelta | None = field(default=None, init=False)
    """On the clock's `elapsed`, as `_not_before`."""
    _not_before: timedelta = field(default=timedelta(0), init=False)
    _is_reported: bool = field(default=False, init=False)

    async def reconcile(self, name: str) -> Result:
        left = self._not_before - self.clock.elapsed()
        if left > timedelta(0):
            return Result(again=left)
        try:
            again = await self._write(name)
        except NotElected:
            return Result()
        except NotFound as error:
            again = await self._find_missing(name, error)
        except ApiError as error:
            again = self._record_failure(name, error)
        await self.clock.sleep(_RECONCILE_PAUSE)
        return Result(again=again)

    async def _write(self, name: str) -> timedelta | None:
        """Return when to reconcile again, None if there is no budget."""
        if self._read_at is None or self.clock.elapsed() - self._read_at >= READ_AGAIN:
            await self._read()
        account = self.find_account(name)
        if account is None:
            self._shown.pop(name, None)
            self._failures.pop(name, None)
            return None
        described = account.described
        if any(wait.code is Code.SNAPSHOT_STALE for wait in described.waits):
            return STATUS_REQUEUE_AFTER  # an unknown state is not written
        uid, generation = account.known.uid, account.known.generation
        shown = self._shown.get(name)
        if shown is None or shown.uid != uid:
            shown = _Shown(uid=uid, status=BudgetStatus())
        before = shown.newest
        status = render_budget_status(described, generation, before=before, now=self.now())
        if status != before:
            await self._patch(name, uid, status)
        self._failures.pop(name, None)
        return STATUS_REQUEUE_AFTER if described.unavailable or described.waits else READ_AGAIN

    async def _patch(self, name: str, uid: Uid, status: BudgetStatus) -> None:
        fields: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
        patch: JsonObject = {"metadata": {"uid": uid}, "status": fields}
        body = await self.client.patch(
            ZONE_BUDGETS, self.namespace, name, patch, subresource="status"
        )
        await self.clock.sleep(_WRITE_PAUSE)
        stored = decode_budget_status(body).status
        is_dropped = stored == BudgetStatus()
        self._shown[name] = _Shown(uid=uid, status=stored, requested=None if is_dropped else status)
        if is_dropped:
            self._give_up(
                "the kind as it is installed has no such status: it drops what is written"
            )
        else:
            self._is_reported = False

    async def _read(self) -> None:
        """Read the statuses of all budgets. Raises ApiError."""
        shown: dict[str, _Shown] = {}
        for item in await list_items(self.client, ZONE_BUDGETS, self.namespace):
            try:
                status = decode_budget_status(item)
            except DecodeError as error:
                log.debug("Status of a budget cannot be read", err=error)
            else:
                before = self._shown.get(status.name)
                now = _Shown(uid=status.uid, status=status.status)
                is_same = before and (before.uid, before.status) == (now.uid, now.status)
                shown[status.name] = before if before and is_same else now
        self._shown = shown
        self._read_at = self.clock.elapsed()

    async def _find_missing(self, name: str, error: NotFound) -> timedelta | None:
        """Find out whether the budget is gone, or its kind has no status."""
        try:
            await self._read()
        except ApiError as other:
            return self._record_failure(name, other)
        account, shown = self.find_account(name), self._shown.get(name)
        if account is None or shown is None or shown.uid != account.known.uid:
            return SETTLE  # or will be once the cache shows it
        self._give_up(error)
        return TRY_AGAIN

    def _record_failure(self, name: str, error: ApiError) -> timedelta:
        self._read_at = None  # it may have been written
        if isinstance(error, Denied):
            self._give_up(error)
            return TRY_AGAIN
        log.debug("Status of a budget not written", zpdb=name, err=error)
        if isinstance(error, Conflict):
            return SETTLE
        self._failures[name] = self._failures.get(name, 0) + 1
        return BUDGET_STATUSES.bound(self._failures[name])

    def _give_up(self, why: ApiError | str) -> None:
        """Write nothing for a while, and log that once."""
        self._not_before = self.clock.elapsed() + TRY_AGAIN
        if not self._is_reported:
            log.info("Status of budgets is not written: nothing else depends on it", err=why)
        self._is_reported = True
