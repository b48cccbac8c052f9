"""What the client sends for scales, statuses and discovery, and what the metrics call it."""

import pytest

from rollout_operator.kube.api import STATEFULSETS, Resource
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.model.errors import Denied, InvalidInput, NotFound, Throttled, Unreachable
from tests.kube.client_bench import SET, SHORT, Bench
from tests.kube.fake_api import refuse, reply

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
