"""Webhooks: which are called, in which order, how often, and what becomes of their answers."""

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from tests.contract.bodies import config_map, eviction, pod, statefulset, tree
from tests.contract.plays import sequence
from tests.contract.reviews import allow, deny, patching
from tests.contract.sides import CONFIG_MAPS, Decide, Hook, Verdict
from tests.contract.world import World

ANNOTATION: JsonObject = {"op": "add", "path": "/metadata/annotations", "value": {"by": "hook"}}
ALL = ("CREATE", "UPDATE", "DELETE")
SETS = ("statefulsets", "statefulsets/scale")


async def _patched(world: World, *, dry_run: bool = False) -> None:
    query = {"dryRun": "All"} if dry_run else {}
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}}, **query)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def every_operation(world: World) -> None:
    await world.register("Validating", Hook(name="one", decide=allow(), operations=ALL))
    await world.create(CONFIG_MAPS, config_map("a"))
    await world.update(CONFIG_MAPS, "a", config_map("a", data={"key": "put"}))
    for _ in range(2):  # the second changes nothing
        await world.patch(CONFIG_MAPS, "a", {"data": {"key": "patched"}})
    await world.get(CONFIG_MAPS, "a")
    await world.list(CONFIG_MAPS)
    await world.delete(CONFIG_MAPS, "a")


@sequence()
async def what_fails_before_and_after_admission(world: World) -> None:
    made = tree(await world.make(CONFIG_MAPS, config_map("a")))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "1"}})
    await world.register("Validating", Hook(name="one", decide=allow(), operations=ALL))
    await world.create(CONFIG_MAPS, config_map("a"))
    await world.update(CONFIG_MAPS, "a", made)
    await world.update(CONFIG_MAPS, "b", config_map("b", resourceVersion="1"))
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"resourceVersion": "1"}})
    await world.patch(CONFIG_MAPS, "absent", {"data": {"key": "1"}})
    await world.delete(CONFIG_MAPS, "absent")
    other = {"uid": "11111111-2222-3333-4444-555555555555"}
    options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": other}
    await world.delete(CONFIG_MAPS, "a", options)


@sequence()
async def mutating_hooks_come_in_order(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    hooks = [
        Hook(name=name, decide=patching({"op": "add", "path": f"/data/{name}", "value": name}))
        for name in ("second", "first")
    ]
    await world.register("Mutating", *hooks, name="b")
    await world.register("Mutating", Hook(name="one", decide=allow()), name="a")
    await world.register("Validating", Hook(name="last", decide=allow()), name="c")
    await _patched(world)


@sequence()
async def one_of_two_hooks_denies(world: World) -> None:
    """A denial ends the mutating round; validating hooks are all called."""
    await world.make(CONFIG_MAPS, config_map("a"))
    yes, no = Hook(name="yes", decide=allow()), Hook(name="no", decide=deny(message="no"))
    await world.register("Validating", yes, no, name="b")
    await _patched(world)
    await _patched(world, dry_run=True)
    await world.register("Mutating", no, yes, name="a")
    await _patched(world)


@sequence()
async def a_hook_not_called_again_where_nothing_changed(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    again = {"reinvocationPolicy": "IfNeeded"}
    first = Hook(name="first", decide=patching(ANNOTATION), fields=again)
    await world.register("Mutating", first, Hook(name="second", decide=allow(), fields=again))
    await _patched(world)


@sequence()
async def a_dry_run_is_shown(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    hook = Hook(name="one", decide=allow(), fields={"sideEffects": "NoneOnDryRun"})
    await world.register("Mutating", hook, name="a")
    await world.register("Validating", hook, name="b")
    await _patched(world, dry_run=True)
    await world.delete(CONFIG_MAPS, "a", dryRun="All")


def _hook(decide: Decide, *resources: str, **fields: object) -> Hook:
    return Hook(
        name="one",
        decide=decide,
        groups=("apps",),
        resources=resources,
        operations=ALL,
        fields=fields,
    )


@sequence()
async def a_stateful_set_and_its_scale(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.register("Validating", _hook(allow(), *SETS))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 1}})
    body = tree(await world.get(STATEFULSETS, "a/scale"))
    body["spec"]["replicas"] = 5
    await world.update(STATEFULSETS, "a/scale", body)
    await world.patch(STATEFULSETS, "a/status", {"status": {"replicas": 1}})
    await world.delete(STATEFULSETS, "a")


@sequence()
async def rules_for_all_subresources_and_for_everything(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.register("Validating", _hook(allow(), "statefulsets/*"))
    every = Hook(name="every", decide=allow(), groups=("*",), resources=("*/*",), operations=("*",))
    await world.register("Validating", every, name="every")
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 1}})
    await world.patch(STATEFULSETS, "a/status", {"status": {"replicas": 1}})
    await world.create(CONFIG_MAPS, config_map("a"))


@sequence()
async def a_scale_that_is_denied_or_changed(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    step: JsonObject = {"op": "replace", "path": "/spec/replicas", "value": 2}
    await world.register("Mutating", _hook(patching(step), "statefulsets/scale"), name="changes")
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 1}})
    await world.get(STATEFULSETS, "a")
    await world.register("Validating", _hook(deny(message="no", code=403), *SETS))
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 1}})
    await world.get(STATEFULSETS, "a")


@sequence()
async def an_annotation_on_a_stateful_set_that_is_scaled_down(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.register("Mutating", _hook(patching(ANNOTATION), "statefulsets"))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    await world.update(STATEFULSETS, "a", statefulset("a", 1))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 3}}, dryRun="All")


@sequence()
async def labels_before_or_after_count(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", labels={"x": "y"}))
    selector = {"objectSelector": {"matchLabels": {"x": "y"}}}
    await world.register("Validating", Hook(name="one", decide=allow(), fields=selector))
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"labels": None}})
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "1"}})
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": "y"}}})


@sequence()
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


@sequence()
async def deletes_of_pods_are_reviewed(world: World) -> None:
    """But not the one that ends a terminating pod: how often that is reviewed is chance.

    The real server deletes it in two steps, and the second begins with what its cache holds.
    """
    await world.make(PODS, pod("a", node="n"))
    hook = Hook(name="one", decide=allow(), resources=("pods",), operations=("DELETE",))
    await world.register("Validating", hook)
    await world.delete(PODS, "a")
    await world.delete(PODS, "a")
