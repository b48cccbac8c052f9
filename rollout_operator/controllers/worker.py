"""From events to reconciles: changes wake keys, and workers take a key and reconcile it.

A key has one worker at a time (the queue sees to it), and many keys are reconciled at once.
Reconcilers handle errors of the API themselves; an exception that arrives here is a bug, and must
not stop other groups: it is logged with its traceback, and the key backs off.

A call that keeps failing burdens the API server, so the delay before the same attempt doubles up to
the longest interval, with jitter; after five minutes of failing it is half a minute. Another
attempt, in another zone or for another revision, is made at once.

After a write that got no answer, or was refused because the object has changed, the object is in
doubt: it is read back before a decision uses it.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Generic, Self, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import AT_ONCE, BUGS, Backoff, QueueClosed, WorkQueue, attempts
from rollout_operator.kube.api import JsonObject, Patcher, Reader, Resource
from rollout_operator.kube.store import StatefulSetStore, is_older
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DecodeError,
    GroupName,
    NotFound,
    TooManyRequests,
    Uid,
    UnknownOutcome,
)
from rollout_operator.model.objects import (
    AnyPod,
    AnySet,
    Pod,
    StatefulSet,
    Unreadable,
    WatchedObject,
)
from rollout_operator.model.outcome import Action, ReplacePods
from rollout_operator.model.policy import WatchedPolicy
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.spans import trace_keys

K = TypeVar("K", bound=Hashable)
# Every group is reconciled this often when nothing happens, for changes without an event: within
# the five minutes after which dashboards call a group unattended.
RESYNC: Final = timedelta(minutes=4)
# How soon to look again while the caches fill, or are too old to decide by.
RECHECK: Final = timedelta(seconds=1)
# Budgets may count pods of other groups, whose events do not wake the group that they hold.
HELD_RECHECK: Final = timedelta(seconds=10)
_PERMANENT_AFTER: Final = timedelta(minutes=5)
_PERMANENT_WAIT: Final = timedelta(seconds=30)
# A failure this long after the attempt was due counts as the first.
_FORGET_AFTER: Final = timedelta(minutes=2)

Attempt = tuple[str, ...]
"""The name of an attempt; a repeat has the same name."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a reconcile; `again` is when to reconcile again at the latest."""

    again: timedelta | None = None


class GuardedStep:
    """A step whose `error`, even one caused by a bug, does not keep the next step from running."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


class Controller(WorkQueue[K]):
    """A queue of keys, and the workers that reconcile them."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        workers: int,
        rng: Callable[[], float],
        backoff: Backoff = BUGS,
        on_taken: Callable[[timedelta], None] = lambda waited: None,
    ) -> None:
        """`name` is that of its task, and of a span around each key."""
        super().__init__(on_taken=on_taken)
        self.name = name
        self._reconcile = trace_keys(name, reconcile)
        self._most_workers = workers
        self._backoff, self._rng = backoff, rng
        self._bugs: dict[K, int] = {}  # in a row, per key
        self.busy = 0
        self._has_next = False
        """Whether a worker waits for the next key."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Work until the queue is closed, and finish every key that was taken."""
        async with asyncio.TaskGroup() as tasks:
            self._add_worker(tasks)

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def _add_worker(self, tasks: asyncio.TaskGroup) -> None:
        self._has_next = True
        tasks.create_task(self._work(tasks), name="worker")

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Reconcile keys until another worker waits for the next key.

        One always waits unless the limit is reached. Starting all of them would cost a third of a
        megabyte for each namespace, and most would never get a key.
        """
        while True:
            try:
                key = await self.take()
            except QueueClosed:
                return
            self.busy += 1
            self._idle.clear()
            self._has_next = False
            if self.busy < self._most_workers:
                self._add_worker(tasks)
            await self._finish(key)
            if self._has_next:
                return
            self._has_next = True

    async def _finish(self, key: K) -> None:
        try:
            await self._reconcile_key(key)
        finally:
            self.busy -= 1
            if self.busy == 0:
                self._idle.set()
            self.done(key)

    async def _reconcile_key(self, key: K) -> None:
        try:
            result = await self._reconcile(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled this task: a library leaked it, which would end the worker silently.
            self._back_off(key, error)
        except Exception as error:  # one broken group never delays another
            self._back_off(key, error)
        else:
            self._bugs.pop(key, None)
            if result.again is not None:
                self.add_after(key, result.again)

    def _back_off(self, key: K, error: BaseException) -> None:
        self._bugs[key] = self._bugs.get(key, 0) + 1
        delay = self._backoff.delay(self._bugs[key], self._rng())
        stack = "".join(traceback.format_exception(error))
        log.error("Reconcile failed by a bug", key=key, again_in=delay, err=error, stack=stack)
        self.add_after(key, delay)


class Waker:
    """Wakes the groups that a change of an object concerns, and no others.

    A pod wakes the group of the StatefulSet that controls it; a StatefulSet its group, and the
    group that it left. What frees no place for another pod may be told later: a pod that ends and
    its successor make ten events, most of them within moments.
    """

    def __init__(
        self,
        sets: StatefulSetStore,
        add: Callable[[GroupName, timedelta], None],
        add_later: Callable[[GroupName], None] | None = None,
    ) -> None:
        """`add` is called with a group to wake after so long, `add_later` with what may wait."""
        self._sets, self.add = sets, add
        self._add_now: Callable[[GroupName], None] = lambda group: add(group, AT_ONCE)
        self._add_later = add_later or self._add_now

    def on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        wake = self._add_later if _only_counts_less(old, new) else self._add_now
        for group in dict.fromkeys(version.group for version in (old, new) if version is not None):
            if group is not None:
                wake(group)

    def on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        is_up = isinstance(new, Pod) and new.is_ready
        owners = (version.owner_uid for version in (old, new) if version is not None)
        for owner in dict.fromkeys(owners):
            self._wake_owner(owner, self._add_now if is_up else self._add_later)

    def wake_owner(self, set_uid: Uid | None) -> None:
        """Wake the group of a StatefulSet."""
        self._wake_owner(set_uid, self._add_now)

    def _wake_owner(self, set_uid: Uid | None, wake: Callable[[GroupName], None]) -> None:
        sts = None if set_uid is None else self._sets.get_by_uid(set_uid)
        if sts is not None and sts.group is not None:
            wake(sts.group)

    def wake_all(self, after: timedelta = AT_ONCE) -> None:
        for group in self._sets.list_groups():
            self.add(group, after)


def _only_counts_less(old: AnySet | None, new: AnySet | None) -> bool:
    """Return whether only the counts of pods changed, and no more pods are up than before."""
    if not isinstance(old, StatefulSet) or not isinstance(new, StatefulSet):
        return False
    counted = replace(
        new,
        resource_version=old.resource_version,
        status_replicas=old.status_replicas,
        ready_replicas=max(new.ready_replicas, old.ready_replicas),
        available_replicas=max(new.available_replicas, old.available_replicas),
        updated_replicas=old.updated_replicas,
    )
    return counted == old


def name_attempt(action: Action) -> Attempt:
    if isinstance(action, ReplacePods):
        return ("replace", action.zone.uid, action.zone.update_revision)
    return ("record", action.zone.uid, action.revision)


def get_retry_after(error: Exception) -> timedelta:
    wanted = error.retry_after if isinstance(error, TooManyRequests) else None
    return wanted or timedelta(0)


class _Failing(msgspec.Struct):
    since: timedelta
    not_before: timedelta
    error: str
    count: int = 0


class Attempts:
    """Failed attempts, and when each may be repeated."""

    def __init__(
        self, clock: Clock, *, longest: timedelta, rng: Callable[[], float] = lambda: 1.0
    ) -> None:
        """`rng`, in 0..1, spreads repeats of attempts that failed together."""
        self._clock, self._rng = clock, rng
        self._backoff = attempts(longest)
        self._failing: dict[Attempt, _Failing] = {}

    def wait_before(self, attempt: Attempt) -> tuple[timedelta, str]:
        """Return how long an attempt must wait, and the error for which it waits."""
        failing = self._failing.get(attempt)
        if failing is None:
            return timedelta(0), ""
        left = failing.not_before - self._clock.elapsed()
        return max(left, timedelta(0)), failing.error

    def count(self, attempt: Attempt) -> int:
        failing = self._failing.get(attempt)
        return 0 if failing is None else failing.count

    def failing_for(self, attempt: Attempt) -> timedelta:
        failing = self._failing.get(attempt)
        return timedelta(0) if failing is None else self._clock.elapsed() - failing.since

    def record_failure(
        self, attempt: Attempt, error: str, *, at_least: timedelta = timedelta(0)
    ) -> timedelta:
        now = self._clock.elapsed()
        for old, failing in list(self._failing.items()):
            if now - failing.not_before > _FORGET_AFTER:
                del self._failing[old]
        failing = self._failing.setdefault(attempt, _Failing(now, now, error))
        failing.count += 1
        wait = self._backoff.bound(failing.count) * (1 + self._rng()) / 2
        if now - failing.since >= _PERMANENT_AFTER:
            wait = _PERMANENT_WAIT
        wait = max(wait, at_least)
        failing.not_before = now + wait
        failing.error = error
        return wait

    def record_success(self, attempt: Attempt) -> None:
        self._failing.pop(attempt, None)


class Reconciles(msgspec.Struct, frozen=True, kw_only=True):
    """How objects of one kind are reconciled: each is put off while it keeps failing.

    A missing object is looked for again soon, then ever later. A conflict is only logged for
    debugging, and any other error is a warning.
    """

    kind: str
    attempts: Attempts
    once: Callable[[str], Awaitable[timedelta | None]]
    """Reconciles an object by name, and returns when to do so again. May raise ApiError and
    DecodeError."""
    name_keys: Callable[[str], Mapping[str, object]]
    on_failure: Callable[[str, Exception], None] = lambda name, error: None
    """Called with errors that are worth a warning."""
    recheck: timedelta = RECHECK
    """After this the cache shows that an object is gone."""

    async def reconcile(self, name: str) -> Result:
        """Reconcile an object unless that failed lately; return when to do so again."""
        attempt = (self.kind, name)
        wait, _ = self.attempts.wait_before(attempt)
        if wait:
            return Result(again=wait)
        try:
            again = await self.once(name)
        except NotFound as error:
            # Its watch may be behind for long.
            again = max(self.recheck, self.attempts.record_failure(attempt, str(error)))
        except (ApiError, DecodeError) as error:
            wait = get_retry_after(error)
            again = self.attempts.record_failure(attempt, str(error), at_least=wait)
            if isinstance(error, Conflict):
                log.debug(f"{self.kind} has changed meanwhile", **self.name_keys(name), err=error)
            else:
                keys = self.name_keys(name)
                log.warn(f"{self.kind} not reconciled", **keys, again_in=again, err=error)
                self.on_failure(name, error)
        else:
            self.attempts.record_success(attempt)
        return Result(again=again)

    def get_error(self, name: str) -> str:
        """Return why the last reconcile of an object failed; empty if it did not."""
        _, error = self.attempts.wait_before((self.kind, name))
        return error


Written = TypeVar("Written", WatchedObject, WatchedPolicy)
GetCached: TypeAlias = Callable[[str, str], Written | Unreadable | None]


class NewestObjects(Generic[Written]):
    """Objects of one kind in one namespace: as written, until the cache shows the write."""

    def __init__(
        self,
        get_cached: GetCached[Written],
        namespace: str,
        reader: Reader,
        decode: Callable[[JsonBytes], Written],
    ) -> None:
        self._get_cached: GetCached[Written] = get_cached
        self._namespace, self._reader = namespace, reader
        self._decode: Callable[[JsonBytes], Written] = decode
        self._written: dict[str, Written] = {}
        self._doubtful: set[str] = set()

    def get(self, name: str) -> Written | Unreadable | None:
        """Return the newest state of an object that is cached."""
        cached = self._get_cached(self._namespace, name)
        return None if cached is None else self.choose(cached)

    def choose(self, cached: Written | Unreadable) -> Written | Unreadable:
        """Return the object as written if the cache shows an older state, else as cached."""
        written = self._written.get(cached.name)
        if written is None:
            return cached
        if is_older(cached.resource_version, written.resource_version):
            return written
        del self._written[cached.name]
        return cached

    def doubt(self, name: str) -> None:
        """Have an object read back before anything is decided."""
        self._doubtful.add(name)

    def record(self, body: JsonBytes) -> Written:
        """Record the API server's answer to a read or a write. Raises DecodeError."""
        written = self._decode(body)
        self._written[written.name] = written
        self._doubtful.discard(written.name)
        return written

    async def settle(self, resource: Resource, name: str) -> Written | Unreadable | None:
        """Return the newest state of an object, read back if it is in doubt.

        Raises what `read_back` raises.
        """
        if self.get(name) is not None and name in self._doubtful:
            await self.read_back(resource, name)
        return self.get(name)

    async def read_back(self, resource: Resource, name: str) -> Written:
        """Read an object live. Raises DecodeError and what `Reader.fetch` raises."""
        try:
            return self.record(await self._reader.fetch(resource, self._namespace, name))
        except NotFound:
            self.forget(name)
            raise

    def forget(self, name: str) -> None:
        self._written.pop(name, None)
        self._doubtful.discard(name)


class StatusWriter(Generic[Written]):
    """Writes the statuses of one kind, each whole, over the state of the decision.

    A write is refused if the object has changed since, so that two processes never overwrite each
    other.
    """

    def __init__(self, client: Patcher, resource: Resource, newest: NewestObjects[Written]) -> None:
        self._client, self._resource = client, resource
        self._newest: NewestObjects[Written] = newest

    async def write(
        self, watched: Written, status: msgspec.Struct, *, has_turn: bool = False
    ) -> Written:
        """Write a status, and return the object that results.

        With `has_turn` it does not wait for its turn, see `TimedPatcher`. Raises Conflict if the
        object has changed since, DecodeError, and what `Patcher.patch` raises.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        patch: JsonObject = {"metadata": head, "status": _render_patch(status)}
        try:
            body = await self._client.patch(
                self._resource,
                watched.namespace,
                watched.name,
                patch,
                subresource="status",
                has_turn=has_turn,
            )
        except (UnknownOutcome, Conflict):
            self._newest.doubt(watched.name)
            raise
        return self._newest.record(body)


def _render_patch(status: msgspec.Struct) -> JsonObject:
    """Return a status as a merge patch: null removes absent fields."""
    patch: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
    for field in msgspec.structs.fields(status):
        part = getattr(status, field.name)
        if isinstance(part, msgspec.Struct):
            patch[field.encode_name] = _render_patch(part)
        else:
            patch.setdefault(field.encode_name, None)
    return patch
