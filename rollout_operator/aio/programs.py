"""Run a program to its end, and no longer than whoever waits for it."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

# Starting a program wants up to ten descriptors, as measured.
_PIPES: Final = 8
# Seconds; the end of a program that is killed takes milliseconds.
_END_LIMIT: Final = 1.0


async def run_program(
    command: Sequence[str],
    *,
    given: bytes | None = None,
    is_interactive: bool = False,
    env: Mapping[str, str] | None = None,
) -> tuple[bytes, int]:
    """Return what a program printed, and its exit code, negative for the signal that ended it.

    It reads `given`, else nothing; `is_interactive` leaves standard input to it. Raises OSError
    where it cannot be started. Once its caller is cancelled it is killed.
    """
    _check_descriptors()
    with _input(given) as descriptor:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=None if is_interactive else descriptor,
            stdout=asyncio.subprocess.PIPE,
        )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            # Its end is seen before the loop may end; another process may hold its output open.
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_LIMIT):
                    await process.wait()
    return printed, process.returncode or 0


@contextmanager
def _input(given: bytes | None) -> Iterator[int]:
    """Yield a descriptor to read `given` from, which is on no disk.

    Through a pipe uvloop writes to no program that has ended before: it raises RuntimeError.
    """
    if given is None:
        yield asyncio.subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("given", os.MFD_CLOEXEC), "w+b") as file:
        file.write(given)
        file.seek(0)
        yield file.fileno()


def _check_descriptors() -> None:
    """Raise OSError where there are not enough file descriptors left to start a program.

    uvloop never closes those that it has opened before the one that was missing, and so takes one
    attempt after the other what others wait for.
    """
    with ExitStack() as opened:
        for _ in range(_PIPES):
            for descriptor in os.pipe():
                opened.callback(os.close, descriptor)
