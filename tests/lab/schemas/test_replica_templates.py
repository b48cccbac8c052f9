"""ReplicaTemplates and discovery in the sandbox; see the contract as well."""

import pytest

from rollout_operator.kube.api import (
    CONFIG_MAPS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
    Served,
)
from rollout_operator.lab.model.fields import children, number, text
from rollout_operator.lab.model.request import STRATEGIC_PATCH, ApiRequest, NotModelled
from rollout_operator.lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_operator.model.errors import InvalidInput, NotFound, Refused
from tests.lab.client_world import NAMESPACE, ClientWorld
from tests.lab.server import Asked, Server
from tests.virtual_time import in_virtual_time

TOO_MANY = 2**31


def template(**spec: object) -> JsonObject:
    return {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ReplicaTemplate",
        "metadata": {"name": "a"},
        "spec": spec,
    }


def stored(**spec: object) -> Server:
    """Return a server with one ReplicaTemplate."""
    server = Server()
    server.create(REPLICA_TEMPLATES, template(**spec))
    return server


def patched(server: Server, patch: JsonObject, subresource: str = "") -> tuple[int, JsonObject]:
    asked = Asked(body=patch, subresource=subresource)
    answer = server.ask("patch", REPLICA_TEMPLATES, "a", asked)
    return answer.status, answer.body


def test_deploy_40_a_template_has_one_replica_and_no_status() -> None:
    server = stored()
    answer = server.ask("get", REPLICA_TEMPLATES, "a").body
    assert answer["spec"] == {"replicas": 1}
    assert "status" not in answer
    scale = server.ask("get", REPLICA_TEMPLATES, "a", Asked(subresource="scale")).body
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 0})


def test_only_the_spec_counts_generations() -> None:
    server = stored(replicas=3)
    for patch, subresource, generation in (
        ({"spec": {"replicas": 4}}, "", 2),
        ({"spec": {"replicas": 5}}, "scale", 3),
        ({"status": {"replicas": 5}}, "status", 3),
        ({"metadata": {"labels": {"x": "y"}}}, "", 3),
    ):
        status, _ = patched(server, dict(patch), subresource)
        now = server.ask("get", REPLICA_TEMPLATES, "a").body
        assert (status, number(now, "metadata", "generation")) == (200, generation)


def test_a_status_is_written_alone() -> None:
    server = stored(replicas=3)
    patch: JsonObject = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"replicas": 9},
        "status": {"replicas": 2, "unknown": 1},
    }
    _, now = patched(server, patch, "status")
    assert (now["spec"], now["status"]) == ({"replicas": 3}, {"replicas": 2})
    assert text(now, "metadata", "labels", "x") == ""


@pytest.mark.parametrize(
    ("patch", "subresource", "told"),
    [
        ({"spec": {"replicas": TOO_MANY}}, "", f"should be less than or equal to {TOO_MANY - 1}"),
        ({"spec": {"replicas": -1}}, "", "should be a non-negative integer"),
        ({"spec": {"replicas": -1}}, "scale", "spec.replicas in body should be greater than"),
        ({"status": {"replicas": TOO_MANY}}, "status", "should be less than or equal to"),
        ({"status": {"replicas": -1}}, "status", "should be a non-negative integer"),
    ],
)
def test_si_10_counts_that_are_none_are_refused(
    patch: JsonObject, subresource: str, told: str
) -> None:
    status, body = patched(stored(replicas=3), patch, subresource)
    assert status == 422
    assert told in text(body, "message")


def test_a_template_without_spec_has_no_scale() -> None:
    server = Server()
    body = template()
    del body["spec"]
    server.create(REPLICA_TEMPLATES, body)
    answer = server.ask("get", REPLICA_TEMPLATES, "a", Asked(subresource="scale"))
    assert (answer.status, answer.reason) == (500, "InternalError")


def test_what_a_schema_would_judge_is_not_guessed() -> None:
    server = stored(replicas=3)
    with pytest.raises(NotModelled, match=r"spec\.replicas is '3'"):
        patched(server, {"spec": {"replicas": "3"}})
    with pytest.raises(NotModelled, match="strategic merge patch of a custom resource"):
        server.ask(
            "patch", REPLICA_TEMPLATES, "a", Asked(body={"spec": {}}, content_type=STRATEGIC_PATCH)
        )
    scale: JsonObject = {"metadata": {"name": "a", "uid": "other"}, "spec": {"replicas": 1}}
    with pytest.raises(NotModelled, match="a Scale of another ReplicaTemplate"):
        patched(server, scale, "scale")


def test_lists_of_custom_resources_say_all() -> None:
    server = stored(replicas=3)
    body = server.ask("list", REPLICA_TEMPLATES).body
    (item,) = children(body, "items")
    assert (item["kind"], item["apiVersion"]) == (
        "ReplicaTemplate",
        "rollout-operator.grafana.com/v1",
    )
    assert body["metadata"] == {"resourceVersion": str(server.api.revision), "continue": ""}


def test_an_unknown_custom_resource_is_answered_by_nobody() -> None:
    unknown = Resource(REPLICA_TEMPLATES.group, "v1", "nothings", "Nothing")
    answer = Server().ask("get", unknown, "a")
    assert (answer.status, answer.body) == (404, {"text": "404 page not found\n"})


@in_virtual_time
async def test_mirr_03_a_door_discovers_what_the_sandbox_knows() -> None:
    client = ClientWorld().client
    assert await client.fetch_group(REPLICA_TEMPLATES.group) == ("v1",)
    assert await client.fetch_group("") == ("v1",)
    ours, budgets = await client.fetch_resources(REPLICA_TEMPLATES.group, "v1")
    assert budgets == Served(resource=ZONE_BUDGETS, subresources=frozenset({"status"}))
    assert ours == Served(resource=REPLICA_TEMPLATES, subresources=frozenset({"scale", "status"}))
    found = {one.resource.kind: one for one in await client.fetch_resources("", "v1")}
    assert found["ConfigMap"].resource == CONFIG_MAPS
    assert not found["Namespace"].resource.is_namespaced
    assert found["Pod"].subresources == {"eviction", "status"}


@in_virtual_time
async def test_a_door_finds_no_group_that_nobody_serves() -> None:
    client = ClientWorld().client
    for group, version, told in (
        ("x.example.org", "", "apis/x.example.org: 404: 404 page not found$"),
        ("apps", "v2", "apis/apps/v2: 404 NotFound: the server could not find"),
        (REPLICA_TEMPLATES.group, "v2", "v2: 404: 404 page not found$"),
    ):
        with pytest.raises(NotFound, match=told):
            await (client.fetch_resources(group, version) if version else client.fetch_group(group))
    with pytest.raises(InvalidInput):
        await client.fetch_group("../secrets")


@in_virtual_time
async def test_a_door_reads_scales_and_writes_statuses() -> None:
    world = ClientWorld()
    made = world.api.call_now(
        ApiRequest(
            verb="create",
            resource=REPLICA_TEMPLATES,
            namespace=NAMESPACE,
            body=template(replicas=3),
        )
    )
    assert made.is_ok
    raw = await world.client.fetch(REPLICA_TEMPLATES, NAMESPACE, "a", "scale")
    assert b'"kind":"Scale"' in raw
    patch: JsonObject = {"status": {"replicas": 2}}
    await world.client.patch(REPLICA_TEMPLATES, NAMESPACE, "a", patch, "status")
    now = world.api.get(REPLICA_TEMPLATES, NAMESPACE, "a")
    assert now is not None
    assert now["status"] == {"replicas": 2}
    with pytest.raises(Refused):
        await world.client.patch(
            REPLICA_TEMPLATES, NAMESPACE, "a", {"status": {"replicas": -2}}, "status"
        )
    with pytest.raises(NotFound):
        await world.client.fetch(STATEFULSETS, NAMESPACE, "a", "scale")
