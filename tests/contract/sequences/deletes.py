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
async def a_deleted_object_is_gone(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.delete(CONFIG_MAPS, "a")
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "a")


@sequence()
async def a_new_object_of_the_name_has_another_uid(world: World) -> None:
    old = await world.make(CONFIG_MAPS, config_map("a"))
    await world.delete(CONFIG_MAPS, "a")
    new = await world.create(CONFIG_MAPS, config_map("a"))
    world.note("uids", differ=uid_of(old) != uid_of(new))


@sequence()
async def a_stateful_set_is_deleted_at_once(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.delete(STATEFULSETS, "a")
    await world.get(STATEFULSETS, "a")


@sequence()
async def a_secret_is_deleted_at_once(world: World) -> None:
    await world.make(SECRETS, secret("a"))
    await world.delete(SECRETS, "a")
    await world.get(SECRETS, "a")


def preconditions(**values: str) -> JsonObject:
    return delete_options(preconditions=values)


@sequence()
async def preconditions_of_a_delete_that_hold(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("a"))
    body = preconditions(uid=uid_of(made), resourceVersion=version_of(made))
    await world.delete(CONFIG_MAPS, "a", body)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def another_uid_in_a_delete(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.delete(CONFIG_MAPS, "a", preconditions(uid=OTHER_UID))
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def an_old_version_in_a_delete(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("a"))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    body = preconditions(uid=uid_of(made), resourceVersion=version_of(made))
    await world.delete(CONFIG_MAPS, "a", body)
    await world.delete(CONFIG_MAPS, "a", preconditions(resourceVersion=version_of(made)))
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
async def preconditions_of_what_is_not_there(world: World) -> None:
    await world.delete(PODS, "a", preconditions(uid=OTHER_UID, resourceVersion="1"))


@sequence()
async def an_unbound_pod_goes_at_once(world: World) -> None:
    await world.make(PODS, pod("a"))
    await world.delete(PODS, "a")
    await world.get(PODS, "a")


@sequence()
async def a_bound_pod_gets_its_grace(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a")
    await world.get(PODS, "a")


@sequence()
async def a_pod_deleted_again_stays_as_it_is(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a")
    await world.delete(PODS, "a")
    await world.get(PODS, "a")


@sequence()
async def a_shorter_grace_counts(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=20))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=10))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=25))
    await world.get(PODS, "a")


@sequence()
async def no_grace_is_gone(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=0))
    await world.get(PODS, "a")


@sequence()
async def a_kubelet_ends_a_terminating_pod(world: World) -> None:
    made = await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a")
    body = delete_options(gracePeriodSeconds=0, preconditions={"uid": uid_of(made)})
    await world.delete(PODS, "a", body)
    await world.get(PODS, "a")


@sequence()
async def a_negative_grace(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=-1))
    await world.get(PODS, "a")


@sequence()
async def the_grace_of_the_pod(world: World) -> None:
    body = pod("a", node="n")
    spec = body["spec"]
    assert isinstance(spec, dict)
    spec["terminationGracePeriodSeconds"] = 7
    await world.make(PODS, body)
    await world.delete(PODS, "a")


@sequence()
async def a_pod_that_has_ended_goes_at_once(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.patch(PODS, "a/status", {"status": {"phase": "Succeeded"}})
    await world.delete(PODS, "a")
    await world.get(PODS, "a")


@sequence()
async def a_failed_pod_goes_at_once(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.patch(PODS, "a/status", ready_status("Failed", "False"))
    await world.delete(PODS, "a")
    await world.get(PODS, "a")


@sequence()
async def a_finalizer_holds_an_object(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", finalizers=["x.org/a"]))
    await world.delete(CONFIG_MAPS, "a")
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "a")
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
async def what_is_deleted_may_change_still(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", finalizers=["x.org/a"]))
    await world.delete(CONFIG_MAPS, "a")
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.create(CONFIG_MAPS, config_map("a"))
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})


@sequence()
async def dry_run_of_a_delete(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.delete(CONFIG_MAPS, "a", dryRun="All")
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "a", delete_options(dryRun=["All"]))
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def dry_run_of_a_pod_delete(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a", dryRun="All")
    await world.get(PODS, "a")


@sequence()
async def orphan_leaves_a_finalizer(world: World) -> None:
    await _deleted_and_released(world, "Orphan")


@sequence()
async def foreground_leaves_a_finalizer(world: World) -> None:
    await _deleted_and_released(world, "Foreground")


async def _deleted_and_released(world: World, policy: str) -> None:
    """Without a garbage collector at work, the intermediate state can be seen."""
    await world.make(STATEFULSETS, statefulset("a", 0))
    await world.delete(STATEFULSETS, "a", delete_options(propagationPolicy=policy))
    await world.get(STATEFULSETS, "a")
    await world.patch(STATEFULSETS, "a", {"metadata": {"finalizers": None}})
    await world.get(STATEFULSETS, "a")
