"""The chart and manifests/ describe one installation: what both make is the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from rollout_operator.config.checks import read_config
from tests.chart.rendering import Values, render_chart
from tests.rendered import (
    CERTIFICATES,
    DEPLOYMENTS,
    LEAST,
    MIRRORING,
    MONITORING,
    NAMESPACE,
    NETWORK,
    NETWORK_PARAMETERS,
    PRIORITY,
    REPLICAS,
    SCALING,
    TRACKER,
    WEBHOOKS,
    by_name,
    container_of,
    granted,
    install,
)
from tests.world.manifests import SECRET

pytestmark = pytest.mark.controlplane

# Of the chart alone: which release and which chart an object is of.
CHARTS_LABELS: Final = {
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
}
CHARTS_CONDITION: Final = "not-of-this-release"
PARAMETERS: Final = NETWORK_PARAMETERS["data"]
BARE: Final[Values] = {
    "webhooks": {"enabled": False},
    "scaling": {"enabled": False},
    "mirroring": {"enabled": False},
}
EVERYTHING: Final[Values] = {
    "replicas": 2,
    "priorityClassName": "system-cluster-critical",
    "zoneTracker": {"enabled": True},
    "webhooks": {
        "selfSignedCertSecretName": SECRET,
        "noDownscale": {"deployments": True},
        "clientCertificates": {"enabled": True},
    },
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "releases": {"enabled": True, "clusterSchedules": True},
    "healthChecks": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "fromApiServer": [PARAMETERS["from-api-server"]],
        "toApiServer": [PARAMETERS["to-api-server"]],
        "nodes": [PARAMETERS["nodes"]],
    },
}
ALL: Final = (
    *(WEBHOOKS, LEAST, DEPLOYMENTS, TRACKER, SCALING, MIRRORING, MONITORING, REPLICAS, PRIORITY),
    *(NETWORK, CERTIFICATES, "releases", "releases-registries", "releases-inventory"),
    *("releases-cluster", "health-checks", "health-checks-webhook"),
)
PLAIN: Final[Values] = {"webhooks": {"selfSignedCertSecretName": SECRET, "leastPrivilege": False}}
SETUPS: Final = {
    "the base": ((), BARE),
    "webhooks as they are": ((WEBHOOKS, SCALING, MIRRORING), PLAIN),
    "each component": (ALL, EVERYTHING),
}


@pytest.mark.parametrize(("components", "values"), SETUPS.values(), ids=SETUPS)
def test_dep84_the_chart_renders_what_manifests_say(
    tmp_path: Path, components: tuple[str, ...], values: Values
) -> None:
    """DEP-84, D-74: rights, webhooks, Deployment and all else, for the same choices.

    RELB-28: what a component is for has a value of its own.
    """
    wanted = install(tmp_path, *components, more=[NETWORK_PARAMETERS])
    made = render_chart(values)
    assert _rights(made) == _rights(wanted)
    assert _by_name(made) == _by_name(wanted)


def _rights(objects: list[dict[str, Any]]) -> set[tuple[str, str, str, str, str]]:
    """Return what is granted in the namespace and in the cluster, over all roles."""
    return {
        (one["kind"], group, *grant)
        for one in objects
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for grant in granted({"rules": [rule]})
    }


def _by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return what is compared of each object but roles, which manifests/ has in parts."""
    found = by_name([one for one in objects if not one["kind"].startswith(("Role", "ClusterRole"))])
    container = container_of(found)
    words = [word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in container["args"]]
    # What arguments mean: some are a default, or a name that is put together.
    config = read_config(words)
    container["args"] = replace(config, dns_name=config.service_name)
    for one in found.values():
        for webhook in one.get("webhooks", ()):
            _align(webhook)
    return {key: _strip(one) for key, one in found.items()}


def _align(webhook: dict[str, Any]) -> None:
    """Write a webhook of the chart as manifests/ do: the same in other words."""
    webhook.pop("matchPolicy", None)  # that of the API server's default
    labels = webhook["namespaceSelector"].pop("matchLabels", {})
    for key, value in labels.items():
        expression = {"key": key, "operator": "In", "values": [value]}
        webhook["namespaceSelector"].setdefault("matchExpressions", []).append(expression)
    webhook["matchConditions"] = [
        each for each in webhook["matchConditions"] if each["name"] != CHARTS_CONDITION
    ]


def _strip(value: Any) -> Any:
    match value:
        case dict():
            return {key: _strip(inner) for key, inner in value.items() if key not in CHARTS_LABELS}
        case list():
            return [_strip(inner) for inner in value]
        case _:
            return value


def test_dep48_no_two_releases_share_a_name_of_the_cluster() -> None:
    """DEP-48: what belongs to no namespace has the namespace in its name."""
    values = {"rbac": {"aggregateToDefaultRoles": True}}
    first, second = (
        {key for key, one in by_name(render_chart(values, namespace=namespace)).items()
         if "namespace" not in one["metadata"]}
        for namespace in ("one", "two")
    )  # fmt: skip
    assert first
    assert second
    assert not first & second
