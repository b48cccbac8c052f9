"""Marks of downscales that a tenant writes, before the whole operator on a simulated cluster."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import pytest
from rollout_lab.model.fields import name_of
from rollout_lab.nodes.behaviour import Behaviour, image_of
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.guards.downscales import REFUSED_LIMIT
from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.model.names import DOWNSCALE_INTENT
from tests.operator.acting import annotate, change, create
from tests.virtual_time import VirtualClock, in_virtual_time

SETS: Final = 40
GOOD: Final = tuple(three_zones("good", replicas=4, max_unavailable="4"))
PODS_OF_GOOD: Final = 12
OPERATOR: Final = "operator-1"
SECOND: Final = timedelta(seconds=1)
PATIENCE: Final = timedelta(minutes=10)
# Pods of a second: what a rollout takes is what the operator lets it wait.
QUICK: Final = Behaviour(
    starts_after=timedelta(milliseconds=100),
    ready_after=timedelta(milliseconds=900),
    terminates_after=timedelta(milliseconds=100),
)

Flood = Callable[[Sandbox], Coroutine[Any, Any, None]]


async def rewrite(sandbox: Sandbox) -> None:
    """Write a new mark every second to each of forty sets, of as many groups."""
    names = [f"evil-{number}" for number in range(SETS)]
    for name in names:
        await create(sandbox, ZoneSpec(name=name, group=name, replicas=0))
    for at in itertools.count():
        for name in names:
            await annotate(sandbox, name, DOWNSCALE_INTENT, f"{at}")
            await asyncio.sleep(1 / SETS)


async def multiply(sandbox: Sandbox) -> None:
    """Create ten sets a second, of as many groups, each with a mark."""
    for at in itertools.count():
        name, annotations = f"evil-{at}", {DOWNSCALE_INTENT: "x"}
        await create(sandbox, ZoneSpec(name=name, group=name, replicas=0, annotations=annotations))
        await asyncio.sleep(0.1)


async def nothing(sandbox: Sandbox) -> None:
    """Write no mark."""
    await asyncio.Event().wait()


async def _roll(sandbox: Sandbox, image: str) -> timedelta:
    """Return how long it takes until all pods of the good group are new."""
    begin = sandbox.elapsed()
    await change(sandbox, *(zone.name for zone in GOOD), image=image)
    while _count_new(sandbox, image) < PODS_OF_GOOD:
        assert sandbox.elapsed() - begin < PATIENCE
        await asyncio.sleep(0.1)
    return sandbox.elapsed() - begin


def _count_new(sandbox: Sandbox, image: str) -> int:
    pods = sandbox.api.list(PODS, sandbox.namespace)
    return sum(image_of(one) == image and name_of(one).startswith("good") for one in pods)


@asynccontextmanager
async def _world() -> AsyncIterator[Sandbox]:
    """Give a cluster with the good group, and the operator at work there."""
    async with Sandbox(choose=lambda pod: QUICK) as sandbox:
        await create(sandbox, *GOOD)
        await VirtualClock().sleep(30 * SECOND)
        process = sandbox.process()
        process.start()
        await process.wait_ready()
        yield sandbox


async def _measure(flood: Flood, *waits: timedelta) -> list[timedelta]:
    """Return how long the rollouts of a group take that begin after each of these."""
    spans: list[timedelta] = []
    async with _world() as sandbox, AsyncExitStack() as stack:
        task = asyncio.create_task(flood(sandbox), name="flood")
        stack.callback(task.cancel)
        for number, wait in enumerate(waits):
            await VirtualClock().sleep(wait)
            spans.append(await _roll(sandbox, f"v{number + 2}"))
    return spans


@pytest.mark.slow
@pytest.mark.parametrize("flood", [rewrite, multiply])
@in_virtual_time
async def test_li09_marks_of_a_tenant_do_not_slow_the_rollout_of_another_group(
    flood: Flood,
) -> None:
    """LI-09, SI-02: forty new marks a second took each token of the default limits, for good."""
    (quiet,) = await _measure(nothing, 5 * SECOND)
    spans = await _measure(flood, 5 * SECOND, 10 * SECOND)
    assert max(spans) <= 2 * quiet


async def _mark(sandbox: Sandbox, text: str | None) -> None:
    """Write a mark to a zone of the good group, or remove it with None."""
    await annotate(sandbox, GOOD[0].name, DOWNSCALE_INTENT, text)


async def _begin(sandbox: Sandbox, image: str) -> None:
    """Change the templates of the good group, and wait for a second."""
    await change(sandbox, *(zone.name for zone in GOOD), image=image)
    await VirtualClock().sleep(SECOND)


@in_virtual_time
async def test_li15_a_mark_that_may_not_be_removed_holds_its_group_for_five_minutes() -> None:
    """LI-15, SI-18: from its first refusal on, and another mark for as long again."""
    async with _world() as sandbox:
        sandbox.api.forbidden.add((OPERATOR, "patch", STATEFULSETS.plural))
        await _mark(sandbox, "x")
        await _begin(sandbox, "v2")
        await VirtualClock().sleep(REFUSED_LIMIT - 3 * SECOND)
        assert _count_new(sandbox, "v2") == 0
        # All three zones, and what is recorded in between.
        await VirtualClock().sleep(15 * SECOND)
        assert _count_new(sandbox, "v2") == PODS_OF_GOOD

        await _mark(sandbox, "y")
        await _begin(sandbox, "v3")
        # The next attempt to remove it may be half a minute away, and is what begins the time.
        await VirtualClock().sleep(REFUSED_LIMIT - 3 * SECOND)
        assert _count_new(sandbox, "v3") == 0
        await VirtualClock().sleep(45 * SECOND)
        assert _count_new(sandbox, "v3") == PODS_OF_GOOD


@in_virtual_time
async def test_li15_a_mark_that_another_client_removes_holds_nothing_at_once() -> None:
    """LI-15: no read is waited for that nothing wakes."""
    async with _world() as sandbox:
        sandbox.api.forbidden.add((OPERATOR, "patch", STATEFULSETS.plural))
        await _mark(sandbox, "x")
        await _begin(sandbox, "v2")
        assert _count_new(sandbox, "v2") == 0
        await _mark(sandbox, None)
        await VirtualClock().sleep(15 * SECOND)
        assert _count_new(sandbox, "v2") == PODS_OF_GOOD
