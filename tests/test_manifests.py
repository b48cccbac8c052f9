"""The manifests as shipped: fields that users and the security profile rely on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import rollout_operator
from tests.code_rules import ROOT

MANIFESTS = ROOT / "manifests"
BASE = MANIFESTS / "base"
OVERLAYS = sorted(path.parent for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
# Parsed YAML: whatever the file says.
Object = dict[str, Any]


def load(folder: Path) -> dict[tuple[str, str], Object]:
    """Return the objects of a folder by kind and name, as its kustomization lists them."""
    found: dict[tuple[str, str], Object] = {}
    for entry in kustomization(folder)["resources"]:
        path = (folder / entry).resolve()
        if path.is_dir():
            found |= load(path)
            continue
        for each in yaml.safe_load_all(path.read_text()):
            found[each["kind"], each["metadata"]["name"]] = each
    return found


def kustomization(folder: Path) -> Object:
    loaded: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return loaded


def of_base(kind: str) -> Object:
    return load(BASE)[kind, "rollout-operator"]


def pod_spec() -> Object:
    spec: Object = of_base("Deployment")["spec"]["template"]["spec"]
    return spec


def container() -> Object:
    (only,) = pod_spec()["containers"]
    assert isinstance(only, dict)
    return only


def test_the_base_holds_one_object_of_each_kind_it_needs() -> None:
    """DEP-84: no namespace among them, and none of them names one."""
    objects = load(BASE)

    assert sorted(kind for kind, _ in objects) == [
        "Deployment",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ]
    assert {name for _, name in objects} == {"rollout-operator"}
    assert not any("namespace" in each["metadata"] for each in objects.values())


@pytest.mark.parametrize("folder", [BASE, *OVERLAYS], ids=lambda folder: folder.name)
def test_a_kustomization_lists_every_file_beside_it(folder: Path) -> None:
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}

    assert {entry for entry in kustomization(folder)["resources"] if "/" not in entry} == files


def test_the_image_is_that_of_this_version() -> None:
    """DEP-84: the tag stands in the transformer, not in the Deployment."""
    assert kustomization(BASE)["images"] == [
        {"name": "rollout-operator", "newTag": rollout_operator.__version__}
    ]
    assert container()["image"] == "rollout-operator"


def test_the_role_is_exactly_what_the_operator_does() -> None:
    """SEED-064, DEP-48, SEC-17: each verb used, nothing else, in one namespace."""
    granted = {
        (group, resource, verb)
        for rule in of_base("Role")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert granted == {
        ("", "pods", "list"),
        ("", "pods", "watch"),
        ("", "pods", "get"),
        ("", "pods", "delete"),
        ("", "pods", "patch"),
        ("apps", "statefulsets", "list"),
        ("apps", "statefulsets", "watch"),
        ("apps", "statefulsets", "get"),
        ("apps", "statefulsets/status", "update"),
        ("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets", "list"),
        ("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets", "watch"),
    }
    assert all(
        set(rule) == {"apiGroups", "resources", "verbs"} for rule in of_base("Role")["rules"]
    )


def test_the_role_is_bound_to_the_account_that_the_pod_runs_as() -> None:
    """SEED-008: a Role in the own namespace is all there is."""
    binding = of_base("RoleBinding")

    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "rollout-operator",
    }
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rollout-operator"}]
    assert pod_spec()["serviceAccountName"] == of_base("ServiceAccount")["metadata"]["name"]


def test_the_token_is_asked_for_where_it_is_needed_only() -> None:
    """DEP-45, SEC-20: said explicitly at both places."""
    assert of_base("ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_spec()["automountServiceAccountToken"] is True
    assert pod_spec()["enableServiceLinks"] is False


def test_one_operator_at_a_time() -> None:
    """W-02: one replica; only `Recreate` waits for the old one to end before the next starts."""
    spec = of_base("Deployment")["spec"]

    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["minReadySeconds"] == 10
    assert spec["revisionHistoryLimit"] == 10
    assert pod_spec()["terminationGracePeriodSeconds"] == 30


def test_the_pod_meets_the_restricted_profile() -> None:
    """SEC-20, DEP-45, SEED-022: each field set explicitly."""
    assert pod_spec()["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container()["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Nothing to write to, and nothing of the node.
    assert not {"volumes", "hostNetwork", "hostPID", "hostIPC"} & set(pod_spec())
    assert "volumeMounts" not in container()


def test_the_limits_are_those_of_the_place_it_takes() -> None:
    """DEP-25."""
    assert container()["resources"] == {
        "requests": {"cpu": "100m", "memory": "100Mi"},
        "limits": {"memory": "200Mi"},
    }


def test_the_container_is_called_and_started_as_users_expect() -> None:
    """DEPLOY-01, DEPLOY-10: arguments only, and the namespace from the pod itself."""
    only = container()

    assert only["name"] == "rollout-operator"
    assert "command" not in only
    assert only["args"] == ["-kubernetes.namespace=$(POD_NAMESPACE)"]
    assert only["env"] == [
        {
            "name": "POD_NAMESPACE",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        }
    ]


def test_the_probes_ask_what_they_are_for() -> None:
    """DEP-46, DEP-30: a slow first list must not kill the pod; readiness waits one second."""
    only = container()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert only[probe]["httpGet"]["port"] == "http-metrics"

    assert only["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert only["readinessProbe"]["timeoutSeconds"] == 1
    assert only["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert only["startupProbe"]["httpGet"]["path"] == "/livez"
    # DEP-26: even on a tenth of a core the process serves long before it is given up.
    startup = only["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60


def test_the_service_leads_to_the_pod() -> None:
    """DEP-78: port and selector match; never headless."""
    spec = of_base("Service")["spec"]
    labels = of_base("Deployment")["spec"]["template"]["metadata"]["labels"]
    (port,) = container()["ports"]

    assert spec["type"] == "ClusterIP"
    assert "clusterIP" not in spec
    assert spec["selector"].items() <= labels.items()
    assert (port["name"], port["containerPort"]) == ("http-metrics", 8001)
    (served,) = spec["ports"]
    assert (served["name"], served["port"], served["targetPort"]) == (
        "http-metrics",
        8001,
        "http-metrics",
    )


def test_the_deployment_selects_its_pods_and_keeps_the_old_label() -> None:
    """DEP-84: recommended labels, and `name` for selectors from before them."""
    spec = of_base("Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"]

    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert labels["name"] == "rollout-operator"
    assert {f"app.kubernetes.io/{key}" for key in ("name", "component", "part-of")} <= set(labels)


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: folder.name)
def test_an_overlay_makes_the_namespace_that_it_installs_into(folder: Path) -> None:
    """DEP-84, SEC-20: and the namespace enforces the profile which the pods meet."""
    (namespace,) = (each for (kind, _), each in load(folder).items() if kind == "Namespace")

    assert namespace["metadata"]["name"] == kustomization(folder)["namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def sample_sets() -> Iterator[Object]:
    for (kind, _), each in load(MANIFESTS / "overlays" / "development").items():
        if kind == "StatefulSet":
            yield each


def test_the_sample_is_a_group_of_three_zones() -> None:
    sets = list(sample_sets())

    assert len(sets) == 3
    assert {each["metadata"]["labels"]["rollout-group"] for each in sets} == {"sample"}
    for each in sets:
        assert each["spec"]["updateStrategy"] == {"type": "OnDelete"}
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels
        assert labels["name"] == each["metadata"]["name"]
