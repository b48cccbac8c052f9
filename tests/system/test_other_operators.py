"""Beside grafana/rollout-operator in one namespace, on the real control plane."""

import asyncio
import time
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.guards.budgets.own_deletes import COMMIT_LIMIT
from rollout_operator.lab.zones import three_zones
from rollout_operator.model.names import PAUSED, REVISION_LABEL
from rollout_operator.planning.rollout.zones import LEFT_ALONE
from tests.system.waits import read_metric, wait_reason
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.sets import is_ready
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# As `-reconcile.interval` of grafana/rollout-operator is by default.
INTERVAL: Final = timedelta(seconds=5)
TAKEN_UP_WITHIN: Final = timedelta(minutes=2)


async def test_d73_a_group_that_grafanas_operator_rolls_out_is_left_to_it(world: World) -> None:
    """D-73: nothing of ours from its second delete until a minute after its last; then all else."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await asyncio.sleep(COMMIT_LIMIT.total_seconds())
    # It reacts in milliseconds, the other one every five seconds: that one gets to begin like this.
    for name in names:
        await world.annotate(name, **{PAUSED: "true"})
    await world.set_image(names, "v2")
    times = await roll_out(world, names, deletes=2)
    for name in names:
        await world.annotate(name, **{PAUSED: None})
    times += await roll_out(world, names, deletes=2)
    await wait_reason(operator, "ingester", "other_operator")
    await world.wait_adopted(names, limit=TAKEN_UP_WITHIN)
    assert time.time() - times[-1] < TAKEN_UP_WITHIN.total_seconds()
    ours = [one.received for one in await world.judge.deletes() if one.is_done]
    assert len(ours) == 5, "nine pods, of which the other one has replaced four"
    assert min(ours) - times[-1] >= LEFT_ALONE.total_seconds()
    metric = "rollout_operator_pods_deleted_by_others_total"
    assert await read_metric(operator, metric, rollout_group="ingester") == 4
    await world.judge.assert_clean()


async def roll_out(
    world: World, names: list[str], *, deletes: int, interval: timedelta = INTERVAL
) -> list[float]:
    """Do as grafana's operator does, until so many pods are deleted; return when each was.

    Each reconcile: the first zone by name that has outdated pods, where every pod of all zones is
    ready; one of them, without preconditions.
    """
    times: list[float] = []
    while len(times) < deletes:
        sets = {
            one["metadata"]["name"]: one
            for one in await world.api.items(STATEFULSETS, world.namespace)
        }
        pods = await world.api.items(PODS, world.namespace)
        wanted = sum(sets[name]["spec"]["replicas"] for name in names)
        if sum(map(is_ready, pods)) == wanted:
            outdated = [pod for name in names for pod in pods if is_outdated(pod, sets[name])]
            if outdated:
                await world.delete(PODS, outdated[0]["metadata"]["name"])
                times.append(time.time())
        await asyncio.sleep(interval.total_seconds())
    return times


def is_outdated(pod: Json, sts: Json) -> bool:
    """Return whether a pod is the set's and not at its update revision."""
    meta = pod["metadata"]
    is_own = meta["name"].startswith(f"{sts['metadata']['name']}-")
    return is_own and bool(meta["labels"][REVISION_LABEL] != sts["status"]["updateRevision"])
