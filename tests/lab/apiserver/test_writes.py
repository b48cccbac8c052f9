"""Creations, updates and patches: identity, versions, no-op writes, and who was faster."""

import pytest

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.lab.model.fields import child, number, text
from rollout_operator.lab.model.history import Commit
from rollout_operator.lab.model.request import JSON_PATCH
from rollout_operator.lab.schemas.kinds import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.server import (
    Asked,
    Server,
    config_map,
    metadata,
    uid,
    version,
    zone,
)

LEASE: JsonObject = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
DRY = {"dryRun": "All"}


def test_a_new_object_gets_what_only_the_server_gives() -> None:
    server = Server()
    made = server.create(CONFIG_MAPS, config_map(uid="mine", deletionTimestamp="x"))
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    meta = metadata(made)
    assert meta["namespace"] == "default"
    assert meta["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert len(uid(made)) == 36
    assert uid(made) != "mine"
    assert "deletionTimestamp" not in meta
    assert version(made) == str(server.api.revision) == "2"
    assert server.fetch(CONFIG_MAPS, "c") is made


def test_one_seed_gives_one_world_and_another_seed_another() -> None:
    uids = [uid(Server(seed).create(CONFIG_MAPS, config_map())) for seed in (1, 1, 2)]
    assert uids[0] == uids[1] != uids[2]


def test_the_body_of_a_request_is_not_what_is_stored() -> None:
    server, body = Server(), config_map()
    before = copy_json(body)
    made = server.create(CONFIG_MAPS, body)
    assert body == before
    body["data"]["key"] = "other"  # type: ignore[index]  # a map, by `config_map`
    assert child(made, "data") == {"key": "1"}


def test_a_name_that_is_taken_is_refused_also_while_it_is_going() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]))
    again = server.ask("create", CONFIG_MAPS, asked=Asked(body=config_map()))
    assert (again.status, again.reason) == (409, "AlreadyExists")
    assert again.message == 'configmaps "c" already exists'
    server.ask("delete", CONFIG_MAPS, "c")
    again = server.ask("create", CONFIG_MAPS, asked=Asked(body=config_map()))
    assert again.message == 'object is being deleted: configmaps "c" already exists'


def test_names_are_made_up_and_made_up_again_where_one_is_taken() -> None:
    server = Server()
    body: JsonObject = {"metadata": {"generateName": "gen-"}, "data": {}}
    names = [text(server.create(CONFIG_MAPS, body), "metadata", "name") for _ in range(5)]
    assert len(set(names)) == 5
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)
    assert text(server.fetch(CONFIG_MAPS, names[0]), "metadata", "generateName") == "gen-"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(
            {"metadata": {}},
            422,
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is '
            "required",
            id="no name",
        ),
        pytest.param(
            config_map(namespace="other"),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
            id="another namespace",
        ),
        pytest.param(
            config_map(resourceVersion="5"),
            500,
            "resourceVersion should not be set on objects to be created",
            id="a version",
        ),
        pytest.param(
            {**config_map(), "kind": "Secret", "apiVersion": "v1"},
            400,
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to '
            "(core.ConfigMap): unknown conversion",
            id="another kind",
        ),
        pytest.param(
            {**config_map(), "apiVersion": "v7"},
            400,
            'ConfigMap in version "v7" cannot be handled as a ConfigMap: no kind "ConfigMap" is '
            'registered for version "v7" in scheme "pkg/runtime/scheme.go:111"',
            id="another version",
        ),
    ],
)
def test_a_creation_is_refused(body: JsonObject, status: int, message: str) -> None:
    server = Server()
    answer = server.ask("create", CONFIG_MAPS, asked=Asked(body=body))
    assert (answer.status, answer.message) == (status, message)
    assert server.commits() == []


def test_a_creation_needs_its_namespace() -> None:
    answer = Server().ask(
        "create", CONFIG_MAPS, asked=Asked(body=config_map(), namespace="nowhere")
    )
    assert (answer.status, answer.message) == (404, 'namespaces "nowhere" not found')


def test_a_put_replaces_the_version_that_it_names_and_no_other() -> None:
    server = Server()
    first = server.create(CONFIG_MAPS, config_map())
    changed = {**first, "data": {"key": "2"}}
    second = server.ask("update", CONFIG_MAPS, "c", Asked(body=changed))
    assert (second.status, child(second.body, "data")) == (200, {"key": "2"})
    assert uid(second.body) == uid(first)
    late = server.ask("update", CONFIG_MAPS, "c", Asked(body={**first, "data": {}}))
    assert (late.status, late.reason) == (409, "Conflict")
    assert late.message == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; please '
        "apply your changes to the latest version and try again"
    )
    assert server.fetch(CONFIG_MAPS, "c") is second.body


def test_a_put_without_version_overwrites_where_the_kind_allows_it() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    answer = server.ask("update", CONFIG_MAPS, "c", Asked(body=config_map(data={"key": "2"})))
    assert (answer.status, version(answer.body)) == (200, "3")
    server.create(LEASES, LEASE)
    answer = server.ask("update", LEASES, "l", Asked(body=LEASE))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == (
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )


@pytest.mark.parametrize(
    ("meta", "status", "part"),
    [
        pytest.param({"name": "d"}, 400, "the name of the object (d) does not match", id="name"),
        pytest.param({}, 400, "name must be provided", id="no name"),
        pytest.param({"name": "c", "namespace": "x"}, 400, "namespace of the", id="namespace"),
        pytest.param(
            {"name": "c", "uid": "u"},
            409,
            "StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/c, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u",
            id="uid",
        ),
        pytest.param({"name": "c", "resourceVersion": "x"}, 500, "ParseUint", id="no version"),
    ],
)
def test_a_put_of_another_object_is_refused(meta: JsonObject, status: int, part: str) -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    answer = server.ask("update", CONFIG_MAPS, "c", Asked(body={"metadata": meta}))
    assert answer.status == status
    assert part in answer.message


def test_a_put_creates_what_some_kinds_let_it_create() -> None:
    server = Server()
    missing = server.ask("update", CONFIG_MAPS, "c", Asked(body=config_map()))
    assert (missing.status, missing.message) == (404, 'configmaps "c" not found')
    assert server.ask("update", LEASES, "l", Asked(body=LEASE)).status == 201
    event: JsonObject = {"metadata": {"name": "e", "uid": "u"}, "involvedObject": {}}
    refused = server.ask("update", EVENTS, "e", Asked(body=event))
    assert refused.status == 409
    assert "UID in precondition: u, UID in object meta: " in refused.message


def test_a_write_that_changes_nothing_is_none() -> None:
    server = Server()
    made = server.create(CONFIG_MAPS, config_map())
    for answer in (
        server.ask("update", CONFIG_MAPS, "c", Asked(body=made)),
        server.ask("patch", CONFIG_MAPS, "c", Asked(body={"data": {"key": "1"}})),
        server.ask("patch", CONFIG_MAPS, "c", Asked(body={})),
    ):
        assert (answer.status, answer.body) == (200, made)
    assert len(server.commits()) == 1
    assert server.api.revision == 2


def test_a_patch_may_name_the_version_and_the_object_it_rests_on() -> None:
    server = Server()
    made = server.create(CONFIG_MAPS, config_map())
    good: JsonObject = {"metadata": {"uid": uid(made), "resourceVersion": version(made)}}
    assert server.ask("patch", CONFIG_MAPS, "c", Asked(body={**good, "data": {"a": "b"}})).is_ok
    late = server.ask("patch", CONFIG_MAPS, "c", Asked(body={**good, "data": {"a": "c"}}))
    assert (late.status, late.reason) == (409, "Conflict")
    other = server.ask("patch", CONFIG_MAPS, "c", Asked(body={"metadata": {"uid": "u"}}))
    assert (other.status, other.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "u": field is immutable' in other.message


def test_a_failed_step_of_a_json_patch_changes_nothing() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    steps: list[JsonObject] = [
        {"op": "replace", "path": "/data/key", "value": "2"},
        {"op": "test", "path": "/data/key", "value": "1"},
    ]
    answer = server.ask("patch", CONFIG_MAPS, "c", Asked(body=steps, content_type=JSON_PATCH))
    assert answer.status == 422
    assert child(server.fetch(CONFIG_MAPS, "c"), "data") == {"key": "1"}
    steps.pop()
    answer = server.ask("patch", CONFIG_MAPS, "c", Asked(body=steps, content_type=JSON_PATCH))
    assert child(answer.body, "data") == {"key": "2"}


def test_a_status_is_written_apart_from_the_spec() -> None:
    server = Server()
    server.create(STATEFULSETS, zone())
    both: JsonObject = {"spec": {"replicas": 5}, "status": {"replicas": 2}}
    server.merge(STATEFULSETS, "a", both)
    found = server.fetch(STATEFULSETS, "a")
    assert number(found, "spec", "replicas") == 5
    assert number(found, "status", "replicas") == 0
    assert number(found, "metadata", "generation") == 2
    asked = Asked(body={"spec": {"replicas": 7}, "status": {"replicas": 2}}, subresource="status")
    found = server.ask("patch", STATEFULSETS, "a", asked).body
    assert number(found, "spec", "replicas") == 5
    assert number(found, "status", "replicas") == 2
    assert number(found, "metadata", "generation") == 2


def test_a_scale_reads_and_writes_the_replicas() -> None:
    server = Server()
    made = server.create(STATEFULSETS, zone())
    scale = server.ask("get", STATEFULSETS, "a", Asked(subresource="scale")).body
    assert scale["kind"] == "Scale"
    assert number(scale, "spec", "replicas") == 3
    assert version(scale) == version(made)
    more = {**scale, "spec": {"replicas": 4}}
    answer = server.ask("update", STATEFULSETS, "a", Asked(body=more, subresource="scale"))
    assert (answer.status, answer.body["kind"]) == (200, "Scale")
    found = server.fetch(STATEFULSETS, "a")
    assert number(found, "spec", "replicas") == 4
    assert number(found, "metadata", "generation") == 2
    late = server.ask("update", STATEFULSETS, "a", Asked(body=more, subresource="scale"))
    assert (late.status, late.reason) == (409, "Conflict")
    less: JsonObject = {"spec": {"replicas": -1}}
    wrong = server.ask("patch", STATEFULSETS, "a", Asked(body=less, subresource="scale"))
    assert wrong.status == 422
    assert "spec.replicas: Invalid value: -1" in wrong.message
    blind: JsonObject = {"spec": {"replicas": 1}}
    assert server.ask("patch", STATEFULSETS, "a", Asked(body=blind, subresource="scale")).is_ok
    assert number(server.fetch(STATEFULSETS, "a"), "spec", "replicas") == 1


def test_a_dry_run_tells_all_and_keeps_nothing() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    created = server.ask("create", CONFIG_MAPS, asked=Asked(body=config_map("d"), query=DRY))
    assert (created.status, version(created.body)) == (201, "")
    assert len(uid(created.body)) == 36
    taken = server.ask("create", CONFIG_MAPS, asked=Asked(body=config_map(), query=DRY))
    assert taken.reason == "AlreadyExists"
    body: JsonObject = {"data": {"key": "2"}}
    patched = server.ask("patch", CONFIG_MAPS, "c", Asked(body=body, query=DRY))
    assert (child(patched.body, "data"), version(patched.body)) == ({"key": "2"}, "2")
    put = Asked(body=config_map(data={"key": "3"}), query=DRY)
    assert child(server.ask("update", CONFIG_MAPS, "c", put).body, "data") == {"key": "3"}
    assert not server.has(CONFIG_MAPS, "d")
    assert child(server.fetch(CONFIG_MAPS, "c"), "data") == {"key": "1"}
    assert len(server.history.list_all(Commit)) == 1


def test_the_last_finalizer_that_goes_takes_the_object_with_it() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]))
    server.ask("delete", CONFIG_MAPS, "c")
    answer = server.ask("patch", CONFIG_MAPS, "c", Asked(body={"metadata": {"finalizers": None}}))
    assert answer.status == 200
    assert "finalizers" not in metadata(answer.body)
    assert not server.has(CONFIG_MAPS, "c")
    last = server.commits()[-1]
    assert last.after is None
    assert metadata(last.before or {})["finalizers"] == ["example.com/hold"]


def test_namespaces_have_their_name_as_label() -> None:
    server = Server()
    made = server.create(NAMESPACES, {"metadata": {"name": "prod"}})
    assert child(made, "metadata", "labels") == {"kubernetes.io/metadata.name": "prod"}
    assert "namespace" not in metadata(made)
