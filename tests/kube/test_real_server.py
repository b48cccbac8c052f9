"""What the client takes for granted about the API server, asked of a real one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS, STATEFULSETS, Precondition
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.lists import StateStream
from rollout_operator.kube.cache.store import PodStore, is_older
from rollout_operator.kube.client.client import Client
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.kube.connection.connect import Access, connect
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.errors import (
    Conflict,
    Denied,
    NotFound,
    Refused,
    Unreachable,
)
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.world.scene import World
from tests.world.sets import Zone

pytestmark = pytest.mark.controlplane


@pytest.fixture
async def client(world: World, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a client with the shipped Role, which has a zone `a` of two pods to look at."""
    await world.create(Zone(name="a", replicas=2))
    file = world.plane.kubeconfig(tmp_path / "kubeconfig", world.token)
    clock = LoopClock()
    access = Access(namespace=world.namespace, api_url=world.plane.url, config_file=str(file))
    transport = await connect(access, clock)
    yield Client(transport, RateLimiter(0, 0), Metrics())
    await transport.close()


class _Meta(msgspec.Struct):
    name: str
    uid: str
    version: str = msgspec.field(name="resourceVersion")


class _Object(msgspec.Struct):
    metadata: _Meta


async def seen(client: Client, world: World, name: str = "a-0") -> _Meta:
    body = await client.fetch(PODS, world.namespace, name)
    return msgspec.json.decode(body, type=_Object).metadata


async def test_reads_and_pages(client: Client, world: World) -> None:
    first = await client.fetch_page(PODS, world.namespace, limit=1)
    last = await client.fetch_page(PODS, world.namespace, limit=1, token=first.next_token)
    assert (len(first.items), len(last.items), last.next_token) == (1, 1, "")
    assert first.resource_version == last.resource_version
    some = await client.fetch_page(PODS, world.namespace, selector="name=nobody")
    assert len(some.items) == 0
    with pytest.raises(NotFound, match="404 NotFound"):
        await client.fetch(PODS, world.namespace, "a-9")
    shown = client.server_time()
    assert shown is not None
    assert abs(shown - datetime.now(UTC)) < timedelta(seconds=5)


async def test_fp_11_preconditions_that_do_not_hold_conflict(client: Client, world: World) -> None:
    pod = await seen(client, world)
    for uid, version in (("other", pod.version), (pod.uid, "1")):
        stale = Precondition(uid=Uid(uid), resource_version=version)
        with pytest.raises(Conflict):
            await client.delete(PODS, world.namespace, "a-0", precondition=stale)
    fresh = Precondition(uid=Uid(pod.uid), resource_version=pod.version)
    await client.delete(PODS, world.namespace, "a-0", precondition=fresh)


async def test_d54_all_objects_are_streamed(client: Client, world: World) -> None:
    of: Collection[Pod | Unreadable] = Collection(
        resource=PODS, namespace=world.namespace, decode=decode_pod, store=PodStore()
    )
    page = await client.fetch_page(PODS, world.namespace)
    found = await StateStream(client, of).fetch()
    assert found is not None
    views, version = found
    assert {view.name for view in views} == {"a-0", "a-1"}
    assert not is_older(version, than=page.resource_version)


async def test_what_the_role_lacks_is_named(client: Client, world: World) -> None:
    world.may_be_forbidden = True
    with pytest.raises(Denied, match=r'grant verb list on "pods" in API group ""'):
        await client.fetch_page(PODS, "kube-system")
    with pytest.raises(Denied, match=r"delete pods/x in namespace kube-system: 403 Forbidden: "):
        await client.delete(
            PODS,
            "kube-system",
            "x",
            precondition=Precondition(uid=Uid("u"), resource_version="1"),
        )


async def test_a_status_is_replaced_only_by_who_saw_the_latest(
    client: Client, world: World
) -> None:
    body = msgspec.json.decode(await client.fetch(STATEFULSETS, world.namespace, "a"))
    body["metadata"]["resourceVersion"] = "1"
    with pytest.raises(Conflict):
        await client.replace_status(STATEFULSETS, world.namespace, "a", body)
    body = msgspec.json.decode(await client.fetch(STATEFULSETS, world.namespace, "a"))
    body["status"]["replicas"] = -1
    with pytest.raises(Refused, match="422 Invalid"):
        await client.replace_status(STATEFULSETS, world.namespace, "a", body)
    body = msgspec.json.decode(await client.fetch(STATEFULSETS, world.namespace, "a"))
    await client.replace_status(STATEFULSETS, world.namespace, "a", body)


async def test_a_watch_shows_changes_then_a_bookmark_and_ends(client: Client, world: World) -> None:
    page = await client.fetch_page(PODS, world.namespace)
    pod = await seen(client, world)
    async with client.watch(
        PODS,
        world.namespace,
        resource_version=page.resource_version,
        lasts=timedelta(seconds=4),
    ) as events:
        this = Precondition(uid=Uid(pod.uid), resource_version=pod.version)
        await client.delete(PODS, world.namespace, "a-0", precondition=this)
        types = [event.type async for event in events]
    assert types[0] == "MODIFIED"
    assert {"DELETED", "ADDED", "BOOKMARK"} <= set(types)


async def test_fp_10_versions_out_of_reach(client: Client, world: World) -> None:
    with pytest.raises(Unreachable) as caught:
        await client.fetch_page(PODS, world.namespace, resource_version="999999999999")
    assert caught.value.reason == "ResourceVersionTooLarge"


async def test_a_watch_is_left_at_once(client: Client, world: World) -> None:
    page = await client.fetch_page(PODS, world.namespace)
    async with asyncio.timeout(5):
        async with client.watch(
            PODS,
            world.namespace,
            resource_version=page.resource_version,
            lasts=timedelta(minutes=4),
        ):
            pass
