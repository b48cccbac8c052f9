"""The kinds as shipped: never narrower than in other releases."""

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ZONE_BUDGETS
from rollout_operator.model.budget import BudgetStatus, StatusCondition
from rollout_operator.model.policy import (
    PolicySetStatus,
    PolicyStatus,
    PolicyZoneStatus,
    RecordedBatch,
    RecordedPod,
)
from tests.kustomize import Object, render
from tests.rendered import MANIFESTS, get_field

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

CRDS: Final = MANIFESTS / "crds"
KINDS: Final = {
    f"{one.plural}.{one.group}": one for one in (ZONE_BUDGETS, REPLICA_TEMPLATES, MULTI_AZ_ROLLOUTS)
}
BUDGETS, TEMPLATES, POLICIES = KINDS
SCHEMA: Final = "spec.versions.0.schema.openAPIV3Schema"
FIELDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "ZPDB-01 the kind of budgets, which no person deletes with `all`": (
        BUDGETS,
        {
            "spec.names.singular": "zoneawarepoddisruptionbudget",
            "spec.names.shortNames": ["zpdb"],
            "spec.names.categories": ["rollout-operator"],
            "spec.versions.0.subresources": {"status": {}},
            f"{SCHEMA}.required": None,
            f"{SCHEMA}.properties.spec.required": ["selector"],
        },
    ),
    "ZPDB-02 what is not a label is pruned": (
        BUDGETS,
        {
            f"{SCHEMA}.properties.spec.properties.selector.properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}
            },
        },
    ),
    "MAZ-01 the kind of policies, which no person deletes with `all`": (
        POLICIES,
        {
            "spec.names.singular": "multiazrollout",
            "spec.names.shortNames": ["mazr"],
            "spec.names.categories": ["rollout-operator"],
            "spec.versions.0.subresources": {"status": {}},
            f"{SCHEMA}.required": ["spec"],
            f"{SCHEMA}.properties.spec.required": ["statefulSetSelector"],
        },
    ),
    "DEPLOY-40 the kind of templates": (
        TEMPLATES,
        {
            "spec.names.shortNames": ["rtmpl"],
            "spec.names.categories": ["all", "rollout-operator"],
            "spec.versions.0.subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".spec.labelSelector",
                },
            },
        },
    ),
}
# A batch that was completed, with all that a status may leave out.
STATUS: Final = PolicyStatus(
    updated_pods=0,
    total_pods=0,
    ready_pods=0,
    start_time="",
    completion_time="",
    next_batch_time="",
    zones=(PolicyZoneStatus(name="", stateful_sets=(PolicySetStatus(name=""),)),),
    last_batch=RecordedBatch(
        number=1,
        zone="",
        stateful_set="",
        update_revision="",
        pods=(RecordedPod(name="", uid=""),),
        start_time="",
        completion_time="",
    ),
    conditions=(StatusCondition(type="Ready", status="True"),),
)
NARROWING: Final[dict[str, dict[str, Any]]] = {
    BUDGETS: {
        "spec": {
            "selector": {"type": "object", "required": ["matchLabels"]},
            "maxUnavailable": {"type": "integer", "minimum": 0},
            "maxUnavailablePercentage": {"type": "integer", "minimum": 0, "maximum": 100},
            "podNamePartitionRegex": {"type": "string"},
            "podNameRegexGroup": {"type": "integer", "minimum": 1},
            "crossZoneEvictionDelay": {"type": "string"},
        },
        "status": {
            "observedGeneration": {"type": "integer"},
            "zones": {"type": "integer"},
            "pods": {"type": "integer"},
            "currentUnavailable": {"type": "integer"},
            "allowedDisruptions": {"type": "integer"},
            "conditions": {"type": "array"},
        },
    },
    TEMPLATES: {
        "spec": {
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
            "labelSelector": {"type": "string"},
        },
        "status": {"replicas": {"type": "integer"}},
    },
}
COLUMNS: Final = {
    BUDGETS: {
        "Max": ".spec.maxUnavailable",
        "Percent": ".spec.maxUnavailablePercentage",
        "Unavailable": ".status.currentUnavailable",
        "Allowed": ".status.allowedDisruptions",
        "Ready": '.status.conditions[?(@.type=="Ready")].status',
        "Reason": '.status.conditions[?(@.type=="Ready")].reason',
        "Age": ".metadata.creationTimestamp",
        "Valid": '.status.conditions[?(@.type=="Valid")].status',
        "Partition": ".spec.podNamePartitionRegex",
        "Delay": ".spec.crossZoneEvictionDelay",
    },
    POLICIES: {
        "Phase": ".status.phase",
        "Zone": ".status.currentZone",
        "Updated": ".status.updatedPods",
        "Total": ".status.totalPods",
        "Ready": '.status.conditions[?(@.type=="Ready")].status',
        "Stalled": '.status.conditions[?(@.type=="Stalled")].status',
        "Age": ".metadata.creationTimestamp",
        "Reason": '.status.conditions[?(@.type=="Ready")].reason',
        "Next": ".status.nextBatchTime",
    },
    TEMPLATES: {
        "StatusReplicas": ".status.replicas",
        "SpecReplicas": ".spec.replicas",
        "Age": ".metadata.creationTimestamp",
    },
}


def read_crd(name: str) -> Object:
    (found,) = [one for one in render(CRDS) if one["metadata"]["name"] == name]
    return found


def fields_of_spec() -> Object:
    """Return the schemas of the fields of a budget's spec."""
    fields: Object = get_field(read_crd(BUDGETS), f"{SCHEMA}.properties.spec.properties")
    return fields


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_as_the_operator_requests_it(name: str) -> None:
    """ZPDB-01, DEPLOY-40: names, and columns that show what is in force."""
    crd, resource = read_crd(name), KINDS[name]
    spec = crd["spec"]
    (version,) = spec["versions"]

    assert crd["kind"] == "CustomResourceDefinition"
    assert (spec["group"], spec["scope"]) == (resource.group, "Namespaced")
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (resource.kind, resource.plural)
    assert (version["name"], version["served"], version["storage"]) == (
        resource.version,
        True,
        True,
    )
    columns = {one["name"]: one["jsonPath"] for one in version["additionalPrinterColumns"]}
    assert columns == COLUMNS[name]


def test_a_status_has_the_fields_that_are_written() -> None:
    """One that the schema lacks would be dropped, and written for ever."""
    status = get_field(read_crd(BUDGETS), f"{SCHEMA}.properties.status.properties")
    conditions = status["conditions"]

    assert set(status) == set(msgspec.to_builtins(BudgetStatus()))
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    fields = msgspec.to_builtins(StatusCondition(type="Ready", status="True"))
    assert set(conditions["items"]["properties"]) == set(fields)


def test_maz_50_a_policy_shows_the_fields_that_are_written() -> None:
    """MAZ-50: and none beside them, at any depth."""
    schema = get_field(read_crd(POLICIES), f"{SCHEMA}.properties.status")

    assert _collect_fields(schema) == _collect_written(msgspec.to_builtins(STATUS))


def _collect_fields(schema: Object) -> set[str]:
    """Return the paths of the fields that a schema has, those of items too."""
    inner = {"": schema.get("items", {}), **schema.get("properties", {})}
    below = {
        f"{name}.{path}" for name, one in inner.items() if one for path in _collect_fields(one)
    }
    return {*schema.get("properties", {}), *below}


def _collect_written(value: object) -> set[str]:
    items = dict(value) if isinstance(value, dict) else {}
    inner = {"": value[0]} if isinstance(value, list | tuple) and value else items
    below = {f"{name}.{path}" for name, one in inner.items() for path in _collect_written(one)}
    return {*items, *below}


def test_maz_01_the_kind_has_nothing_that_old_api_servers_refuse() -> None:
    """MAZ-01, MAZ-81: no CEL, of which Kubernetes 1.19 knows nothing, and a text for each field."""
    schema = get_field(read_crd(POLICIES), SCHEMA)

    assert "x-kubernetes-validations" not in json.dumps(schema)
    undescribed = [path for path, one in _list_schemas("", schema) if "description" not in one]
    assert undescribed == [".metadata"]


def _list_schemas(path: str, schema: Object) -> Iterator[tuple[str, Object]]:
    for name, one in schema.get("properties", {}).items():
        yield f"{path}.{name}", one
        yield from _list_schemas(f"{path}.{name}", one)
        yield from _list_schemas(f"{path}.{name}[]", one.get("items", {}))


@pytest.mark.parametrize(("name", "fields"), FIELDS.values(), ids=FIELDS)
def test_fields_are_as_in_other_releases(name: str, fields: dict[str, Any]) -> None:
    crd = read_crd(name)

    assert {path: _bare(get_field(crd, path)) for path in fields} == fields


@pytest.mark.parametrize("name", NARROWING)
def test_no_field_is_narrower(name: str) -> None:
    """ZPDB-01, DEPLOY-40: all fields, and all that narrows them."""
    parts = get_field(read_crd(name), f"{SCHEMA}.properties")

    for part, expected in NARROWING[name].items():
        fields = parts.get(part, {}).get("properties", {})
        assert {
            key: {word: value for word, value in field.items() if word in CONSTRAINTS}
            for key, field in fields.items()
        } == expected


CONSTRAINTS: Final = ("type", "minimum", "maximum", "additionalProperties", "required", "default")


def _bare(found: object) -> object:
    """Return a part of a schema without its descriptions."""
    if isinstance(found, dict):
        return {key: _bare(inner) for key, inner in found.items() if key != "description"}
    return found


def test_zpdb_10_to_22_what_rules_refuse() -> None:
    """Their words are the parser's; that they hold on a real API server is in the contract."""
    schema = get_field(read_crd(BUDGETS), SCHEMA)
    spec = schema["properties"]["spec"]

    assert {
        place: [one["message"] for one in field["x-kubernetes-validations"]]
        for place, field in {"": schema, "spec": spec, **spec["properties"]}.items()
        if "x-kubernetes-validations" in field
    } == {
        "": ["no spec found"],
        "spec": [
            "only one of maxUnavailable or maxUnavailablePercentage may be set",
            "max unavailable percentage can not be used with partition awareness",
            "crossZoneEvictionDelay requires podNamePartitionRegex to be set",
        ],
        "podNamePartitionRegex": [
            "regex is not valid",
            "regular expression requires at least one subexpression",
            "regex is longer than 1024",
        ],
        "crossZoneEvictionDelay": [
            "crossZoneEvictionDelay is not a valid duration",
            "crossZoneEvictionDelay must be >= 0",
        ],
    }
