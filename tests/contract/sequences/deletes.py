"""Deleting: preconditions, grace, finalizers, repetition."""

from rollout_operator.kube.api import PODS, SECRETS, STATEFULSETS, JsonObject
from tests.contract.bodies import (
    config_map,
    delete_options,
    pod,
    ready_status,
    secret,
    statefulset,
    uid_of,
    version_of,
)
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World

OTHER_UID = "11111111-2222-3333-4444-555555555555"


@sequence()
async def a_deleted_object_is_gone_and_its_name_is_free(world: World) -> None:
    old = await world.make(CONFIG_MAPS, config_map("a"))
    await world.delete(CONFIG_MAPS, "a")
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "a")
    new = await world.create(CONFIG_MAPS, config_map("a"))
    world.record("uids", differ=uid_of(old) != uid_of(new))


@sequence()
async def sets_secrets_and_unbound_pods_are_deleted_at_once(world: World) -> None:
    for resource, body in (
        (STATEFULSETS, statefulset("a")),
        (SECRETS, secret("a")),
        (PODS, pod("a")),
    ):
        await world.make(resource, body)
        await world.delete(resource, "a")
        await world.get(resource, "a")


def preconditions(**values: str) -> JsonObject:
    return delete_options(preconditions=values)


@sequence()
async def preconditions_of_a_delete(world: World) -> None:
    await world.delete(CONFIG_MAPS, "a", preconditions(uid=OTHER_UID, resourceVersion="1"))
    made = await world.make(CONFIG_MAPS, config_map("a"))
    old = {"uid": uid_of(made), "resourceVersion": version_of(made)}
    await world.delete(CONFIG_MAPS, "a", preconditions(uid=OTHER_UID))
    newest = version_of(await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}}))
    await world.delete(CONFIG_MAPS, "a", preconditions(**old))
    await world.delete(CONFIG_MAPS, "a", preconditions(resourceVersion=version_of(made)))
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "a", preconditions(**old | {"resourceVersion": newest}))
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def preconditions_of_a_pod_delete(world: World) -> None:
    made = await world.make(PODS, pod("a", node="n"))
    uid, version = uid_of(made), version_of(made)
    await world.delete(PODS, "a", preconditions(uid=OTHER_UID, resourceVersion=version))
    await world.patch(PODS, "a", {"metadata": {"annotations": {"x": "y"}}})
    await world.delete(PODS, "a", preconditions(uid=uid, resourceVersion=version))
    newest = version_of(await world.get(PODS, "a"))
    await world.delete(PODS, "a", preconditions(uid=uid, resourceVersion=newest))
    await world.delete(PODS, "a", preconditions(uid=uid, resourceVersion=newest))
    await world.get(PODS, "a")


@sequence()
async def a_bound_pod_gets_its_grace_once(world: World) -> None:
    body = pod("a", node="n")
    spec = body["spec"]
    assert isinstance(spec, dict)
    spec["terminationGracePeriodSeconds"] = 7
    await world.make(PODS, body)
    await world.make(PODS, pod("b", node="n"))
    for name in "ab":
        await world.delete(PODS, name)
        await world.delete(PODS, name)
        await world.get(PODS, name)


@sequence()
async def a_shorter_grace_counts(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=20))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=10))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=25))
    await world.get(PODS, "a")


@sequence()
async def no_grace_is_gone(world: World) -> None:
    made = await world.make(PODS, pod("a", node="n"))
    await world.make(PODS, pod("b", node="n"))
    await world.delete(PODS, "a")
    body = delete_options(gracePeriodSeconds=0, preconditions={"uid": uid_of(made)})
    await world.delete(PODS, "a", body)  # as a kubelet ends a terminating pod
    await world.get(PODS, "a")
    await world.delete(PODS, "b", delete_options(gracePeriodSeconds=0))
    await world.get(PODS, "b")


@sequence()
async def a_negative_grace(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=-1))
    await world.get(PODS, "a")


@sequence()
async def pods_that_have_ended_go_at_once(world: World) -> None:
    for name, phase in (("a", "Succeeded"), ("b", "Failed")):
        await world.make(PODS, pod(name, node="n"))
        await world.patch(PODS, f"{name}/status", ready_status(phase, "False"))
        await world.delete(PODS, name)
        await world.get(PODS, name)


@sequence()
async def a_finalizer_holds_an_object_that_may_change_still(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", finalizers=["x.org/a"]))
    await world.delete(CONFIG_MAPS, "a")
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "a")
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.create(CONFIG_MAPS, config_map("a"))
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def a_finalizer_holds_a_pod(world: World) -> None:
    await world.make(PODS, pod("a", node="n", finalizers=["x.org/a"]))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=0))
    await world.get(PODS, "a")
    await world.patch(PODS, "a", {"metadata": {"finalizers": None}})
    await world.get(PODS, "a")


@sequence()
async def a_finalizer_removed_before_the_grace_is_over(world: World) -> None:
    await world.make(PODS, pod("a", node="n", finalizers=["x.org/a"]))
    await world.delete(PODS, "a")
    await world.patch(PODS, "a", {"metadata": {"finalizers": None}})
    await world.get(PODS, "a")
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=0))
    await world.get(PODS, "a")


@sequence()
async def dry_run_of_a_delete(world: World) -> None:
    for resource, body in ((CONFIG_MAPS, config_map("a")), (PODS, pod("a", node="n"))):
        await world.make(resource, body)
        await world.delete(resource, "a", dryRun="All")
        await world.delete(resource, "a", delete_options(dryRun=["All"]))
        await world.get(resource, "a")


@sequence()
async def a_policy_leaves_a_finalizer(world: World) -> None:
    """Without a garbage collector at work, the intermediate state can be seen."""
    for policy in ("Orphan", "Foreground"):
        await world.make(STATEFULSETS, statefulset("a", 0))
        await world.delete(STATEFULSETS, "a", delete_options(propagationPolicy=policy))
        await world.get(STATEFULSETS, "a")
        await world.delete(STATEFULSETS, "a")
        await world.get(STATEFULSETS, "a")
        await world.patch(STATEFULSETS, "a", {"metadata": {"finalizers": None}})
        await world.get(STATEFULSETS, "a")


@sequence()
async def another_policy_takes_the_place_of_the_first(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a", 0))
    for policy in ("Foreground", "Orphan", "Foreground", "Background"):
        await world.delete(STATEFULSETS, "a", delete_options(propagationPolicy=policy))
        await world.get(STATEFULSETS, "a")
