"""The judge sees what a wrong operator does on the real control plane, and blames nothing else."""

import asyncio
from datetime import timedelta

import aiohttp
import pytest
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.model.names import PREPARE_PATH
from tests.judge.objects import MIN_TIME, PREPARE
from tests.world.api import PODS, STATEFULSETS, Api, Json
from tests.world.kubelet import always, slow_to_end
from tests.world.world import World

pytestmark = pytest.mark.controlplane


async def delete_like_an_operator(operator: Api, world: World, name: str) -> None:
    meta: Json = (await world.get(PODS, name))["metadata"]
    requested = {"uid": meta["uid"], "version": meta["resourceVersion"]}
    await operator.delete(PODS, world.namespace, name, **requested)


async def broken(world: World) -> list[str]:
    return sorted({each.invariant for each in await world.judge.violations()})


async def test_a_proper_rollout_is_clean_and_two_zones_at_once_are_found(world: World) -> None:
    """SI-01, SI-06, SI-07"""
    names = await world.create(*three_zones(replicas=1))
    await world.set_image(names, "v2")
    await world.wait_ready(names)
    async with world.plane.api(world.token) as operator:
        for name in names:
            await delete_like_an_operator(operator, world, f"{name}-0")
            await world.wait_rolled([name])

        await world.judge.assert_clean()
        assert [one.name for one in await world.judge.deletes()] == [f"{one}-0" for one in names]
        for one in await world.judge.restarts():
            assert one.ready is not None
            assert one.deleted < one.ready
        await world.set_image(names, "v3")
        await world.wait_ready(names)
        await world.delete(PODS, f"{names[2]}-0")
        await world.wait_rolled(names[2:])
        await world.judge.assert_clean()

        world.kubelet.choose = always(slow_to_end(timedelta(seconds=1)))
        deleting = (delete_like_an_operator(operator, world, f"{name}-0") for name in names[:2])
        await asyncio.gather(*deleting)
        assert await broken(world) == ["SI-01"]
        with pytest.raises(AssertionError, match=r"(?s)SI-01: delete of ing.*<- operator"):
            await world.judge.assert_clean()
        body = {
            "metadata": {"name": "stray"},
            "spec": {"containers": [{"name": "a", "image": "b"}]},
        }
        await world.post(PODS, body)
        await operator.delete(PODS, world.namespace, "stray")
        assert await broken(world) == ["SI-01", "SI-06", "SI-07"]


async def test_real_downscales_are_judged(world: World) -> None:
    """SI-10, SI-11: on the real server no pod is prepared, or not by a webhook."""
    pods = await world.serve_pods()
    labels, annotations = {PREPARE: "true", MIN_TIME: "1h"}, {PREPARE_PATH: "prepare"}
    zones = [ZoneSpec(name=name, labels=labels, annotations=annotations) for name in "ab"]
    names = await world.create(*zones)
    await world.label("a", **{PREPARE: None})
    await world.set_replicas("a", 2)
    assert await world.judge.downscale_violations(pods.calls) == []

    # Before the request came, which is what a webhook could not do.
    url = f"http://{pods.address('b-2')}:{pods.port}/prepare"
    async with aiohttp.ClientSession() as session, session.post(url) as answer:
        await answer.read()
    await world.set_replicas("b", 2)
    await world.wait_ready(names)
    (early,) = await world.judge.downscale_violations(pods.calls)
    assert early.invariant == "SI-10"
    assert "b-2 has not confirmed between request and write: ['POST -> 200']" in early.text

    await world.label("a", **{PREPARE: "true"})
    spec = {"spec": {"replicas": 1}}
    await world.api.patch(STATEFULSETS, world.namespace, "a", spec, subresource="scale")
    found = await world.judge.downscale_violations(pods.calls)
    assert [each.invariant for each in found] == ["SI-10", "SI-10", "SI-11"]
