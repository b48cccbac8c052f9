"""Requests that have to pass admission: who is faster meanwhile, and how long the server waits."""

import asyncio

import pytest
from rollout_lab.model.fields import child
from rollout_lab.model.request import NotModelled

from rollout_operator.kube.api import CONFIG_MAPS, PODS, JsonObject
from tests.lab.server import NOTHING, Fields, Server, config_map, pod
from tests.virtual_time import in_virtual_time


def slow(server: Server, seconds: float, seen: list[object]) -> None:
    """Have writes of config maps reviewed by a hook that takes its time."""

    async def decide(request: JsonObject) -> JsonObject:
        seen.append(child(request, "object", "data").get("key"))
        await asyncio.sleep(seconds)
        return {"allowed": True}

    server.guard(CONFIG_MAPS, "CREATE", "UPDATE", decide=decide)


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
    answer = await server.call("patch", CONFIG_MAPS, "c", Fields(body={"data": {"key": "2"}}))
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert "request did not complete within requested timeout" in answer.message
    assert asyncio.get_running_loop().time() == 34
    assert 33 <= count <= 34


@in_virtual_time
async def test_a_caller_that_cannot_wait_learns_that_a_webhook_reviews() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    slow(server, 0, [])
    with pytest.raises(NotModelled, match="UPDATE of configmaps/c by 'person'"):
        server.send_request("patch", CONFIG_MAPS, "c", Fields(body={"data": {"key": "2"}}))
    assert server.send_request("create", PODS, fields=Fields(body=pod())).status == 201
    assert server.send_request("get", CONFIG_MAPS, "c", NOTHING).status == 200
