"""The operator as a process, under the memory limit that the manifests give it (D-50, D-68)."""

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Final

import pytest

from benchmarks.hooks import GUARDED, Hooks, open_hooks
from benchmarks.load import NoAnswerError, make_context, request_once
from benchmarks.objects import NAMESPACE
from benchmarks.processes import forget_peak, read_memory
from benchmarks.questions import make_post
from benchmarks.tasks import Load
from tests.contained import limit_memory
from tests.hostile_bodies import WALKS, list_hostile_bodies

LIMIT_MIB: Final = 200
GROWTH_MIB: Final = 64
AT_ONCE: Final = 8
TOO_SLOW: Final = frozenset({408, 429})
ATTEMPTS: Final = 20


@contextmanager
def limited(pid: int) -> Iterator[bool]:
    """Put a process under the limit while it lasts, where this machine lets us; return whether."""
    with limit_memory(LIMIT_MIB << 20) as limit:
        if limit is None:
            yield False
            return
        (limit.folder / "cgroup.procs").write_text(str(pid))
        try:
            yield True
        finally:
            (limit.folder.parent / "cgroup.procs").write_text(str(pid))


def post(load: Load, context: ssl.SSLContext) -> int:
    """Return the status of an answer; what a busy machine sends too slowly is sent again."""
    for attempt in range(ATTEMPTS):
        try:
            _, answer = request_once(load, context)
        except (OSError, NoAnswerError):  # sent away before all of the body had gone
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        if (status := int(answer.split(b" ")[1])) not in TOO_SLOW:
            break
    return status


@pytest.mark.slow
@pytest.mark.parametrize("paths", WALKS)
def test_d50_d68_no_hostile_bodies_take_more_than_64_mib(paths: Sequence[str]) -> None:
    """Wrong types, deep and wide fillers, maps, texts; on every path, eight at a time.

    Threads send them, and no event loop: while a machine is busy, one would wait for the others.
    """
    with asyncio.Runner() as runner:
        hooks = open_hooks(50, GUARDED)
        opened = runner.run(hooks.__aenter__())
        try:
            send_all(opened, paths)
        finally:
            runner.run(hooks.__aexit__(None, None, None))


def send_all(hooks: Hooks, paths: Sequence[str]) -> None:
    """Send all bodies to an operator under the limit, and read its memory after each batch."""
    pid, context = hooks.operator.child.pid, make_context()
    with limited(pid) as is_limited, ThreadPoolExecutor(AT_ONCE) as threads:
        idle = read_memory(pid)["now"]
        forget_peak(pid)  # that of its start
        bodies = list_hostile_bodies(paths, NAMESPACE)
        while batch := list(islice(bodies, AT_ONCE)):
            loads = [hooks.load(make_post(path, body)) for path, _, body in batch]
            answers = set(threads.map(lambda load: post(load, context), loads))
            most = read_memory(pid)["most"]
            what = [f"{path}: {name}" for path, name, _ in batch]
            assert answers <= {200, 400}, (answers, what)
            assert most - idle < GROWTH_MIB, (idle, most, what)
        assert hooks.operator.is_running, f"killed at {LIMIT_MIB} MiB: {is_limited}"
