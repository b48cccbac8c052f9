"""All webhook components together, and what the optional ones add."""

import copy
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from rollout_operator.config.checks import read_config
from tests.kustomize import KustomizeError, render
from tests.rendered import (
    BASE,
    DEPLOYMENTS,
    LEAST,
    MANIFESTS,
    MUTATING,
    NAMESPACE,
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

COMPONENTS: Final = sorted(
    path.parent for path in MANIFESTS.glob("components/*/kustomization.yaml")
)


@pytest.fixture
def everything(tmp_path: Path) -> Rendered:
    return by_name(install(tmp_path, WEBHOOKS, LEAST, DEPLOYMENTS, TRACKER))


@pytest.mark.parametrize("folder", COMPONENTS, ids=lambda folder: folder.name)
def test_a_component_is_one_and_lists_every_file_beside_it(folder: Path) -> None:
    """DEP-84."""
    read = yaml.safe_load((folder / "kustomization.yaml").read_text())

    assert (read["apiVersion"], read["kind"]) == ("kustomize.config.k8s.io/v1alpha1", "Component")
    assert set(read.get("resources", ())) == {path.name for path in folder.glob("*.yaml")} - {
        "kustomization.yaml"
    }


def test_the_operator_understands_its_arguments(everything: Rendered) -> None:
    """DEPLOY-11."""
    words = [
        word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in container_of(everything)["args"]
    ]

    assert words[:2] == [f"-kubernetes.namespace={NAMESPACE}", "-server-tls.enabled=true"]
    assert read_config(words).namespace == NAMESPACE


def test_the_pod_is_as_restricted_as_before(everything: Rendered) -> None:
    """SEC-20: the component adds arguments and a port, nothing else."""
    (before,) = (one for one in render(BASE) if one["kind"] == "Deployment")
    after = copy.deepcopy(everything["Deployment", "rollout-operator"])
    (was,) = before["spec"]["template"]["spec"]["containers"]
    now = after["spec"]["template"]["spec"]["containers"][0]

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

    assert bound == {key for key in everything if key[0].endswith("Role")}
    assert all(key[0].removesuffix("Role") in {"", "Cluster"} for key in bound)


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

    Each name for both kinds, since the flag names no kind: nothing that is asked for is forbidden.
    """
    shipped = {key for key in everything if key[0] in {VALIDATING, MUTATING}}
    rights = granted(everything["ClusterRole", f"rollout-operator-{NAMESPACE}-webhooks"])

    assert rights == {
        (f"{kind.lower()}s", verb, name)
        for kind in (VALIDATING, MUTATING)
        for _, name in shipped
        for verb in ("list", "watch", "patch")
    }
    (flag,) = (word for word in container_of(everything)["args"] if "ca-bundle-names" in word)
    names = flag.replace("$(POD_NAMESPACE)", NAMESPACE).partition("=")[2].split(",")
    assert set(names) == {name for _, name in shipped}


@pytest.mark.parametrize("components", [(TRACKER,), (WEBHOOKS, TRACKER), (TRACKER, WEBHOOKS)])
def test_the_zone_tracker_is_an_option(tmp_path: Path, components: tuple[str, ...]) -> None:
    """DEP-34, DEP-84, RBAC-05: with and without webhooks; no more than the one ConfigMap."""
    objects = by_name(install(tmp_path, *components))

    name = default("zone-tracker.config-map-name")
    assert granted(objects["Role", "rollout-operator-zone-tracker"]) == {
        ("configmaps", "create", ""),
        ("configmaps", "get", name),
        ("configmaps", "patch", name),
    }
    words = [word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in container_of(objects)["args"]]
    config = read_config(words)
    assert config.zone_tracker == name
    assert (config.webhooks_enabled) == (WEBHOOKS in components)


@pytest.mark.parametrize("components", [(SCALING,), (WEBHOOKS, SCALING), (SCALING, TRACKER)])
def test_writing_counts_is_an_option(tmp_path: Path, components: tuple[str, ...]) -> None:
    """SEC-19, DEP-84: who only rolls out cannot change a StatefulSet."""
    objects = by_name(install(tmp_path, *components))

    assert granted(objects["Role", "rollout-operator-scaling"]) == {("statefulsets", "patch", "")}
    assert ("statefulsets", "patch", "") not in granted(objects["Role", "rollout-operator"])
    (account,) = objects["RoleBinding", "rollout-operator-scaling"]["subjects"]
    assert account == {"kind": "ServiceAccount", "name": "rollout-operator", **account}


def test_least_privilege_needs_the_webhooks(tmp_path: Path) -> None:
    with pytest.raises(KustomizeError, match="0 sources ConfigMap"):
        install(tmp_path, LEAST)


def test_deployments_are_an_option(everything: Rendered) -> None:
    """SEED-082, SEED-083, SEED-085, RBAC-09: with the right to read them; never prepared."""
    hook = hook_of(everything, VALIDATING, "no-downscale")

    assert [rule["resources"] for rule in hook["rules"]] == [
        ["statefulsets", "statefulsets/scale"],
        ["deployments", "deployments/scale", "replicasets", "replicasets/scale"],
    ]
    first, second = hook["rules"]
    assert {**second, "resources": first["resources"]} == first
    assert len(hook_of(everything, MUTATING, "prepare-downscale")["rules"]) == 1
    assert granted(everything["Role", "rollout-operator-deployments"]) == {
        ("deployments", "get", ""),
        ("replicasets", "get", ""),
    }


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
    assert "matches(" not in own, "what the server makes of it is asked in tests/system"
    assert ("Deployment", "rollout-operator") in everything
    assert "deployment-controller'" in conditions["not-the-deployment-controller"]
