"""Watches at the simulated API server: what they are sent, in which order, and how they end."""

import asyncio

import msgspec
from rollout_lab.schemas.kinds import NAMESPACES

from rollout_operator.kube.api import CONFIG_MAPS, PODS
from tests.lab.server import CLUSTER_WIDE, Fields, Server, config_map, drained, lines, pod
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_a_watch_sees_its_namespace_and_its_kind_only() -> None:
    server = Server()
    server.create(NAMESPACES, {"metadata": {"name": "other"}})
    here = server.watch(CONFIG_MAPS, resourceVersion="2")
    request = server.request(
        "watch", CONFIG_MAPS, "", Fields(namespace=CLUSTER_WIDE, query={"resourceVersion": "2"})
    )
    everywhere = server.api.open_watch(request)
    elsewhere = Fields(body=config_map("a"), namespace="other")
    assert server.send_request("create", CONFIG_MAPS, fields=elsewhere).status == 201
    server.create(PODS, pod())
    assert lines(here) == []
    assert lines(everywhere) == ["ADDED a"]
    here.close()
    everywhere.close()


@in_virtual_time
async def test_a_body_is_encoded_once_for_all_streams_and_replays() -> None:
    server = Server()
    one = server.watch(CONFIG_MAPS, resourceVersion="1")
    two = server.watch(CONFIG_MAPS, resourceVersion="1")
    server.create(CONFIG_MAPS, config_map("a"))
    late = server.watch(CONFIG_MAPS, resourceVersion="1")
    (first,), (second,), (third,) = drained(one), drained(two), drained(late)
    assert first.body is second.body is third.body
    assert msgspec.json.decode(first.body) == first.object
    for stream in (one, two, late):
        stream.close()


@in_virtual_time
async def test_a_watch_that_says_no_length_lasts_half_an_hour_to_an_hour() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="1")
    begun = asyncio.get_running_loop().time()
    assert [one async for one in stream] == []
    assert 1800 <= asyncio.get_running_loop().time() - begun <= 3600


@in_virtual_time
async def test_versions_of_the_future_are_waited_for_in_silence() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="3")
    server.create(CONFIG_MAPS, config_map("a"))
    server.create(CONFIG_MAPS, config_map("b"))
    server.create(CONFIG_MAPS, config_map("c"))
    assert [one.revision for one in drained(stream)] == [4]
    stream.close()
