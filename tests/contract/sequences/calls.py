"""Sequences that compute something, decide by what a hook is shown, or say what is not served."""

from collections.abc import Sequence

import msgspec
from rollout_lab.model.request import JSON_PATCH, MERGE_PATCH, ApiRequest
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import PODS, JsonObject, Resource
from tests.contract.bodies import config_map, delete_options, eviction, is_going, owner, pod, tree
from tests.contract.controllers_pods import HELD
from tests.contract.plays import Needs, sequence
from tests.contract.sides import CONFIG_MAPS, NAMESPACES, Hook, Verdict
from tests.contract.world import World


@sequence("creates")
async def namespaces(world: World) -> None:
    found = await world.get(NAMESPACES, world.namespace)
    metadata = found.body["metadata"]
    assert isinstance(metadata, dict)
    world.record("labels", are=metadata["labels"])
    with world.elsewhere("nowhere-at-all"):
        await world.create(CONFIG_MAPS, config_map("a"))
        await world.get(CONFIG_MAPS, "a")
        await world.list(CONFIG_MAPS)


@sequence("forms")
async def unknown_resources(world: World) -> None:
    for resource in (
        Resource("nothing.example.org", "v1", "nothings", "Nothing"),
        Resource("", "v1", "nothings", "Nothing"),
        Resource("apps", "v1beta9", "statefulsets", "StatefulSet"),
        Resource(REPLICA_TEMPLATES.group, "v1", "nothings", "Nothing"),
        Resource(REPLICA_TEMPLATES.group, "v2", "replicatemplates", "ReplicaTemplate"),
    ):
        await world.get(resource, "a")
        await world.get(resource, "a/scale")
        await world.list(resource)
        await world.create(resource, config_map("a"))
        await world.events(resource, timeoutSeconds="1")
        call = world.clients.fetch(resource, world.namespace, "a", "scale")
        await world.attempt("through the client", call)


@sequence("garbage", needs=Needs.CONTROLLERS)
async def pods_of_a_deleted_owner_end_gracefully(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("owner"))
    # Held: a kubelet that ends it in the meantime would make its grace period zero.
    held = {"ownerReferences": [owner(tree(made))], "finalizers": ["x.org/a"]}
    body = pod("a", node="n", image=HELD, **held)
    await world.make(PODS, body)
    await world.delete(CONFIG_MAPS, "owner")
    await world.until(PODS, "a", is_going)
    with world.quietly():
        ending = tree(await world.get(PODS, "a"))["metadata"]
        await world.patch(PODS, "a", {"metadata": {"finalizers": None}})
        await world.delete(PODS, "a", delete_options(gracePeriodSeconds=0))
    world.record("the pod", grace=ending["deletionGracePeriodSeconds"])
    await world.until_gone(PODS, "a")


def _write(world: World, body: JsonObject) -> ApiRequest:
    return ApiRequest(
        verb="patch",
        resource=CONFIG_MAPS,
        namespace=world.namespace,
        name="a",
        body=body,
        content_type=MERGE_PATCH,
    )


@sequence("conflicts")
async def three_conflicts_during_a_patch(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    requested = [0]

    async def decide(_review: JsonObject) -> Verdict:
        requested[0] += 1
        if requested[0] in (1, 3, 5):
            with world.quietly():
                await world.send(_write(world, {"data": {"inner": f"{requested[0]}"}}))
        return {"allowed": True}

    await world.register("Validating", Hook(name="one", decide=decide))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")


@sequence("conflicts")
async def a_hook_that_writes_the_object_each_time(world: World) -> None:
    """A hook that changes what is under admission is called again and again; this one stops."""
    await world.make(CONFIG_MAPS, config_map("a"))
    written = [0]

    async def decide(review: JsonObject) -> Verdict:
        is_ours = "'key': 'other'" in str(review["object"])
        if is_ours and written[0] < 5:
            written[0] += 1
            with world.quietly():
                await world.send(_write(world, {"data": {"inner": f"{written[0]}"}}))
        return {"allowed": True}

    await world.register("Mutating", Hook(name="one", decide=decide))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")


@sequence("admission")
async def evictions_are_reviewed(world: World) -> None:
    for name in "ab":
        await world.make(PODS, pod(name, node="n"))

    async def decide(review: JsonObject) -> Verdict:
        if review["name"] != "b":
            return {"allowed": True}
        return {"allowed": False, "status": {"message": "not now", "code": 429}}

    hook = Hook(name="one", decide=decide, resources=("pods/eviction",), operations=("CREATE",))
    await world.register("Validating", hook)
    await world.create(PODS, eviction("a", dryRun=["All"]), "a/eviction")
    await world.create(PODS, eviction("a"), "a/eviction")
    await world.create(PODS, eviction("absent"), "absent/eviction")
    await world.create(PODS, eviction("b"), "b/eviction")
    await world.get(PODS, "b")


TEXTS: Sequence[str] = (
    *("J\u00fcrgen", "<ann@example.com>", "a & b", "\x7f", "\U0001f600", "\u2027", "\u202a"),
    *("plain", "\u2028 \u2029", '"quoted" \\ \n \t \b \f \x01', "a/b~c'd`"),
)


@sequence("patches")
async def a_test_of_a_text_compares_it_as_it_is_written(world: World) -> None:
    """REL-70: what people write in annotations is consumed by other means."""
    path = "/metadata/annotations/text"
    await world.make(CONFIG_MAPS, config_map("a", annotations={"x": "y"}))
    for text in TEXTS:
        await world.patch(
            CONFIG_MAPS, "a", [{"op": "add", "path": path, "value": text}], JSON_PATCH
        )
        await world.patch(
            CONFIG_MAPS, "a", [{"op": "test", "path": path, "value": text}], JSON_PATCH
        )
        both = {"x": "y", "text": text}
        held: JsonObject = {"op": "test", "path": "/metadata/annotations", "value": both}
        await world.patch(CONFIG_MAPS, "a", [held, {"op": "remove", "path": path}], JSON_PATCH)
        await world.patch(CONFIG_MAPS, "a", {"metadata": {"annotations": {"text": None}}})


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
