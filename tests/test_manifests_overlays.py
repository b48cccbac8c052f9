"""The overlays as shipped: what they add to one another, and how few rights they take."""

from pathlib import Path
from typing import Final

import yaml

from tests.kustomize import Object, render
from tests.rendered import MANIFESTS, by_name, container_of, granted

OVERLAYS: Final = MANIFESTS / "overlays"
DEPLOYMENT: Final = ("Deployment", "rollout-operator")
BUDGET: Final = ("PodDisruptionBudget", "rollout-operator")


def test_ha_is_the_overlay_with_webhooks_and_a_second_operator() -> None:
    """DEP-84, D-74: the namespace stands in three files, and must be the same in all of them."""
    names = ("namespace-install", "with-webhooks", "ha")
    one, two = (by_name(render(OVERLAYS / name)) for name in names[1:])

    assert set(two) - set(one) == {BUDGET}
    assert {key for key in one if one[key] != two[key]} == {DEPLOYMENT}
    assert container_of(one) == container_of(two)
    spec = two[DEPLOYMENT]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    spaces = {
        yaml.safe_load((OVERLAYS / name / "kustomization.yaml").read_text())["namespace"]
        for name in names
    }
    assert spaces == {two[BUDGET]["metadata"]["namespace"]}


def test_d74_overlays_have_the_least_rights() -> None:
    """SEC-18, D-74: what they may in the whole cluster, they may to named objects only."""
    roles = {each.name: _list_roles(each) for each in _list_overlays()}

    wide = {name: [one for one in roles[name] if one["kind"] == "ClusterRole"] for name in roles}
    assert {name for name in wide if wide[name]} == {"ha", "with-webhooks"}
    for name, found in wide.items():
        assert all(rule["resourceNames"] for role in found for rule in role["rules"]), name


def test_sec19_no_overlay_lets_secrets_be_created() -> None:
    """SEC-19, RBAC-07: the only one is shipped."""
    for overlay in _list_overlays():
        for role in _list_roles(overlay):
            assert ("secrets", "create", "") not in granted(role), overlay.name


def _list_overlays() -> list[Path]:
    return [path.parent for path in OVERLAYS.glob("*/kustomization.yaml")]


def _list_roles(folder: Path) -> list[Object]:
    return [one for one in render(folder) if one["kind"] in {"Role", "ClusterRole"}]
