"""Tasks with a parent, started in order and stopped in reverse; and work that callers share."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Self, TypeVar, cast

from rollout_operator.aio.clock import Clock

A = TypeVar("A")
B = TypeVar("B")

# A task that does not end this long after its cancellation is left to the end of the process.
STOP_LIMIT = timedelta(seconds=5)


# What was dear to make is given out for nine times as long: making it takes a tenth of the loop.
_KEEP_FACTOR: Final = 9
_KEEP_LIMIT: Final = timedelta(seconds=1)
# Reading alone takes a two-hundredth: 99 of 100 other requests wait neither for the making nor for
# the sending.
_READ_FACTOR: Final = 199
# What takes seconds of a busy loop is not to be older than this.
_KEEP_LONGEST: Final = timedelta(seconds=10)


class TaskDied(Exception):
    """A task that should run for ever has ended; the cause is chained."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has ended")
        self.name = name


async def race(**works: Coroutine[Any, Any, object]) -> str:
    """Run all until the first ends; return its name, or raise its error. The others are cancelled.

    Of several that end at once the first named counts.
    """
    tasks = {name: asyncio.create_task(work, name=name) for name, work in works.items()}
    try:
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [name for name, task in tasks.items() if task.done()]
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    tasks[ended[0]].result()
    return ended[0]


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    works: list[Coroutine[Any, Any, object]] = [first, second]
    of_first, of_second = await gather_all(works)
    return cast(A, of_first), cast(B, of_second)


class Children(asyncio.TaskGroup):
    """A TaskGroup that leaves its parent as it found it, as all do from Python 3.13 on.

    Before, a child that fails while the parent waits for the others at the end leaves a request to
    cancel the parent behind. A timeout around it that expires later takes that request for one of
    another caller, and lets CancelledError out instead of TimeoutError. And where a child fails, a
    request of another caller that came meanwhile is lost, though the parent goes on.
    """

    _parent_cancel_requested: bool  # of the library: by a child that has failed

    async def __aenter__(self) -> Self:
        self._before = _count_cancels()
        return await super().__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        was_requested = self._parent_cancel_requested
        try:
            await super().__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            task = asyncio.current_task()
            if task is not None and sys.version_info < (3, 13):
                if self._parent_cancel_requested and not was_requested:
                    task.uncancel()
                if task.cancelling() > self._before:  # by another, still: at its next await
                    task.uncancel()
                    task.cancel()
            raise


def _count_cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def run_all(works: Iterable[Coroutine[Any, Any, None]], *, name: str) -> None:
    """Run all at the same time; the first error cancels the others. Raises all errors as a group.

    The tasks are named `name-0`, `name-1` and so on.
    """
    async with Children() as children:
        for number, work in enumerate(works):
            children.create_task(work, name=f"{name}-{number}")


async def gather_all(works: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    try:
        async with Children() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class TaskStack:
    """Parent of long-lived tasks. Leaving the context stops them one by one, last first."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._dead: asyncio.Future[asyncio.Task[None]] | None = None

    async def __aenter__(self) -> Self:
        self._dead = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._record_end)

    def list_dead(self) -> tuple[str, ...]:
        return tuple(task.get_name() for task in self._tasks if task.done())

    async def watch(self) -> NoReturn:
        """Wait until a task ends by itself, then raise TaskDied from its error."""
        assert self._dead is not None, "enter the context first"
        task = await asyncio.shield(self._dead)
        error = None if task.cancelled() else task.exception()
        raise TaskDied(task.get_name()) from error

    async def stop(self) -> None:
        """Cancel the tasks, last started first, and wait for each for a bounded time."""
        while self._tasks:
            task = self._tasks.pop()
            task.remove_done_callback(self._record_end)
            task.cancel()
            await asyncio.wait([task], timeout=STOP_LIMIT.total_seconds())
            if task.done() and not task.cancelled():
                task.exception()  # seen: it died before we stopped it, and `watch` reported it

    def _record_end(self, task: asyncio.Task[None]) -> None:
        if self._dead is not None and not self._dead.done():
            self._dead.set_result(task)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def keep_if_dear(took: timedelta) -> timedelta:
    """Return how long to share a value: the longer, the more time it took to make."""
    return min(took * _KEEP_FACTOR, _KEEP_LIMIT)


def keep_a_second(took: timedelta) -> timedelta:
    return min(max(took * _READ_FACTOR, _KEEP_LIMIT), _KEEP_LONGEST)


async def join_pieces(list_pieces: Callable[[], Iterable[bytes]]) -> bytes:
    """Return all pieces joined, with a turn for others after each.

    On the loop, and not in a thread: what pieces are made of changes there, and a thread that makes
    text of it would hold up the loop just as long, by Python's lock.
    """
    joined = []
    for piece in list_pieces():
        joined.append(piece)
        await asyncio.sleep(0)
    return b"".join(joined)


class Shared(Generic[V]):
    """Gives out the value that `make` returns. Must be used from one event loop."""

    def __init__(
        self,
        make: Callable[[], Awaitable[V]],
        clock: Clock,
        keep: Callable[[timedelta], timedelta] = keep_a_second,
    ) -> None:
        """`keep` decides, by how long the making took, for how long its value is given out."""
        self._make = make
        self._clock = clock
        self._keep = keep
        self._kept: tuple[V, timedelta] | None = None
        self._underway: asyncio.Future[V] | None = None

    async def get(self) -> V:
        """Return a value whose making began at most its own duration and its keeping ago.

        Raises what `make` raises to the caller that makes it; the next waiter tries.
        """
        while self._underway is not None:
            underway = self._underway
            await asyncio.wait([underway])
            if not underway.cancelled():
                return underway.result()
        if self._kept is not None and self._clock.elapsed() < self._kept[1]:
            return self._kept[0]
        return await self._renew()

    async def _renew(self) -> V:
        self._underway = underway = asyncio.get_running_loop().create_future()
        begin = self._clock.elapsed()
        try:
            value = await self._make()
            underway.set_result(value)
        finally:
            self._underway = None
            underway.cancel()  # where it was not made: then the next waiter makes it
        end = self._clock.elapsed()
        self._kept = (value, end + self._keep(end - begin))
        return value


class SingleFlight(Generic[K, V]):
    """The calls in flight, one at a time for each key. Must be used from one event loop.

    An answer to a call that had begun before its caller came is taken only where the caller's own
    test accepts it. Otherwise the next call serves, again one for all. Hence a caller waits for two
    calls at most, however many callers there are, and for more only where the callers that make
    them give up.

    Errors that callers are to share are a part of `V`; an error that a call raises ends that caller
    only, as its cancellation does, and the next caller calls anew.
    """

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Future[V]] = {}

    async def share(
        self, key: K, call: Callable[[], Awaitable[V]], is_new_enough: Callable[[V], bool]
    ) -> V:
        """Return the answer of a call, made now or by another caller."""
        flight = self._flights.get(key)
        if flight is not None:
            await asyncio.wait([flight])
            if not flight.cancelled() and is_new_enough(flight.result()):
                return flight.result()
        # Whatever is in flight from here on began after this caller had come.
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait([flight])
            if not flight.cancelled():
                return flight.result()
        return await self._lead(key, call)

    async def _lead(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        flight = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            answer = await call()
            flight.set_result(answer)
            return answer
        finally:
            del self._flights[key]
            flight.cancel()  # without an answer only: waiters call anew
