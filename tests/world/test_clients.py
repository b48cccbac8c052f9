"""Each route changes the count as its client would, and shows what the server said."""

import pytest

from rollout_operator.lab.zones import ZoneSpec, statefulset
from tests.world.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Resource, read_warning
from tests.world.clients import EVERY_ROUTE, OF_ANY_COUNT, Route, Workload, workload_body
from tests.world.scene import World

LABEL = "grafana.com/no-downscale"


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ('299 - "plain words"', "plain words"),
        (r'299 - "a \"quoted\" word and a \\"', 'a "quoted" word and a \\'),
        ('299 - ""', ""),
    ],
)
def test_warnings_are_unquoted(header: str, text: str) -> None:
    assert read_warning(header) == text


async def create(world: World, resource: Resource, replicas: int) -> Workload:
    labels = {LABEL: "true"}
    body = (
        statefulset(ZoneSpec(name="a", replicas=replicas, labels=labels), world.namespace)
        if resource is STATEFULSETS
        else workload_body(resource, "a", replicas, labels)
    )
    await world.api.create(resource, world.namespace, body)
    return Workload(
        api=world.api, namespace=world.namespace, name="a", resource=resource, label=LABEL
    )


@pytest.mark.controlplane
@pytest.mark.parametrize("resource", [STATEFULSETS, DEPLOYMENTS, REPLICASETS])
async def test_every_route_leads_to_the_count(world: World, resource: Resource) -> None:
    """SI-14"""
    # Nobody else may write: a fresh version is to stay fresh.
    await world.plane.stop_controllers()
    try:
        workload = await create(world, resource, len(OF_ANY_COUNT))
        for replicas, route in enumerate(OF_ANY_COUNT):
            if route is Route.UNLABEL:
                await world.api.patch(
                    resource, world.namespace, "a", {"metadata": {"labels": {LABEL: "true"}}}
                )
            before = await workload.replicas()
            dry = await workload.scale(replicas, route, is_dry_run=True)
            assert (dry.status, dry.message) == (200, ""), route
            assert await workload.replicas() == before, route

            answer = await workload.scale(replicas, route)
            assert (answer.status, answer.body["spec"]["replicas"]) == (200, replicas), route
            assert await workload.replicas() == replicas, route
        found = await world.api.get(resource, world.namespace, "a")
        assert (LABEL in found["metadata"]["labels"]) is False
    finally:
        world.plane.start_controllers()


@pytest.mark.controlplane
async def test_stale_puts_are_refused_and_omitted_replicas_are_one(world: World) -> None:
    """SI-14"""
    workload = await create(world, DEPLOYMENTS, 5)

    for route in EVERY_ROUTE:
        if route.is_stale:
            answer = await workload.scale(4, route)
            assert answer.status == 409
            assert "the object has been modified" in answer.message
    assert await workload.replicas() == 5
    assert (await workload.scale(4, Route.PUT_OMITTED)).status == 200
    assert await workload.replicas() == 1


@pytest.mark.controlplane
async def test_several_at_once_know_nothing_of_each_other(world: World) -> None:
    """FP-19: of two who read the same version, one wins; of two who patch, both do."""
    workload = await create(world, DEPLOYMENTS, 5)

    put = await workload.scale_at_once((4, Route.PUT_FRESH), (3, Route.SCALE_PUT_FRESH))
    assert sorted(each.status for each in put) == [200, 409]

    before = await workload.replicas()
    patched = await workload.scale_at_once((2, Route.MERGE), (1, Route.SCALE_MERGE))
    assert [each.status for each in patched] == [200, 200]
    assert await workload.replicas() in (1, 2)

    dry = await workload.scale_at_once((before, Route.MERGE), (9, Route.MERGE), is_dry_run=True)
    assert [each.body["spec"]["replicas"] for each in dry] == [before, 9]
