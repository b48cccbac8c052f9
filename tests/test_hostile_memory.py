"""The operator as a process, under the memory limit that the manifests give it (D-50, D-68)."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Final

import pytest

from benchmarks.hooks import GUARDED, open_hooks
from benchmarks.objects import NAMESPACE
from benchmarks.processes import forget_peak, read_memory
from tests.world.hostile_bodies import PATHS, list_hostile_bodies

LIMIT_MIB: Final = 200
GROWTH_MIB: Final = 64
AT_ONCE: Final = 8
TOO_SLOW: Final = frozenset({408, 429})
ATTEMPTS: Final = 20
# Version 1 of cgroups, and 2 where children of the root may have a limit.
_PLACES: Final = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


@contextmanager
def limited(pid: int) -> Iterator[bool]:
    """Put a process under the limit while it lasts, where this machine lets us; return whether."""
    for top, limit in _PLACES:
        group = top / f"rollout-operator-test-{pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(LIMIT_MIB << 20))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            group.rmdir()
            continue
        try:
            yield True
        finally:
            (top / "cgroup.procs").write_text(str(pid))
            group.rmdir()
        return
    yield False


async def post(port: int, path: str, body: bytes) -> int:
    """Return the status of an answer; what a busy machine sends too slowly is sent again."""
    for _ in range(ATTEMPTS):
        if (status := await post_once(port, path, body)) not in TOO_SLOW:
            break
    return status


async def post_once(port: int, path: str, body: bytes) -> int:
    """Return the status of an answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return int((await reader.readline()).split(b" ")[1])
    finally:
        writer.transport.abort()


@pytest.mark.slow
async def test_d50_d68_no_hostile_bodies_take_more_than_64_mib() -> None:
    """Wrong types, deep and wide fillers, maps, texts; on every path, eight at a time."""
    async with open_hooks(50, GUARDED) as hooks:
        pid = hooks.operator.child.pid
        port = hooks.operator.tls_port
        with limited(pid) as is_limited:
            idle = read_memory(pid)["now"]
            forget_peak(pid)  # that of its start
            bodies = chain.from_iterable(
                ((path, name, body) for name, body in list_hostile_bodies(path, NAMESPACE))
                for path in PATHS
            )
            while batch := list(islice(bodies, AT_ONCE)):
                answers = await asyncio.gather(*(post(port, path, body) for path, _, body in batch))
                most = read_memory(pid)["most"]
                what = [f"{path}: {name}" for path, name, _ in batch]
                assert set(answers) <= {200, 400}, (answers, what)
                assert most - idle < GROWTH_MIB, (idle, most, what)
            assert hooks.operator.is_running, f"killed at {LIMIT_MIB} MiB: {is_limited}"
