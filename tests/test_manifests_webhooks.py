"""The component `webhooks` as shipped: rendered, and compared with what it must agree with."""

import copy
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL
from tests.kustomize import render
from tests.rendered import (
    BASE,
    MANIFESTS,
    MUTATING,
    NAMESPACE,
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


class Hook(NamedTuple):
    """What distinguishes one of the four webhooks."""

    kind: str
    effects: str
    seconds: int
    operations: list[str]
    group: str
    resources: list[str]


UPDATES: Final = (10, ["UPDATE"], "apps", ["statefulsets", "statefulsets/scale"])
SECRET: Final = default("server-tls.self-signed-cert.secret-name")
HOOKS: Final[dict[str, Hook]] = {
    "no-downscale": Hook(VALIDATING, "None", *UPDATES),
    "prepare-downscale": Hook(MUTATING, "NoneOnDryRun", *UPDATES),
    # An eviction is recorded on its pod, and what is not used counts until this time is over.
    "pod-eviction": Hook(VALIDATING, "NoneOnDryRun", 5, ["CREATE"], "", ["pods/eviction"]),
    "zpdb-validation": Hook(
        VALIDATING,
        "None",
        10,
        ["CREATE", "UPDATE"],
        "rollout-operator.grafana.com",
        ["zoneawarepoddisruptionbudgets"],
    ),
}


@pytest.fixture
def plain(tmp_path: Path) -> Rendered:
    return by_name(install(tmp_path, WEBHOOKS))


def hook(objects: Rendered, name: str) -> dict[str, Any]:
    return hook_of(objects, HOOKS[name].kind, name)


def test_the_base_has_no_webhooks() -> None:
    """DEP-84, SEED-081: without the component nothing of it is there."""
    found = [text for text in leaves(render(BASE)) if "webhook" in text or "tls" in text]

    assert found == []


def test_the_overlay_holds_the_install_and_the_webhooks() -> None:
    """DEP-84."""
    overlays = MANIFESTS / "overlays"
    bare, full = (
        by_name(render(overlays / "namespace-install")),
        by_name(render(overlays / "with-webhooks")),
    )

    assert set(full) - set(bare) == {
        ("Role", "rollout-operator-webhooks"),
        ("RoleBinding", "rollout-operator-webhooks"),
        ("Secret", SECRET),
        ("ClusterRole", "rollout-operator-rollouts-webhooks"),
        ("ClusterRoleBinding", "rollout-operator-rollouts-webhooks"),
        *((one.kind, f"{name}-rollouts") for name, one in HOOKS.items()),
    }
    changed = {key for key in bare if bare[key] != full[key]}
    assert changed == {("Deployment", "rollout-operator"), ("Service", "rollout-operator")}
    for name, one in HOOKS.items():
        labels = full[one.kind, f"{name}-rollouts"]["metadata"]["labels"]
        assert labels[NAMESPACE_LABEL] == "rollouts"


@pytest.mark.parametrize("name", HOOKS)
def test_a_configuration_is_as_users_know_it(plain: Rendered, name: str) -> None:
    """DEPLOY-15, SEED-082, SEED-086, SEED-089, SEED-094, SEED-148, DEP-35.

    No selector on objects: neither a Scale nor an eviction carries labels, and all would pass.
    No bundle that an apply would put back.
    """
    expected, found = HOOKS[name], copy.deepcopy(hook(plain, name))
    del found["matchConditions"]

    assert found == {
        "name": f"{name}-{NAMESPACE}.grafana.com",
        "clientConfig": {
            "service": {
                "name": "rollout-operator",
                "namespace": NAMESPACE,
                "path": f"/admission/{name}",
                "port": 443,
            }
        },
        "rules": [
            {
                "operations": expected.operations,
                "apiGroups": [expected.group],
                "apiVersions": ["v1"],
                "resources": expected.resources,
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE]}
            ]
        },
        "failurePolicy": "Fail",
        "sideEffects": expected.effects,
        "timeoutSeconds": expected.seconds,
        "admissionReviewVersions": ["v1"],
    }


@pytest.mark.parametrize("name", HOOKS)
def test_the_operator_writes_its_ca_into_it(plain: Rendered, name: str) -> None:
    """SEED-097, DEP-18, SI-20, DEPLOY-16."""
    labels = plain[HOOKS[name].kind, f"{name}-{NAMESPACE}"]["metadata"]["labels"]

    assert labels[INJECT_CA_LABEL] == "true"
    assert labels[NAMESPACE_LABEL] == NAMESPACE


def test_only_falling_replicas_reach_the_operator(plain: Rendered) -> None:
    """DEP-86, SEC-23, DEPLOY-17, W-49: by numbers alone, never by a label; for both hooks."""
    (condition,) = hook(plain, "no-downscale")["matchConditions"]
    expression = condition["expression"]

    assert hook(plain, "prepare-downscale")["matchConditions"] == [condition]
    assert condition["name"] == "pods-are-removed"
    assert "labels" not in expression
    # An error of a condition refuses the request: each field is looked for before it is read.
    objects = ("object", "oldObject")
    reads = set(re.findall(r"\b(?:oldObject|object)(?:\.\w+)+", expression))
    assert reads == {
        f"{one}.{field}"
        for one in objects
        for field in ("spec", "spec.replicas", "spec.ordinals", "spec.ordinals.start")
    }
    assert all(f"has({read})" in expression for read in reads)
    assert all(f" {one} != null" in f" {expression.replace('(', ' ')}" for one in objects)
    assert "oldObject.spec.replicas + (" in expression


def test_dep86_only_a_new_meaning_of_a_budget_reaches_the_operator(plain: Rendered) -> None:
    """Each field is looked for before it is read: an error of a condition refuses the request."""
    (condition,) = hook(plain, "zpdb-validation")["matchConditions"]

    assert [term.strip() for term in condition["expression"].split("||")] == [
        "oldObject == null",
        "object == null",
        "!has(object.spec)",
        "!has(oldObject.spec)",
        "object.spec != oldObject.spec",
        "(has(object.metadata.annotations) ? object.metadata.annotations : {})"
        " != (has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {})",
    ]


@pytest.mark.parametrize(
    ("pod", "is_own"),
    [
        ("rollout-operator-5d8f9c7b6-x7k2p", True),
        ("rollout-operator-645d8c7b99-22222", True),
        ("rollout-operator-x-10000", False),
        ("rollout-operator-x-22222", False),
        ("rollout-operator-5d8f9c7b6-10000", False),
        ("rollout-operator-payments-x7k2p", False),
        ("rollout-operator-5d8f9c7b6", False),
        ("rollout-operator-0", False),
        ("rollout-operator-zone-a-0", False),
        ("my-rollout-operator-5d8f9c7b6-x7k2p", False),
        ("ingester-zone-a-0", False),
    ],
)
def test_dep87_pods_of_the_operator_can_always_be_drained(
    plain: Rendered, pod: str, is_own: bool
) -> None:
    """Otherwise a node with the only replica could never be drained while it does not answer."""
    (condition,) = hook(plain, "pod-eviction")["matchConditions"]

    (pattern,) = re.findall(r"^!request\.name\.matches\('([^']+)'\)$", condition["expression"])
    assert bool(re.search(pattern, pod)) == is_own
    assert ("Deployment", "rollout-operator") in plain


def test_nothing_of_the_operator_is_in_scope_of_its_webhooks(plain: Rendered) -> None:
    """DEP-87, W-47: it must be able to start, and to be repaired, while nothing answers."""
    unguarded = {"StatefulSet", "ZoneAwarePodDisruptionBudget"}

    assert {key for key in plain if key[0] in {VALIDATING, MUTATING}} == {
        (one.kind, f"{name}-{NAMESPACE}") for name, one in HOOKS.items()
    }
    assert not any(kind in unguarded for kind, _ in plain)


def test_the_way_from_the_configuration_to_the_container(plain: Rendered) -> None:
    """SEED-081, DEPLOY-12, DEPLOY-13: 443 of the Service is 8443 of the pod, by name.

    DEP-17: the certificate is by default for `rollout-operator.NAMESPACE.svc`.
    """
    service = plain["Service", "rollout-operator"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in container_of(plain)["ports"]}
    served = {port["port"]: port["targetPort"] for port in service["ports"]}

    assert ports[served[443]] == default("server-tls.port")
    assert ports == {"http-metrics": 8001, "https": 8443, "https-peers": 8444}
    assert ports["https-peers"] == default("server-tls.peer-port"), "DEP-92"
    assert "https-peers" not in served.values()
    assert "publishNotReadyAddresses" not in service
    assert default("server-tls.self-signed-cert.dns-name") == ""
    assert not [word for word in container_of(plain)["args"] if "dns-name" in word]


def test_rbac07_the_secret_is_shipped_empty_and_claims_nothing(plain: Rendered) -> None:
    """RBAC-07, D-31: no data for an apply to put back, no label that makes it the operator's."""
    secret = plain["Secret", SECRET]

    assert set(secret) == {"apiVersion", "kind", "metadata", "type"}
    assert (secret["type"], secret["metadata"]["namespace"]) == ("Opaque", NAMESPACE)
    assert {key.partition("/")[0] for key in secret["metadata"]["labels"]} == {"app.kubernetes.io"}
    assert "annotations" not in secret["metadata"]


def test_the_role_is_what_webhooks_need(plain: Rendered) -> None:
    """SEED-100, SEED-108, RBAC-07, SEC-17, SEC-19: nothing is created, the own Secret neither.

    No other Secret can be read, and webhook configurations are never created or deleted.
    """
    assert granted(plain["Role", "rollout-operator-webhooks"]) == {
        ("statefulsets", "patch", ""),
        ("secrets", "get", SECRET),
        ("secrets", "update", SECRET),
    }
    assert granted(plain["ClusterRole", f"rollout-operator-{NAMESPACE}-webhooks"]) == {
        (plural, verb, "")
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
        for verb in ("list", "watch", "patch")
    }
