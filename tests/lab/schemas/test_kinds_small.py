"""Secrets, Leases, budgets and other small kinds at the simulated API server."""

import pytest

from rollout_operator.kube.api import SECRETS, JsonObject, Resource
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.schemas.kinds import (
    BUDGETS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    SERVICES,
    find_kind,
)
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, part, updated


def named(**fields: object) -> JsonObject:
    return {"metadata": {"name": "one", "namespace": "default"}, **fields}


def refusal(resource: Resource, obj: JsonObject) -> str:
    with pytest.raises(ApiRefusal) as caught:
        find_kind(resource).prepare_create(obj)
    assert caught.value.status == 422
    return caught.value.message


def test_string_data_of_a_secret_is_coded_and_not_kept() -> None:
    kind = find_kind(SECRETS)
    old = created(kind, named(stringData={"a": "b"}, data={"c": "ZA=="}))
    assert {key: old[key] for key in old if key != "metadata"} == {
        "type": "Opaque",
        "data": {"c": "ZA==", "a": "Yg=="},
    }
    stored = updated(kind, old, copy_json(old) | {"stringData": {"c": "e"}})
    assert stored["data"] == {"c": "ZQ==", "a": "Yg=="}
    assert "stringData" not in stored


def test_a_secret_of_a_type_must_hold_its_keys_and_keep_its_type() -> None:
    message = refusal(SECRETS, named(type="kubernetes.io/tls", data={"tls.crt": ""}))
    assert message == 'Secret "one" is invalid: data[tls.key]: Required value'
    old = created(find_kind(SECRETS), named())
    with pytest.raises(ApiRefusal, match='type: Invalid value: "other": field is immutable'):
        find_kind(SECRETS).prepare_update(old, copy_json(old) | {"type": "other"}, "")


@pytest.mark.parametrize("resource", [SECRETS, CONFIG_MAPS], ids=lambda one: one.kind)
def test_what_is_immutable_stays(resource: Resource) -> None:
    kind = find_kind(resource)
    old = created(kind, named(data={"a": "Yg=="}, immutable=True))
    for change, field in (({"data": {}}, "data"), ({"immutable": False}, "immutable")):
        with pytest.raises(ApiRefusal) as caught:
            kind.prepare_update(old, copy_json(old) | change, "")
        text = f"{field}: Forbidden: field is immutable when `immutable` is set"
        assert text in caught.value.message


@pytest.mark.parametrize("resource", [SECRETS, CONFIG_MAPS], ids=lambda one: one.kind)
def test_keys_of_data_must_be_keys(resource: Resource) -> None:
    message = refusal(resource, named(data={"no/key": "eA=="}))
    assert message == (
        f'{resource.kind} "one" is invalid: data[no/key]: Invalid value: "no/key": a valid config '
        "key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
        "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "Secret", "data": {"a": "?"}}, "illegal base64 data"),
        (
            {"kind": "ConfigMap", "data": "text"},
            "cannot unmarshal string into Go struct field .dat",
        ),
        ({"kind": "ConfigMap", "data": {"a": 1}}, "cannot unmarshal number into Go struct field"),
        ({"kind": "Lease", "spec": []}, "cannot unmarshal array into Go struct field .spec"),
        (
            {"kind": "Lease", "metadata": {"name": "one", "labels": {"a": True}}},
            "cannot unmarshal bool into Go struct field .metadata.labels.a of type string",
        ),
    ],
)
def test_what_no_field_can_hold_is_a_bad_request(fields: JsonObject, text: str) -> None:
    kinds = {"Secret": SECRETS, "ConfigMap": CONFIG_MAPS, "Lease": LEASES}
    with pytest.raises(ApiRefusal, match=text) as caught:
        find_kind(kinds[str(fields["kind"])]).prepare_create(named(**fields))
    assert (caught.value.status, caught.value.reason) == (400, "BadRequest")


def test_data_without_anything_is_left_out_and_null_is_an_empty_text() -> None:
    kind = find_kind(CONFIG_MAPS)
    old = created(kind, named(data={"a": None}))
    assert old["data"] == {"a": ""}
    assert "data" not in updated(kind, old, copy_json(old) | {"data": {}})


def test_a_kind_that_counts_nothing_keeps_the_generation_it_is_given() -> None:
    obj = named()
    part(obj, "metadata")["generation"] = 9
    assert part(created(find_kind(CONFIG_MAPS), obj), "metadata")["generation"] == 9


def test_only_one_owner_may_control() -> None:
    obj, kind = named(), find_kind(CONFIG_MAPS)
    owner: JsonObject = {"uid": "1", "name": "a", "kind": "K", "apiVersion": "v1"}
    part(obj, "metadata")["ownerReferences"] = [owner, {**owner, "controller": True}]
    created(kind, obj)
    part(obj, "metadata")["ownerReferences"] = [{**owner, "controller": True}] * 2
    shown = '{"apiVersion":"v1","kind":"K","name":"a","uid":"1","controller":true}'
    assert refusal(CONFIG_MAPS, obj) == (
        'ConfigMap "one" is invalid: metadata.ownerReferences: Invalid value: '
        f"[{shown},{shown}]: Only one reference can have Controller set to true. "
        'Found "true" in references for K/a and K/a'
    )


def test_fields_that_nobody_knows_are_told_of() -> None:
    obj = named(nonsense=1, data={})
    part(obj, "metadata").update(other=2, managedFields=[])
    assert find_kind(CONFIG_MAPS).list_unknown(obj) == (
        'unknown field "metadata.other"',
        'unknown field "nonsense"',
    )


def test_a_lease_is_checked_and_has_no_generation() -> None:
    stored = created(find_kind(LEASES), named(spec={"leaseDurationSeconds": 15}))
    assert "generation" not in part(stored, "metadata")
    assert refusal(LEASES, named(spec={"leaseDurationSeconds": 0})) == (
        'Lease.coordination.k8s.io "one" is invalid: spec.leaseDurationSeconds: '
        "Invalid value: 0: must be greater than 0"
    )


@pytest.mark.parametrize(
    ("resource", "is_blind"), [(LEASES, False), (BUDGETS, False), (SECRETS, True), (NODES, True)]
)
def test_some_kinds_want_a_version_with_each_update(resource: Resource, is_blind: bool) -> None:
    assert find_kind(resource).allows_blind_update is is_blind


def test_a_budget_starts_with_nothing_and_counts_its_spec() -> None:
    kind = find_kind(BUDGETS)
    old = created(kind, named(spec={"minAvailable": 2}, status={"disruptionsAllowed": 5}))
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    assert old["status"] == dict.fromkeys(counts, 0)
    stored = updated(kind, old, copy_json(old) | {"spec": {"maxUnavailable": "50%"}})
    assert part(stored, "metadata")["generation"] == 2
    new = copy_json(old) | {"spec": {}, "status": {"disruptionsAllowed": 1, "disruptedPods": {}}}
    stored = updated(kind, old, new, "status")
    assert stored["status"] == {**dict.fromkeys(counts, 0), "disruptionsAllowed": 1}
    assert stored["spec"] == {"minAvailable": 2}
    part(new, "status")["conditions"] = [{"type": "DisruptionAllowed", "status": "True"}]
    status = part(updated(kind, old, new, "status"), "status")
    assert status["conditions"] == [
        {"type": "DisruptionAllowed", "status": "True", "message": "", "reason": ""}
    ]
    part(new, "status")["currentHealthy"] = -1
    with pytest.raises(ApiRefusal, match=r"status.currentHealthy: Invalid value: -1"):
        kind.prepare_update(old, new, "status")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"minAvailable": -1}, "spec.minAvailable: Invalid value: -1: must be greater than or equ"),
        ({"maxUnavailable": "x"}, 'spec.maxUnavailable: Invalid value: "x": a valid percent'),
        ({"maxUnavailable": "101%"}, 'Invalid value: "101%": must not be greater than 100%'),
        (
            {"unhealthyPodEvictionPolicy": "Never"},
            'Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"',
        ),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(spec: JsonObject, text: str) -> None:
    assert text in refusal(BUDGETS, named(spec=spec))


def test_a_namespace_carries_its_name_as_a_label() -> None:
    kind = find_kind(NAMESPACES)
    old = created(kind, {"metadata": {"name": "one"}})
    assert part(old, "metadata")["labels"] == {"kubernetes.io/metadata.name": "one"}
    assert (old["spec"], old["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    new: JsonObject = {"metadata": {"name": "one", "uid": "u-1", "labels": {"a": "b"}}, "spec": {}}
    stored = updated(kind, old, new)
    assert part(stored, "metadata", "labels") == {"a": "b", "kubernetes.io/metadata.name": "one"}
    assert stored["spec"] == old["spec"]


def test_a_node_may_bring_its_status() -> None:
    kind = find_kind(NODES)
    old = created(kind, {"metadata": {"name": "one"}, "status": {"phase": "x"}})
    assert old["status"] == {"phase": "x"}
    assert updated(kind, old, copy_json(old) | {"status": {}})["status"] == {"phase": "x"}


def test_an_event_has_its_empty_fields() -> None:
    stored = created(find_kind(EVENTS), named(involvedObject={"name": "a"}, reason="Why"))
    assert (stored["eventTime"], stored["reportingComponent"], stored["source"]) == (None, "", {})
    text = 'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    assert text in refusal(EVENTS, named(involvedObject={"namespace": "other"}))


def test_a_headless_service_is_filled_in_and_any_other_is_not_modelled() -> None:
    kind = find_kind(SERVICES)
    stored = created(kind, named(spec={"clusterIP": "None", "ports": [{"port": 80}]}))
    assert stored["spec"] == {
        "clusterIP": "None",
        "clusterIPs": ["None"],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    with pytest.raises(NotModelled, match="address of a Service"):
        kind.prepare_create(named(spec={"ports": [{"port": 80}]}))
