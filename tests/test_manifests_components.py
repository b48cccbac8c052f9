"""All components together, and what the optional ones add."""

import copy
import re
from pathlib import Path

import pytest

from rollout_operator.config.checks import read_config
from tests.kustomize import Object, render
from tests.rendered import (
    BASE,
    DEPLOYMENTS,
    LEAST,
    MIRRORING,
    MONITORING,
    MUTATING,
    NAMESPACE,
    POLICIES,
    PRIORITY,
    REPLICAS,
    SCALING,
    TRACKER,
    VALIDATING,
    WEBHOOKS,
    Rendered,
    by_name,
    container_of,
    default,
    granted,
    hook_of,
    install,
    leaves,
)

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

TRACKER_MAP = default("zone-tracker.config-map-name")
# What each component lets the operator do, beside what the base does.
ROLES = {
    "DEP-34, RBAC-05 no more than the one ConfigMap": (
        TRACKER,
        {
            ("configmaps", "create", ""),
            ("configmaps", "get", TRACKER_MAP),
            ("configmaps", "patch", TRACKER_MAP),
        },
    ),
    "SEC-19 who only rolls out cannot change a StatefulSet": (
        SCALING,
        {("statefulsets", "patch", "")},
    ),
    "RBAC-06, RBAC-10 the watch is optional; what is mirrored may be written": (
        MIRRORING,
        {
            ("statefulsets", "patch", ""),
            ("replicatemplates/scale", "get", ""),
            ("replicatemplates/status", "patch", ""),
            ("replicatemplates", "list", ""),
            ("replicatemplates", "watch", ""),
        },
    ),
}

ROLES["MAZ-84 status and strategy, and nothing else of a policy"] = (
    POLICIES,
    {
        *(("multiazrollouts", verb, "") for verb in ("watch", "get")),
        ("multiazrollouts/status", "patch", ""),
        ("statefulsets", "patch", ""),
    },
)
GROUPS = {
    POLICIES: {"apps", "rollout.grafana.com"},
    TRACKER: {""},
    SCALING: {"apps"},
    MIRRORING: {"apps", "rollout-operator.grafana.com"},
}


@pytest.fixture
def everything(tmp_path: Path) -> Rendered:
    return by_name(install(tmp_path, WEBHOOKS, LEAST, DEPLOYMENTS, TRACKER))


def read_args(objects: Rendered) -> list[str]:
    return [word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in container_of(objects)["args"]]


@pytest.mark.parametrize(("component", "rights"), ROLES.values(), ids=ROLES)
def test_a_component_brings_its_rights_and_no_others(
    tmp_path: Path, component: str, rights: set[tuple[str, str, str]]
) -> None:
    """DEP-84: bound in the operator's namespace, to its account."""
    objects = by_name(install(tmp_path, component))
    name = f"rollout-operator-{component}"

    assert granted(objects["Role", name]) == rights
    assert granted(objects["Role", "rollout-operator"]).isdisjoint(rights)
    assert objects["RoleBinding", name]["roleRef"]["name"] == name
    assert objects["RoleBinding", name]["subjects"] == [
        {"kind": "ServiceAccount", "name": "rollout-operator", "namespace": NAMESPACE}
    ]
    for kind in ("Role", "RoleBinding"):
        assert objects[kind, name]["metadata"]["namespace"] == NAMESPACE
        assert objects[kind, name]["metadata"]["labels"]["app.kubernetes.io/component"] == component
    groups = {group for rule in objects["Role", name]["rules"] for group in rule["apiGroups"]}
    assert groups == GROUPS[component]


@pytest.mark.parametrize("component", [TRACKER, SCALING, MIRRORING, MONITORING])
def test_it_goes_with_the_webhooks_in_either_order(tmp_path: Path, component: str) -> None:
    """DEP-34, DEP-84: with and without webhooks, the same objects."""
    alone = by_name(install(tmp_path / "alone", component))
    hooked = by_name(install(tmp_path / "hooked", WEBHOOKS))

    for order in ((WEBHOOKS, component), (component, WEBHOOKS)):
        both = by_name(install(tmp_path / order[0], *order))
        if component == TRACKER:  # it adds an argument of the operator, too
            config = read_config(read_args(both))
            assert (config.zone_tracker, config.webhooks_enabled) == (TRACKER_MAP, True)
            both.pop(("Deployment", "rollout-operator"))
        assert both.items() <= {**alone, **hooked}.items()
        assert both.keys() | {("Deployment", "rollout-operator")} == alone.keys() | hooked.keys()
    config = read_config(read_args(alone))
    assert config.zone_tracker == (TRACKER_MAP if component == TRACKER else "")
    assert not config.webhooks_enabled


def test_the_operator_understands_its_arguments(everything: Rendered) -> None:
    """DEPLOY-11, SEC-20: the components add arguments and a port, nothing else."""
    (before,) = (one for one in render(BASE) if one["kind"] == "Deployment")
    after = copy.deepcopy(everything["Deployment", "rollout-operator"])
    (was,) = before["spec"]["template"]["spec"]["containers"]
    now = after["spec"]["template"]["spec"]["containers"][0]
    words = read_args(everything)

    assert words[:2] == [f"-kubernetes.namespace={NAMESPACE}", "-server-tls.enabled=true"]
    assert read_config(words).namespace == NAMESPACE
    assert now["args"][: len(was["args"])] == was["args"]
    assert now["ports"][: len(was["ports"])] == was["ports"]
    now |= {"args": was["args"], "ports": was["ports"]}
    assert after["spec"] == before["spec"]


def test_each_role_is_bound(everything: Rendered) -> None:
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"])
        for (kind, _), one in everything.items()
        if kind.endswith("RoleBinding")
    }

    assert bound == {
        key
        for key, one in everything.items()
        # The rules of these are in another, which is bound.
        if key[0] in {"Role", "ClusterRole"} and not _is_aggregated(one)
    }


def _is_aggregated(role: Object) -> bool:
    return any("/aggregate-to-" in label for label in role["metadata"]["labels"])


@pytest.mark.parametrize(
    "components", [(WEBHOOKS,), (TRACKER,), (WEBHOOKS, LEAST, DEPLOYMENTS, TRACKER)]
)
def test_the_namespace_reaches_everything(tmp_path: Path, components: tuple[str, ...]) -> None:
    """DEP-84: names, selectors and labels follow `namespace:`, and no placeholder is left."""
    objects = install(tmp_path, *components)

    assert [text for text in leaves(objects) if re.search(r"(^|-)namespace\b", text)] == []
    assert {one["metadata"].get("namespace", NAMESPACE) for one in objects} == {NAMESPACE}
    for one in objects:
        if one["kind"] in {"Role", "RoleBinding"}:
            assert one["metadata"]["namespace"] == NAMESPACE
        for subject in one.get("subjects", ()):
            assert subject == {
                "kind": "ServiceAccount",
                "name": "rollout-operator",
                "namespace": NAMESPACE,
            }


def test_two_namespaces_do_not_meet(tmp_path: Path) -> None:
    """What belongs to the cluster is named after the namespace."""
    one = by_name(install(tmp_path / "1", WEBHOOKS, LEAST, DEPLOYMENTS, namespace="a"))
    two = by_name(install(tmp_path / "2", WEBHOOKS, LEAST, DEPLOYMENTS, namespace="b"))

    cluster = [key for key in one if "namespace" not in one[key]["metadata"]]
    assert len(cluster) == 6
    assert not set(cluster) & set(two)


def test_least_privilege_names_what_may_be_patched(everything: Rendered) -> None:
    """SEC-18, SEED-102: the rights and the flag name the shipped configurations, and only them.

    Each name for both kinds, since the flag names no kind: nothing that is requested is forbidden.
    """
    shipped = {key for key in everything if key[0] in {VALIDATING, MUTATING}}
    rights = granted(everything["ClusterRole", f"rollout-operator-{NAMESPACE}-webhooks"])

    assert rights == {
        (f"{kind.lower()}s", verb, name)
        for kind in (VALIDATING, MUTATING)
        for _, name in shipped
        for verb in ("list", "watch", "patch")
    }
    (flag,) = (word for word in read_args(everything) if "ca-bundle-names" in word)
    assert set(flag.partition("=")[2].split(",")) == {name for _, name in shipped}


def test_deployments_are_an_option(everything: Rendered, tmp_path: Path) -> None:
    """SEED-082, SEED-083, SEED-085, RBAC-09: with the right to read them; never prepared."""
    hook = hook_of(everything, VALIDATING, "no-downscale")

    assert [rule["resources"] for rule in hook["rules"]] == [
        ["statefulsets", "statefulsets/scale"],
        ["deployments", "deployments/scale", "replicasets", "replicasets/scale"],
    ]
    first, second = hook["rules"]
    assert {**second, "resources": first["resources"]} == first
    assert granted(everything["Role", "rollout-operator-deployments"]) == {
        ("deployments", "get", ""),
        ("replicasets", "get", ""),
    }
    plain = by_name(install(tmp_path / "plain", WEBHOOKS))
    for kind, name in (
        (MUTATING, "prepare-downscale"),
        (VALIDATING, "pod-eviction"),
        (VALIDATING, "zpdb-validation"),
    ):
        assert hook_of(everything, kind, name) == hook_of(plain, kind, name)


def test_a_priority_class_is_an_option(tmp_path: Path) -> None:
    """DEP-84: one that every cluster has; nothing else changes."""
    objects = by_name(install(tmp_path / "it", PRIORITY))
    pod = objects["Deployment", "rollout-operator"]["spec"]["template"]["spec"]

    assert pod.pop("priorityClassName") == "system-cluster-critical"
    assert objects == by_name(install(tmp_path / "bare"))


def test_the_option_leaves_the_operator_and_rollouts_alone(everything: Rendered) -> None:
    """DEP-86, DEP-87: its own Deployment is repaired while it is down."""
    conditions = {
        one["name"]: one["expression"]
        for one in hook_of(everything, VALIDATING, "no-downscale")["matchConditions"]
    }

    assert set(conditions) == {
        "pods-are-removed",
        "not-the-operator",
        "not-the-deployment-controller",
    }
    own = conditions["not-the-operator"]
    assert "request.name == 'rollout-operator'" in own
    assert "owner.name == 'rollout-operator'" in own
    assert "matches(" not in own, "what the server makes of it is tested in tests/system"
    assert ("Deployment", "rollout-operator") in everything
    assert "deployment-controller'" in conditions["not-the-deployment-controller"]


@pytest.mark.parametrize("others", [(), (WEBHOOKS,)], ids=["alone", "with webhooks"])
def test_a_second_operator(tmp_path: Path, others: tuple[str, ...]) -> None:
    """D-74, DEP-92: two replicas, of which a drain takes one; all else is as it was."""
    before = by_name(install(tmp_path / "before", *others))
    after = by_name(install(tmp_path / "after", *others, REPLICAS))
    budget = after.pop(("PodDisruptionBudget", "rollout-operator"))
    changed = after.pop(("Deployment", "rollout-operator"))
    single = before.pop(("Deployment", "rollout-operator"))

    assert after == before
    assert (budget["metadata"]["namespace"], budget["spec"]["maxUnavailable"]) == (NAMESPACE, 1)
    pod = changed["spec"]["template"]
    selector = budget["spec"]["selector"]["matchLabels"]
    assert selector == changed["spec"]["selector"]["matchLabels"]
    spread = pod["spec"].pop("topologySpreadConstraints")
    assert [one["labelSelector"]["matchLabels"] for one in spread] == [selector] * 2
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}
    # Else pods that an upgrade is about to end push both new ones onto one node.
    assert all(one["matchLabelKeys"] == ["pod-template-hash"] for one in spread)
    assert (single["spec"]["replicas"], changed["spec"]["replicas"]) == (1, 2)
    changed["spec"]["replicas"] = 1
    assert changed == single
