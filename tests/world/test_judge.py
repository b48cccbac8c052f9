"""The judge sees what a wrong operator does on the real control plane, and blames nobody else."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from rollout_operator.lab.zones import ZoneSpec, three_zones
from rollout_operator.model.names import PREPARE_PATH
from tests.judge.objects import MIN_TIME, PREPARE
from tests.world.api import NAMESPACES, PODS, STATEFULSETS, Api, ApiError
from tests.world.budgets import (
    ZONE_BUDGETS,
    DryRun,
    by_partition,
    evict,
    grouped_zones,
    install_kinds,
    zone_budget,
)
from tests.world.drains import Drain, list_victims
from tests.world.kubelet import always, slow_to_end
from tests.world.scene import World
from tests.world.sets import label, set_image, set_replicas, wait_ready, wait_rolled
from tests.world.webpods import WebPods

LABELS = {"rollout-group": "ingester"}
NO_TIME = timedelta(0)
pytestmark = pytest.mark.controlplane


async def delete_like_an_operator(operator: Api, world: World, name: str) -> None:
    pod = await operator.get(PODS, world.namespace, name)
    await operator.delete(
        PODS,
        world.namespace,
        name,
        uid=pod["metadata"]["uid"],
        version=pod["metadata"]["resourceVersion"],
    )


async def outdated_zones(world: World, replicas: int = 3) -> list[str]:
    names = await world.create(*three_zones(replicas=replicas))
    await set_image(world.api, world.namespace, names, "v2")
    await wait_ready(world.api, world.namespace, names)
    return names


def at_once(world: World) -> None:
    """Let every fact be known at once."""
    world.judge.promises = replace(world.judge.promises, known=NO_TIME, flight=NO_TIME)


async def broken(world: World) -> list[str]:
    return sorted({each.invariant for each in await world.judge.violations()})


async def test_a_proper_rollout_is_clean_and_timed(world: World) -> None:
    names = await outdated_zones(world, replicas=1)

    async with world.plane.api(world.token) as operator:
        for name in names:
            await delete_like_an_operator(operator, world, f"{name}-0")
            await wait_rolled(world.api, world.namespace, [name])

    await world.judge.assert_clean()
    deletes = await world.judge.deletes()
    assert [each.name for each in deletes] == [f"{name}-0" for name in names]
    for restart in await world.judge.restarts():
        moments = (restart.deleted, restart.gone, restart.recreated, restart.ready, restart.counted)
        known = [moment for moment in moments if moment is not None]
        assert len(known) == 5
        assert known == sorted(known)


async def test_two_zones_at_once_are_found(world: World) -> None:
    names = await outdated_zones(world)
    world.kubelet.choose = always(slow_to_end(timedelta(seconds=1)))

    async with world.plane.api(world.token) as operator:
        await asyncio.gather(
            *(delete_like_an_operator(operator, world, f"{name}-0") for name in names[:2])
        )

    assert await broken(world) == ["SI-01"]
    with pytest.raises(AssertionError, match=r"(?s)SI-01: delete of ing.*<- operator"):
        await world.judge.assert_clean()


async def test_a_delete_without_preconditions_and_of_an_updated_pod_is_found(world: World) -> None:
    at_once(world)
    names = await world.create(*three_zones(replicas=1))

    async with world.plane.api(world.token) as operator:
        await operator.delete(PODS, world.namespace, f"{names[0]}-0")

    texts = [each.text for each in await world.judge.violations()]
    assert len(texts) == 2
    assert "uid unset and resourceVersion unset" in texts[0]
    assert "on the update revision" in texts[1]


async def test_a_stray_pod_deleted_is_found(world: World) -> None:
    stray = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stray"},
        "spec": {"containers": [{"name": "app", "image": "v1"}]},
    }
    await world.api.create(PODS, world.namespace, stray)

    async with world.plane.api(world.token) as operator:
        await operator.delete(PODS, world.namespace, "stray")

    assert await broken(world) == ["SI-06", "SI-07"]


async def test_others_deletes_are_not_the_operators(world: World) -> None:
    names = await outdated_zones(world, replicas=1)

    for name in names:
        await world.api.delete(PODS, world.namespace, f"{name}-0")
    await wait_rolled(world.api, world.namespace, names)

    await world.judge.assert_clean()
    assert await world.judge.deletes() == []
    assert await world.judge.unattributed() == []


async def test_the_history_is_whole_across_restarts_of_the_api_server(world: World) -> None:
    names = await outdated_zones(world, replicas=1)

    await world.plane.restart_apiserver()
    async with world.plane.api(world.token) as operator:
        await delete_like_an_operator(operator, world, f"{names[0]}-0")
        await wait_rolled(world.api, world.namespace, names[:1])
        await world.plane.restart_apiserver()
        await delete_like_an_operator(operator, world, f"{names[1]}-0")
        await wait_rolled(world.api, world.namespace, names[:2])

    await world.judge.assert_clean()
    assert [each.pod for each in await world.judge.restarts()] == [
        f"{name}-0" for name in names[:2]
    ]
    versions = [change.version for change in world.judge.changes]
    assert versions == sorted(versions)
    assert await world.judge.unattributed() == []


async def test_calls_of_the_operator_are_listed_with_their_refusals(world: World) -> None:
    world.may_be_forbidden = True
    async with world.plane.api(world.token) as operator:
        await operator.items(PODS, world.namespace)
        with pytest.raises(ApiError, match="403 Forbidden"):
            await operator.get(NAMESPACES, "", world.namespace)

    assert [(each.verb, each.resource, each.code) for each in await world.judge.calls()] == [
        ("list", "pods", 200),
        ("get", "namespaces", 403),
    ]


async def guard(world: World, budget: dict[str, object]) -> list[str]:
    await install_kinds(world.api)
    await world.api.create(ZONE_BUDGETS, world.namespace, budget)
    at_once(world)
    world.kubelet.choose = always(slow_to_end(timedelta(seconds=2)))
    return await world.create(*grouped_zones(replicas=2))


async def evict_all(world: World, *pods: str) -> None:
    for pod in pods:
        assert (await evict(world.api, world.namespace, pod)).status == 201


async def test_si01_two_zones(world: World) -> None:
    names = await guard(world, zone_budget("ingester", LABELS))
    await evict_all(world, f"{names[0]}-0", f"{names[1]}-0")

    assert await broken(world) == ["SI-01", "SI-02", "SI-17"]
    assert "<- evicted" in world.judge.describe(await world.judge.deletes())


async def test_si05_one_partition(world: World) -> None:
    names = await guard(world, by_partition("ingester", LABELS))
    await evict_all(world, f"{names[0]}-0", f"{names[1]}-1")
    assert await broken(world) == ["SI-17"]
    await evict_all(world, f"{names[2]}-0")

    assert await broken(world) == ["SI-05", "SI-17"]


async def test_what_does_not_happen_is_not_judged(world: World) -> None:
    """Dry runs, refused ones, and deletes by somebody else."""
    names = await guard(world, zone_budget("ingester", LABELS))
    for how in (DryRun.QUERY, DryRun.OPTIONS):
        await evict(world.api, world.namespace, f"{names[0]}-0", dry_run=how)
    wrong = await evict(world.api, world.namespace, f"{names[1]}-0", uid="another")
    assert wrong.status == 409
    with pytest.raises(ApiError):
        await world.api.get(ZONE_BUDGETS, world.namespace, "other")

    assert await broken(world) == []
    assert len(await world.judge.evictions()) == 3


async def test_a_drain_ends_where_nobody_refuses(world: World) -> None:
    names = await guard(world, zone_budget("other", {"a": "b"}))
    world.kubelet.choose = always(slow_to_end(timedelta(0)))
    drain = Drain(world.api, world.namespace)
    before = await list_victims(world.api, world.namespace, names)
    await drain.run(before, timedelta(seconds=30))

    assert len(before) == 6
    after = await list_victims(world.api, world.namespace, names)
    assert not {pod.uid for pod in before} & {pod.uid for pod in after}
    assert (drain.refusals(), drain.unexpected()) == ([], [])
    assert await broken(world) == [], "pods under no budget are not judged"


async def prepare(pods: WebPods, name: str, method: str = "POST") -> None:
    url = f"http://{pods.address(name)}:{pods.port}/prepare"
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        await answer.read()


async def test_real_downscales_are_judged(world: World) -> None:
    """SI-10, SI-11: on the real server nobody prepares, or somebody else than a webhook does."""
    pods = await world.serve_pods()
    labels, annotations = {PREPARE: "true", MIN_TIME: "1h"}, {PREPARE_PATH: "prepare"}
    zones = [ZoneSpec(name=name, labels=labels, annotations=annotations) for name in "ab"]
    names = await world.create(*zones)
    await label(world.api, world.namespace, "a", **{PREPARE: None})
    await set_replicas(world.api, world.namespace, "a", 2)
    assert await world.judge.downscale_violations(pods.calls) == []

    # Before the request came, which is what a webhook could not do.
    await prepare(pods, "b-2")
    await set_replicas(world.api, world.namespace, "b", 2)
    await wait_ready(world.api, world.namespace, names)
    (early,) = await world.judge.downscale_violations(pods.calls)
    assert early.invariant == "SI-10"
    assert "b-2 has not confirmed between request and write: ['POST -> 200']" in early.text

    await label(world.api, world.namespace, "a", **{PREPARE: "true"})
    await world.api.patch(
        STATEFULSETS, world.namespace, "a", {"spec": {"replicas": 1}}, subresource="scale"
    )
    found = await world.judge.downscale_violations(pods.calls)
    assert [each.invariant for each in found] == ["SI-10", "SI-10", "SI-11"]
