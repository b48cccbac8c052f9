"""How long the event loop stands still while a large namespace is read.

A ticker on the same loop wants to run each millisecond. The wall time between two of its turns
holds whatever else the machine did; the processor time between them is the work of our loop alone,
and that is what the target is about. Up to one millisecond of it is no stall.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from benchmarks.figures import Figure, Result
from benchmarks.pipeline import open_pipeline
from benchmarks.processes import measure_in_child, open_server
from benchmarks.tasks import Loop, Task
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.informer import Informer
from rollout_operator.model.objects import Pod, Unreadable

TICK: Final = 0.001
STALL_MS: Final = 25.0


class Stall(msgspec.Struct):
    """The longest time between two turns of the ticker, in seconds."""

    wall: float = 0.0
    work: float = 0.0


class Ticker:
    """Measures one phase after the other."""

    def __init__(self) -> None:
        self._stall = Stall()
        self._collected = 0.0
        self._collecting = 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            wall, work = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK)
            stall = self._stall
            stall.wall = max(stall.wall, time.perf_counter() - wall - TICK)
            stall.work = max(stall.work, time.thread_time() - work)

    def record_collection(self, phase: str, _: Mapping[str, int]) -> None:
        """Measure the garbage collector, as a callback of `gc`."""
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected = max(self._collected, time.thread_time() - self._collecting)

    async def next_phase(self) -> Mapping[str, float]:
        """Return what the phase that ends showed, in milliseconds, and begin the next one."""
        await asyncio.sleep(2 * TICK)  # what the phase did last is told by the tick after it
        stall, collected = self._stall, self._collected
        self._stall, self._collected = Stall(), 0.0
        return {
            "wall_ms": stall.wall * 1000,
            "work_ms": stall.work * 1000,
            "collector_ms": collected * 1000,
        }


async def measure(*, small: bool) -> Result:
    """Measure both event loops on the same server."""
    pods, idle = (60, 0.05) if small else (5_000, 2.0)
    figures: list[Figure] = []
    async with open_server(pods) as target:
        for loop in Loop:
            task = Task(target=target, loop=loop, seconds=idle)
            measured = await measure_in_child("sync", task)
            figures += _describe(loop, measured)
    return Result(benchmark="sync", setting={"pods": pods, "idle_s": idle}, figures=figures)


def _describe(loop: Loop, measured: Mapping[str, float]) -> list[Figure]:
    phases = {
        "idle": "with nothing to do: what the machine alone does to a loop",
        "list": "from the first request until both caches are filled and all groups are woken",
        "relist": "while the filled caches are listed again and compared",
    }
    whats = {
        "work_ms": f"longest turn of the {loop} loop, in processor time",
        "wall_ms": f"longest wait of a ticker on the {loop} loop, in wall time",
        "collector_ms": f"longest garbage collection on the {loop} loop, in processor time",
    }
    return [
        Figure(
            name=f"{loop}_{phase}_stall_{what}",
            value=measured[f"{phase}_{what}"],
            means=f"{label}, {when}",
            at_most=STALL_MS if what == "work_ms" and phase != "idle" else None,
        )
        for phase, when in phases.items()
        for what, label in whats.items()
    ] + [
        Figure(
            name=f"{loop}_list_s",
            value=measured["list_s"],
            means="wall time from the first request until both caches are filled",
        )
    ]


async def measure_sync(task: Task) -> Mapping[str, float]:
    """Measure inside of a child: an idle loop, the first list, a second one."""
    ticker = Ticker()
    found: dict[str, float] = {}
    async with open_pipeline(task.server) as pipeline, TaskStack() as tasks, _collections(ticker):
        tasks.start("ticker", ticker.run())
        await asyncio.sleep(task.seconds)
        found |= _named("idle", await ticker.next_phase())
        begin = time.perf_counter()
        await pipeline.sync(tasks)
        found["list_s"] = time.perf_counter() - begin
        found |= _named("list", await ticker.next_phase())
        await asyncio.sleep(task.seconds)
        await ticker.next_phase()
        await _list_again(pipeline.pods)
        found |= _named("relist", await ticker.next_phase())
    return found


async def _list_again(informer: Informer[Pod | Unreadable]) -> None:
    requested = time.perf_counter()
    if not informer.refresh("benchmark"):
        raise RuntimeError("the informer did not list again")
    # The list is proof of life as of when it was asked for; nothing else is, on an idle watch.
    while informer.age.total_seconds() > time.perf_counter() - requested:  # noqa: ASYNC110
        await asyncio.sleep(TICK)


@asynccontextmanager
async def _collections(ticker: Ticker) -> AsyncIterator[None]:
    gc.callbacks.append(ticker.record_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(ticker.record_collection)


def _named(phase: str, measured: Mapping[str, float]) -> dict[str, float]:
    return {f"{phase}_{what}": value for what, value in measured.items()}
