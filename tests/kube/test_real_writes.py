"""What our writes, and what belongs to the cluster, take for granted about a real API server."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import SECRETS, VALIDATING_WEBHOOKS, JsonObject
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import Configuration, ConfigurationStore
from rollout_operator.kube.client.client import Client
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.kube.connection.connect import Access, connect
from rollout_operator.model.decode.webhooks import decode_validating_webhooks
from rollout_operator.model.errors import Conflict, Denied, NotFound, Refused
from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL
from rollout_operator.pki.bundle import BundleInjector, Injection, plan_patch
from rollout_operator.telemetry.metrics import Metrics
from tests.world.api import VALIDATING_HOOKS, ApiError
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


async def test_tls_13_an_object_is_created_once_and_replaced_by_who_saw_the_latest(
    client: Client, world: World
) -> None:
    made = tree(await client.create(SECRETS, world.namespace, secret("first")))
    assert made["type"] == "Opaque"
    with pytest.raises(Conflict) as caught:
        await client.create(SECRETS, world.namespace, secret("other"))
    assert caught.value.reason == "AlreadyExists"
    version = made["metadata"]["resourceVersion"]
    changed = tree(
        await client.replace(SECRETS, world.namespace, "certificate", secret("second", version))
    )
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(Conflict, match="409 Conflict"):
        await client.replace(SECRETS, world.namespace, "certificate", secret("third", version))
    with pytest.raises(NotFound):
        await client.replace(SECRETS, world.namespace, "absent", {**secret("x"), "metadata": {
            "name": "absent", "resourceVersion": version}})  # fmt: skip
    assert tree(await client.fetch(SECRETS, world.namespace, "certificate")) == changed


async def test_merge_patches_take_identity_as_precondition(client: Client, world: World) -> None:
    made = tree(await client.create(SECRETS, world.namespace, secret("first")))["metadata"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        patch: JsonObject = {"metadata": {**wrong, "annotations": {"a": "b"}}}
        with pytest.raises(Conflict):
            await client.patch(SECRETS, world.namespace, "certificate", patch)
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    patch = {"metadata": {**right, "annotations": {"a": "b"}}}
    after = tree(await client.patch(SECRETS, world.namespace, "certificate", patch))
    assert after["metadata"]["annotations"] == {"a": "b"}
    with pytest.raises(Refused, match="422 Invalid"):
        await client.patch(SECRETS, world.namespace, "certificate", {"data": {"no/key": "QQ=="}})


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


async def test_ca_06_caches_and_injector_keep_the_bundle_where_it_belongs(
    client: Client, make: Make
) -> None:
    """SEC-18: with one informer for each name; a configuration created later, and one wiped."""
    labels = {INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"}
    name = await make("guard", **labels)
    foreign = await make("foreign", **{**labels, NAMESPACE_LABEL: "elsewhere"})
    late = name.replace("guard", "late")
    stores = [ConfigurationStore() for _ in range(3)]
    injector = BundleInjector(
        client,
        Injection(
            namespace="ops",
            list_configurations=lambda: [one for store in stores for one in store.list_all()],
            bundle=lambda: PEM,
            names=NAMES,
        ),
        Metrics(),
        LoopClock(),
        lambda: 0.5,
    )

    async def until_bundled(one: str) -> None:
        """Read until both hooks hold the bundle, at the pace of the API."""
        while (await client.fetch(VALIDATING_WEBHOOKS, "", one)).decode().count(WANTED) < 2:
            pass

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(injector.run(), name="injector")]
        for store, one in zip(stores, (name, foreign, late), strict=True):
            informer = follow(client, store, one)
            informer.on_change(injector.on_change)
            running.append(tasks.create_task(informer.run(), name=one))
        await until_bundled(name)
        await client.patch(
            VALIDATING_WEBHOOKS, "", name,
            [{"op": "remove", "path": f"/webhooks/{place}/clientConfig/caBundle"}
             for place in range(2)],
        )  # fmt: skip
        await until_bundled(name)
        await make("late", **labels)
        await until_bundled(late)
        for task in running:
            task.cancel()
    assert WANTED not in (await client.fetch(VALIDATING_WEBHOOKS, "", foreign)).decode()


def follow(client: Client, store: ConfigurationStore, name: str) -> Informer[Configuration]:
    of: Collection[Configuration] = Collection(
        resource=VALIDATING_WEBHOOKS,
        namespace="",
        decode=decode_validating_webhooks,
        store=store,
        field_selector=f"metadata.name={name}",
    )
    return Informer(client, of, Metrics(), LoopClock(), lambda: 0.5)
