"""Watches at the simulated API server: what they are sent, in which order, and how they end."""

import asyncio

import msgspec
import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.lab.apiserver.streams import INITIAL_EVENTS_END
from rollout_operator.lab.model.fields import child, number, text
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.schemas.kinds import CONFIG_MAPS, NAMESPACES
from tests.lab.server import (
    CLUSTER_WIDE,
    Asked,
    Server,
    config_map,
    drained,
    lines,
    pod,
    version,
)
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_a_watch_from_a_version_gets_all_later_writes_in_order() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map("a"))
    since = str(server.api.revision)
    server.create(CONFIG_MAPS, config_map("b"))
    stream = server.watch(CONFIG_MAPS, resourceVersion=since)
    server.merge(CONFIG_MAPS, "a", {"data": {"key": "2"}})
    server.ask("delete", CONFIG_MAPS, "b")
    events = drained(stream)
    assert [one.type for one in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [one.revision for one in events] == [3, 4, 5]
    assert [version(one.object) for one in events] == ["3", "4", "5"]
    stream.close()


@pytest.mark.parametrize("since", ["", "0"])
def test_a_watch_from_nowhere_begins_with_what_is_there(since: str) -> None:
    @in_virtual_time
    async def run() -> None:
        server = Server()
        server.create(CONFIG_MAPS, config_map("b"))
        server.create(CONFIG_MAPS, config_map("a"))
        stream = server.watch(CONFIG_MAPS, resourceVersion=since)
        assert lines(stream) == ["ADDED a", "ADDED b"]
        server.create(CONFIG_MAPS, config_map("c"))
        assert lines(stream) == ["ADDED c"]
        stream.close()

    run()


@in_virtual_time
async def test_the_state_ends_with_a_marked_bookmark_where_bookmarks_are_allowed() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map("a"))
    stream = server.watch(CONFIG_MAPS, allowWatchBookmarks="true")
    state, end = drained(stream)
    assert state.type == "ADDED"
    assert end.type == "BOOKMARK"
    assert child(end.object, "metadata", "annotations") == {INITIAL_EVENTS_END: "true"}
    assert version(end.object) == str(server.api.revision)
    stream.close()


@in_virtual_time
async def test_a_watch_that_wants_no_state_begins_now() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map("a"))
    asked = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    stream = server.watch(CONFIG_MAPS, **asked)
    assert lines(stream) == []
    server.ask("delete", CONFIG_MAPS, "a")
    assert lines(stream) == ["DELETED a"]
    stream.close()


@in_virtual_time
async def test_a_bookmark_tells_the_version_to_those_who_allow_it() -> None:
    server = Server()
    silent = server.watch(CONFIG_MAPS, resourceVersion="1")
    told = server.watch(CONFIG_MAPS, resourceVersion="1", allowWatchBookmarks="true")
    server.create(PODS, pod())
    server.api.send_bookmarks()
    (event,) = drained(told)
    assert (event.type, event.object["kind"]) == ("BOOKMARK", "ConfigMap")
    assert version(event.object) == str(server.api.revision)
    assert lines(silent) == []
    silent.close()
    told.close()


@in_virtual_time
async def test_an_object_that_leaves_a_selection_is_deleted_for_the_watch() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="1", labelSelector="on=yes")
    server.create(CONFIG_MAPS, config_map("a", data={"key": "1"}))
    server.merge(CONFIG_MAPS, "a", {"metadata": {"labels": {"on": "yes"}}})
    server.merge(CONFIG_MAPS, "a", {"data": {"key": "2"}})
    server.merge(CONFIG_MAPS, "a", {"metadata": {"labels": {"on": "no"}}, "data": {"key": "3"}})
    events = drained(stream)
    assert [one.type for one in events] == ["ADDED", "MODIFIED", "DELETED"]
    last = events[-1]
    # The last state that matched, under the version of the write that ended it.
    assert text(last.object, "data", "key") == "2"
    assert version(last.object) == str(server.api.revision) == str(last.revision)
    server.ask("delete", CONFIG_MAPS, "a")
    assert lines(stream) == []
    stream.close()


@in_virtual_time
async def test_a_watch_sees_its_namespace_and_its_kind_only() -> None:
    server = Server()
    server.create(NAMESPACES, {"metadata": {"name": "other"}})
    here = server.watch(CONFIG_MAPS, resourceVersion="2")
    request = server.request(
        "watch", CONFIG_MAPS, "", Asked(namespace=CLUSTER_WIDE, query={"resourceVersion": "2"})
    )
    everywhere = server.api.open_watch(request)
    elsewhere = Asked(body=config_map("a"), namespace="other")
    assert server.ask("create", CONFIG_MAPS, asked=elsewhere).status == 201
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
async def test_a_watch_ends_in_order_when_its_time_is_over() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="1", timeoutSeconds="90")
    begun = asyncio.get_running_loop().time()
    server.create(CONFIG_MAPS, config_map("a"))
    events = [one.type async for one in stream]
    assert events == ["ADDED"]
    assert asyncio.get_running_loop().time() - begun == 90
    assert stream.is_closed
    server.create(CONFIG_MAPS, config_map("b"))
    assert stream.pop() is None


@in_virtual_time
async def test_a_watch_that_says_no_length_lasts_half_an_hour_to_an_hour() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="1")
    begun = asyncio.get_running_loop().time()
    assert [one async for one in stream] == []
    assert 1800 <= asyncio.get_running_loop().time() - begun <= 3600


@in_virtual_time
async def test_who_waits_is_woken_by_an_event_and_by_the_end() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="1")
    loop = asyncio.get_running_loop()
    loop.call_later(5, lambda: server.create(CONFIG_MAPS, config_map("a")))
    assert text((await anext(stream)).object, "metadata", "name") == "a"
    loop.call_later(5, stream.close)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert loop.time() == 10


@in_virtual_time
async def test_the_listener_of_a_stream_is_told_of_events_and_of_the_end() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="1")
    told: list[bool] = []
    stream.on_event = lambda: told.append(stream.is_closed)
    server.create(CONFIG_MAPS, config_map("a"))
    stream.close()
    assert told == [False, True]


@in_virtual_time
async def test_a_forgotten_version_is_an_error_in_the_stream_as_from_a_watch_cache() -> None:
    server = Server()
    for name in "abc":
        server.create(CONFIG_MAPS, config_map(name))
    server.api.compact()
    stream = server.watch(CONFIG_MAPS, resourceVersion="2")
    (event,) = [one async for one in stream]
    assert event.type == "ERROR"
    assert number(event.object, "code") == 410
    assert (event.object["reason"], event.object["message"]) == (
        "Expired",
        "too old resource version: 2 (4)",
    )
    at_the_edge = server.watch(CONFIG_MAPS, resourceVersion="4")
    assert not at_the_edge.is_closed
    at_the_edge.close()


@in_virtual_time
async def test_versions_of_the_future_are_waited_for_in_silence() -> None:
    server = Server()
    stream = server.watch(CONFIG_MAPS, resourceVersion="3")
    server.create(CONFIG_MAPS, config_map("a"))
    server.create(CONFIG_MAPS, config_map("b"))
    server.create(CONFIG_MAPS, config_map("c"))
    assert [one.revision for one in drained(stream)] == [4]
    stream.close()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param({"resourceVersion": "x"}, 500, id="no version"),
        pytest.param({"timeoutSeconds": "x"}, 400, id="no length"),
        pytest.param({"resourceVersionMatch": "NotOlderThan"}, 422, id="match without state"),
        pytest.param({"sendInitialEvents": "true"}, 422, id="state without match"),
        pytest.param({"labelSelector": "a=b,"}, 400, id="selector"),
    ],
)
def test_watches_that_make_no_sense_are_refused(query: dict[str, str], status: int) -> None:
    server = Server()
    with pytest.raises(ApiRefusal) as caught:
        server.watch(CONFIG_MAPS, **query)
    assert caught.value.status == status


def test_a_parameter_that_nobody_models_is_said() -> None:
    with pytest.raises(NotModelled, match="shardSelector"):
        Server().watch(CONFIG_MAPS, shardSelector="x")
