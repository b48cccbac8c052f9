"""An event loop whose time is free, and whose order may be shuffled by a seed.

Decides what runs next: one of the callbacks that can run, and if there is none, that of the nearest
timer, whose time it then is. Nothing reaches the machine: what needs a socket, a thread or a
process is an error here. A callback that fails ends the run, where no exception handler is set: it
was a step of the world. What is simulated on it is left to the other modules.

Shuffled, any callback that is ready may come next, also a callback that became ready later. Two
orders are kept, because asyncio promises them. Timers run in the order of their times. And
callbacks of one future run in the order in which they were added: a task group adds its own to a
child before a task can wait for that child, and were the waiter woken first, one error would be
raised twice. Everything else in asyncio holds in any order, as the tests show.

Tasks are hashed by their number and not by their address: a task group and `asyncio.wait` keep
them in sets, and cancel them in the order of these.
"""

import asyncio
import heapq
import random
import selectors
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from datetime import timedelta
from itertools import count
from types import CodeType, FrameType
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A rollout of nine pods takes some ten thousand steps in all: so many without any time passing are
# two tasks that only call each other.
MOST_STEPS_AT_ONCE: Final = 200_000
_FEW_TIMERS: Final = 64
# Deeper than any chain of awaits here; a bound, because what is inspected may refer to itself.
_DEEPEST: Final = 100

_NOT_HERE: Final = (
    *("run_in_executor", "set_default_executor", "getaddrinfo", "getnameinfo"),
    *("create_connection", "create_server", "create_unix_connection", "create_unix_server"),
    *("create_datagram_endpoint", "connect_accepted_socket", "start_tls", "sendfile"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
    *("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall"),
    *("sock_sendto", "sock_connect", "sock_accept", "sock_sendfile"),
)


def _never() -> bool:
    return False


IS_GONE: Final[ContextVar[Callable[[], bool]]] = ContextVar("is_gone", default=_never)
"""Tells whether the process of the running code is gone: its tasks are left where they wait."""


class Deadlock(RuntimeError):
    """All tasks wait for ever: none can run, and no timer will change that."""


class Livelock(RuntimeError):
    """Some task can always run, so that no time passes."""


class NotSimulated(RuntimeError):
    """Something of the real world was requested: a socket, a thread, a process, a signal."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that owns its time, in seconds from 0 on.

    With `rng` callbacks that can run do so in an order of that seed, without in the order in which
    they became ready. `run_forever` raises Deadlock, Livelock, and what a callback has raised.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        super().__init__(_NoSelector())
        self._pick = rng.random if rng is not None else None
        self._now = 0.0
        self._pool: list[asyncio.Handle] = []
        self._line: deque[asyncio.Handle] = deque()
        # Of each future with callbacks that wait, those behind its first.
        self._chains: dict[asyncio.Future[Any], list[_Callback]] = {}
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_checked = _FEW_TIMERS
        self._numbers = count()
        self._thread = threading.get_ident()
        self._is_halted = False
        self._is_closed = False
        self._left = 0
        self._error: Exception | None = None
        self._marks: list[tuple[int, int, Callable[[], object]]] = []
        self._next_mark = MOST_STEPS_AT_ONCE
        self._jumped_at = 0
        self.elapsed = timedelta(0)
        """What `time` returns, as a span: read several times at each instant."""
        self.steps = 0
        """How many callbacks have run."""

    def time(self) -> float:
        return self._now

    def call_at_step(self, step: int, callback: Callable[[], object]) -> None:
        """Run `callback` just before the step of this number, counted from 1, or the next."""
        heapq.heappush(self._marks, (step, next(self._numbers), callback))
        self._set_next_mark()

    def run_forever(self) -> None:
        """Run until `stop`. Raises Deadlock, Livelock, and what a callback has raised."""
        self._thread = threading.get_ident()
        if self._is_halted:
            self._left = len(self._pool) + len(self._line)
        super().call_soon(self._run_all)
        super().run_forever()
        self._is_halted = False
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def stop(self) -> None:
        """End `run_forever` after as many steps as there are ready callbacks now."""
        super().stop()
        self._is_halted = True
        self._left = len(self._pool) + len(self._line)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run where something fails without an owner: no task, and no future."""
        error = context.get("exception")
        if not isinstance(error, Exception) or "future" in context or "task" in context:
            super().default_exception_handler(context)
            return
        self._error = self._error or error
        self._is_halted, self._left = True, 0

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report it, unless it is a task that is destroyed while it waits for a task that is gone.

        A process that was killed cleans up by calls that nothing answers any more.
        """
        task = context.get("task")
        if not (isinstance(task, asyncio.Task) and is_left(task)):
            super().call_exception_handler(context)

    def close(self) -> None:
        super().close()
        self._is_closed = True
        for waiting in (self._pool, self._line, self._chains, self._timers, self._marks):
            waiting.clear()

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if self._is_closed:
            raise _closed()
        if self._pick is None:
            handle = asyncio.Handle(callback, args, self, context)
            self._line.append(handle)
        elif args and isinstance(args[0], asyncio.Future):
            # This is how a future calls those who wait for it.
            handle = _Callback(callback, args, self, context)
            handle.future = args[0]
            chain = self._chains.get(args[0])
            if chain is None:
                self._chains[args[0]] = []
                self._pool.append(handle)
            else:
                chain.append(handle)
        else:
            handle = asyncio.Handle(callback, args, self, context)
            self._pool.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._is_closed:
            raise _closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if when <= self._now:
            self._put(timer)
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As `call_soon`: the interpreter itself calls this, from our own thread."""
        if threading.get_ident() != self._thread:
            raise NotSimulated("call_soon_threadsafe from another thread: order would be by chance")
        return self.call_soon(callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """As ever; a name that is not given does not depend on what ran before this loop."""
        if self._is_closed:
            raise _closed()
        number = next(self._numbers)
        if name is None:
            name = f"task-{number}"
        return _NumberedTask(coro, number, loop=self, name=name, context=context, **options)

    def _put(self, timer: asyncio.TimerHandle) -> None:
        (self._line if self._pick is None else self._pool).append(timer)

    def _run_all(self) -> None:
        """Run each task that can, and let time pass where none can, until `stop`."""
        try:
            while not (self._is_halted and self._left <= 0):
                handle = self._take()
                if handle is None:
                    if not self._pass_time():
                        return
                    continue
                self._left -= 1
                if handle.cancelled():
                    continue
                self.steps += 1
                if self.steps >= self._next_mark and not self._run_marks():
                    return
                handle._run()
        finally:
            super().stop()

    def _take(self) -> asyncio.Handle | None:
        """Return the callback that comes next, None where none can run."""
        pool = self._pool
        if self._pick is None:
            return self._line.popleft() if self._line else None
        if not pool:
            return None
        handle = pool.pop()
        if pool:
            index = int(self._pick() * (len(pool) + 1))
            if index < len(pool):
                handle, pool[index] = pool[index], handle
        if type(handle) is _Callback:
            # Now the next callback of that future may come.
            chain = self._chains.pop(handle.future)
            if chain:
                pool.append(chain.pop(0))
                self._chains[handle.future] = chain
        return handle

    def _pass_time(self) -> bool:
        """Jump to the nearest timers; False where there are none left: everyone waits for ever."""
        if self._is_halted:
            return False
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            self._error = Deadlock(f"everyone waits for ever: {_render_waits(self)}")
            return False
        self._now = timers[0][0]
        self.elapsed = timedelta(seconds=self._now)
        while timers and timers[0][0] <= self._now:
            self._put(heapq.heappop(timers)[2])
        self._jumped_at = self.steps
        if len(timers) > 2 * self._timers_checked:
            self._forget_cancelled()
        return True

    def _forget_cancelled(self) -> None:
        """Drop timers that no task waits for: a call with a limit of a minute leaves one behind."""
        self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
        heapq.heapify(self._timers)
        self._timers_checked = max(len(self._timers), _FEW_TIMERS)

    def _run_marks(self) -> bool:
        """Run what is to come at this step; False where no time passes any more."""
        while self._marks and self._marks[0][0] <= self.steps:
            heapq.heappop(self._marks)[2]()
        if self.steps - self._jumped_at >= MOST_STEPS_AT_ONCE:
            waits = _render_waits(self)
            self._error = Livelock(f"{MOST_STEPS_AT_ONCE} steps at {self._now:g} s: {waits}")
            return False
        self._set_next_mark()
        return True

    def _set_next_mark(self) -> None:
        limit = max(self._jumped_at + MOST_STEPS_AT_ONCE, self.steps + 1)
        self._next_mark = min(limit, self._marks[0][0]) if self._marks else limit


class _NoSelector(selectors.SelectSelector):
    """Sees nothing of the machine, and never waits."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []


class _Callback(asyncio.Handle):
    """A callback of a task that waits for a future."""

    __slots__ = ("future",)

    future: asyncio.Future[Any]


class _NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in each run."""

    def __init__(self, coro: Any, number: int, **options: Any) -> None:
        self.number = number  # before all else: it is put into a set while it is made
        context: Context | None = options.get("context")
        self.is_gone = IS_GONE.get() if context is None else context.get(IS_GONE, _never)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


def is_left(task: asyncio.Task[Any]) -> bool:
    """Return whether a task waits that belongs to a task that is gone."""
    return isinstance(task, _NumberedTask) and not task.done() and task.is_gone()


def _render_waits(loop: asyncio.AbstractEventLoop) -> str:
    """Return which tasks of a loop there are, by name, and where each of them waits."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return ", ".join(f"{task.get_name()} in {_render_place(task)}" for task in tasks) or "no task"


def _render_place(task: asyncio.Task[Any]) -> str:
    """Return function and line of the innermost `await`."""
    place = "its first step"
    waiting: object = task.get_coro()
    for _ in range(_DEEPEST):
        frame = _first(waiting, "cr_frame", "gi_frame", "ag_frame")
        if isinstance(frame, FrameType):
            code: CodeType = frame.f_code
            place = f"{code.co_qualname}:{frame.f_lineno}"
        waiting = _first(waiting, "cr_await", "gi_yieldfrom", "ag_await")
        if waiting is None:
            break
    return place


def _first(of: object, *names: str) -> object | None:
    """Return what a coroutine, a generator or an asynchronous generator has, None for others."""
    for name in names:
        found: object = getattr(of, name, None)
        if found is not None:
            return found
    return None


def _closed() -> RuntimeError:
    return RuntimeError("Event loop is closed")


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotSimulated(f"{name}: there are no sockets, threads or processes in virtual time")

    return refuse


for _name in _NOT_HERE:
    setattr(VirtualTimeLoop, _name, _refuse(_name))
