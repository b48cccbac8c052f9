"""What the client sends for writes and subresources, and the fence before writes (SI-22)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, VALIDATING_WEBHOOKS, JsonObject, Resource
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import (
    Conflict,
    Denied,
    InvalidInput,
    NotElected,
    NotFound,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from tests.kube.client_bench import (
    CREATE,
    DELETE,
    FETCH,
    JSON_PATCH,
    OBJECT_WRITES,
    PATCH,
    POD,
    REPLACE,
    SET,
    SHORT,
    UPDATE,
    WRITES,
    Bench,
    Use,
    open_bench,
    pods,
)
from tests.kube.fake_api import Answer, cut, refuse, reply, stream

HEAD = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"

GROUP = "x.example.org"
SCALE = f"{SET}/scale"
VERSIONS = {"kind": "APIGroup", "name": GROUP, "versions": [{"version": "v2"}, {"version": "v1"}]}
KINDS = {
    "kind": "APIResourceList",
    "resources": [
        {"name": "things", "kind": "Thing", "namespaced": True},
        {"name": "things/scale", "kind": "Scale", "namespaced": True},
    ],
}

# What a connection may take else is 5 s.
SOON = timedelta(milliseconds=100)
LIMIT = timedelta(seconds=3)


@pytest.mark.parametrize(
    ("use", "content_type", "body"),
    [
        pytest.param(UPDATE, "application/json", {"status": {"replicas": 1}}, id="status"),
        pytest.param(CREATE, "application/json", {"metadata": {"name": "a"}}, id="create"),
        pytest.param(REPLACE, "application/json", {"spec": {"replicas": 1}}, id="replace"),
        pytest.param(
            PATCH, "application/merge-patch+json", {"spec": {"replicas": 1}}, id="merge patch"
        ),
        pytest.param(
            JSON_PATCH,
            "application/json-patch+json",
            [{"op": "remove", "path": "/spec/replicas"}],
            id="JSON patch",
        ),
    ],
)
async def test_an_object_is_written_as_given(
    bench: Bench, use: Use, content_type: str, body: object
) -> None:
    bench.server.on(use.method, use.path, reply({}, 201))
    await use.run(bench.client())
    (request,) = bench.server.requests
    assert (request.headers["content-type"], request.json) == (content_type, body)
    assert request.query == {}


@pytest.mark.parametrize(
    ("is_forced", "query"),
    [(False, {"fieldManager": "a/b"}), (True, {"fieldManager": "a/b", "force": "true"})],
)
async def test_fields_are_applied_as_a_manager(
    bench: Bench, is_forced: bool, query: JsonObject
) -> None:
    bench.server.on("PATCH", SET, reply({"kind": "StatefulSet"}))
    fields: JsonObject = {"spec": {"replicas": 1}}
    body = await bench.client().apply(
        STATEFULSETS, "prod", "a", fields, manager="a/b", is_forced=is_forced
    )
    (request,) = bench.server.requests
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert (request.json, request.query) == (fields, query)
    assert json.loads(body) == {"kind": "StatefulSet"}


async def test_a_conflict_of_managers_names_them(bench: Bench) -> None:
    message = 'Apply failed with 1 conflict: conflict with "flux": .spec.replicas'
    status = {"kind": "Status", "message": message, "reason": "Conflict", "code": 409}
    bench.server.on("PATCH", SET, reply(status, 409))
    with pytest.raises(Conflict, match=r'conflict with "flux": \.spec\.replicas'):
        await bench.client().apply(STATEFULSETS, "prod", "a", {}, manager="ours")


@pytest.mark.parametrize("patch", [{}, []], ids=["merge patch", "JSON patch"])
async def test_a_patch_of_nothing_is_still_a_patch(
    bench: Bench, patch: JsonObject | list[JsonObject]
) -> None:
    bench.server.on("PATCH", SET, reply({}))
    await bench.client().patch(STATEFULSETS, "prod", "a", patch)
    (request,) = bench.server.requests
    assert request.json == patch
    assert request.headers["content-type"].endswith("-patch+json")


async def test_a_written_object_is_returned_as_it_came(bench: Bench) -> None:
    body = '{"kind": "StatefulSet",  "metadata": {"name": "zürich"}}'.encode()
    for use in OBJECT_WRITES:
        bench.server.on(use.method, use.path, reply(body))
    client = bench.client()
    assert await client.create(STATEFULSETS, "prod", {}) == body
    assert await client.replace(STATEFULSETS, "prod", "a", {}) == body
    assert await client.patch(STATEFULSETS, "prod", "a", {}) == body


async def test_sec_18_objects_of_the_cluster_are_found_by_name_alone(bench: Bench) -> None:
    """The role may name the objects, where list and watch select an object by a field selector."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    bench.server.on("GET", path, reply(pods(0)), stream([]))
    bench.server.on("PATCH", f"{path}/guard", reply({}))
    client, one = bench.client(), "metadata.name=guard"
    lasts = timedelta(seconds=5)
    await client.fetch_page(VALIDATING_WEBHOOKS, "", field_selector=one)
    async with client.watch(
        VALIDATING_WEBHOOKS, "", resource_version="1", field_selector=one, lasts=lasts
    ):
        pass
    await client.patch(VALIDATING_WEBHOOKS, "", "guard", {})
    assert [request.query.get("fieldSelector") for request in bench.server.requests] == [
        one,
        one,
        None,
    ]
    kind = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert bench.measured() == {
        (f"{kind} collection", "GET", "200"): 2,
        (f"{kind} object", "PATCH", "200"): 1,
    }


@pytest.mark.parametrize("use", OBJECT_WRITES, ids=str)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(cut(HEAD + b"{"), id="cut"),
        pytest.param(reply(b""), id="empty"),
        pytest.param(reply(b"[]"), id="array"),
        pytest.param(reply(b"<html>", Content_Type="text/html"), id="page of a proxy"),
    ],
)
async def test_si_18_a_write_that_shows_no_object_must_be_read_back(
    bench: Bench, use: Use, answer: Answer
) -> None:
    bench.server.on(use.method, use.path, answer)
    with pytest.raises(UnknownOutcome, match=r"cannot tell what .* wrote: the answer is no object"):
        await use.run(bench.client())


async def test_dep_88_a_dry_run_says_so_and_is_otherwise_as_in_earnest(bench: Bench) -> None:
    pods_path = "/api/v1/namespaces/prod/pods"
    bench.server.on("POST", pods_path, reply({}, 201))
    bench.server.on("PATCH", f"{SET}/scale", reply({}))
    client = bench.client()
    await client.try_create(PODS, "prod", {"kind": "Pod"})
    await client.try_patch(STATEFULSETS, "prod", "a", {"spec": {"replicas": 1}}, "scale")
    bench.server.on("POST", f"{pods_path}/a-0/eviction", reply({}, 201))
    await client.try_create(PODS, "prod", {"kind": "Eviction"}, "a-0", "eviction")
    created, patched, evicted = bench.server.requests
    assert created.query == patched.query == evicted.query == {"dryRun": "All"}
    assert (created.json, patched.json) == ({"kind": "Pod"}, {"spec": {"replicas": 1}})
    assert patched.headers["content-type"] == "application/merge-patch+json"


async def test_mirr_04_a_scale_is_read_from_its_subresource(bench: Bench) -> None:
    body = b'{"kind": "Scale",  "spec": {"replicas": 3}}'
    bench.server.on("GET", SCALE, reply(body))
    assert await bench.client().fetch(STATEFULSETS, "prod", "a", "scale") == body
    assert bench.measured() == {("apps/v1/statefulsets object scale subresource", "GET", "200"): 1}
    (request,) = bench.server.requests
    assert request.headers["x-cluster"] == "ops"


async def test_mirr_03_groups_and_kinds_are_discovered(bench: Bench) -> None:
    bench.server.on("GET", f"/apis/{GROUP}", reply(dict(VERSIONS)))
    bench.server.on("GET", f"/apis/{GROUP}/v2", reply(dict(KINDS)))
    bench.server.on("GET", "/api/v1", reply({"resources": []}))
    client = bench.client()
    assert await client.fetch_group(GROUP) == ("v2", "v1")
    assert await client.fetch_group("") == ("v1",), "known without a request"
    (thing,) = await client.fetch_resources(GROUP, "v2")
    assert await client.fetch_resources("", "v1") == ()
    assert thing.resource == Resource(GROUP, "v2", "things", "Thing")
    assert thing.subresources == {"scale"}
    assert bench.measured() == {
        ("discovery of a group", "GET", "200"): 1,
        ("discovery of resources", "GET", "200"): 2,
    }
    assert {request.headers["x-cluster"] for request in bench.server.requests} == {"ops"}


async def test_a_group_that_is_not_served_is_not_found(bench: Bench) -> None:
    bench.server.on("GET", f"/apis/{GROUP}", reply(b"404 page not found\n", 404))
    with pytest.raises(NotFound, match=f"cannot discover apis/{GROUP}: 404: 404 page not found"):
        await bench.client().fetch_group(GROUP)


async def test_an_object_of_a_group_that_is_not_served_is_no_answer(bench: Bench) -> None:
    """It shows nothing of the object, but its status is to be seen: the group may be gone."""
    bench.server.on("GET", SCALE, reply(b"404 page not found\n", 404, Content_Type="text/plain"))
    with pytest.raises(Unreachable) as caught:
        await bench.client().fetch(STATEFULSETS, "prod", "a", "scale")
    assert caught.value.status == 404


async def test_the_rule_that_is_missing_is_named(bench: Bench) -> None:
    message = 'forbidden: User "x" cannot get path "/apis/x.example.org"'
    bench.server.on("GET", f"/apis/{GROUP}", refuse(403, "Forbidden", message))
    scale = 'statefulsets.apps "a" is forbidden: User "x" cannot get resource "statefulsets/scale"'
    bench.server.on("GET", SCALE, refuse(403, "Forbidden", scale))
    wanted = rf'grant verb get on non-resource URL "/apis/{GROUP}" in its ClusterRole$'
    with pytest.raises(Denied, match=wanted):
        await bench.client().fetch_group(GROUP)
    wanted = 'grant verb get on "statefulsets/scale" in API group "apps" in its Role$'
    with pytest.raises(Denied, match=wanted):
        await bench.client().fetch(STATEFULSETS, "prod", "a", "scale")


async def test_discovery_has_the_limits_of_other_reads(bench: Bench) -> None:
    limits = RateLimiter(0.001, 1)
    bench.server.on("GET", f"/apis/{GROUP}", reply(dict(VERSIONS)))
    client = bench.client(limits, SHORT)
    await client.fetch_group(GROUP)
    with pytest.raises(Throttled):
        await client.fetch_resources(GROUP, "v2")


async def test_sec_12_nothing_is_sent_for_a_group_that_is_a_path(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="names nothing"):
        await bench.client().fetch_group("../api/v1/secrets")
    assert bench.server.requests == []


@pytest.mark.parametrize("use", WRITES, ids=str)
async def test_si22_what_the_fence_keeps_is_not_sent(bench: Bench, use: Use) -> None:
    """SI-22: reads pass it."""

    def keep(call: str) -> timedelta | None:
        raise NotElected(f"cannot {call}", call=call)

    bench.server.on("GET", POD, reply({}))
    with pytest.raises(NotElected):
        await use.run(bench.client(fence=keep))
    await FETCH.run(bench.client(fence=keep))
    assert [request.method for request in bench.server.requests] == ["GET"]


@pytest.mark.parametrize("left", [SOON, timedelta(0), -SOON], ids=str)
async def test_si22_a_write_waits_no_longer_for_a_connection_than_it_may_be_sent(
    bench: Bench, left: timedelta
) -> None:
    """SI-22: another process may act by the time an API server that hangs takes it."""
    async with silence() as url, open_bench(bench.server, url) as slow:
        async with asyncio.timeout(LIMIT.total_seconds()):
            with pytest.raises(Unreachable):
                await DELETE.run(slow.client(fence=lambda call: left))


@asynccontextmanager
async def silence() -> AsyncIterator[str]:
    """Take connections and say nothing, so that no handshake comes to its end; yield the URL."""
    closing = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.transport.abort()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        closing.set()
