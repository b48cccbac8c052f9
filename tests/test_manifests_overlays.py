"""The overlays as shipped: what they add to one another, and how few rights they take."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.kustomize import Object, render
from tests.rendered import (
    LEAST,
    MANIFESTS,
    NAMESPACE,
    WEBHOOKS,
    by_name,
    container_of,
    granted,
    install,
)

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

OVERLAYS: Final = MANIFESTS / "overlays"
DEPLOYMENT: Final = ("Deployment", "rollout-operator")
BUDGET: Final = ("PodDisruptionBudget", "rollout-operator")


def test_ha_is_the_overlay_with_webhooks_and_a_second_operator() -> None:
    """DEP-84, D-74."""
    one, two = (by_name(render(OVERLAYS / name)) for name in ("with-webhooks", "ha"))

    assert set(two) - set(one) == {BUDGET}
    assert {key for key in one if one[key] != two[key]} == {DEPLOYMENT}
    assert container_of(one) == container_of(two)
    spec = two[DEPLOYMENT]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    assert two[BUDGET]["metadata"]["namespace"] == "rollouts"


def test_one_file_is_the_kinds_and_the_overlay_with_webhooks() -> None:
    """DEP-84: nothing else, and nothing of it twice."""
    one = by_name(render(OVERLAYS / "install"))
    kinds, rest = by_name(render(MANIFESTS / "crds")), by_name(render(OVERLAYS / "with-webhooks"))

    assert one == {**kinds, **rest}
    assert len(one) == len(kinds) + len(rest)


def test_one_file_is_moved_to_another_namespace_by_one_word(tmp_path: Path) -> None:
    """D-78: the word stands for the namespace and nothing else; docs/install.md relies on it.

    But for the end of the name of a kind.
    """
    shipped = yaml.safe_dump_all(render(OVERLAYS / "install"))
    text = shipped.replace("rollouts", NAMESPACE).replace(f"multiaz{NAMESPACE}", "multiazrollouts")
    moved = by_name(list(yaml.safe_load_all(text)))
    kinds, rest = render(MANIFESTS / "crds"), install(tmp_path / "it", WEBHOOKS, LEAST)

    assert moved == by_name([*kinds, *rest])


def test_d74_overlays_have_the_least_rights() -> None:
    """SEC-18, D-74: what they may in the whole cluster, they may to named objects only."""
    roles = {each.name: _list_roles(each) for each in _list_overlays()}

    wide = {name: [one for one in roles[name] if one["kind"] == "ClusterRole"] for name in roles}
    assert {name for name in wide if wide[name]} == {"ha", "install", "with-webhooks"}
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
