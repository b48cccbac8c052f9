"""Evictions through an API server, from a process of its own: many at a time, each of some pod."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from threading import Lock

import msgspec

from benchmarks.figures import percentile
from benchmarks.load import Line, make_context
from benchmarks.tasks import Load, Storm, Task

# Fields of /proc/<pid>/stat, counted after the name of the program.
_CPU_FIELDS = slice(11, 13)
_TICKS = 100


async def measure_storm(task: Task) -> Mapping[str, float]:
    """Evict as often as the task says, on all connections at once; return times and answers."""
    storm = task.storm
    if storm is None:
        raise ValueError("task: storm: not set")
    context = make_context()
    load = Load(port=storm.port, pid=0, request=b"")
    lines = [Line(load, context) for _ in range(storm.connections)]
    requests = _Requests(storm)
    begin = time.perf_counter()
    try:
        with ThreadPoolExecutor(len(lines)) as threads:
            answers = [one for some in threads.map(requests.send_all, lines) for one in some]
    finally:
        for line in lines:
            line.close()
    return summarize(answers, time.perf_counter() - begin)


def summarize(answers: Sequence[tuple[float, int]], wall: float) -> Mapping[str, float]:
    """Return what seconds and statuses tell."""
    took = [seconds for seconds, _ in answers]
    statuses = Counter(status for _, status in answers)
    allowed, refused = statuses[200] + statuses[201], statuses[429]
    return {
        "count": len(answers),
        "per_s": len(answers) / wall,
        "p50_ms": percentile(took, 0.5) * 1000,
        "p99_ms": percentile(took, 0.99) * 1000,
        "max_ms": max(took) * 1000,
        "allowed": allowed,
        "refused": refused,
        # A pod that was just evicted is away for a moment.
        "absent": statuses[404],
        "others": len(answers) - allowed - refused - statuses[404],
    }


def read_cpu(pid: int) -> float:
    """Return the seconds that all threads of a process had of the processor so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[_CPU_FIELDS]) / _TICKS


def make_request(storm: Storm, pod: str) -> bytes:
    """Return the whole request of one eviction."""
    body = msgspec.json.encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": storm.namespace},
        }
    )
    head = (
        f"POST /api/v1/namespaces/{storm.namespace}/pods/{pod}/eviction HTTP/1.1",
        f"Host: 127.0.0.1:{storm.port}",
        f"Authorization: Bearer {storm.token}",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        "Accept: application/json",
    )
    return "\r\n".join([*head, "", ""]).encode() + body


class _Requests:
    """The requests of a storm, handed out to whoever is free."""

    def __init__(self, storm: Storm) -> None:
        requests = [make_request(storm, pod) for pod in storm.pods]
        self._left = islice(cycle(requests), storm.count)
        self._lock = Lock()

    def send_all(self, line: Line) -> list[tuple[float, int]]:
        """Send until none is left; return seconds and status of each. Raises NoAnswerError."""
        return [_send(line, request) for request in self._take()]

    def _take(self) -> Iterator[bytes]:
        while True:
            with self._lock:
                request = next(self._left, None)
            if request is None:
                return
            yield request


def _send(line: Line, request: bytes) -> tuple[float, int]:
    begin = time.perf_counter()
    line.send_request(begin, request)
    while (answer := line.receive()) is None:
        pass
    return time.perf_counter() - begin, int(answer.split(b" ", 2)[1])
