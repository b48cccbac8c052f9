"""The garbage collector: dependants of owners that are gone, going, or let them go."""

import asyncio

from rollout_operator.kube.api import CONFIG_MAPS, PODS, STATEFULSETS, JsonObject
from rollout_operator.lab.apiserver.garbage import ACTOR
from rollout_operator.lab.model.fields import text
from rollout_operator.lab.schemas.kinds import NAMESPACES
from tests.lab.server import Asked, Server, config_map, owned_by, pod, zone
from tests.virtual_time import in_virtual_time

# Longer than the collector takes for a step, or for a few in a row.
A_WHILE = 2.0


def with_pods(*names: str, node: str = "", blocks: bool = True) -> tuple[Server, JsonObject]:
    server = Server()
    owner = server.create(STATEFULSETS, zone())
    for name in names:
        references = [owned_by(owner, blocks=blocks)]
        server.create(PODS, pod(name, node=node, ownerReferences=references))
    return server, owner


def delete(server: Server, policy: str = "Background") -> None:
    options = Asked(body={"propagationPolicy": policy})
    assert server.ask("delete", STATEFULSETS, "a", options).is_ok


@in_virtual_time
async def test_in_the_foreground_an_owner_waits_for_those_that_hold_it() -> None:
    server, _ = with_pods("a-0", node="n")
    delete(server, "Foreground")
    await asyncio.sleep(A_WHILE)
    assert server.has(STATEFULSETS, "a")
    assert text(server.fetch(PODS, "a-0"), "metadata", "deletionTimestamp")
    server.ask("delete", PODS, "a-0", Asked(body={"gracePeriodSeconds": 0}))
    await asyncio.sleep(A_WHILE)
    assert not server.has(STATEFULSETS, "a")


@in_virtual_time
async def test_in_the_foreground_an_owner_does_not_wait_for_others() -> None:
    server, _ = with_pods("a-0", node="n", blocks=False)
    delete(server, "Foreground")
    await asyncio.sleep(A_WHILE)
    assert not server.has(STATEFULSETS, "a")
    assert text(server.fetch(PODS, "a-0"), "metadata", "deletionTimestamp")


@in_virtual_time
async def test_owners_of_kinds_that_nobody_knows_are_left_alone() -> None:
    server = Server()
    stranger: JsonObject = {
        "apiVersion": "example.com/v1",
        "kind": "Ingester",
        "name": "x",
        "uid": "u",
    }
    server.create(CONFIG_MAPS, config_map(ownerReferences=[stranger]))
    await asyncio.sleep(A_WHILE)
    assert server.has(CONFIG_MAPS, "c")


@in_virtual_time
async def test_an_owner_in_another_namespace_is_none() -> None:
    server, owner = with_pods()
    server.create(NAMESPACES, {"metadata": {"name": "other"}})
    body = config_map(ownerReferences=[owned_by(owner)])
    assert server.ask("create", CONFIG_MAPS, asked=Asked(body=body, namespace="other")).is_ok
    await asyncio.sleep(A_WHILE)
    assert server.api.get(CONFIG_MAPS, "other", "c") is None


@in_virtual_time
async def test_a_refused_deletion_is_tried_again() -> None:
    server, _ = with_pods("a-0")
    server.api.forbidden.add((ACTOR, "delete", "pods"))
    delete(server)
    await asyncio.sleep(10)
    refused = [one for one in server.calls() if one.actor == ACTOR]
    assert {one.status for one in refused} == {403}
    assert 5 <= len(refused) <= 12
    server.api.forbidden.clear()
    await asyncio.sleep(A_WHILE)
    assert not server.has(PODS, "a-0")


@in_virtual_time
async def test_a_stopped_server_does_nothing_by_itself() -> None:
    server, _ = with_pods("a-0")
    delete(server)
    server.api.stop()
    await asyncio.sleep(A_WHILE)
    assert server.has(PODS, "a-0")


@in_virtual_time
async def test_objects_that_are_put_back_in_any_order_find_their_owner() -> None:
    """A dump lists pods before the StatefulSets that own them."""
    server, owner = with_pods("a-0")
    copy = Server()
    copy.api.put(server.fetch(PODS, "a-0"), actor="person")
    copy.api.put(owner, actor="person")
    await asyncio.sleep(A_WHILE)
    assert copy.has(PODS, "a-0")
