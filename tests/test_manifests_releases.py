"""The kinds of releases as shipped: with kuberik's fields, and those that the operator adds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.release_plan import HealthCheckStatus
from rollout_operator.model.releases import HistoryEntry, ReleaseStatus, ScheduleStatus
from rollout_operator.planning.flux import JUDGED
from tests.kustomize import Object, render
from tests.rendered import (
    MANIFESTS,
    NAMESPACE,
    POLICIES,
    WEBHOOKS,
    by_name,
    container_of,
    get_field,
    granted,
    install,
)

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

RBAC: Final = "rbac.authorization.k8s.io"
# What kubectl's own examples and Flux's guides apply, of a kind that has no health of its own.
ORDINARY: Final = {
    *(("", "Namespace"), ("", "ServiceAccount"), (RBAC, "Role"), (RBAC, "RoleBinding")),
    *((RBAC, "ClusterRole"), (RBAC, "ClusterRoleBinding"), ("batch", "CronJob")),
    *(("networking.k8s.io", "Ingress"), ("networking.k8s.io", "NetworkPolicy")),
    *(("policy", "PodDisruptionBudget"), ("autoscaling", "HorizontalPodAutoscaler")),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    *(("helm.toolkit.fluxcd.io", "HelmRelease"), ("source.toolkit.fluxcd.io", "OCIRepository")),
}
FOLDER: Final = MANIFESTS / "crds" / "releases"
SCHEMA: Final = "spec.versions.0.schema.openAPIV3Schema.properties"
SELECTOR: Final = "matchExpressions matchLabels"
RULES: Final = "dateRange daysOfWeek name timeRange"
SCHEDULE: Final = "action rolloutSelector rules timezone"
SCHEDULE_COLUMNS: Final = "Action Active Matching Age"
# By kind: its scope, its columns, and by path the fields of its spec.
KINDS: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "rollouts": (
        "Namespaced",
        "Version Message BakeStatus BakeTime Gates Available Age Ready Status",
        {
            "spec": "availableReleasesMinCount availableReleasesRetentionDays bakeTime "
            "deployTimeout healthCheckSelector releaseUpdateInterval releasesImagePolicy suspend "
            "versionHistoryLimit wantedVersion",
            "spec.releasesImagePolicy": "name namespace",
            "spec.healthCheckSelector": f"{SELECTOR} namespaceSelector selector",
            "spec.healthCheckSelector.selector": SELECTOR,
            "spec.healthCheckSelector.namespaceSelector": SELECTOR,
        },
    ),
    "rolloutgates": (
        "Namespaced",
        "",
        {"spec": "allowedVersions passing rolloutRef", "spec.rolloutRef": "name"},
    ),
    "rolloutschedules": ("Namespaced", SCHEDULE_COLUMNS, {"spec": SCHEDULE}),
    "clusterrolloutschedules": (
        "Cluster",
        SCHEDULE_COLUMNS,
        {"spec": " ".join(sorted([*SCHEDULE.split(), "namespaceSelector"]))},
    ),
    "healthchecks": ("Namespaced", "", {"spec": "class"}),
}
STATUSES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "rollouts": ReleaseStatus,
    "rolloutschedules": ScheduleStatus,
    "clusterrolloutschedules": ScheduleStatus,
    "healthchecks": HealthCheckStatus,
}


def read_crd(plural: str) -> Object:
    (found,) = [one for one in render(FOLDER) if one["metadata"]["name"] == f"{plural}.kuberik.com"]
    return found


def fields(plural: str, path: str) -> dict[str, Any]:
    """Return the schemas of the fields below a path of an object."""
    place = ".properties.".join(path.split("."))
    found: dict[str, Any] = get_field(read_crd(plural), f"{SCHEMA}.{place}.properties")
    return found


def test_the_five_kinds_and_no_others() -> None:
    """REL-02: below the group of kuberik, and not among those that every installation has."""
    assert {one["metadata"]["name"] for one in render(FOLDER)} == {
        f"{plural}.kuberik.com" for plural in KINDS
    }
    assert not any("kuberik" in one["metadata"]["name"] for one in render(FOLDER.parent))


@pytest.mark.parametrize("plural", KINDS)
def test_a_kind_and_what_is_shown_of_it(plural: str) -> None:
    """REL-02, RELB-32."""
    scope, columns, specs = KINDS[plural]
    spec = read_crd(plural)["spec"]
    (version,) = spec["versions"]

    assert (spec["group"], spec["scope"], spec["names"]["plural"]) == ("kuberik.com", scope, plural)
    assert spec["names"].keys() == {"kind", "listKind", "plural", "singular"}
    assert (version["name"], version["subresources"]) == ("v1alpha1", {"status": {}})
    shown = version.get("additionalPrinterColumns", [])
    assert " ".join(one["name"] for one in shown) == columns
    for path, names in specs.items():
        assert " ".join(sorted(fields(plural, path))) == names


@pytest.mark.parametrize("plural", STATUSES)
def test_a_status_has_the_fields_that_are_written(plural: str) -> None:
    """REL-15, REL-18 and REL-19: one that the schema lacks would be dropped."""
    status = fields(plural, "status")

    assert set(status) == {one.encode_name for one in msgspec.structs.fields(STATUSES[plural])}
    if "conditions" in status:
        names = {one.encode_name for one in msgspec.structs.fields(StatusCondition)}
        assert set(status["conditions"]["items"]["properties"]) == names


def test_a_history_has_the_fields_that_are_written() -> None:
    """REL-16."""
    entry = fields("rollouts", "status")["history"]["items"]

    assert set(entry["properties"]) == {
        one.encode_name for one in msgspec.structs.fields(HistoryEntry)
    }
    assert entry["required"] == ["timestamp", "version"]


def test_rules_of_both_schedules_are_the_same() -> None:
    """REL-18."""
    rules = [
        fields(one, "spec")["rules"] for one in ("rolloutschedules", "clusterrolloutschedules")
    ]

    assert rules[0] == rules[1]
    assert " ".join(sorted(rules[0]["items"]["properties"])) == RULES
    assert rules[0]["minItems"] == 1


@pytest.mark.parametrize("plural", KINDS)
def test_each_field_says_what_it_is(plural: str) -> None:
    """`kubectl explain` shows it."""
    schema = get_field(read_crd(plural), SCHEMA)

    assert [*_list_silent({one: schema[one] for one in ("spec", "status")})] == []


def _list_silent(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, field in properties.items():
        if "description" not in field:
            yield name
        inner = field.get("items", field).get("properties", {})
        yield from (f"{name}.{one}" for one in _list_silent(inner))


@pytest.mark.parametrize("others", [(), (WEBHOOKS, POLICIES)])
def test_relb_28_the_components_enable_it_in_the_own_namespace(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    """RELB-28, REL-118, REL-119: in whichever order they are listed, with rights of their own."""
    parts = ("releases", "releases-registries", "releases-inventory", "releases-cluster")
    objects = by_name(install(tmp_path, *others, *parts))
    assert "-releases.enabled=true" in container_of(objects)["args"]
    for name in (f"rollout-operator-{part}" for part in parts[:2]):
        assert objects["Role", name]["metadata"]["namespace"] == NAMESPACE
        assert objects["RoleBinding", name]["subjects"][0]["namespace"] == NAMESPACE
    assert all(
        "*" not in grant for one in objects.values() if "rules" in one for grant in granted(one)
    )
    inventory = f"rollout-operator-{NAMESPACE}-inventory"
    (selector,) = objects["ClusterRole", inventory]["aggregationRule"]["clusterRoleSelectors"]
    label = selector["matchLabels"].items()
    listed = objects["ClusterRole", f"{inventory}-kinds"]
    assert label <= listed["metadata"]["labels"].items()
    assert objects["ClusterRoleBinding", inventory]["roleRef"]["name"] == inventory
    assert objects["ClusterRoleBinding", inventory]["subjects"][0]["namespace"] == NAMESPACE
    assert {verb for _, verb, _ in granted(listed)} == {"get"}
    assert not {"secrets", "configmaps"} & {one for one, _, _ in granted(listed)}
    secrets = ("secrets", "get", "")
    assert secrets in granted(objects["Role", "rollout-operator-releases-registries"])
    assert secrets not in granted(objects["Role", "rollout-operator-releases"])


@pytest.mark.parametrize(("group", "kind"), sorted({*JUDGED, *ORDINARY}))
def test_relb_28_what_kustomizations_usually_apply_may_be_read(
    tmp_path: Path, group: str, kind: str
) -> None:
    """RELB-28: what may fail, and what else is ordinary."""
    role = f"rollout-operator-{NAMESPACE}-inventory-kinds"
    rules = by_name(install(tmp_path, "releases-inventory"))["ClusterRole", role]["rules"]
    plurals = {one for rule in rules if group in rule["apiGroups"] for one in rule["resources"]}
    assert {f"{kind}s".lower(), f"{kind}es".lower(), f"{kind[:-1]}ies".lower()} & plurals
