"""The kind ZoneAwarePodDisruptionBudget as shipped: never narrower than in other releases."""

from typing import Any, Final

from rollout_operator.kube.api import ZONE_BUDGETS
from tests.kustomize import render
from tests.rendered import MANIFESTS

NAME: Final = f"{ZONE_BUDGETS.plural}.{ZONE_BUDGETS.group}"
# Of a field, what narrows it.
CONSTRAINTS: Final = ("type", "minimum", "maximum", "additionalProperties", "required", "default")


def crd() -> dict[str, Any]:
    (found,) = [one for one in render(MANIFESTS / "crds") if one["metadata"]["name"] == NAME]
    return found


def version() -> dict[str, Any]:
    (only,) = crd()["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema() -> dict[str, Any]:
    found = version()["schema"]["openAPIV3Schema"]
    assert isinstance(found, dict)
    return found


def fields_of_spec() -> dict[str, Any]:
    found = schema()["properties"]["spec"]["properties"]
    assert isinstance(found, dict)
    return found


def rules(field: dict[str, Any]) -> list[str]:
    return [one["message"] for one in field.get("x-kubernetes-validations", ())]


def test_zpdb_01_the_kind() -> None:
    spec = crd()["spec"]
    assert (spec["group"], spec["scope"]) == (ZONE_BUDGETS.group, "Namespaced")
    names = spec["names"]
    assert (names["kind"], names["plural"]) == (ZONE_BUDGETS.kind, ZONE_BUDGETS.plural)
    assert (names["singular"], names["shortNames"]) == ("zoneawarepoddisruptionbudget", ["zpdb"])
    assert (version()["name"], version()["served"], version()["storage"]) == ("v1", True, True)
    assert version()["subresources"] == {"status": {}}


def test_nobody_deletes_it_with_all() -> None:
    assert "all" not in crd()["spec"]["names"]["categories"]


def test_zpdb_01_dep_b_fields_and_what_narrows_them() -> None:
    found = {
        name: {key: value for key, value in field.items() if key in CONSTRAINTS}
        for name, field in fields_of_spec().items()
    }
    assert found == {
        "selector": {"type": "object", "required": ["matchLabels"]},
        "maxUnavailable": {"type": "integer", "minimum": 0},
        "maxUnavailablePercentage": {"type": "integer", "minimum": 0, "maximum": 100},
        "podNamePartitionRegex": {"type": "string"},
        "podNameRegexGroup": {"type": "integer", "minimum": 1},
        "crossZoneEvictionDelay": {"type": "string"},
    }
    assert "required" not in schema()
    assert schema()["properties"]["spec"]["required"] == ["selector"]
    labels = fields_of_spec()["selector"]["properties"]
    assert set(labels) == {"matchLabels"}, "ZPDB-02: what is not here is pruned"
    assert labels["matchLabels"]["additionalProperties"] == {"type": "string"}


def test_zpdb_10_to_22_what_rules_refuse() -> None:
    """Their words are the parser's; that they hold on a real API server is in the contract."""
    fields = fields_of_spec()
    assert rules(schema()) == ["no spec found"]
    assert rules(schema()["properties"]["spec"]) == [
        "only one of maxUnavailable or maxUnavailablePercentage may be set",
        "max unavailable percentage can not be used with partition awareness",
        "crossZoneEvictionDelay requires podNamePartitionRegex to be set",
    ]
    assert rules(fields["podNamePartitionRegex"]) == [
        "regex is not valid",
        "regular expression requires at least one subexpression",
        "regex is longer than 1024",
    ]
    assert rules(fields["crossZoneEvictionDelay"]) == [
        "crossZoneEvictionDelay is not a valid duration",
        "crossZoneEvictionDelay must be >= 0",
    ]


def test_columns_show_what_is_in_force() -> None:
    columns = {one["name"]: one["jsonPath"] for one in version()["additionalPrinterColumns"]}
    assert columns == {
        "Max Unavailable": ".spec.maxUnavailable",
        "Percentage": ".spec.maxUnavailablePercentage",
        "Partition": ".spec.podNamePartitionRegex",
        "Delay": ".spec.crossZoneEvictionDelay",
        "Age": ".metadata.creationTimestamp",
    }
