"""The operator's own client and the simulated one: the same call, the same error class."""

from datetime import timedelta

import msgspec
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Precondition
from rollout_operator.model.names import ApiError, Uid
from tests.contract.bodies import (
    OTHER_UID,
    config_map,
    pod,
    replica_template,
    statefulset,
    tree,
    uid_of,
    version_of,
)
from tests.contract.plays import Needs, sequence
from tests.contract.reviews import deny, silent
from tests.contract.sides import CONFIG_MAPS, Hook
from tests.contract.world import World


@sequence("clients")
async def pages(world: World) -> None:
    for name in "abc":
        await world.make(CONFIG_MAPS, config_map(name))
    first = await world.clients.fetch_page(CONFIG_MAPS, world.namespace, limit=2)
    rest = await world.clients.fetch_page(
        CONFIG_MAPS, world.namespace, limit=2, token=first.next_token
    )
    world.record("pages", sizes=[len(first.items), len(rest.items)], is_last=not rest.next_token)


@sequence("clients", needs=Needs.OBLIVION)
async def an_expired_page(world: World) -> None:
    for name in "abc":
        await world.make(CONFIG_MAPS, config_map(name))
    first = await world.clients.fetch_page(CONFIG_MAPS, world.namespace, limit=2)
    await world.make(CONFIG_MAPS, config_map("d"))
    await world.side.forget_past()
    call = world.clients.fetch_page(CONFIG_MAPS, world.namespace, token=first.next_token)
    await world.attempt("the rest", call)


@sequence("clients")
async def a_token_that_is_none(world: World) -> None:
    call = world.clients.fetch_page(CONFIG_MAPS, world.namespace, token="nonsense")
    await world.attempt("the rest", call)


@sequence("clients")
async def reads_and_whole_writes(world: World) -> None:
    clients, namespace = world.clients, world.namespace
    for name in ("a", "a", "b"):
        await world.attempt(f"fetch {name}", clients.fetch(CONFIG_MAPS, namespace, name))
        await world.attempt("create", clients.create(CONFIG_MAPS, namespace, config_map("a")))
    body = tree(await world.get(CONFIG_MAPS, "a"))
    for value in ("other", "third"):
        body["data"] = {"key": value}
        await world.attempt("replace", clients.replace(CONFIG_MAPS, namespace, "a", body))
    absent = clients.replace(CONFIG_MAPS, namespace, "b", config_map("b"))
    await world.attempt("replace", absent)


@sequence("clients")
async def merge_patches(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    patches: tuple[JsonObject, ...] = (
        {"spec": {"replicas": 2}},
        {"metadata": {"uid": OTHER_UID}, "spec": {"replicas": 1}},
        {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}},
    )
    for patch in patches:
        call = world.clients.patch(STATEFULSETS, world.namespace, "a", patch)
        await world.attempt("patch", call)


@sequence("clients")
async def json_patches(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    for path, value in (("/data/key", "other"), ("/data/absent", "x"), ("/data/key", "value")):
        steps: list[JsonObject] = [
            {"op": "test", "path": path, "value": value},
            {"op": "add", "path": "/data/new", "value": "1"},
        ]
        call = world.clients.patch(CONFIG_MAPS, world.namespace, "a", steps)
        await world.attempt("patch", call)


@sequence("clients")
async def deletes(world: World) -> None:
    made = await world.make(PODS, pod("a"))
    uid, version = uid_of(made), version_of(made)
    for wanted in ((OTHER_UID, version), (uid, "1"), (uid, version), (uid, version)):
        precondition = Precondition(uid=Uid(wanted[0]), resource_version=wanted[1])
        call = world.clients.delete(PODS, world.namespace, "a", precondition=precondition)
        await world.attempt("delete", call)


@sequence("clients")
async def statuses(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    body["status"] = {"replicas": 1, "observedGeneration": 1}
    for _ in range(2):
        call = world.clients.replace_status(STATEFULSETS, world.namespace, "a", body)
        await world.attempt("replace status", call)
        body["status"] = {"replicas": 2}


@sequence("clients")
async def hooks_that_deny_or_do_not_answer(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    for name, decide in (("no", deny(message="not now", code=429)), ("mute", silent())):
        with world.quietly():
            hook = Hook(name=name, decide=decide, fields={"timeoutSeconds": 1})
            await world.register("Mutating", hook, name=name)
        call = world.clients.patch(CONFIG_MAPS, world.namespace, "a", {"data": {"key": "x"}})
        await world.attempt("patch", call)


@sequence("clients")
async def watches(world: World) -> None:
    version = version_of(await world.make(CONFIG_MAPS, config_map("start")))
    await world.make(CONFIG_MAPS, config_map("a"))
    with world.quietly():
        await world.delete(CONFIG_MAPS, "a")
    async with world.clients.watch(
        CONFIG_MAPS, world.namespace, resource_version=version, lasts=timedelta(seconds=1)
    ) as events:
        types = [event.type async for event in events]
    world.record("events", types=[kind for kind in types if kind != "BOOKMARK"])


@sequence("clients", needs=Needs.OBLIVION)
async def a_watch_that_is_too_old(world: World) -> None:
    version = version_of(await world.make(CONFIG_MAPS, config_map("a")))
    await world.make(CONFIG_MAPS, config_map("b"))
    await world.side.forget_past()
    error = ""
    try:
        async with world.clients.watch(
            CONFIG_MAPS, world.namespace, resource_version=version, lasts=timedelta(seconds=1)
        ) as events:
            async for _ in events:
                pass
    except ApiError as raised:
        error = type(raised).__name__
    world.record("the watch", raises=error)


@sequence("replicatemplates")
async def a_group_is_discovered(world: World) -> None:
    for group in (REPLICA_TEMPLATES.group, "apps", "", "policy"):
        versions = await world.clients.fetch_group(group)
        world.record(f"versions of {group!r}", preferred=versions[0])


@sequence("replicatemplates")
async def groups_that_are_not_served(world: World) -> None:
    clients = world.clients
    await world.attempt("a group", clients.fetch_group("nothings.example.org"))
    await world.attempt("its kinds", clients.fetch_resources("nothings.example.org", "v1"))
    await world.attempt("another version", clients.fetch_resources(REPLICA_TEMPLATES.group, "v2"))
    await world.attempt("another version", clients.fetch_resources("", "v2"))
    await world.attempt("another version", clients.fetch_resources("apps", "v2"))


@sequence("replicatemplates")
async def kinds_are_discovered(world: World) -> None:
    """Of the built-in groups only what the sandbox models: the real server has more."""
    for group, kinds in (
        (REPLICA_TEMPLATES.group, ("ReplicaTemplate", "ZoneAwarePodDisruptionBudget")),
        ("apps", ("StatefulSet", "ControllerRevision")),
        ("", ("Pod", "ConfigMap", "Secret", "Namespace", "Node")),
    ):
        served = await world.clients.fetch_resources(group, "v1")
        for one in sorted(served, key=lambda one: one.resource.plural):
            if one.resource.kind in kinds:
                below = one.subresources & {"scale", "status", "eviction"}
                shown = msgspec.to_builtins(one.resource)
                world.record("kind", **shown, has=sorted(below))


@sequence("replicatemplates")
async def scales_through_the_client(world: World) -> None:
    await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=3, labelSelector="x=y"))
    await world.make(STATEFULSETS, statefulset("b", 2))
    for resource, name in ((REPLICA_TEMPLATES, "a"), (STATEFULSETS, "b")):
        raw = await world.clients.fetch(resource, world.namespace, name, "scale")
        world.record("scale", scale=msgspec.json.decode(raw))
    missing = world.clients.fetch(REPLICA_TEMPLATES, world.namespace, "b", "scale")
    await world.attempt("missing", missing)
    await world.attempt("no scale", world.clients.fetch(PODS, world.namespace, "a", "scale"))


@sequence("replicatemplates")
async def statuses_through_the_client(world: World) -> None:
    await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=3))
    patch: JsonObject = {"status": {"replicas": 2}}
    for _ in range(2):
        raw = await world.clients.patch(REPLICA_TEMPLATES, world.namespace, "a", patch, "status")
        world.record("patch", written=msgspec.json.decode(raw))
    absent = world.clients.patch(REPLICA_TEMPLATES, world.namespace, "b", {}, "status")
    await world.attempt("absent", absent)
