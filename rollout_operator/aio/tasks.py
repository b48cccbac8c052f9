"""Long-lived tasks with a parent: started in order, watched together, stopped in reverse."""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, cast

A = TypeVar("A")
B = TypeVar("B")

# A task that does not end this long after its cancellation is left to the end of the process.
STOP_LIMIT = timedelta(seconds=5)


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
    """Run two at the same time and return what both return, or raise the first error."""
    works: list[Coroutine[Any, Any, object]] = [first, second]
    of_first, of_second = await gather_all(works)
    return cast(A, of_first), cast(B, of_second)


class Children(asyncio.TaskGroup):
    """A TaskGroup that leaves its parent as it found it.

    Before Python 3.13 a child that fails while the parent waits for the others at the end leaves a
    request to cancel the parent behind. A timeout around it that expires later takes that request
    for one of another caller, and lets CancelledError out instead of TimeoutError.
    """

    async def __aenter__(self) -> Self:
        self._before = _count_cancels()
        return await super().__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        was_steady = _count_cancels() == self._before
        try:
            await super().__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            task = asyncio.current_task()
            if was_steady and task is not None and task.cancelling() > self._before:
                task.uncancel()
            raise


def _count_cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def check_cancelled() -> None:
    """Raise CancelledError where this task has been cancelled.

    Before Python 3.13 a TaskGroup whose body fails loses a cancellation that comes while it ends.
    """
    if _count_cancels():
        raise asyncio.CancelledError


async def run_all(works: Iterable[Coroutine[Any, Any, None]], *, name: str) -> None:
    """Run all at the same time; the first error cancels the others. Raises all errors as a group.

    The tasks are named `name-0`, `name-1` and so on.
    """
    async with Children() as children:
        for number, work in enumerate(works):
            children.create_task(work, name=f"{name}-{number}")


async def gather_all(works: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    """Run all at the same time and return what each returns, in order, or raise the first error."""
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
        """Run `work` under `name` until `stop`."""
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._record_end)

    def list_dead(self) -> tuple[str, ...]:
        """Return the names of tasks that ended by themselves."""
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
