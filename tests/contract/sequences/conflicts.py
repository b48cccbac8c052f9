"""Writes that others overtake while webhooks are called: rounds, conflicts, what is kept."""

from rollout_lab.model.request import MERGE_PATCH, ApiRequest

from rollout_operator.kube.api import STATEFULSETS, JsonObject, Resource
from tests.contract.bodies import config_map, statefulset, tree
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS, Decide, Hook, Verdict
from tests.contract.world import World


async def _patched(world: World) -> None:
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")


def _during_request(world: World, request: ApiRequest, times: int = 1) -> Decide:
    """Return a hook that lets another client write before it answers, so often."""
    left = [times]

    async def decide(_review: JsonObject) -> Verdict:
        if left[0]:
            left[0] -= 1
            with world.quietly():
                await world.send(request)
        return {"allowed": True}

    return decide


def _write(world: World, body: JsonObject, resource: Resource = CONFIG_MAPS) -> ApiRequest:
    return ApiRequest(
        verb="patch",
        resource=resource,
        namespace=world.namespace,
        name="a",
        body=body,
        content_type=MERGE_PATCH,
    )


async def _overtaken(world: World) -> None:
    """Let another client write during the first review of a change."""
    inner = _write(world, {"data": {"inner": "1"}})
    await world.register("Validating", Hook(name="one", decide=_during_request(world, inner)))


async def _annotated_while_scaled(world: World) -> None:
    """Let another client annotate the set during the first review of its scale."""
    annotate = _write(world, {"metadata": {"annotations": {"note": "inner"}}}, STATEFULSETS)
    hook = Hook(
        name="one",
        decide=_during_request(world, annotate),
        groups=("apps",),
        resources=("statefulsets/scale",),
    )
    await world.register("Validating", hook)


@sequence()
async def a_conflict_during_both_kinds_of_hooks_calls_again(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await _overtaken(world)
    await _patched(world)
    inner = _write(world, {"data": {"inner": "2"}})
    await world.register(
        "Mutating", Hook(name="two", decide=_during_request(world, inner)), name="sooner"
    )
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "third"}})
    await world.get(CONFIG_MAPS, "a")


@sequence()
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
    await _patched(world)


@sequence()
async def a_conflict_during_a_put_with_version(world: World) -> None:
    body = tree(await world.make(CONFIG_MAPS, config_map("a")))
    await _overtaken(world)
    body["data"] = {"key": "put"}
    await world.update(CONFIG_MAPS, "a", body)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def a_conflict_during_a_put_without_version(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await _overtaken(world)
    await world.update(CONFIG_MAPS, "a", config_map("a", data={"key": "put"}))
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def a_conflict_during_a_patch_with_version(world: World) -> None:
    made = tree(await world.make(CONFIG_MAPS, config_map("a")))
    await _overtaken(world)
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    await world.patch(CONFIG_MAPS, "a", {"metadata": version, "data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def deleted_during_a_patch(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    inner = ApiRequest(verb="delete", resource=CONFIG_MAPS, namespace=world.namespace, name="a")
    await world.register("Validating", Hook(name="one", decide=_during_request(world, inner)))
    await _patched(world)


@sequence()
async def changed_during_a_delete(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    inner = _write(world, {"data": {"inner": "1"}})
    decide = _during_request(world, inner)
    await world.register("Validating", Hook(name="one", decide=decide, operations=("DELETE",)))
    await world.delete(CONFIG_MAPS, "a")
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def created_by_another_during_a_create(world: World) -> None:
    requested = [0]

    async def decide(_review: JsonObject) -> Verdict:
        requested[0] += 1
        if requested[0] == 1:
            with world.quietly():
                await world.create(CONFIG_MAPS, config_map("a", data={"key": "inner"}))
        return {"allowed": True}

    await world.register("Validating", Hook(name="one", decide=decide, operations=("CREATE",)))
    await world.create(CONFIG_MAPS, config_map("a"))
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def a_conflict_during_a_scale_calls_again(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await _annotated_while_scaled(world)
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 1}})
    await world.get(STATEFULSETS, "a")


@sequence()
async def a_conflict_during_a_scale_put_with_version(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    body = tree(await world.get(STATEFULSETS, "a/scale"))
    await _annotated_while_scaled(world)
    body["spec"]["replicas"] = 1
    await world.update(STATEFULSETS, "a/scale", body)
    await world.get(STATEFULSETS, "a")


@sequence()
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
    await _patched(world)
