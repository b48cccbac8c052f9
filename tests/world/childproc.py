"""Child processes that cannot outlive the tests, with their output in a file."""

import asyncio
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

PR_SET_PDEATHSIG: Final = 1
LIBC: Final = ctypes.CDLL(None, use_errno=True)

# How often an exit is read; an exit has no event that works from every event loop.
EXIT_POLL: Final = timedelta(milliseconds=20)
TAIL_LINES: Final = 30
SERVED_TRIES: Final = 400
# Below those that Linux gives to outgoing connections: one of these would take a port between the
# look at it and the start of a server, or while a server is down that shall come back to it.
PORTS: Final = range(15_000, 32_000)
_given: Final[set[int]] = set()


class Process(Protocol):
    """A started process, as `subprocess.Popen` has it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        ...

    def wait(self) -> int: ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal; nothing happens if the process has ended."""
        ...


def start_program(
    command: Sequence[str | Path], log: Path, env: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a program, which gets SIGKILL when the thread that started it ends.

    It prints to the end of `log`.
    """
    parent = os.getpid()
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            # Children die with us even after a SIGKILL, when no clean-up code of ours runs.
            preexec_fn=lambda: die_with(parent),
        )


class Child:
    """One started process with its output in a file."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        self._process.send_signal(number)

    async def wait(self, limit: timedelta) -> int:
        """Return the exit code. Raises TimeoutError."""
        async with asyncio.timeout(limit.total_seconds()):
            while (code := self.exit_code) is None:  # noqa: ASYNC110 (see EXIT_POLL)
                await asyncio.sleep(EXIT_POLL.total_seconds())
        return code

    async def stop(self, limit: timedelta) -> int:
        """Stop with SIGTERM, insist with SIGKILL after `limit`; return the exit code."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        try:
            return await self.wait(limit)
        except TimeoutError:
            return self.kill()

    def kill(self) -> int:
        self.send(signal.SIGKILL)
        return self._process.wait()

    def tail(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-TAIL_LINES:])


def wait_served(url: str, child: Child) -> None:
    """Wait until a program answers, be it with a refusal. Raises AssertionError with its output."""
    for _ in range(SERVED_TRIES):
        assert child.exit_code is None, child.tail()
        try:
            urlopen(url, timeout=1).close()
        except HTTPError as refused:
            refused.close()
            if refused.code < 500:
                return
        except (URLError, TimeoutError):
            pass
        else:
            return
        time.sleep(0.05)
    raise AssertionError(child.tail())


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, none of them twice."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        if port not in _given and _is_free(port):
            found.append(port)
            _given.add(port)
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; that may have happened already."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
