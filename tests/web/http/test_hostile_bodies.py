"""How long the event loop stands still while hostile bodies are read (D-51, D-68)."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import islice

import pytest

from rollout_operator.guards.arbiter import BudgetCatalog
from rollout_operator.kube.store import PodStore
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.eviction import ZpdbValidation
from rollout_operator.web.webhooks import Bodies, Rejected
from tests.hostile_bodies import BUDGET_PATH, WALKS, list_hostile_bodies
from tests.virtual_time import VirtualClock
from tests.web.http.room_stage import Upload

LIMIT = timedelta(minutes=5)
STALL = 0.25
AT_ONCE = 8
TIMES = 5  # a stall of ours comes each time, one of the interpreter or of a busy machine does not


@pytest.fixture(autouse=True)
def heap_of_others() -> None:
    """Keep what earlier tests left out of the collector: looking through it is not our work."""
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def beating() -> AsyncIterator[list[float]]:
    """Record how much processor time this process had from turn to turn of the loop.

    Time of the processor, all threads together, not of a clock: what stops the loop in here needs
    at least as much of it, and what else the machine does needs none.
    """
    turns = [0.0]

    async def beat() -> None:
        while True:
            begin = time.process_time()
            await asyncio.sleep(0.001)
            turns.append(time.process_time() - begin)

    async with asyncio.TaskGroup() as tasks:
        beats = tasks.create_task(beat())
        yield turns
        beats.cancel()


async def read(bodies: Bodies, path: str, body: bytes) -> None:
    """Read a body and let the hook that reads more of it answer."""
    until = VirtualClock().elapsed() + LIMIT
    try:
        review = await bodies.read(Upload(body, float("inf")).as_request(), until)
    except Rejected:
        return
    if path == BUDGET_PATH:
        hook = ZpdbValidation(BudgetCatalog(Metrics()), PodStore(), namespace="prod")
        await hook.review(review, until)


@pytest.mark.slow
@pytest.mark.parametrize("paths", WALKS)
async def test_d51_no_hostile_body_stops_the_loop(paths: Sequence[str]) -> None:
    """Eight at a time, of every path: wrong types, deep and wide fillers, maps, texts."""
    bodies = Bodies(VirtualClock())
    named = list_hostile_bodies(paths, "prod")
    # In a thread: to make eight of them takes a second, for which this loop is not to stand still.
    while batch := await asyncio.to_thread(lambda: list(islice(named, AT_ONCE))):
        assert await is_read_in_turns(bodies, batch), [(path, name) for path, name, _ in batch]
    bodies.close()


async def is_read_in_turns(bodies: Bodies, batch: list[tuple[str, str, bytes]]) -> bool:
    """Return whether a batch can be read without a stall; tried again only where there was one."""
    for _ in range(TIMES):
        if await get_stall(bodies, batch) < STALL:
            return True
    return False


async def get_stall(bodies: Bodies, batch: list[tuple[str, str, bytes]]) -> float:
    """Return the longest turn of the loop while a batch is read, in seconds of the processor."""
    async with beating() as turns, asyncio.TaskGroup() as tasks:
        for path, _, body in batch:
            tasks.create_task(read(bodies, path, body))
    return max(turns)
