"""Where log lines go: a file descriptor that may be closed, full or stuck.

Decides what is lost when no process reads. Never raises, and never keeps the event loop waiting for
longer than one short grace: a decision is worth more than its log line.
"""

import os
import select
import threading
from collections.abc import Callable
from typing import Final

# A pipe that polls as writable takes this much without blocking (PIPE_BUF on Linux).
_PIECE: Final = 4096

# A burst may fill a pipe faster than the reader empties it; a reader that needs longer than this
# has stopped, and is not waited for again until it has read something.
_GRACE_MILLISECONDS: Final = 20


class Sink:
    """Write whole lines to a descriptor, as far as its reader takes them.

    A line of which only a part was taken is finished before the next one starts, so that no two
    records are ever mixed. Lines that found no room are counted; `describe_loss` turns that count
    into the line which is written in their place once there is room again.
    """

    def __init__(self, descriptor: int, describe_loss: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._describe_loss = describe_loss
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)
        self._unfinished = b""
        self._lost = 0
        self._is_stuck = False
        # Threads write too, such as those that resolve names. A finalizer may log in the middle of
        # a write of its own thread, hence the re-entrant kind.
        self._lock = threading.RLock()

    @property
    def lost(self) -> int:
        """Return how many lines were lost since the last line that got through."""
        return self._lost

    def write(self, line: bytes) -> None:
        """Write one line, or count it as lost. May be called from any thread."""
        with self._lock:
            if not (self._finish() and self._write_loss() and self._push(line)):
                self._lost += 1

    def _finish(self) -> bool:
        """Write the rest of the last line; return False where some of it is still missing."""
        if not self._unfinished:
            return True
        rest, self._unfinished = self._unfinished, b""
        if not self._push(rest):
            self._unfinished = rest
        return not self._unfinished

    def _write_loss(self) -> bool:
        """Write how many lines were lost, if any; return False where there was no room for it."""
        if not self._lost:
            return True
        if not self._push(self._describe_loss(self._lost)):
            return False
        self._lost = 0
        return not self._unfinished

    def _push(self, line: bytes) -> bool:
        """Write what there is room for; return False where not even the start was taken."""
        taken = 0
        while taken < len(line):
            if not self._has_room():
                break
            try:
                taken += os.write(self._descriptor, line[taken : taken + _PIECE])
            except OSError:  # EPIPE, EBADF, EAGAIN, ENOSPC: nothing that a log line could change
                self._is_stuck = True
                break
        if 0 < taken < len(line):
            self._unfinished = line[taken:]
        return taken > 0

    def _has_room(self) -> bool:
        ready = self._poller.poll(0 if self._is_stuck else _GRACE_MILLISECONDS)
        self._is_stuck = not any(event & select.POLLOUT for _, event in ready)
        return not self._is_stuck
