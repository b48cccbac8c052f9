"""The component `webhooks` as shipped: rendered, and compared with what it must agree with."""

import copy
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL
from tests.kustomize import KustomizeError, render
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

HOOKS: Final = [
    pytest.param(VALIDATING, "no-downscale", "None", id="DEPLOY-15 no-downscale"),
    pytest.param(MUTATING, "prepare-downscale", "NoneOnDryRun", id="SEED-094 prepare-downscale"),
]


@pytest.fixture
def plain(tmp_path: Path) -> Rendered:
    return by_name(install(tmp_path, WEBHOOKS))


def test_the_base_has_no_webhooks() -> None:
    """DEP-84, SEED-081: without the component nothing of it is there."""
    objects = render(BASE)
    files = [yaml.safe_load((BASE / f"{one['kind'].lower()}.yaml").read_text()) for one in objects]
    for one in files:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["containers"][0]["image"] = container_of(
                by_name(objects)
            )["image"]

    assert objects == files
    assert not [text for text in leaves(objects) if "webhook" in text or "tls" in text]


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
        ("ClusterRole", "rollout-operator-rollouts-webhooks"),
        ("ClusterRoleBinding", "rollout-operator-rollouts-webhooks"),
        (VALIDATING, "no-downscale-rollouts"),
        (MUTATING, "prepare-downscale-rollouts"),
        (VALIDATING, "pod-eviction-rollouts"),
        (VALIDATING, "zpdb-validation-rollouts"),
    }
    changed = {key for key in bare if bare[key] != full[key]}
    assert changed == {("Deployment", "rollout-operator"), ("Service", "rollout-operator")}


def test_the_overlay_names_the_namespace_that_the_component_took() -> None:
    """It stands in two files: where they differ, operator and webhooks are apart."""
    overlays = MANIFESTS / "overlays"
    named = {
        yaml.safe_load((overlays / name / "kustomization.yaml").read_text())["namespace"]
        for name in ("namespace-install", "with-webhooks")
    }

    assert named == {
        one["metadata"]["labels"][NAMESPACE_LABEL]
        for one in render(overlays / "with-webhooks")
        if one["kind"] in {VALIDATING, MUTATING}
    }


@pytest.mark.parametrize(("kind", "name", "effects"), HOOKS)
def test_a_configuration_is_as_users_know_it(
    plain: Rendered, kind: str, name: str, effects: str
) -> None:
    """DEPLOY-15, SEED-082, SEED-086, SEED-089, SEED-148."""
    hook = copy.deepcopy(hook_of(plain, kind, name))
    del hook["matchConditions"]

    assert hook == {
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
                "operations": ["UPDATE"],
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "resources": ["statefulsets", "statefulsets/scale"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE]}
            ]
        },
        "failurePolicy": "Fail",
        "sideEffects": effects,
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
    }


@pytest.mark.parametrize(("kind", "name", "effects"), HOOKS)
def test_the_operator_writes_its_ca_into_it(
    plain: Rendered, kind: str, name: str, effects: str
) -> None:
    """SEED-097, DEP-18, SI-20, DEPLOY-16: both labels; no bundle that an apply would put back."""
    labels = plain[kind, f"{name}-{NAMESPACE}"]["metadata"]["labels"]

    assert labels[INJECT_CA_LABEL] == "true"
    assert labels[NAMESPACE_LABEL] == NAMESPACE
    assert "caBundle" not in hook_of(plain, kind, name)["clientConfig"]


@pytest.mark.parametrize(("kind", "name", "effects"), HOOKS)
def test_only_falling_replicas_reach_the_operator(
    plain: Rendered, kind: str, name: str, effects: str
) -> None:
    """DEP-86, SEC-23, DEPLOY-17, W-49: by numbers alone, never by a label, which a Scale lacks."""
    hook = hook_of(plain, kind, name)
    (condition,) = hook["matchConditions"]

    assert condition["name"] == "pods-are-removed"
    assert "objectSelector" not in hook
    assert "labels" not in condition["expression"]
    # An error of a condition refuses the request: each field is looked for before it is read.
    reads = set(re.findall(r"\b(?:oldObject|object)(?:\.\w+)+", condition["expression"]))
    assert reads == {
        f"{one}.{field}"
        for one in ("object", "oldObject")
        for field in ("spec", "spec.replicas", "spec.ordinals", "spec.ordinals.start")
    }
    assert all(f"has({read})" in condition["expression"] for read in reads)
    assert all(
        f" {one} != null" in f" {condition['expression'].replace('(', ' ')}"
        for one in ("object", "oldObject")
    )
    assert "oldObject.spec.replicas + (" in condition["expression"]


def test_both_hooks_see_the_same_requests(plain: Rendered) -> None:
    validating = hook_of(plain, VALIDATING, "no-downscale")
    mutating = hook_of(plain, MUTATING, "prepare-downscale")

    for field in ("rules", "matchConditions", "namespaceSelector"):
        assert validating[field] == mutating[field]


def test_nothing_of_the_operator_is_in_scope_of_its_webhooks(plain: Rendered) -> None:
    """DEP-87, W-47: it must be able to start, and to be repaired, while nothing answers.

    Evictions of its pods: see `test_manifests_budgets`.
    """
    matched = {
        resource.partition("/")[0]
        for (kind, _), one in plain.items()
        if kind in {VALIDATING, MUTATING}
        for rule in one["webhooks"][0]["rules"]
        for resource in rule["resources"]
    }

    assert matched == {"statefulsets", "pods", "zoneawarepoddisruptionbudgets"}
    unguarded = {"StatefulSet", "ZoneAwarePodDisruptionBudget"}
    assert not any(kind in unguarded for kind, _ in plain)


def test_without_a_namespace_below_it_does_not_render(tmp_path: Path) -> None:
    """Better no objects than ones with half of their names."""
    fields = {
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [str(BASE)],
        "components": [str(MANIFESTS / "components" / WEBHOOKS)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(fields))

    with pytest.raises(KustomizeError, match=r"metadata\.namespace is missing"):
        render(tmp_path)


def test_the_way_from_the_configuration_to_the_container(plain: Rendered) -> None:
    """SEED-081, DEPLOY-12, DEPLOY-13: 443 of the Service is 8443 of the pod, by name."""
    service = plain["Service", "rollout-operator"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in container_of(plain)["ports"]}
    served = {port["port"]: port["targetPort"] for port in service["ports"]}

    hooks = [key for key in plain if key[0] in {VALIDATING, MUTATING}]
    assert len(hooks) == 4
    for kind, name in ((kind, name.removesuffix(f"-{NAMESPACE}")) for kind, name in hooks):
        called = hook_of(plain, kind, name)["clientConfig"]["service"]
        assert ("Service", called["name"]) in plain
        assert ports[served[called["port"]]] == default("server-tls.port")
    assert ports == {"http-metrics": 8001, "https": 8443}
    assert "publishNotReadyAddresses" not in service


def test_the_certificate_is_for_the_name_that_is_called(plain: Rendered) -> None:
    """DEP-17: by default `rollout-operator.NAMESPACE.svc`, so the Service keeps that name."""
    called = hook_of(plain, VALIDATING, "no-downscale")["clientConfig"]["service"]

    assert default("server-tls.self-signed-cert.dns-name") == ""
    assert not [word for word in container_of(plain)["args"] if "dns-name" in word]
    assert f"{called['name']}.{called['namespace']}.svc" == f"rollout-operator.{NAMESPACE}.svc"


def test_the_role_is_what_webhooks_need(plain: Rendered) -> None:
    """SEED-100, SEED-108, RBAC-07, SEC-17, SEC-19: nothing is created but the own Secret.

    No other Secret can be read, and webhook configurations are never created or deleted.
    """
    secret = default("server-tls.self-signed-cert.secret-name")

    assert granted(plain["Role", "rollout-operator-webhooks"]) == {
        ("statefulsets", "patch", ""),
        ("secrets", "create", ""),
        ("secrets", "get", secret),
        ("secrets", "update", secret),
    }
    assert granted(plain["ClusterRole", f"rollout-operator-{NAMESPACE}-webhooks"]) == {
        (plural, verb, "")
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
        for verb in ("list", "watch", "patch")
    }
