"""What client, caches and injector take for granted about the API server, checked on a real one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import (
    CONFIG_MAPS,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
)
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Access, connect
from rollout_operator.kube.informer import Collection, StateStream
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.kube.store import PodStore, is_older
from rollout_operator.model.decode.objects import decode_pod, decode_replica_writers
from rollout_operator.model.names import FIELD_MANAGER, Conflict, Denied, Refused, Unreachable
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.world.api import CONFIG_MAPS as WORLD_CONFIG_MAPS
from tests.world.plane import ADMIN
from tests.world.world import World

pytestmark = pytest.mark.controlplane


@asynccontextmanager
async def opened(world: World, folder: Path, token: str) -> AsyncIterator[Client]:
    file = world.plane.kubeconfig(folder / "some-kubeconfig", token)
    clock = LoopClock()
    access = Access(namespace=world.namespace, api_url=world.plane.url, config_file=str(file))
    transport = await connect(access, clock)
    yield Client(transport, RateLimiter(0, 0), Metrics())
    await transport.close()


@pytest.fixture
async def client(world: World, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a client that may do everything."""
    async with opened(world, tmp_path, world.plane.tokens[ADMIN]) as client:
        yield client


def tree(body: bytes) -> Any:
    return msgspec.json.decode(body)


@pytest.fixture
async def operator(world: World, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a client with the shipped Role, which has a zone `a` of two pods to read."""
    await world.create(ZoneSpec(name="a", replicas=2))
    async with opened(world, tmp_path, world.token) as client:
        yield client


async def test_what_only_a_real_server_words(operator: Client, world: World) -> None:
    """FP-10, FP-11: 422 of a write that applies and is wrong, and of a version to come.

    Conflicts, pages, preconditions, JSON patches and watches are compared in the contract, through
    this very client; `tests/system/certificates.txt` shows that the operator follows configurations
    of webhooks by name, and patches them.
    """
    space = world.namespace
    body = tree(await operator.fetch(STATEFULSETS, space, "a"))
    wrong = {**body, "status": {**body["status"], "replicas": -1}}
    with pytest.raises(Refused, match="422 Invalid"):
        await operator.replace_status(STATEFULSETS, space, "a", wrong)
    with pytest.raises(Unreachable) as caught:
        await operator.fetch_page(PODS, space, resource_version="999999999999")
    assert caught.value.reason == "ResourceVersionTooLarge", "FP-10"
    some = await operator.fetch_page(PODS, space, selector="name=absent")
    assert len(some.items) == 0
    shown = operator.server_time()
    assert shown is not None
    assert abs(shown - datetime.now(UTC)) < timedelta(seconds=5)


async def test_two_managers_apply_one_object(client: Client, world: World) -> None:
    """A field of another manager is a conflict that names it; a forced one is taken.

    What cannot be taken whoever applies it is no conflict.
    """
    space = world.namespace
    created = tree(
        await client.create(CONFIG_MAPS, space, {"metadata": {"name": "c"}, "data": {"a": "0"}})
    )

    async def apply(manager: str, *, is_forced: bool = False, **data: str) -> Any:
        metadata = {"name": "c", "uid": created["metadata"]["uid"]}
        body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        body["data"] = data
        return tree(
            await client.apply(CONFIG_MAPS, space, "c", body, manager=manager, is_forced=is_forced)
        )

    assert (await apply("team/one", b="1"))["data"] == {"a": "0", "b": "1"}
    with pytest.raises(Conflict, match=r'conflict with \\?"team/one\\?": \.data\.b'):
        await apply("team/two", b="2")
    taken = await apply("team/two", is_forced=True, b="2", c="2")
    assert taken["data"] == {"a": "0", "b": "2", "c": "2"}
    assert (await apply("team/two", b="2"))["data"] == {"a": "0", "b": "2"}, "c is let go"
    with pytest.raises(Refused, match="422 Invalid"):
        await client.patch(CONFIG_MAPS, space, "c", {"metadata": {"labels": {"no/key/": "x"}}})
    await world.api.delete(WORLD_CONFIG_MAPS, space, "c")
    with pytest.raises(Conflict):
        await apply("team/one", b="1")


async def test_d54_all_objects_are_streamed(operator: Client, world: World) -> None:
    of: Collection[Pod | Unreadable] = Collection(
        resource=PODS, namespace=world.namespace, decode=decode_pod, store=PodStore()
    )
    page = await operator.fetch_page(PODS, world.namespace)
    found = await StateStream(operator, of).fetch()
    assert found is not None
    items, version = found
    assert {item.name for item in items} == {"a-0", "a-1"}
    assert not is_older(version, than=page.resource_version)


async def test_rbac_08_a_missing_cluster_role_is_named(world: World, tmp_path: Path) -> None:
    """Of an account without any rights, in a namespace of its own making."""
    token = await world.plane.create_account(world.api, world.namespace, "powerless")
    async with opened(world, tmp_path, token) as client:
        with pytest.raises(Denied) as caught:
            await client.patch(VALIDATING_WEBHOOKS, "", "guard", [])
    assert str(caught.value).startswith("cannot patch validatingwebhookconfigurations/guard: 403")
    assert str(caught.value).endswith('"admissionregistration.k8s.io" in its ClusterRole')


async def test_whichever_client_wrote_a_count_last_is_named_and_we_are_known(
    client: Client, world: World
) -> None:
    """By that the other writer is named."""
    where = (STATEFULSETS, world.namespace)
    body = statefulset(ZoneSpec(name="contested", replicas=0, group="none"), world.namespace)
    await client.create(*where, body)
    steps: list[JsonObject] = [{"op": "replace", "path": "/spec/replicas", "value": 0}]
    found = await client.patch(*where, "contested", steps)
    assert decode_replica_writers(found, but="") == (FIELD_MANAGER,)
    assert decode_replica_writers(found, but=FIELD_MANAGER) == ()
    managed = json.loads(found)["metadata"]["managedFields"]
    taken = [{**one, "manager": "keda"} for one in managed]
    found = await client.patch(
        *where, "contested", {"metadata": {"managedFields": taken}, "spec": {"replicas": 0}}
    )
    assert "keda" in decode_replica_writers(found, but=FIELD_MANAGER)
