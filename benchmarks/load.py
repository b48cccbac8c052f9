"""Asking for reviews from a process of its own, with as little work as Python can do it with.

No event loop: sockets that are looked at with `select`, and a request that is encoded once. One
thread asks on many connections; whoever opens a connection for each request does it in threads,
since handshakes run outside of Python's lock.
"""

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import msgspec

from benchmarks.figures import percentile
from benchmarks.processes import read_time
from benchmarks.tasks import Load, Task

ANSWER_LIMIT_S: Final = 20.0
THREADS: Final = 8
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length: "


class NoAnswerError(Exception):
    """The server ended a connection, or said nothing in time."""


class Line:
    """One connection, and at most one request on its way."""

    def __init__(self, load: Load, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", load.port), timeout=ANSWER_LIMIT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requested = 0.0
        """When the request was due."""
        self._request = load.request
        self._left = memoryview(b"")
        self._answer = b""
        try:
            self._socket = context.wrap_socket(plain, server_hostname="localhost")
        except OSError:
            plain.close()
            raise

    def fileno(self) -> int:
        """Return what `select` wants to know."""
        return self._socket.fileno()

    @property
    def is_sending(self) -> bool:
        """Tell whether some of the request has not gone yet."""
        return len(self._left) > 0

    def stop_blocking(self) -> None:
        """Let no call wait from now on."""
        self._socket.setblocking(False)

    def send_request(self, due: float, request: bytes = b"") -> None:
        """Begin the next request, that of the load where none is given."""
        self.requested = due
        self._answer = b""
        self._left = memoryview(request or self._request)
        self.send()

    def send(self) -> None:
        """Send what goes."""
        try:
            while self._left:
                self._left = self._left[self._socket.send(self._left) :]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return

    def receive(self) -> bytes | None:
        """Return the whole answer, None where it is not there yet. Raises NoAnswerError."""
        try:
            part = self._socket.recv(1 << 16)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        if not part:
            raise NoAnswerError("the server closed the connection")
        self._answer += part
        return self._answer if _is_whole(self._answer) else None

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(_HEAD_END)
    _, _, length = head.lower().partition(_LENGTH)
    return bool(end) and len(body) >= int(length.partition(b"\r\n")[0] or b"0")


class Tally(msgspec.Struct):
    """What came back, with seconds from when a request was due until its answer was whole."""

    expected: bytes
    took: list[float] = []
    right: int = 0
    failed: int = 0

    def record(self, requested: float, answer: bytes) -> None:
        """Record one answer."""
        self.took.append(time.perf_counter() - requested)
        self.right += answer.startswith(b"HTTP/1.1 200 ") and self.expected in answer

    def summary(self) -> Mapping[str, float]:
        """Return milliseconds, and the share of all requests that were answered rightly."""
        count = len(self.took)
        return {
            "count": count,
            "failed": self.failed,
            "right": self.right / max(count + self.failed, 1),
            "p50_ms": percentile(self.took, 0.5) * 1000 if count else 0.0,
            "p99_ms": percentile(self.took, 0.99) * 1000 if count else 0.0,
            "max_ms": max(self.took, default=0.0) * 1000,
        }


async def measure_saturation(task: Task) -> Mapping[str, float]:
    """Ask on all connections, again as soon as an answer has come, for some seconds."""
    load = task.requesting
    with _lines(load) as lines:
        _warm_up(lines, load)
        return _timed(load, lambda tally: _saturate(lines, tally, load.seconds))


async def measure_pace(task: Task) -> Mapping[str, float]:
    """Ask so many times a second, whether answers have come or not, for some seconds.

    A request that finds no free connection waits for one, and that is part of its time.
    """
    load = task.requesting
    with _lines(load) as lines:
        _warm_up(lines, load)
        return _timed(load, lambda tally: _pace(lines, tally, load))


async def measure_handshakes(task: Task) -> Mapping[str, float]:
    """Open a connection for each request, some at a time."""
    load = task.requesting
    return _timed(load, lambda tally: _connect(load, tally))


def request_once(load: Load, context: ssl.SSLContext) -> tuple[float, bytes]:
    """Return seconds and answer of one request on a connection of its own.

    Raises OSError and NoAnswerError.
    """
    begin = time.perf_counter()
    line = Line(load, context)
    try:
        line.send_request(begin)
        while (answer := line.receive()) is None:
            pass
        return time.perf_counter() - begin, answer
    finally:
        line.close()


def make_context() -> ssl.SSLContext:
    """Return what a client needs; whose certificate it is matters to others than this one."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextmanager
def _lines(load: Load) -> Iterator[list[Line]]:
    context = make_context()
    lines = [Line(load, context) for _ in range(load.connections)]
    for line in lines:
        line.stop_blocking()
    try:
        yield lines
    finally:
        for line in lines:
            line.close()


def _warm_up(lines: Sequence[Line], load: Load) -> None:
    """Ask for a while, though for no longer than is measured then."""
    _saturate(lines, Tally(load.expected), min(load.warm_up_s, load.seconds))


def _timed(load: Load, act: Callable[[Tally], object]) -> Mapping[str, float]:
    """Return the summary of `act`, with what the server's process used meanwhile."""
    tally = Tally(load.expected)
    before, wall, mine = read_time(load.pid), time.perf_counter(), time.process_time()
    act(tally)
    after, wall = read_time(load.pid), time.perf_counter() - wall
    count = max(len(tally.took), 1)
    return {
        **tally.summary(),
        "per_s": len(tally.took) / wall,
        "cpu_us": (after.cpu - before.cpu) * 1e6 / count,
        "starved_us": (after.starved - before.starved) * 1e6 / count,
        "asking_us": (time.process_time() - mine) * 1e6 / count,
    }


def _saturate(lines: Sequence[Line], tally: Tally, seconds: float) -> None:
    end = time.perf_counter() + seconds
    requesting = dict.fromkeys(lines)
    for line in lines:
        line.send_request(time.perf_counter())
    while requesting:
        for line in _wait_answers(list(requesting), ANSWER_LIMIT_S, tally):
            now = time.perf_counter()
            if now < end:
                line.send_request(now)
            else:
                del requesting[line]


def _pace(lines: Sequence[Line], tally: Tally, load: Load) -> None:
    begin = time.perf_counter()
    due = deque(begin + number / load.per_s for number in range(round(load.seconds * load.per_s)))
    free, requesting = deque(lines), dict[Line, None]()
    while due or requesting:
        while due and free and due[0] <= time.perf_counter():
            line = free.popleft()
            line.send_request(due.popleft())
            requesting[line] = None
        wait = ANSWER_LIMIT_S if not due or not free else max(due[0] - time.perf_counter(), 0)
        for line in _wait_answers(list(requesting), wait, tally):
            del requesting[line]
            free.append(line)


def _wait_answers(requesting: Sequence[Line], limit: float, tally: Tally) -> list[Line]:
    """Wait for the next answers and return whose they are. Raises NoAnswerError."""
    sending = [line for line in requesting if line.is_sending]
    ready, writable, _ = select.select(requesting, sending, (), limit)
    if not ready and not writable and limit >= ANSWER_LIMIT_S:
        raise NoAnswerError(f"no answer within {limit} s")
    for line in writable:
        line.send()
    answered: list[Line] = []
    for line in ready:
        if (answer := line.receive()) is not None:
            tally.record(line.requested, answer)
            answered.append(line)
    return answered


def _connect(load: Load, tally: Tally) -> None:
    context = make_context()

    def work(_: int) -> None:
        try:
            took, answer = request_once(load, context)
        except (OSError, NoAnswerError):
            tally.failed += 1
            return
        tally.record(time.perf_counter() - took, answer)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(load.count)))
