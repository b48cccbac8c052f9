"""What an event of a pod costs: from bytes of TLS to the cache, and to the key of its group.

As a floor the same bytes are received and thrown away by the same HTTP client: nothing that is
ours can be cheaper than that. Events are written one by one, as an API server does it.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import aiohttp

from benchmarks.figures import Figure, Result
from benchmarks.objects import LIST_VERSION
from benchmarks.pipeline import Pipeline, open_pipeline
from benchmarks.processes import TOKEN, Target, measure_in_child, open_server
from benchmarks.server import Feed
from benchmarks.tasks import Task
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import PODS
from rollout_operator.model.objects import Pod, Unreadable

PODS_SIZE: Final = 1_000
END: Final = b'"DELETED"'

_MEANS: Final = {
    Feed.DECIDING: "that turn a pod ready or unready, so that its group is woken",
    Feed.OTHER: "that change nothing which decides, so that nobody is woken",
}


async def measure(*, small: bool) -> Result:
    """Measure both kinds of events, each against its floor."""
    pods, events = (60, 100) if small else (PODS_SIZE, 20_000)
    figures: list[Figure] = []
    for feed in (Feed.DECIDING, Feed.OTHER):
        async with open_server(pods, feed, events) as target:
            measured = await measure_in_child("events", Task(target=target, count=events))
        figures += _describe(feed, measured)
    return Result(benchmark="events", setting={"pods": pods, "events": events}, figures=figures)


def _describe(feed: Feed, measured: Mapping[str, float]) -> list[Figure]:
    kind = f"events {_MEANS[feed]}"
    return [
        Figure(
            name=f"{feed}_cpu_ms_per_1000",
            value=measured["taken_ms"],
            means=f"processor time for 1,000 {kind}",
        ),
        Figure(
            name=f"{feed}_floor_cpu_ms_per_1000",
            value=measured["floor_ms"],
            means="processor time for receiving the same bytes and throwing them away",
        ),
        Figure(
            name=f"{feed}_ratio",
            value=measured["taken_ms"] / measured["floor_ms"],
            means="the first of these by the second",
        ),
        Figure(
            name=f"{feed}_per_s",
            value=measured["per_s"],
            means=f"{kind} that were taken in a second of wall time, server and all",
        ),
    ]


async def measure_events(task: Task) -> Mapping[str, float]:
    """Measure inside of a child: first the floor, then the whole path."""
    thousands = task.count / 1000
    async with open_pipeline(task.server) as pipeline:
        begin = time.process_time()
        await _throw_away(pipeline.transport.session, task.server)
        floor = time.process_time() - begin
        wall, taken = await _take(pipeline)
    return {
        "floor_ms": floor * 1000 / thousands,
        "taken_ms": taken * 1000 / thousands,
        "per_s": task.count / wall,
    }


async def _throw_away(session: aiohttp.ClientSession, target: Target) -> None:
    url = f"{target.url}{PODS.path(target.namespace)}"
    query = {"watch": "1", "resourceVersion": f"{LIST_VERSION}"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    limit = aiohttp.ClientTimeout(total=None)
    async with session.get(url, params=query, headers=headers, timeout=limit) as response:
        tail = b""
        while END not in tail:
            tail = await response.content.readany()


async def _take(pipeline: Pipeline) -> tuple[float, float]:
    """Return wall and processor time from the filled cache to the last event of the feed."""
    over = asyncio.Event()

    def count(old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        if new is None:
            over.set()

    pipeline.pods.on_change(count)
    async with TaskStack() as tasks:
        tasks.start("statefulset informer", pipeline.sets.run())
        await pipeline.sets.wait_synced()  # owners first: else the first pods would wake nobody
        tasks.start("pod informer", pipeline.pods.run())
        await pipeline.pods.wait_synced()
        wall, work = time.perf_counter(), time.process_time()
        await over.wait()
        return time.perf_counter() - wall, time.process_time() - work
