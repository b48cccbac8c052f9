"""A custom resource with `scale` and `status`, what can have neither, and discovery of kinds."""

import msgspec
from rollout_lab.model.request import JSON_PATCH
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from tests.contract.bodies import replica_template, statefulset, tree, version_of
from tests.contract.plays import sequence
from tests.contract.world import World

GROUP = REPLICA_TEMPLATES.group


@sequence()
async def a_template_says_little(world: World) -> None:
    """One replica where it says none, and without a spec it has no scale."""
    await world.create(REPLICA_TEMPLATES, replica_template("a"))
    await world.get(REPLICA_TEMPLATES, "a")
    await world.get(REPLICA_TEMPLATES, "a/scale")
    await world.get(REPLICA_TEMPLATES, "a/status")
    body = replica_template("b")
    del body["spec"]
    await world.create(REPLICA_TEMPLATES, body)
    await world.get(REPLICA_TEMPLATES, "b/scale")
    await world.patch(REPLICA_TEMPLATES, "b", {"spec": {}})
    await world.get(REPLICA_TEMPLATES, "b/scale")


@sequence()
async def a_status_is_written_on_its_own(world: World) -> None:
    body = {**replica_template("a", replicas=3), "status": {"replicas": 2}}
    await world.create(REPLICA_TEMPLATES, body)
    await world.patch(REPLICA_TEMPLATES, "a/status", {"status": {"replicas": 1}})
    await world.patch(REPLICA_TEMPLATES, "a/status", {"status": {"replicas": 1}})
    await world.patch(REPLICA_TEMPLATES, "a", {"status": {"replicas": 2}})
    await world.patch(REPLICA_TEMPLATES, "a/status", {"spec": {"replicas": 9}})
    labels: JsonObject = {"metadata": {"labels": {"x": "y"}}, "status": {"replicas": 4}}
    await world.patch(REPLICA_TEMPLATES, "a/status", labels)
    await world.get(REPLICA_TEMPLATES, "a/scale")
    statuses: tuple[JsonObject | None, ...] = ({"replicas": 0}, {"other": 1}, None)
    for status in statuses:
        await world.patch(REPLICA_TEMPLATES, "a/status", {"status": status})
    await world.patch(REPLICA_TEMPLATES, "a/status", {"status": {"replicas": 5}}, dryRun="All")
    await world.get(REPLICA_TEMPLATES, "a")


@sequence()
async def only_the_spec_counts_generations(world: World) -> None:
    await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=3))
    await world.patch(REPLICA_TEMPLATES, "a", {"spec": {"replicas": 4}})
    await world.patch(REPLICA_TEMPLATES, "a", {"spec": {"replicas": 4}})
    await world.patch(REPLICA_TEMPLATES, "a", {"metadata": {"annotations": {"x": "y"}}})
    await world.patch(REPLICA_TEMPLATES, "a/scale", {"spec": {"replicas": 5}})
    await world.patch(REPLICA_TEMPLATES, "a", {"spec": {"unknown": {"deep": 1}}, "more": 1})
    await world.get(REPLICA_TEMPLATES, "a")


@sequence()
async def a_scale_is_patched_and_put(world: World) -> None:
    made = await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=3))
    await world.patch(REPLICA_TEMPLATES, "a/scale", {"spec": {"replicas": 0}})
    await world.patch(REPLICA_TEMPLATES, "a/scale", {"spec": {"replicas": 7}})
    stale: JsonObject = {"metadata": {"resourceVersion": version_of(made)}, "spec": {"replicas": 1}}
    await world.patch(REPLICA_TEMPLATES, "a/scale", stale)
    step: JsonObject = {"op": "test", "path": "/spec/replicas", "value": 1}
    await world.patch(REPLICA_TEMPLATES, "a/scale", [step], JSON_PATCH)
    scale = tree(await world.get(REPLICA_TEMPLATES, "a/scale"))
    scale["spec"]["replicas"] = 4
    await world.update(REPLICA_TEMPLATES, "a/scale", scale)
    await world.update(REPLICA_TEMPLATES, "a/scale", scale)
    for selector in ("name=a", ""):
        await world.patch(REPLICA_TEMPLATES, "a", {"spec": {"labelSelector": selector}})
        await world.get(REPLICA_TEMPLATES, "a/scale")


@sequence()
async def a_template_changes_under_a_condition(world: World) -> None:
    made = tree(await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=1)))
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    await world.patch(REPLICA_TEMPLATES, "a", {"metadata": version, "spec": {"replicas": 2}})
    await world.patch(REPLICA_TEMPLATES, "a", {"metadata": version, "spec": {"replicas": 3}})
    await world.patch(
        REPLICA_TEMPLATES, "a/status", {"metadata": version, "status": {"replicas": 3}}
    )
    del made["metadata"]["resourceVersion"]
    await world.update(REPLICA_TEMPLATES, "a", made)


@sequence()
async def a_watch_of_templates(world: World) -> None:
    start = version_of(await world.make(REPLICA_TEMPLATES, replica_template("start")))
    with world.quietly():
        await world.create(REPLICA_TEMPLATES, replica_template("a", replicas=1))
        await world.patch(REPLICA_TEMPLATES, "a/scale", {"spec": {"replicas": 2}})
        await world.patch(REPLICA_TEMPLATES, "a/status", {"status": {"replicas": 2}})
        await world.patch(REPLICA_TEMPLATES, "a/status", {"status": {"replicas": 2}})
        await world.delete(REPLICA_TEMPLATES, "a")
        await world.create(REPLICA_TEMPLATES, replica_template("end"))
    await world.events(REPLICA_TEMPLATES, until="end", resourceVersion=start)
    await world.list(REPLICA_TEMPLATES)


@sequence()
async def a_template_that_is_gone(world: World) -> None:
    await world.get(REPLICA_TEMPLATES, "a/scale")
    await world.patch(REPLICA_TEMPLATES, "a/scale", {"spec": {"replicas": 2}})
    await world.patch(REPLICA_TEMPLATES, "a/status", {"status": {"replicas": 2}})
    await world.make(REPLICA_TEMPLATES, replica_template("a"))
    await world.delete(REPLICA_TEMPLATES, "a")
    await world.get(REPLICA_TEMPLATES, "a/scale")


@sequence()
async def a_group_is_discovered(world: World) -> None:
    for group in (GROUP, "apps", "", "policy"):
        versions = await world.clients.fetch_group(group)
        world.record(f"versions of {group!r}", preferred=versions[0])


@sequence()
async def groups_that_are_not_served(world: World) -> None:
    clients = world.clients
    await world.attempt("a group", clients.fetch_group("nothings.example.org"))
    await world.attempt("its kinds", clients.fetch_resources("nothings.example.org", "v1"))
    await world.attempt("another version", clients.fetch_resources(GROUP, "v2"))
    await world.attempt("another version", clients.fetch_resources("", "v2"))
    await world.attempt("another version", clients.fetch_resources("apps", "v2"))


@sequence()
async def kinds_are_discovered(world: World) -> None:
    """Of the built-in groups only what the sandbox models: the real server has more."""
    for group, kinds in (
        (GROUP, ("ReplicaTemplate", "ZoneAwarePodDisruptionBudget")),
        ("apps", ("StatefulSet", "ControllerRevision")),
        ("", ("Pod", "ConfigMap", "Secret", "Namespace", "Node")),
    ):
        served = await world.clients.fetch_resources(group, "v1")
        for one in sorted(served, key=lambda one: one.resource.plural):
            if one.resource.kind in kinds:
                below = one.subresources & {"scale", "status", "eviction"}
                shown = msgspec.to_builtins(one.resource)
                world.record("kind", **shown, has=sorted(below))


@sequence()
async def scales_through_the_client(world: World) -> None:
    await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=3, labelSelector="x=y"))
    await world.make(STATEFULSETS, statefulset("b", 2))
    for resource, name in ((REPLICA_TEMPLATES, "a"), (STATEFULSETS, "b")):
        raw = await world.clients.fetch(resource, world.namespace, name, "scale")
        world.record("scale", scale=msgspec.json.decode(raw))
    missing = world.clients.fetch(REPLICA_TEMPLATES, world.namespace, "b", "scale")
    await world.attempt("missing", missing)
    await world.attempt("no scale", world.clients.fetch(PODS, world.namespace, "a", "scale"))


@sequence()
async def statuses_through_the_client(world: World) -> None:
    await world.make(REPLICA_TEMPLATES, replica_template("a", replicas=3))
    patch: JsonObject = {"status": {"replicas": 2}}
    for _ in range(2):
        raw = await world.clients.patch(REPLICA_TEMPLATES, world.namespace, "a", patch, "status")
        world.record("patch", written=msgspec.json.decode(raw))
    absent = world.clients.patch(REPLICA_TEMPLATES, world.namespace, "b", {}, "status")
    await world.attempt("absent", absent)
