"""What the client's writes send and return, and calls for what belongs to the cluster."""

import json
from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, VALIDATING_WEBHOOKS, JsonObject
from rollout_operator.model.errors import Conflict, UnknownOutcome
from tests.kube.client_bench import (
    CREATE,
    JSON_PATCH,
    OBJECT_WRITES,
    PATCH,
    REPLACE,
    SET,
    Bench,
    Use,
    pods,
)
from tests.kube.fake_api import Answer, cut, reply, stream

HEAD = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"


@pytest.mark.parametrize(
    ("use", "content_type", "body"),
    [
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
