"""Requests that have to pass admission: who is faster meanwhile, and how long the server waits."""

import asyncio

import pytest

from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.lab.model.fields import child
from rollout_operator.lab.model.request import NotModelled
from rollout_operator.lab.schemas.kinds import CONFIG_MAPS
from tests.lab.server import NOTHING, Asked, Server, config_map, pod
from tests.virtual_time import in_virtual_time


def slow(server: Server, seconds: float, seen: list[object]) -> None:
    """Have writes of config maps reviewed by a hook that takes its time."""

    async def decide(request: JsonObject) -> JsonObject:
        seen.append(child(request, "object", "data").get("key"))
        await asyncio.sleep(seconds)
        return {"allowed": True}

    server.guard(CONFIG_MAPS, "CREATE", "UPDATE", decide=decide)


@in_virtual_time
async def test_a_write_during_a_review_makes_a_patch_go_through_admission_again() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    seen: list[object] = []
    slow(server, 5, seen)
    loop = asyncio.get_running_loop()
    # Restored by hand: a write that asks no webhook.
    other = {**server.fetch(CONFIG_MAPS, "c"), "data": {"key": "1", "other": "x"}}
    loop.call_later(2, lambda: server.api.put(other, actor="rival"))
    answer = await server.call("patch", CONFIG_MAPS, "c", Asked(body={"data": {"key": "2"}}))
    assert answer.status == 200
    assert child(answer.body, "data") == {"key": "2", "other": "x"}
    assert seen == ["2", "2"]
    assert loop.time() == 10
    assert [one.actor for one in server.commits()][-2:] == ["rival", "someone"]


@in_virtual_time
async def test_a_put_with_a_version_fails_when_somebody_is_faster() -> None:
    server = Server()
    made = server.create(CONFIG_MAPS, config_map())
    slow(server, 5, [])
    other = {**made, "data": {"key": "9"}}
    asyncio.get_running_loop().call_later(2, lambda: server.api.put(other, actor="rival"))
    put = Asked(body={**made, "data": {"key": "2"}})
    answer = await server.call("update", CONFIG_MAPS, "c", put)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert child(server.fetch(CONFIG_MAPS, "c"), "data") == {"key": "9"}


@in_virtual_time
async def test_a_busy_rival_starves_a_patch_until_the_server_gives_it_up() -> None:
    """W-14: an object that is written during each of its reviews is never admitted."""
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    count = 0

    async def rival(_: JsonObject) -> JsonObject:
        nonlocal count
        count += 1
        await asyncio.sleep(1)
        found = server.fetch(CONFIG_MAPS, "c")
        server.api.put({**found, "data": {"count": str(count)}}, actor="rival")
        return {"allowed": True}

    server.guard(CONFIG_MAPS, "UPDATE", decide=rival)
    answer = await server.call("patch", CONFIG_MAPS, "c", Asked(body={"data": {"key": "2"}}))
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert "request did not complete within requested timeout" in answer.message
    assert asyncio.get_running_loop().time() == 34
    assert 33 <= count <= 34


@in_virtual_time
async def test_a_denied_write_is_tried_again_where_the_object_changed_meanwhile() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    asked = 0

    async def deny_once(_: JsonObject) -> JsonObject:
        nonlocal asked
        asked += 1
        if asked == 1:
            found = server.fetch(CONFIG_MAPS, "c")
            server.api.put({**found, "data": {"key": "7"}}, actor="rival")
        return {"allowed": asked > 1, "status": {"message": "not yet"}}

    server.guard(CONFIG_MAPS, "UPDATE", decide=deny_once)
    answer = await server.call("patch", CONFIG_MAPS, "c", Asked(body={"data": {"x": "y"}}))
    assert (answer.status, asked) == (200, 2)
    assert child(answer.body, "data") == {"key": "7", "x": "y"}


@in_virtual_time
async def test_who_cannot_wait_is_told_that_a_webhook_wants_to_know() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    slow(server, 0, [])
    with pytest.raises(NotModelled, match="UPDATE of configmaps/c by 'someone'"):
        server.ask("patch", CONFIG_MAPS, "c", Asked(body={"data": {"key": "2"}}))
    assert server.ask("create", PODS, asked=Asked(body=pod())).status == 201
    assert server.ask("get", CONFIG_MAPS, "c", NOTHING).status == 200
