"""A command on a terminal of its own, and what it shows there."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

PATIENCE: Final = 60.0  # seconds
"""How long a command may take to show something, or to end."""


@contextmanager
def on_terminal(
    command: Sequence[str], **env: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a command on a terminal of 80 x 24, and yield it with the other end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", **env},
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(slave)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Ignored, and inherited so, where the tests run in the background of a shell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_until(master: int, awaited: str) -> str:
    text, end = "", time.monotonic() + PATIENCE
    while awaited not in text:
        readable, _, _ = select.select([master], [], [], max(0.0, end - time.monotonic()))
        assert readable, f"no {awaited!r} in {text[-2000:]}"
        try:
            text += os.read(master, 65536).decode(errors="replace")
        except OSError:  # no process writes any more
            pytest.fail(f"no {awaited!r} in {text[-2000:]}")
    return text
