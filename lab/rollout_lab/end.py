"""How a demo ends: by itself, by a signal, or because its reader has gone."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from rollout_operator.model.names import ExitCode

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def end_by_signal(show: Awaitable[bool]) -> int:
    """Return the exit code; a first signal cancels the show, the others wait for its clean-up.

    0 where the show returned True, 1 for False, 130 after a signal, 141 without a reader. Raises
    what the show raised otherwise.
    """
    # Ctrl-C may end children of the show as well, so that the clean-up finds them gone: what it
    # raises then is of no interest, and gather() keeps it to itself.
    outcome = asyncio.gather(show, return_exceptions=True)
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, cancel_once(outcome))
    try:
        (result,) = await outcome
    except asyncio.CancelledError:
        sys.stderr.write("stopped, nothing is left running\n")
        return ExitCode.INTERRUPTED
    if not isinstance(result, BaseException):
        return ExitCode.DONE if result else ExitCode.FAILED
    if not is_only(result, BrokenPipeError):
        raise result
    forget_output()
    return ExitCode.UNREAD


def forget_output() -> None:
    """Let what is still in the buffer of stdout be lost: at exit it would be written, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def cancel_once(outcome: asyncio.Future[Any]) -> Callable[[], None]:
    """Return a callback that cancels `outcome` the first time that it is called."""
    is_first = True

    def cancel() -> None:
        nonlocal is_first
        if is_first:
            outcome.cancel()
        is_first = False

    return cancel


def is_only(error: BaseException, kind: type[BaseException]) -> bool:
    """Return whether an error is of a kind, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_only(each, kind) for each in error.exceptions)
    return isinstance(error, kind)
