"""The base and the overlays as shipped: fields that users and the security profile rely on."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import rollout_operator
from tests.kustomize import Object, render
from tests.rendered import BASE, MANIFESTS, by_name, get_field, granted
from tests.test_packaging import make

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

OVERLAYS = sorted(path.parent for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
FOLDERS = [
    MANIFESTS / "crds",
    MANIFESTS / "crds" / "releases",
    BASE,
    *OVERLAYS,
    *sorted(path.parent for path in MANIFESTS.glob("components/*/kustomization.yaml")),
]
SPEC = "spec.template.spec"
CONTAINER = f"{SPEC}.containers.0"
METRICS_PORT = "http-metrics"
FIELDS = {
    "SEED-008 the Role is bound in the own namespace": (
        "RoleBinding",
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "rollout-operator",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "rollout-operator"}],
        },
    ),
    "DEP-45, SEC-20 the token is mounted where it is needed only, said at both places": (
        "ServiceAccount",
        {"automountServiceAccountToken": False},
    ),
    "SEED-008, SEC-20 the pod runs as that account": (
        "Deployment",
        {
            f"{SPEC}.serviceAccountName": "rollout-operator",
            f"{SPEC}.automountServiceAccountToken": True,
            f"{SPEC}.enableServiceLinks": False,
        },
    ),
    "W-02, DEP-91, DEP-94 one replica, and another one that is ready before it ends": (
        "Deployment",
        {
            "spec.replicas": 1,
            "spec.strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "spec.minReadySeconds": 10,
            "spec.revisionHistoryLimit": 10,
            f"{SPEC}.terminationGracePeriodSeconds": 30,
        },
    ),
    "SEC-20, DEP-45, SEED-022 the restricted profile; nothing to write to, nothing of the node": (
        "Deployment",
        {
            f"{SPEC}.securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            f"{CONTAINER}.securityContext": {
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            f"{CONTAINER}.volumeMounts": None,
            **{f"{SPEC}.{key}": None for key in ("volumes", "hostNetwork", "hostPID", "hostIPC")},
        },
    ),
    "DEP-25 limits": (
        "Deployment",
        {
            f"{CONTAINER}.resources": {
                "requests": {"cpu": "100m", "memory": "100Mi"},
                "limits": {"memory": "200Mi"},
            }
        },
    ),
    "DEPLOY-01, DEPLOY-10, DEP-84 arguments only, the image of this version": (
        "Deployment",
        {
            f"{CONTAINER}.name": "rollout-operator",
            f"{CONTAINER}.image": f"rollout-operator:{rollout_operator.__version__}",
            f"{CONTAINER}.command": None,
            f"{CONTAINER}.args": ["-kubernetes.namespace=$(POD_NAMESPACE)"],
            f"{CONTAINER}.env": [
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
                for name, field in (
                    ("POD_NAMESPACE", "metadata.namespace"),
                    ("POD_NAME", "metadata.name"),
                    ("POD_IP", "status.podIP"),
                )
            ],
        },
    ),
    "DEP-46, DEP-30 a slow first list must not kill the pod; readiness waits one second": (
        "Deployment",
        {
            f"{CONTAINER}.readinessProbe.httpGet": {"path": "/ready", "port": METRICS_PORT},
            f"{CONTAINER}.readinessProbe.timeoutSeconds": 1,
            f"{CONTAINER}.livenessProbe.httpGet": {"path": "/livez", "port": METRICS_PORT},
            f"{CONTAINER}.startupProbe.httpGet": {"path": "/livez", "port": METRICS_PORT},
        },
    ),
    "DEP-78 a Service that leads to the pod; never headless": (
        "Service",
        {
            "spec.type": "ClusterIP",
            "spec.clusterIP": None,
            "spec.ports.0.name": METRICS_PORT,
            "spec.ports.0.port": 8001,
            "spec.ports.0.targetPort": METRICS_PORT,
            "spec.ports.1": None,
        },
    ),
    "DEP-78 and a port for it": (
        "Deployment",
        {
            f"{CONTAINER}.ports.0.name": METRICS_PORT,
            f"{CONTAINER}.ports.0.containerPort": 8001,
            f"{CONTAINER}.ports.1": None,
        },
    ),
}


def of_base(kind: str) -> Object:
    return by_name(render(BASE))[kind, "rollout-operator"]


def read_kustomization(folder: Path) -> Object:
    loaded: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return loaded


@pytest.mark.parametrize(("kind", "fields"), FIELDS.values(), ids=FIELDS)
def test_fields_are_as_users_rely_on(kind: str, fields: dict[str, Any]) -> None:
    """None stands for a field that is not there."""
    found = of_base(kind)

    assert {path: get_field(found, path) for path in fields} == fields


def test_make_builds_the_image_that_the_base_names() -> None:
    (image,) = read_kustomization(BASE)["images"]
    words = make("--dry-run", "image").stdout.split()
    assert words[words.index("--tag") + 1] == f"{image['name']}:{image['newTag']}"


def test_the_base_holds_one_object_of_each_kind_it_needs() -> None:
    """DEP-84: no namespace among them, and none of them names one."""
    objects = by_name(render(BASE))

    kinds = ["Deployment", "Role", "RoleBinding", "Service", "ServiceAccount"]
    assert sorted(objects) == [(kind, "rollout-operator") for kind in kinds]
    assert not any("namespace" in each["metadata"] for each in objects.values())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_lists_every_file_beside_it(folder: Path) -> None:
    """DEP-84."""
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    read = read_kustomization(folder)

    assert {entry for entry in read.get("resources", ()) if "/" not in entry} == files
    if folder.parent.name == "components":
        kind = (read["apiVersion"], read["kind"])
        assert kind == ("kustomize.config.k8s.io/v1alpha1", "Component")


def test_the_role_is_exactly_what_the_operator_does() -> None:
    """SEED-064, DEP-48, SEC-17: each verb used, nothing else, in one namespace."""
    role = of_base("Role")

    assert granted(role) == {
        *(("pods", verb, "") for verb in ("list", "watch", "get", "delete", "patch")),
        *(("statefulsets", verb, "") for verb in ("list", "watch", "get")),
        ("statefulsets/status", "update", ""),
        *(("zoneawarepoddisruptionbudgets", verb, "") for verb in ("list", "watch")),
        ("zoneawarepoddisruptionbudgets/status", "patch", ""),
        ("multiazrollouts", "list", ""),
        *(("leases", verb, "rollout-operator") for verb in ("get", "patch")),
        ("leases", "create", ""),
        *(("events", verb, "") for verb in ("create", "patch")),
    }
    assert {
        resource: rule["apiGroups"] for rule in role["rules"] for resource in rule["resources"]
    } == {
        "pods": [""],
        "statefulsets": ["apps"],
        "statefulsets/status": ["apps"],
        "zoneawarepoddisruptionbudgets": ["rollout-operator.grafana.com"],
        "zoneawarepoddisruptionbudgets/status": ["rollout-operator.grafana.com"],
        "multiazrollouts": ["rollout.grafana.com"],
        "leases": ["coordination.k8s.io"],
        "events": ["events.k8s.io"],
    }
    fields = {"apiGroups", "resources", "verbs"}
    assert all(set(rule) - {"resourceNames"} == fields for rule in role["rules"])


def test_selectors_lead_to_the_pod_which_keeps_the_old_label() -> None:
    """DEP-84, DEP-78: recommended labels, and `name` for selectors from before them.

    DEP-26: even on a tenth of a core the process serves long before it is given up.
    """
    deployment, service = of_base("Deployment"), of_base("Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    startup = get_field(deployment, f"{CONTAINER}.startupProbe")

    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert labels["name"] == "rollout-operator"
    assert {f"app.kubernetes.io/{key}" for key in ("name", "component", "part-of")} <= set(labels)
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60


def test_d78_only_the_first_try_makes_a_namespace() -> None:
    """D-78: and no folder says which Pod Security level a namespace has."""
    made = {
        folder.name: one
        for folder in (*FOLDERS, MANIFESTS / "shadow")
        if folder.parent.name != "components"
        for one in render(folder)
        if one["kind"] == "Namespace"
    }

    assert made.keys() == {"development"}
    assert made["development"]["metadata"] == {"name": "rollouts"}
    for path in MANIFESTS.rglob("*.yaml"):
        assert "pod-security.kubernetes.io" not in path.read_text(), path


def test_an_overlay_takes_its_namespace_from_one_line() -> None:
    """DEP-84: a copy of the overlays changes this line, and all follow."""
    lines = {folder.name: read_kustomization(folder).get("namespace") for folder in OVERLAYS}

    assert {name for name, line in lines.items() if line} == {"namespace-install", "development"}
    assert lines["namespace-install"] == lines["development"] == "rollouts"


def test_the_sample_is_a_group_of_three_zones() -> None:
    rendered = render(MANIFESTS / "overlays" / "development")
    sets = [one for one in rendered if one["kind"] == "StatefulSet"]

    assert [one["metadata"]["labels"]["rollout-group"] for one in sets] == ["sample"] * 3
    for each in sets:
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["updateStrategy"] == {"type": "OnDelete"}
        assert each["spec"]["selector"]["matchLabels"] == labels
        assert labels["name"] == each["metadata"]["name"]
