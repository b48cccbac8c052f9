"""What client, caches and injector take for granted about the API server, asked of a real one."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import (
    PODS,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Precondition,
    Resource,
)
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.lists import StateStream
from rollout_operator.kube.cache.store import PodStore, is_older
from rollout_operator.kube.client.client import Client
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.kube.connection.connect import Access, connect
from rollout_operator.lab.zones import ZoneSpec, statefulset
from rollout_operator.model.decode.managers import decode_replica_writers
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.decode.webhooks import decode_validating_webhooks
from rollout_operator.model.errors import Conflict, Denied, NotFound, Refused, Unreachable
from rollout_operator.model.names import FIELD_MANAGER, INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.pki.bundle import plan_patch
from rollout_operator.telemetry.metrics import Metrics
from tests.world.api import VALIDATING_HOOKS, ApiError
from tests.world.budgets import install_kinds
from tests.world.plane import ADMIN
from tests.world.scene import World

pytestmark = pytest.mark.controlplane

PEM = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
WANTED = b64encode(PEM).decode()
LIMIT = 20.0
NAMES = ("localhost",)

Make = Callable[..., Awaitable[str]]


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


@pytest.fixture
async def make(world: World, client: Client) -> AsyncIterator[Make]:
    """Yield what creates a configuration of two hooks that match nothing, and returns its name."""
    made: list[str] = []

    async def create(name: str, **labels: str) -> str:
        hooks: list[JsonObject] = [
            {
                "name": f"hook-{place}.{name}.example.org",
                "clientConfig": {"url": "https://localhost:1/x"},
                "rules": [
                    {
                        "operations": ["UPDATE"],
                        "apiGroups": ["nothing.example.org"],
                        "apiVersions": ["v1"],
                        "resources": ["nothings"],
                    }
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for place in range(2)
        ]
        full = f"{name}-{world.namespace}"
        body: JsonObject = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": full, "labels": labels},
            "webhooks": hooks,
        }
        await client.create(VALIDATING_WEBHOOKS, "", body)
        made.append(full)
        return full

    yield create
    for name in made:
        try:
            await world.api.delete(VALIDATING_HOOKS, "", name)
        except ApiError as error:
            assert error.status == 404  # noqa: PT017 (a clean-up, not what is tested)


def tree(body: bytes) -> Any:
    return msgspec.json.decode(body)


def secret(text: str, version: str = "") -> JsonObject:
    metadata: JsonObject = {"name": "certificate"}
    if version:
        metadata["resourceVersion"] = version
    data = {"ca": b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.fixture
async def operator(world: World, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a client with the shipped Role, which has a zone `a` of two pods to look at."""
    await world.create(ZoneSpec(name="a", replicas=2))
    async with opened(world, tmp_path, world.token) as client:
        yield client


async def test_fp_11_who_did_not_see_the_latest_conflicts(client: Client, world: World) -> None:
    """TLS-13, SI-07: each write but the first rests on an identity that does not hold."""
    space = world.namespace
    made = tree(await client.create(SECRETS, space, secret("first")))
    version, uid = made["metadata"]["resourceVersion"], made["metadata"]["uid"]
    with pytest.raises(Conflict) as caught:
        await client.create(SECRETS, space, secret("other"))
    assert caught.value.reason == "AlreadyExists"
    changed = tree(await client.replace(SECRETS, space, "certificate", secret("second", version)))
    assert changed["metadata"]["uid"] == uid
    with pytest.raises(Conflict, match="409 Conflict"):
        await client.replace(SECRETS, space, "certificate", secret("third", version))
    absent: JsonObject = {"name": "absent", "resourceVersion": version}
    with pytest.raises(NotFound):
        await client.replace(SECRETS, space, "absent", {**secret("x"), "metadata": absent})
    for wrong in ({"uid": "other"}, {"resourceVersion": version}):
        patch: JsonObject = {"metadata": {**wrong, "annotations": {"a": "b"}}}
        with pytest.raises(Conflict):
            await client.patch(SECRETS, space, "certificate", patch)
    with pytest.raises(Refused, match="422 Invalid"):
        await client.patch(SECRETS, space, "certificate", {"data": {"no/key": "QQ=="}})
    assert tree(await client.fetch(SECRETS, space, "certificate")) == changed
    newest = changed["metadata"]["resourceVersion"]
    patch = {"metadata": {"uid": uid, "resourceVersion": newest, "annotations": {"a": "b"}}}
    patched = tree(await client.patch(SECRETS, space, "certificate", patch))
    assert patched["metadata"]["annotations"] == {"a": "b"}


async def test_fp_11_deletes_and_statuses_go_by_what_was_seen(
    operator: Client, world: World
) -> None:
    space = world.namespace
    pod = tree(await operator.fetch(PODS, space, "a-0"))["metadata"]
    uid, version = pod["uid"], pod["resourceVersion"]
    for wrong in (("other", version), (uid, "1")):
        stale = Precondition(uid=Uid(wrong[0]), resource_version=wrong[1])
        with pytest.raises(Conflict):
            await operator.delete(PODS, space, "a-0", precondition=stale)
    fresh = Precondition(uid=Uid(uid), resource_version=version)
    await operator.delete(PODS, space, "a-0", precondition=fresh)
    body = tree(await operator.fetch(STATEFULSETS, space, "a"))
    old = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
    with pytest.raises(Conflict):
        await operator.replace_status(STATEFULSETS, space, "a", old)
    body = tree(await operator.fetch(STATEFULSETS, space, "a"))
    wrong_status = {**body, "status": {**body["status"], "replicas": -1}}
    with pytest.raises(Refused, match="422 Invalid"):
        await operator.replace_status(STATEFULSETS, space, "a", wrong_status)
    body = tree(await operator.fetch(STATEFULSETS, space, "a"))
    await operator.replace_status(STATEFULSETS, space, "a", body)


async def test_reads_and_pages(operator: Client, world: World) -> None:
    first = await operator.fetch_page(PODS, world.namespace, limit=1)
    last = await operator.fetch_page(PODS, world.namespace, limit=1, token=first.next_token)
    assert (len(first.items), len(last.items), last.next_token) == (1, 1, "")
    assert first.resource_version == last.resource_version
    some = await operator.fetch_page(PODS, world.namespace, selector="name=nobody")
    assert len(some.items) == 0
    with pytest.raises(NotFound, match="404 NotFound"):
        await operator.fetch(PODS, world.namespace, "a-9")
    shown = operator.server_time()
    assert shown is not None
    assert abs(shown - datetime.now(UTC)) < timedelta(seconds=5)
    with pytest.raises(Unreachable) as caught:
        await operator.fetch_page(PODS, world.namespace, resource_version="999999999999")
    assert caught.value.reason == "ResourceVersionTooLarge", "FP-10"


async def test_d54_all_objects_are_streamed(operator: Client, world: World) -> None:
    of: Collection[Pod | Unreadable] = Collection(
        resource=PODS, namespace=world.namespace, decode=decode_pod, store=PodStore()
    )
    page = await operator.fetch_page(PODS, world.namespace)
    found = await StateStream(operator, of).fetch()
    assert found is not None
    views, version = found
    assert {view.name for view in views} == {"a-0", "a-1"}
    assert not is_older(version, than=page.resource_version)


async def test_what_the_role_lacks_is_named(operator: Client, world: World) -> None:
    world.may_be_forbidden = True
    with pytest.raises(Denied, match=r'grant verb list on "pods" in API group ""'):
        await operator.fetch_page(PODS, "kube-system")
    with pytest.raises(Denied, match=r"delete pods/x in namespace kube-system: 403 Forbidden: "):
        await operator.delete(
            PODS,
            "kube-system",
            "x",
            precondition=Precondition(uid=Uid("u"), resource_version="1"),
        )


async def test_a_watch_is_left_at_once(operator: Client, world: World) -> None:
    page = await operator.fetch_page(PODS, world.namespace)
    async with asyncio.timeout(5):
        async with operator.watch(
            PODS,
            world.namespace,
            resource_version=page.resource_version,
            lasts=timedelta(minutes=4),
        ):
            pass


async def test_a_watch_shows_changes_then_a_bookmark_and_ends(
    operator: Client, world: World
) -> None:
    page = await operator.fetch_page(PODS, world.namespace)
    pod = tree(await operator.fetch(PODS, world.namespace, "a-0"))["metadata"]
    version, lasts = page.resource_version, timedelta(seconds=4)
    async with operator.watch(
        PODS, world.namespace, resource_version=version, lasts=lasts
    ) as events:
        this = Precondition(uid=Uid(pod["uid"]), resource_version=pod["resourceVersion"])
        await operator.delete(PODS, world.namespace, "a-0", precondition=this)
        types = [event.type async for event in events]
    assert types[0] == "MODIFIED"
    assert {"DELETED", "ADDED", "BOOKMARK"} <= set(types)


async def test_si_20_a_json_patch_applies_to_the_version_it_was_made_for(
    client: Client, world: World, make: Make
) -> None:
    name = await make("guard", **{INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"})
    before = await client.fetch(VALIDATING_WEBHOOKS, "", name)
    patch = plan_patch(decode_validating_webhooks(before), WANTED, "ops", NAMES)
    await client.patch(VALIDATING_WEBHOOKS, "", name, patch)
    with pytest.raises(Conflict, match="422 Invalid"):
        await client.patch(VALIDATING_WEBHOOKS, "", name, patch)
    old, new = tree(before), tree(await client.fetch(VALIDATING_WEBHOOKS, "", name))
    for hook in new["webhooks"]:
        assert hook["clientConfig"].pop("caBundle") == WANTED
    assert new["webhooks"] == old["webhooks"]
    assert new["metadata"]["labels"] == old["metadata"]["labels"]


@pytest.mark.parametrize("path", ["/metadata/uid", "/webhooks/0/name", "/webhooks/9/name"])
async def test_every_test_of_a_patch_is_looked_at(client: Client, make: Make, path: str) -> None:
    name = await make("guard")
    steps: list[JsonObject] = [
        {"op": "test", "path": path, "value": "another"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": WANTED},
    ]
    with pytest.raises(Conflict, match="422 Invalid"):
        await client.patch(VALIDATING_WEBHOOKS, "", name, steps)
    assert WANTED not in (await client.fetch(VALIDATING_WEBHOOKS, "", name)).decode()


async def test_sec_18_one_of_the_cluster_is_listed_and_watched_by_name(
    client: Client, world: World, make: Make
) -> None:
    name, other = await make("guard"), await make("other")
    only = f"metadata.name={name}"
    page = await client.fetch_page(VALIDATING_WEBHOOKS, "", field_selector=only)
    assert [decode_validating_webhooks(item).name for item in page.items] == [name]
    async with client.watch(
        VALIDATING_WEBHOOKS,
        "",
        resource_version=page.resource_version,
        field_selector=only,
        lasts=timedelta(seconds=2),
    ) as events:
        for one in (other, name):
            await client.patch(VALIDATING_WEBHOOKS, "", one, {"metadata": {"labels": {"a": "b"}}})
        seen = [event async for event in events]
    changed = [
        decode_validating_webhooks(event.object) for event in seen if event.type != "BOOKMARK"
    ]
    assert [one.name for one in changed] == [name]


async def test_rbac_08_a_missing_cluster_role_is_named(world: World, tmp_path: Path) -> None:
    """Of an account without any rights, in a namespace of its own making."""
    token = await world.plane.create_account(world.api, world.namespace, "nobody")
    async with opened(world, tmp_path, token) as client:
        with pytest.raises(Denied) as caught:
            await client.patch(VALIDATING_WEBHOOKS, "", "guard", [])
    assert str(caught.value).startswith("cannot patch validatingwebhookconfigurations/guard: 403")
    assert str(caught.value).endswith('"admissionregistration.k8s.io" in its ClusterRole')


async def test_whoever_wrote_a_count_last_is_named_and_we_are_known(
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


async def test_mirr_03_kinds_are_discovered(client: Client, world: World) -> None:
    await install_kinds(world.api)
    (version, *_) = await client.fetch_group(ZONE_BUDGETS.group)
    ours = {
        one.resource.kind: one for one in await client.fetch_resources(ZONE_BUDGETS.group, version)
    }
    only = ours["ReplicaTemplate"]
    assert only.resource == Resource(
        ZONE_BUDGETS.group, "v1", "replicatemplates", "ReplicaTemplate"
    )
    assert only.subresources == {"scale", "status"}
    apps = {one.resource.kind: one for one in await client.fetch_resources("apps", "v1")}
    assert "scale" in apps["StatefulSet"].subresources
    core = {one.resource.kind: one for one in await client.fetch_resources("", "v1")}
    assert "scale" not in core["ConfigMap"].subresources
    with pytest.raises(NotFound):
        await client.fetch_group("nothings.example.org")
