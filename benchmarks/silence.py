"""Thousands of connections that say nothing, from a process of its own, and one who asks meanwhile.

A thread opens them, with or without the handshake of TLS, as fast as it can, and keeps all; the
main thread asks for reviews on new connections, one after the other, until all are there and some
times more.
"""

import resource
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from benchmarks.load import NoAnswerError, Tally, make_context, request_once
from benchmarks.processes import forget_peak, read_memory
from benchmarks.tasks import Load, Task

# Asked while all are there.
ASKED_AT_REST: Final = 20
# Without a new connection: all may take minutes on a busy machine.
STUCK_LIMIT_S: Final = 60.0
CONNECT_LIMIT_S: Final = 5.0
# Files that this process has open besides.
SPARE_FILES: Final = 100


async def measure_silence(task: Task) -> Mapping[str, float]:
    """Return the most memory of the server, in MiB, and how the good ones fared."""
    load = task.requesting
    _allow_files(load.count + SPARE_FILES)
    forget_peak(load.pid)
    crowd = _Crowd(load, shakes_hands=task.shakes_hands)
    context, tally = make_context(), Tally(load.expected)
    crowd.start()
    at_rest, most, opened, since = 0, 0.0, 0, time.perf_counter()
    while at_rest < ASKED_AT_REST:
        at_rest += not crowd.is_alive()
        try:
            took, answer = request_once(load, context)
            tally.record(time.perf_counter() - took, answer)
        except (OSError, NoAnswerError):
            tally.failed += 1
        most = max(most, read_memory(load.pid)["now"])
        if len(crowd.sockets) > opened or not crowd.is_alive():
            opened, since = len(crowd.sockets), time.perf_counter()
        elif time.perf_counter() - since > STUCK_LIMIT_S:
            raise NoAnswerError(f"{opened} connections, and no other within {STUCK_LIMIT_S} s")
    return {
        **tally.summary(),
        "opened": len(crowd.sockets),
        "opening_s": crowd.took,
        "seen_mib": most,
        "most_mib": read_memory(load.pid)["most"],
    }


class _Crowd(threading.Thread):
    """Opens connections and keeps them."""

    def __init__(self, load: Load, *, shakes_hands: bool) -> None:
        super().__init__(name="crowd", daemon=True)
        self.sockets: list[socket.socket] = []
        self.took = 0.0
        self._load = load
        self._context = make_context() if shakes_hands else None

    def run(self) -> None:
        begin = time.perf_counter()
        for _ in range(self._load.count):
            # One that is turned away is silent as well.
            with suppress(OSError, ssl.SSLError):
                self.sockets.append(self._open())
        self.took = time.perf_counter() - begin

    def _open(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self._load.port), CONNECT_LIMIT_S)
        if self._context is None:
            return plain
        try:
            return self._context.wrap_socket(plain)
        except OSError:
            plain.close()
            raise


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
