"""What reviews feel of live status pages: 200 browsers follow the page while reasons change.

Reviews are asked at a pace, in turn with the pages open and without them, in one run of the
operator and under the same changes. Half of a page's cost is the sending of it, half is made once
for all. Reasons change by pods that become unready and ready again.
"""

import asyncio
import statistics
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from benchmarks.figures import Figure, Result
from benchmarks.hooks import GUARDED, Hooks, falling
from benchmarks.processes import measure_in_child, open_server, read_time
from benchmarks.questions import NO_DOWNSCALE_PATH, REFUSED, Kind
from benchmarks.server import Feed
from benchmarks.tasks import Load, Task
from tests.world.operatorproc import TLS_FLAG, OperatorProcess

PODS: Final = 300
PAGES: Final = 200
PACE: Final = 500.0
CHANGES_PER_S: Final = 400.0
SLOWER: Final = 1.1
# Replicas of the first set of a group of ten pods a zone.
REPLICAS: Final = (10, 9)
ROUNDS: Final = 4
# For the start of everything; changes that come after the end harm nobody.
SPARE_S: Final = 30.0
_REQUEST: Final = b"GET /status/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
_NEWS: Final = b"event: sections\n"
Measured = Mapping[str, float]


class _Size(msgspec.Struct, frozen=True, kw_only=True):
    pages: int
    seconds: float
    rounds: int


class _Watched(msgspec.Struct):
    """What came to all pages."""

    news: int = 0
    received: int = 0


async def measure(*, small: bool) -> Result:
    """Measure reviews without pages and with them, in turn."""
    size = _Size(pages=PAGES, seconds=4.0, rounds=ROUNDS)
    if small:
        size = _Size(pages=5, seconds=1.5, rounds=1)
    request = falling(Kind.SCALE, NO_DOWNSCALE_PATH, REPLICAS)
    alone: list[Measured] = []
    beside: list[Measured] = []
    watched = _Watched()
    async with _open(size) as hooks:
        load = replace(hooks.load(request, REFUSED), seconds=size.seconds, per_s=PACE)
        for _ in range(size.rounds):
            alone.append(await _request(load))
            async with _watching(hooks.operator.port, size.pages, watched):
                beside.append(await _request(load))
    setting = {
        "pods": PODS,
        "pages": size.pages,
        "changes_per_s": CHANGES_PER_S,
        "pace_per_s": PACE,
        "seconds": size.seconds * size.rounds,
    }
    figures = _describe(alone, beside, watched, size)
    return Result(benchmark="watchers", setting=setting, figures=figures)


@asynccontextmanager
async def _open(size: _Size) -> AsyncIterator[Hooks]:
    seconds = 2 * size.rounds * (size.seconds + 1) + SPARE_S
    changes = round(seconds * CHANGES_PER_S)
    async with (
        open_server(
            PODS, Feed.DECIDING, changes, traits=GUARDED, events_per_s=CHANGES_PER_S
        ) as target,
        OperatorProcess(target.launch(TLS_FLAG)) as operator,
    ):
        await operator.wait_ready()
        yield Hooks(target, operator)


async def _request(load: Load) -> Measured:
    """Return what reviews took, and the share of a core that the operator used meanwhile."""
    loop = asyncio.get_running_loop()
    before, begin = read_time(load.pid), loop.time()
    measured = await measure_in_child("pace", Task(load=load))
    used = read_time(load.pid).cpu - before.cpu
    return {**measured, "core": used / (loop.time() - begin)}


@asynccontextmanager
async def _watching(port: int, pages: int, watched: _Watched) -> AsyncIterator[None]:
    """Follow the page so many times, from when all have its first state."""
    begun = [asyncio.Event() for _ in range(pages)]
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(_follow(port, watched, each)) for each in begun]
        await asyncio.gather(*(each.wait() for each in begun))
        try:
            yield
        finally:
            for task in following:
                task.cancel()


async def _follow(port: int, watched: _Watched, begun: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_REQUEST)
        while data := await reader.read(1 << 16):
            watched.received += len(data)
            if news := data.count(_NEWS):
                watched.news += news
                begun.set()
    finally:
        writer.close()


def _describe(
    alone: list[Measured], beside: list[Measured], watched: _Watched, size: _Size
) -> list[Figure]:
    plain, with_pages = _middle(alone, "p99_ms"), _middle(beside, "p99_ms")
    at = f"at {PACE:g} reviews of a Scale a second and {CHANGES_PER_S:g} changes of pods"
    return [
        Figure(name="p50_ms", value=_middle(alone, "p50_ms"), means=f"half of them, {at}"),
        Figure(name="p99_ms", value=plain, means="as 99 of 100 are at most: the middle round"),
        Figure(
            name="watched_p50_ms",
            value=_middle(beside, "p50_ms"),
            means=f"half of them, with {size.pages} live pages beside",
        ),
        Figure(name="watched_p99_ms", value=with_pages, means="as 99 of 100 are at most"),
        Figure(
            name="slower",
            value=with_pages / plain,
            means="the latter by that without pages",
            at_most=SLOWER,
        ),
        Figure(name="right", value=min(one["right"] for one in alone), means="share of answers"),
        Figure(
            name="watched_right",
            value=min(one["right"] for one in beside),
            means="the same, beside",
        ),
        Figure(name="core", value=_middle(alone, "core"), means="of a core that the operator used"),
        Figure(name="watched_core", value=_middle(beside, "core"), means="the same, beside"),
        Figure(name="pages", value=size.pages, means="pages that were live"),
        Figure(
            name="news_per_page",
            value=watched.news / size.pages / size.rounds,
            means="how often one page was sent something, in a round",
        ),
        Figure(
            name="page_kib_per_news",
            value=watched.received / max(watched.news, 1) / 1024,
            means="what was sent then",
        ),
    ]


def _middle(rounds: list[Measured], name: str) -> float:
    return statistics.median(one[name] for one in rounds)
