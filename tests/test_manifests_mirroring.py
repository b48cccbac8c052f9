"""The kind ReplicaTemplate and the component that lets the operator read it."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kustomize import render
from tests.rendered import (
    MANIFESTS,
    NAMESPACE,
    WEBHOOKS,
    Rendered,
    by_name,
    granted,
    install,
)

MIRRORING: Final = "mirroring"
CRDS: Final = MANIFESTS / "crds"
NAME: Final = "replicatemplates.rollout-operator.grafana.com"
GROUP: Final = "rollout-operator.grafana.com"


@pytest.fixture
def mirroring(tmp_path: Path) -> Rendered:
    return by_name(install(tmp_path, MIRRORING))


def crd() -> dict[str, Any]:
    (found,) = [one for one in render(CRDS) if one["metadata"]["name"] == NAME]
    return found


def version() -> dict[str, Any]:
    (only,) = crd()["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def test_deploy_40_the_kind() -> None:
    """DEPLOY-40."""
    spec = crd()["spec"]
    assert (crd()["kind"], crd()["metadata"]["name"]) == ("CustomResourceDefinition", NAME)
    assert (spec["group"], spec["scope"]) == (GROUP, "Namespaced")
    assert spec["names"]["kind"] == "ReplicaTemplate"
    assert spec["names"]["plural"] == "replicatemplates"
    assert spec["names"]["categories"] == ["all"]
    assert (version()["name"], version()["served"], version()["storage"]) == ("v1", True, True)


def test_deploy_40_its_fields() -> None:
    fields = version()["schema"]["openAPIV3Schema"]["properties"]
    shapes = {
        part: {
            name: {key: value for key, value in field.items() if key != "description"}
            for name, field in fields[part]["properties"].items()
        }
        for part in ("spec", "status")
    }
    assert shapes == {
        "spec": {
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
            "labelSelector": {"type": "string"},
        },
        "status": {"replicas": {"type": "integer"}},
    }


def test_deploy_40_its_subresources_and_columns() -> None:
    assert version()["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".spec.labelSelector",
        },
    }
    columns = {one["name"]: one["jsonPath"] for one in version()["additionalPrinterColumns"]}
    assert columns == {"StatusReplicas": ".status.replicas", "SpecReplicas": ".spec.replicas"}


def test_the_folder_of_kinds_lists_every_file_beside_it() -> None:
    read = yaml.safe_load((CRDS / "kustomization.yaml").read_text())
    files = {path.name for path in CRDS.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(read["resources"]) == files


def test_a_kind_is_in_no_namespace(tmp_path: Path) -> None:
    inner = {"kind": "Kustomization", "namespace": "prod", "resources": [str(CRDS)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(inner))
    for kind in render(tmp_path):
        assert "namespace" not in kind["metadata"]


def test_rbac_06_what_is_granted(mirroring: Rendered) -> None:
    """The watch is ours, and optional: RBAC-10."""
    rights = granted(mirroring["Role", "rollout-operator-mirroring"])
    assert rights == {
        ("replicatemplates/scale", "get", ""),
        ("replicatemplates/status", "patch", ""),
        ("replicatemplates", "list", ""),
        ("replicatemplates", "watch", ""),
    }
    groups = {
        group
        for rule in mirroring["Role", "rollout-operator-mirroring"]["rules"]
        for group in rule["apiGroups"]
    }
    assert groups == {GROUP}


def test_the_role_is_bound_in_the_operator_s_namespace(mirroring: Rendered) -> None:
    binding = mirroring["RoleBinding", "rollout-operator-mirroring"]
    assert binding["roleRef"]["name"] == "rollout-operator-mirroring"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "rollout-operator", "namespace": NAMESPACE}
    ]
    for kind in ("Role", "RoleBinding"):
        metadata = mirroring[kind, "rollout-operator-mirroring"]["metadata"]
        assert metadata["namespace"] == NAMESPACE
        assert metadata["labels"]["app.kubernetes.io/component"] == MIRRORING


@pytest.mark.parametrize("order", [(WEBHOOKS, MIRRORING), (MIRRORING, WEBHOOKS)])
def test_it_goes_with_the_webhooks_in_either_order(tmp_path: Path, order: tuple[str, str]) -> None:
    alone = by_name(install(tmp_path / "alone", MIRRORING))
    hooked = by_name(install(tmp_path / "hooked", WEBHOOKS))
    both = by_name(install(tmp_path / "both", *order))
    assert both == {**alone, **hooked}
