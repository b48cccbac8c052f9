"""From events to reconciles: changes wake keys, and workers take a key and reconcile it.

One worker per key at a time (the queue sees to it), many keys at once. Errors of the API are the
reconciler's own business; what arrives here as an exception is a bug, and it must not take other
groups down: it is logged with its traceback and the key backs off.

How soon what has failed is tried again: calls, and reconciles of objects by name.

A reconcile of a group costs nothing; a call that fails again and again costs the API server. So the
same attempt is repeated ever more rarely: doubling up to the longest interval, with jitter,
and after five minutes of failing only twice a minute. Another attempt, in another zone or for
another revision, goes at once; pods that flap meanwhile do not make it another attempt.

The newest known state of objects that this process writes: as written, until caches show it.

A write that got no answer, or was refused because the object has changed since, leaves a doubt:
nothing is decided by that object until it was read back.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Generic, Self, TypeAlias, TypeVar

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import BUGS, Backoff, QueueClosed, WorkQueue, attempts
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
    UnknownOutcome,
)
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, WatchedObject
from rollout_operator.model.outcome import Action, ReplacePods
from rollout_operator.model.policy import WatchedPolicy
from rollout_operator.telemetry.logs import log

K = TypeVar("K", bound=Hashable)
# Every group is reconciled this often when nothing happens, for what events do not show: under the
# five minutes after which dashboards call a group unattended.
RESYNC: Final = timedelta(minutes=4)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How one reconcile of a key ended. `again`: when to reconcile again at the latest."""

    again: timedelta | None = None


class GuardedStep:
    """A step whose failure, also by a bug, does not keep the next step back: `error` has it."""

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


class Workers(Generic[K]):
    """A bounded number of concurrent reconciles over one queue."""

    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        count: int,
        backoff: Backoff = BUGS,
        rng: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._count = count
        self._backoff = backoff
        self._rng = rng
        self._bugs: dict[K, int] = {}  # in a row, per key
        self.busy = 0
        self._has_next = False
        """Whether a worker waits for the next key."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Work until the queue is closed; every key that was taken is finished."""
        async with asyncio.TaskGroup() as tasks:
            self._add_worker(tasks)

    def close(self) -> None:
        """Take no key any more."""
        self._queue.close()

    async def wait_idle(self) -> None:
        """Wait until no key is being reconciled."""
        await self._idle.wait()

    def _add_worker(self, tasks: asyncio.TaskGroup) -> None:
        self._has_next = True
        tasks.create_task(self._work(tasks), name="worker")

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Reconcile keys until another worker is there for the next key.

        There always is one where one more may be busy. As many as may be busy at a time would cost
        a third of a megabyte for each namespace, and hardly any of them ever has something to do.
        """
        while True:
            try:
                key = await self._queue.take()
            except QueueClosed:
                return
            self.busy += 1
            self._idle.clear()
            self._has_next = False
            if self.busy < self._count:
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
            self._queue.done(key)

    async def _reconcile_key(self, key: K) -> None:
        try:
            result = await self._reconcile(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not by this process: it leaked out of a library, and would end the worker silently.
            self._back_off(key, error)
        except Exception as error:  # one broken group never delays another
            self._back_off(key, error)
        else:
            self._bugs.pop(key, None)
            if result.again is not None:
                self._queue.add_after(key, result.again)

    def _back_off(self, key: K, error: BaseException) -> None:
        self._bugs[key] = self._bugs.get(key, 0) + 1
        delay = self._backoff.delay(self._bugs[key], self._rng())
        stack = "".join(traceback.format_exception(error))
        log.error("Reconcile failed by a bug", key=key, again_in=delay, err=error, stack=stack)
        self._queue.add_after(key, delay)


class Waker:
    """Turns changes of objects into keys.

    Informers report only changes that decide; each wakes the group that it concerns, and no other:
    a pod the group of the StatefulSet that controls it, a StatefulSet its group and the
    group that it left.
    """

    def __init__(self, sets: StatefulSetStore, add: Callable[[GroupName], None]) -> None:
        self._sets = sets
        self._add = add

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Wake the groups of a StatefulSet that came, changed or went."""
        for group in dict.fromkeys(version.group for version in (old, new) if version is not None):
            if group is not None:
                self._add(group)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Wake the group of a pod that came, changed or went, as far as its owner is known."""
        for owner in dict.fromkeys(
            version.owner_uid for version in (old, new) if version is not None
        ):
            sts = None if owner is None else self._sets.get_by_uid(owner)
            if sts is not None and sts.group is not None:
                self._add(sts.group)


_PERMANENT_AFTER: Final = timedelta(minutes=5)
_PERMANENT_WAIT: Final = timedelta(seconds=30)
# Not tried for this long after it was due: the next failure is a first.
_FORGET_AFTER: Final = timedelta(minutes=2)

Attempt = tuple[str, ...]
"""Names what is attempted: equal when it is the same thing again."""

# While the caches fill, or are too old to decide by.
RECHECK: Final = timedelta(seconds=1)


def name_attempt(action: Action) -> Attempt:
    """Return the name of carrying out an action: its kind, zone and revision."""
    if isinstance(action, ReplacePods):
        return ("replace", action.zone.uid, action.zone.update_revision)
    return ("record", action.zone.uid, action.revision)


def get_retry_after(error: Exception) -> timedelta:
    """Return how long the API server wants us to wait after an error, zero where it does not."""
    wanted = error.retry_after if isinstance(error, TooManyRequests) else None
    return wanted or timedelta(0)


class _Failing(msgspec.Struct):
    since: timedelta
    not_before: timedelta
    error: str
    count: int = 0


class Attempts:
    """Memory of failed attempts."""

    def __init__(
        self, clock: Clock, *, longest: timedelta, rng: Callable[[], float] = lambda: 1.0
    ) -> None:
        """Remember by this clock; `rng`, in 0..1, spreads repeats of what failed together."""
        self._clock = clock
        self._rng = rng
        self._backoff = attempts(longest)
        self._failing: dict[Attempt, _Failing] = {}

    def wait_before(self, attempt: Attempt) -> tuple[timedelta, str]:
        """Return how long an attempt must still wait, zero for go, and the error it waits for."""
        failing = self._failing.get(attempt)
        if failing is None:
            return timedelta(0), ""
        left = failing.not_before - self._clock.elapsed()
        return max(left, timedelta(0)), failing.error

    def count(self, attempt: Attempt) -> int:
        """Return how often an attempt has failed in a row."""
        failing = self._failing.get(attempt)
        return 0 if failing is None else failing.count

    def failing_for(self, attempt: Attempt) -> timedelta:
        """Return for how long an attempt has been failing, zero where it is not."""
        failing = self._failing.get(attempt)
        return timedelta(0) if failing is None else self._clock.elapsed() - failing.since

    def record_failure(
        self, attempt: Attempt, error: str, *, at_least: timedelta = timedelta(0)
    ) -> timedelta:
        """Remember a failed attempt; return the wait before the next."""
        now = self._clock.elapsed()
        for old, failing in list(self._failing.items()):
            if now - failing.not_before > _FORGET_AFTER:
                del self._failing[old]
        failing = self._failing.setdefault(attempt, _Failing(now, now, error))
        failing.count += 1
        wait = max(self._choose_wait(failing, now), at_least)
        failing.not_before = now + wait
        failing.error = error
        return wait

    def record_success(self, attempt: Attempt) -> None:
        """Forget the failures of an attempt."""
        self._failing.pop(attempt, None)

    def _choose_wait(self, failing: _Failing, now: timedelta) -> timedelta:
        if now - failing.since >= _PERMANENT_AFTER:
            return _PERMANENT_WAIT
        return self._backoff.bound(failing.count) * (1 + self._rng()) / 2


class Reconciles(msgspec.Struct, frozen=True, kw_only=True):
    """How objects of one kind are reconciled, each put off while it keeps failing.

    What an error of the API means for the next reconcile is decided here once for all kinds: a
    missing object is read again soon, a conflict is no news, anything else is a warning.
    """

    kind: str
    attempts: Attempts
    once: Callable[[str], Awaitable[timedelta | None]]
    """Reconciles an object by name, and returns when to do so again. May raise ApiError,
    DecodeError."""
    name_keys: Callable[[str], Mapping[str, object]]
    """Returns the log keys of an object."""
    on_failure: Callable[[str, Exception], None] = lambda name, error: None
    """Called with errors that are worth a warning."""
    recheck: timedelta = RECHECK
    """Returns after how long the cache shows that an object is gone."""

    async def reconcile(self, name: str) -> Result:
        """Reconcile an object unless that failed lately; return when to reconcile again."""
        attempt = (self.kind, name)
        wait, _ = self.attempts.wait_before(attempt)
        if wait:
            return Result(again=wait)
        try:
            again = await self.once(name)
        except NotFound:
            again = self.recheck
        except (ApiError, DecodeError) as error:
            wait = get_retry_after(error)
            again = self.attempts.record_failure(attempt, str(error), at_least=wait)
            self._log(name, error, again)
        else:
            self.attempts.record_success(attempt)
        return Result(again=again)

    def get_error(self, name: str) -> str:
        """Return why an object could not be reconciled last; empty where it could."""
        _, error = self.attempts.wait_before((self.kind, name))
        return error

    def _log(self, name: str, error: Exception, again: timedelta) -> None:
        keys = self.name_keys(name)
        if isinstance(error, Conflict):
            log.debug(f"{self.kind} has changed meanwhile", **keys, err=error)
        else:
            log.warn(f"{self.kind} not reconciled", **keys, again_in=again, err=error)
            self.on_failure(name, error)


Written = TypeVar("Written", WatchedObject, WatchedPolicy)
GetCached: TypeAlias = Callable[[str, str], Written | Unreadable | None]


class NewestObjects(Generic[Written]):
    """Objects of one kind in one namespace."""

    def __init__(
        self,
        get_cached: GetCached[Written],
        namespace: str,
        reader: Reader,
        decode: Callable[[JsonBytes], Written],
    ) -> None:
        """`get_cached` returns the cached object, by namespace and name."""
        self._get_cached: GetCached[Written] = get_cached
        self._namespace = namespace
        self._reader = reader
        self._decode: Callable[[JsonBytes], Written] = decode
        self._written: dict[str, Written] = {}
        self._doubtful: set[str] = set()

    def get(self, name: str) -> Written | Unreadable | None:
        """Return the newest state of an object; None where the cache shows none."""
        cached = self._get_cached(self._namespace, name)
        return None if cached is None else self.choose(cached)

    def choose(self, cached: Written | Unreadable) -> Written | Unreadable:
        """Return the object as written where the cache shows an older state, else as cached."""
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
        """Take an object as the API server answered it. Raises DecodeError."""
        written = self._decode(body)
        self._written[written.name] = written
        self._doubtful.discard(written.name)
        return written

    async def settle(self, resource: Resource, name: str) -> Written | Unreadable | None:
        """Return the newest state of an object to decide by; None where it is gone.

        An object in doubt is read back first. Raises as `read_back`.
        """
        if self.get(name) is not None and name in self._doubtful:
            await self.read_back(resource, name)
        return self.get(name)

    async def read_back(self, resource: Resource, name: str) -> None:
        """Read an object as the store has it. Raises as `Reader.fetch`, and DecodeError."""
        try:
            self.record(await self._reader.fetch(resource, self._namespace, name))
        except NotFound:
            self.forget(name)
            raise

    def forget(self, name: str) -> None:
        """Forget an object that is gone."""
        self._written.pop(name, None)
        self._doubtful.discard(name)


class StatusWriter(Generic[Written]):
    """Writes the statuses of one kind: one a pass, whole, over the state of the decision.

    A write is refused where the object has changed since, so two processes never record over each
    other.
    """

    def __init__(self, client: Patcher, resource: Resource, newest: NewestObjects[Written]) -> None:
        self._client = client
        self._resource = resource
        self._newest: NewestObjects[Written] = newest

    async def write(
        self, watched: Written, status: msgspec.Struct, *, has_turn: bool = False
    ) -> Written:
        """Write a status over the known state, and return the object that results.

        With `has_turn` it waits for no turn: see `TimedPatcher`. Raises Conflict where the object
        has changed since, and as `Patcher.patch`, and DecodeError.
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
    """Return a status as a merge patch: fields that are absent are null, and go."""
    patch: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
    for field in msgspec.structs.fields(status):
        part = getattr(status, field.name)
        if isinstance(part, msgspec.Struct):
            patch[field.encode_name] = _render_patch(part)
        else:
            patch.setdefault(field.encode_name, None)
    return patch
