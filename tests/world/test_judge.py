"""The judge sees what a wrong operator does on the real control plane, and blames nobody else."""

import asyncio
from datetime import timedelta

import pytest

from tests.world.api import NAMESPACES, PODS, Api, ApiError
from tests.world.kubelet import always, slow_to_end
from tests.world.scene import World
from tests.world.sets import annotate, set_image, three_zones, wait_ready, wait_rolled
from tests.world.verdicts import Allowances

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


async def test_a_passed_limit_is_found(world: World) -> None:
    (name, *_) = await outdated_zones(world)
    world.kubelet.choose = always(slow_to_end(timedelta(seconds=1)))

    async with world.plane.api(world.token) as operator:
        for ordinal in range(2):
            await delete_like_an_operator(operator, world, f"{name}-{ordinal}")

    assert await broken(world) == ["SI-03", "SI-04"]


async def test_a_delete_while_another_zone_is_down_is_found(world: World) -> None:
    world.judge.allowances = Allowances(known=timedelta(0), flight=timedelta(0))
    names = await outdated_zones(world)
    await world.kubelet.make_unready(f"{names[1]}-2")

    async with world.plane.api(world.token) as operator:
        await delete_like_an_operator(operator, world, f"{names[0]}-0")

    assert await broken(world) == ["SI-02"]


async def test_a_delete_without_preconditions_and_of_an_updated_pod_is_found(world: World) -> None:
    world.judge.allowances = Allowances(flight=timedelta(0))
    names = await world.create(*three_zones(replicas=1))

    async with world.plane.api(world.token) as operator:
        await operator.delete(PODS, world.namespace, f"{names[0]}-0")

    texts = [each.text for each in await world.judge.violations()]
    assert len(texts) == 2
    assert "uid unset and resourceVersion unset" in texts[0]
    assert "on the update revision" in texts[1]


async def test_a_delete_in_a_paused_zone_is_found(world: World) -> None:
    world.judge.allowances = Allowances(known=timedelta(0))
    names = await outdated_zones(world, replicas=1)
    await annotate(world.api, world.namespace, names[0], **{"grafana.com/rollout-paused": "true"})

    async with world.plane.api(world.token) as operator:
        await delete_like_an_operator(operator, world, f"{names[0]}-0")

    assert await broken(world) == ["SI-07"]


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
