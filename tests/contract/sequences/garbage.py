"""Owners and what goes with them: the garbage collector is at work."""

from rollout_lab.model.request import ApiAnswer

from rollout_operator.kube.api import PODS, SECRETS
from tests.contract.bodies import config_map, delete_options, owner, pod, secret, tree
from tests.contract.controllers_pods import HELD
from tests.contract.plays import Needs, sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World


@sequence(needs=Needs.CONTROLLERS)
async def dependants_go_with_their_owner(world: World) -> None:
    await world.make(SECRETS, secret("other"))
    for options in (None, delete_options(propagationPolicy="Background")):
        made = await world.make(CONFIG_MAPS, config_map("owner"))
        for name in ("a", "b"):
            await world.create(CONFIG_MAPS, config_map(name, ownerReferences=[owner(made)]))
        await world.delete(CONFIG_MAPS, "owner", options)
        await world.make(CONFIG_MAPS, config_map("owner"))  # another
        for name in ("a", "b"):
            await world.until_gone(CONFIG_MAPS, name)
        await world.get(CONFIG_MAPS, "owner")
        await world.delete(CONFIG_MAPS, "owner")
    await world.get(SECRETS, "other")


@sequence(needs=Needs.CONTROLLERS)
async def orphans_stay_and_lose_their_reference(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("owner"))
    await world.make(CONFIG_MAPS, config_map("a", ownerReferences=[owner(made)]))
    # Once this one is gone, the collector has seen the one above too.
    other = await world.make(CONFIG_MAPS, config_map("other"))
    await world.make(CONFIG_MAPS, config_map("b", ownerReferences=[owner(other)]))
    await world.delete(CONFIG_MAPS, "other")
    await world.until_gone(CONFIG_MAPS, "b")
    await world.delete(CONFIG_MAPS, "owner", delete_options(propagationPolicy="Orphan"))
    await world.until_gone(CONFIG_MAPS, "owner")
    await world.get(CONFIG_MAPS, "a")


@sequence(needs=Needs.CONTROLLERS)
async def an_owner_waits_for_dependants_that_block_it(world: World) -> None:
    for is_blocking in (True, False):
        made = await world.make(CONFIG_MAPS, config_map("owner"))
        reference = owner(made, blockOwnerDeletion=is_blocking)
        body = config_map("a", ownerReferences=[reference], finalizers=["x.org/a"])
        await world.make(CONFIG_MAPS, body)
        foreground = delete_options(propagationPolicy="Foreground")
        await world.delete(CONFIG_MAPS, "owner", foreground)
        await world.until(CONFIG_MAPS, "a", _is_going)
        if is_blocking:
            await world.get(CONFIG_MAPS, "owner")
        else:
            await world.until_gone(CONFIG_MAPS, "owner")
        await world.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
        await world.until_gone(CONFIG_MAPS, "owner")


@sequence(needs=Needs.CONTROLLERS)
async def one_of_two_owners_is_not_enough(world: World) -> None:
    one = await world.make(CONFIG_MAPS, config_map("one"))
    two = await world.make(CONFIG_MAPS, config_map("two"))
    body = config_map("a", ownerReferences=[owner(one), owner(two)])
    await world.make(CONFIG_MAPS, body)
    await world.make(CONFIG_MAPS, config_map("b", ownerReferences=[owner(one)]))
    await world.delete(CONFIG_MAPS, "one")
    await world.until_gone(CONFIG_MAPS, "b")
    await world.until(CONFIG_MAPS, "a", lambda answer: len(_owners(answer)) == 1)
    await world.get(CONFIG_MAPS, "a")
    await world.delete(CONFIG_MAPS, "two")
    await world.until_gone(CONFIG_MAPS, "a")


@sequence(needs=Needs.CONTROLLERS)
async def an_owner_that_never_was(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("owner"))
    uid = "11111111-2222-3333-4444-555555555555"
    reference = {**owner(made), "uid": uid}
    await world.make(CONFIG_MAPS, config_map("a", ownerReferences=[reference]))
    await world.until_gone(CONFIG_MAPS, "a")
    await world.get(CONFIG_MAPS, "owner")


@sequence(needs=Needs.CONTROLLERS)
async def pods_of_a_deleted_owner_end_gracefully(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("owner"))
    # Held: a kubelet that ends it in the meantime would make its grace period zero.
    held = {"ownerReferences": [owner(made)], "finalizers": ["x.org/a"]}
    body = pod("a", node="n", image=HELD, **held)
    await world.make(PODS, body)
    await world.delete(CONFIG_MAPS, "owner")
    await world.until(PODS, "a", _is_going)
    with world.quietly():
        ending = tree(await world.get(PODS, "a"))["metadata"]
        await world.patch(PODS, "a", {"metadata": {"finalizers": None}})
        await world.delete(PODS, "a", delete_options(gracePeriodSeconds=0))
    world.record("the pod", grace=ending["deletionGracePeriodSeconds"])
    await world.until_gone(PODS, "a")


@sequence(needs=Needs.CONTROLLERS)
async def a_chain_of_owners(world: World) -> None:
    first = await world.make(CONFIG_MAPS, config_map("first"))
    second = await world.make(CONFIG_MAPS, config_map("second", ownerReferences=[owner(first)]))
    await world.make(CONFIG_MAPS, config_map("third", ownerReferences=[owner(second)]))
    await world.delete(CONFIG_MAPS, "first")
    await world.until_gone(CONFIG_MAPS, "third")
    await world.get(CONFIG_MAPS, "second")


def _is_going(answer: ApiAnswer) -> bool:
    return "deletionTimestamp" in tree(answer)["metadata"]


def _owners(answer: ApiAnswer) -> list[object]:
    owners: list[object] = tree(answer)["metadata"].get("ownerReferences", [])
    return owners
