"""What the tasks of a loop wait for, as text, for the errors of a simulation that stands still."""

import asyncio
from types import CodeType, FrameType
from typing import Any, Final

# Deeper than any chain of awaits here; a bound, because what is asked may refer to itself.
_DEEPEST: Final = 100


def list_waits(loop: asyncio.AbstractEventLoop) -> str:
    """Return which tasks of a loop there are, by name, and where each of them waits."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return ", ".join(f"{task.get_name()} in {_find_place(task)}" for task in tasks) or "no task"


def _find_place(task: asyncio.Task[Any]) -> str:
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
    """Return what a coroutine, a generator or an asynchronous one has there, None for others."""
    for name in names:
        found: object = getattr(of, name, None)
        if found is not None:
            return found
    return None
