"""All nodes of all zones drained at once, while a rollout runs and the operator is killed.

The judge reads the store's own history: SI-01 to SI-05 and SI-17, for evictions and deletes.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest

from tests.system.budgeted import Budgeted, hold
from tests.system.waits import wait_true
from tests.world.api import PODS, Json
from tests.world.budgets import TRY_AGAIN, by_partition, grouped_zones, zone_budget
from tests.world.drains import OVER, UNANSWERED, Drain
from tests.world.kubelet import Behaviour, always
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "ingester"}
FAST: Final = Behaviour(
    ready_after=timedelta(milliseconds=50), terminates_after=timedelta(milliseconds=20)
)
KILLS: Final = 3
LIMIT: Final = timedelta(seconds=180)


@pytest.mark.parametrize(
    ("make", "maximum"),
    [
        pytest.param(zone_budget, 1, id="zones"),
        pytest.param(by_partition, 3, id="partitions", marks=pytest.mark.prove),
    ],
)
async def test_fp21_drains_and_a_rollout_and_kills(
    world: World, make: Callable[..., Json], maximum: int
) -> None:
    """SI-01 to SI-05, SI-17, FP-06, FP-21, FP-35: never beyond the budget, and all of it ends."""
    budget = make("ingester", LABELS, maxUnavailable=maximum)
    world.kubelet.choose = always(FAST)
    zones = grouped_zones(replicas=6, max_unavailable=maximum)
    held = await hold(world, *zones, budgets=[budget], flags=("-log.level=info",))
    before = await held.victims()
    drain = Drain(world.api, world.namespace)
    async with asyncio.TaskGroup() as tasks:
        await world.set_image(held.names, "v2")
        tasks.create_task(drain.run(before, LIMIT), name="drain")
        tasks.create_task(_kill(held, random.Random(maximum)), name="kills")
    await world.wait_adopted(held.names)
    await world.judge.assert_clean()
    assert drain.unexpected() == []
    assert await _is_reported(drain, UNANSWERED), "it was never away while it was called"
    assert await _uids(held) & {pod.uid for pod in before} == set()
    evicted = [one for one in await world.judge.evictions() if one.is_done]
    assert evicted, "the rollout was faster"
    await _wait_no_record(held)


async def test_fp31_a_budget_that_changes_during_a_drain(world: World) -> None:
    """FP-31, T-10: 3, then 0, then 1: while it is 0 nothing goes; the drain ends all the same."""
    world.kubelet.choose = always(FAST)
    budget = zone_budget("ingester", LABELS, maxUnavailable=3)
    held = await hold(world, *grouped_zones(replicas=5), budgets=[budget])
    drain = Drain(world.api, world.namespace)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(drain.run(await held.victims(), LIMIT), name="drain")
        await wait_true("five gone", lambda: _have_gone(held, 5))
        await held.set_budget("ingester", maxUnavailable=0)
        await wait_true("refused", lambda: _is_reported(drain, "max unavailable = 0"))
        await held.wait_ready()
        stopped = await _uids(held)
        await asyncio.sleep(1)  # nothing happens in it
        assert await _uids(held) == stopped
        await held.set_budget("ingester", maxUnavailable=1)
    await world.judge.assert_clean()
    assert {answer.status for _, answer in drain.refusals()} <= {403, TRY_AGAIN, *OVER}


async def _kill(held: Budgeted, rng: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.1, 1.5))  # the moment is what is tested
        held.operator.kill()
        held.operator.start()
        await held.operator.wait_ready()


async def _uids(held: Budgeted) -> set[str]:
    pods = await held.world.api.items(PODS, held.world.namespace)
    return {pod["metadata"]["uid"] for pod in pods}


async def _have_gone(held: Budgeted, many: int) -> bool:
    return len([one for one in await held.world.judge.evictions() if one.is_done]) >= many


async def _is_reported(drain: Drain, text: str) -> bool:
    return any(text in answer.message for _, answer in drain.refusals())


async def _wait_no_record(held: Budgeted) -> None:
    """LI-07: what was granted to a drain that has ended, and to a rollout, is released."""

    async def is_clean() -> bool:
        return await held.list_recorded() == []

    await wait_true("records gone", is_clean, timedelta(seconds=20))
