"""MIRR-03, MIRR-04, MIRR-10, RBAC-06: mirroring on a real API server, under the shipped Role."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import Resource
from rollout_operator.kube.client.client import Client
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.kube.connection.connect import Access, connect
from rollout_operator.kube.scales.references import References
from rollout_operator.model.errors import NotFound
from rollout_operator.model.names import GroupName
from rollout_operator.model.scaling import NoScale, Reference, Scale
from rollout_operator.telemetry.metrics import Metrics
from tests.rendered import install
from tests.world.api import ROLE_BINDINGS, ROLES, Json
from tests.world.crds import REPLICA_TEMPLATES, install_kinds
from tests.world.scene import World

pytestmark = pytest.mark.controlplane

GROUP = "rollout-operator.grafana.com"
DEMO = Reference(GROUP, "ReplicaTemplate", "demo")
STORE = GroupName("store")
LIMIT = timedelta(seconds=20)


@pytest.fixture
async def client(world: World, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a client with the shipped Roles, in a cluster with the shipped kinds."""
    await install_kinds(world.api)
    for one in install(tmp_path / "manifests", "mirroring", namespace=world.namespace):
        if one["metadata"]["name"] == "rollout-operator-mirroring":
            kind = {"Role": ROLES, "RoleBinding": ROLE_BINDINGS}[one["kind"]]
            await world.api.create(kind, world.namespace, one)
    file = world.plane.kubeconfig(tmp_path / "kubeconfig", world.token)
    clock = LoopClock()
    access = Access(namespace=world.namespace, api_url=world.plane.url, config_file=str(file))
    transport = await connect(access, clock)
    yield Client(transport, RateLimiter(0, 0), Metrics())
    await transport.close()


async def create(world: World, replicas: int) -> None:
    body: Json = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ReplicaTemplate",
        "metadata": {"name": "demo"},
        "spec": {"replicas": replicas},
    }
    await world.api.create(REPLICA_TEMPLATES, world.namespace, body)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, for a bounded time."""
    async with asyncio.timeout(LIMIT.total_seconds()):
        while not holds():  # noqa: ASYNC110 (a condition, no event)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(client: Client, world: World) -> AsyncIterator[References]:
    references = References(
        client,
        world.namespace,
        looks=client,
        reconcile_interval=timedelta(seconds=1),
        clock=LoopClock(),
        rng=lambda: 0.5,
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(references.run())
        try:
            yield references
        finally:
            task.cancel()


async def test_mirr_03_kinds_are_discovered(client: Client) -> None:
    (version, *_) = await client.fetch_group(GROUP)
    ours = {one.resource.kind: one for one in await client.fetch_resources(GROUP, version)}
    only = ours["ReplicaTemplate"]
    assert only.resource == Resource(GROUP, "v1", "replicatemplates", "ReplicaTemplate")
    assert only.subresources == {"scale", "status"}
    apps = {one.resource.kind: one for one in await client.fetch_resources("apps", "v1")}
    assert "scale" in apps["StatefulSet"].subresources
    core = {one.resource.kind: one for one in await client.fetch_resources("", "v1")}
    assert "scale" not in core["ConfigMap"].subresources
    with pytest.raises(NotFound):
        await client.fetch_group("nothings.example.org")


async def test_seed_071_an_autoscaler_s_writes_are_seen_and_a_status_goes_back(
    client: Client, world: World
) -> None:
    async with following(client, world) as references:
        references.want(STORE, [DEMO])
        await until(lambda: isinstance(references.readings.get(DEMO), NoScale))
        await create(world, 3)
        await until(lambda: references.readings.get(DEMO) == Scale(replicas=3, status_replicas=0))
        path = REPLICA_TEMPLATES.path(world.namespace, "demo", "scale")
        scale: Json = await world.api.call("GET", path)
        scale["spec"]["replicas"] = 5
        await world.api.call("PUT", path, body=scale)
        await until(lambda: references.readings.get(DEMO) == Scale(replicas=5, status_replicas=0))
        await references.publish(DEMO, 4)
        await until(lambda: references.readings.get(DEMO) == Scale(replicas=5, status_replicas=4))
        written = await world.api.get(REPLICA_TEMPLATES, world.namespace, "demo")
        assert written["status"] == {"replicas": 4}
        await world.api.delete(REPLICA_TEMPLATES, world.namespace, "demo")
        await until(lambda: isinstance(references.readings.get(DEMO), NoScale))


async def test_rbac_06_the_watch_may_be_missing(client: Client, world: World) -> None:
    """RBAC-10: with the rules of the usual Role alone, scales are polled."""
    world.may_be_forbidden = True
    rule = {
        "apiGroups": [GROUP],
        "resources": ["replicatemplates/scale", "replicatemplates/status"],
        "verbs": ["get", "patch"],
    }
    role = "rollout-operator-mirroring"
    await world.api.patch(ROLES, world.namespace, role, {"rules": [rule]})
    await create(world, 3)
    async with following(client, world) as references:
        references.want(STORE, [DEMO])
        await until(lambda: references.readings.get(DEMO) == Scale(replicas=3, status_replicas=0))
        patch = {"spec": {"replicas": 6}}
        await world.api.patch(REPLICA_TEMPLATES, world.namespace, "demo", patch)
        await until(lambda: references.readings.get(DEMO) == Scale(replicas=6, status_replicas=0))


async def test_rbac_06_a_missing_right_is_named(client: Client, world: World) -> None:
    world.may_be_forbidden = True
    deployment = Reference("apps", "Deployment", "demo")
    async with following(client, world) as references:
        references.want(STORE, [deployment])
        await until(lambda: deployment in references.readings)
        found = references.readings[deployment]
        assert isinstance(found, NoScale)
        assert found.is_lasting
        assert f"not allowed in namespace {world.namespace}: " in found.why
        assert 'grant verb get on "deployments/scale" in API group "apps"' in found.why
