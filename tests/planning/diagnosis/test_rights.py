"""The rights that are checked are those of the shipped Roles."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.model.diagnosis import OperatorDeployment, Right
from rollout_operator.planning.rights import list_rights
from rollout_operator.releases.planning.flux import JUDGED
from tests.kustomize import Object
from tests.rendered import (
    LEAST,
    MIRRORING,
    NAMESPACE,
    NODE_LABELS,
    POLICIES,
    SCALING,
    TRACKER,
    WEBHOOKS,
    install,
)

TLS: Final = "-server-tls.enabled=true"
HOOKS: Final = ("no-downscale", "prepare-downscale", "pod-eviction", "zpdb-validation")
NAMED: Final = f"-webhooks.ca-bundle-names={','.join(f'{hook}-$(POD_NAMESPACE)' for hook in HOOKS)}"

RELEASES: Final = ("releases", "releases-cluster", "releases-registries")
EVERYTHING: Final = frozenset({NODE_LABELS, *RELEASES[1:]})
HEALTH_CHECKS: Final = "health-checks"
# Of use where a health check names it, which is not looked at.
CREDENTIALS: Final = ("get", "", "secrets", "rollout-health-check")
INVENTORY: Final = frozenset({"releases-inventory"})

Granted = set[tuple[str, str, str, str]]


def _list(arguments: Sequence[str], needs: frozenset[str] = frozenset()) -> Sequence[Right]:
    operator = OperatorDeployment(name="o", account="o", arguments=tuple(arguments))
    return list_rights(operator, NAMESPACE, needs)


def _requested(rights: Sequence[Right]) -> Granted:
    return {(one.verb, one.group, one.resource, one.name) for one in rights}


def _shipped(objects: Sequence[Object]) -> Granted:
    return {
        (verb, group, resource, name)
        for one in objects
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.controlplane  # for kubectl, which is built like it
@pytest.mark.parametrize(
    ("components", "arguments"),
    [
        ((), ()),
        ((WEBHOOKS,), (TLS,)),
        ((WEBHOOKS, TRACKER), (TLS, "-use-zone-tracker")),
        ((WEBHOOKS, LEAST), (TLS, NAMED)),
        ((POLICIES, NODE_LABELS), ("-multi-az-rollouts.enabled",)),
        ((SCALING, MIRRORING), ()),
        ((HEALTH_CHECKS,), ()),
        (RELEASES, ("-releases.enabled",)),
        (RELEASES[:2], ("-releases.enabled", "-releases.metadata=none")),
    ],
)
def test_they_are_those_of_the_manifests(
    components: Sequence[str], arguments: Sequence[str], tmp_path: Path
) -> None:
    shipped = _shipped(install(tmp_path / "x", *components))

    needs = EVERYTHING | ({*components} & {SCALING, MIRRORING, HEALTH_CHECKS})
    assert _requested(_list(arguments, needs)) == shipped - {CREDENTIALS}


@pytest.mark.controlplane  # for kubectl, which is built like it
def test_what_is_checked_of_an_inventory_is_what_bakes_wait_for(tmp_path: Path) -> None:
    """RELB-28: by name of the shipped role, and only where a HealthCheck looks there."""
    arguments = ("-releases.enabled",)
    without = _list(arguments)
    more = [one for one in _list(arguments, INVENTORY) if one not in without]

    assert _requested(more) <= _shipped(install(tmp_path / "x", "releases-inventory"))
    assert not any(one.is_namespaced for one in more)
    own = {("kustomize.toolkit.fluxcd.io", "kustomizations")}
    plurals = {(group, f"{kind.lower()}s") for group, kind in JUDGED} | own
    assert {(one.group, one.resource) for one in more} == plurals


def test_flags_name_the_objects_and_leave_rights_out() -> None:
    arguments = (
        TLS,
        "-leader-election.lease-name=other",
        "-server-tls.self-signed-cert.secret-name",
        "mine",
        "-webhooks.update-ca-bundle=false",
    )
    requested = _requested(_list(arguments))

    assert ("get", "", "secrets", "mine") in requested
    assert ("patch", "coordination.k8s.io", "leases", "other") in requested
    assert {verb for verb, group, *_ in requested if group.startswith("admission")} == {
        "list",
        "watch",
    }
    alone = _requested(_list(("-leader-election.enabled=false",)))
    assert not any(resource == "leases" for _, _, resource, _ in alone)
