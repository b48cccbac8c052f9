"""Programs that are run to their end."""

import os
import signal
import subprocess
import sys
from typing import Final

import pytest

from rollout_operator.aio.programs import run_program

SHELL: Final = "/bin/sh"


async def test_a_program_reads_what_is_given_and_says_how_it_ended() -> None:
    assert await run_program([SHELL, "-c", "cat; exit 3"], given=b"hello") == (b"hello", 3)
    assert await run_program([SHELL, "-c", "cat"]) == (b"", 0)
    ended = await run_program([SHELL, "-c", 'echo "$A"; kill -TERM $$'], env={"A": "b"})
    assert ended == (b"b\n", -signal.SIGTERM)


@pytest.mark.parametrize("command", ["/nowhere", os.devnull, "/"])
async def test_what_cannot_be_started_is_an_error(command: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 (of several kinds)
        await run_program([command])


_PLAY: Final = """
import asyncio, os, resource, time, uvloop
from rollout_operator.aio.programs import run_program

def count():
    return len(os.listdir("/proc/self/fd"))

async def attempt(program="/bin/true"):
    try:
        return (await run_program([program], given=b"x" * 4000))[1]
    except OSError as error:
        return error.strerror

async def be_busy():
    while True:
        await asyncio.sleep(0)
        time.sleep(0.01)
"""
_SHORT: Final = """
async def main():
    await attempt()
    held, limits = count(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for room in range(20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (held - 1 + room, limits[1]))
        found = {await attempt() for _ in range(3)}
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        print(*found, count() - held, sep=", ")

uvloop.run(main())
"""
_BUSY: Final = """
async def main():
    busy = asyncio.create_task(be_busy())
    print({await attempt("/bin/false") for _ in range(10)})
    busy.cancel()

uvloop.run(main())
"""


def play(script: str) -> list[str]:
    """Return each line that a script printed on a loop as the operator's, repetitions once."""
    command = [sys.executable, "-c", _PLAY + script]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return list(dict.fromkeys(done.stdout.decode().splitlines()))


def test_programs_that_cannot_be_started_leave_no_descriptors_behind() -> None:
    """LI-13: what they wanted is there for connections."""
    assert play(_SHORT) == ["Too many open files, 0", "0, 0"]


def test_a_program_may_end_before_it_reads_what_is_given() -> None:
    """LI-13: as where memory runs out, while the loop is busy."""
    assert play(_BUSY) == ["{1}"]
