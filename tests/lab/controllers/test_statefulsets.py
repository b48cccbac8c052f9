"""The StatefulSet controller beyond the contract: refusals, and what its cache shows when."""

import asyncio
import random
from datetime import timedelta

import pytest
from rollout_lab.controllers.controller_cache import ControllerCache
from rollout_lab.controllers.set_writes import CONTROLLER
from rollout_lab.model.history import Commit
from rollout_lab.virtual_loop.pace import Range, Timers
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import PODS, SECRETS, STATEFULSETS, JsonObject, Resource
from tests.lab.cluster_world import world
from tests.virtual_time import elapsed, in_virtual_time

LAG = (timedelta(seconds=1), timedelta(seconds=9))
NO_LAG: Range = (timedelta(0), timedelta(0))


@in_virtual_time
async def test_a_refused_delete_comes_back_with_growing_pauses_and_the_counts_stay() -> None:
    with world() as rig:
        await rig.bring_up(ZoneSpec(name="web", replicas=1))
        rig.api.forbidden.add((CONTROLLER, "delete", "pods"))
        rig.patch("web", {"replicas": 0})
        begun = elapsed()

        def refused() -> list[timedelta]:
            return [one.at for one in rig.called(CONTROLLER) if one.status == 403]

        await rig.until(lambda: len(refused()) == 10)
        assert elapsed() - begun > 4 * (refused()[1] - begun)
        assert rig.status("web")["replicas"] == 1
        rig.api.forbidden.clear()
        await rig.until(lambda: rig.pods() == [])


def commit_of(revision: int, resource: Resource = STATEFULSETS) -> Commit:
    obj: JsonObject = {"metadata": {"name": "web", "namespace": "default"}, "n": revision}
    return Commit(
        at=timedelta(0),
        revision=revision,
        actor="person",
        resource=resource,
        namespace="default",
        name="web",
        before=None,
        after=obj,
    )


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_a_lagging_cache_keeps_the_order_of_a_kind(seed: int) -> None:
    cache = ControllerCache(timers=Timers(), rng=random.Random(seed), lag=LAG)
    seen: list[int] = []
    cache.on_change = lambda commit: seen.append(commit.revision)
    for revision in range(1, 21):
        cache.bring(commit_of(revision))
    await asyncio.sleep(LAG[0].total_seconds() / 2)
    assert not cache.has_seen("statefulsets", 1)
    assert cache.sets == {}
    await asyncio.sleep(LAG[1].total_seconds())
    assert seen == list(range(1, 21))
    assert cache.has_seen("statefulsets", 20)
    assert not cache.has_seen("pods", 1)


@in_virtual_time
async def test_a_cache_without_lag_knows_at_once() -> None:
    cache = ControllerCache(timers=Timers(), rng=random.Random(1), lag=NO_LAG)
    cache.bring(commit_of(3, PODS))
    assert [one.name for one in cache.pods("", "default")] == ["web"]
    assert cache.pods("", "other") == cache.pods("u", "default") == []
    cache.bring(commit_of(4, SECRETS))
    assert not cache.has_seen("secrets", 4)
