"""From events to reconciles: changes wake keys, and workers take a key and reconcile it.

One worker per key at a time (the queue sees to it), many keys at once. Errors of the API are the
reconciler's own business; what arrives here as an exception is a bug, and it must not take other
groups down: it is logged with its traceback and the key backs off.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import msgspec

from rollout_operator.aio.backoff import BUGS, Backoff
from rollout_operator.aio.queue import QueueClosed, WorkQueue
from rollout_operator.kube.cache.store import StatefulSetStore
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
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
