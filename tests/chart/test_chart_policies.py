"""MultiAZRollouts in the chart: which namespaces, by which rights and with which environment."""

from typing import Any, Final

import pytest

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Environment, read_environment
from tests.chart.rendering import ChartError, Values, is_hook, render_all, render_chart
from tests.chart.test_chart_grafana_values import CONTAINER
from tests.rendered import NAMESPACE, get_field, granted

pytestmark = pytest.mark.controlplane

NAME: Final = "rollout-operator"
WIDE: Final = f"{NAME}-{NAMESPACE}-multi-az-rollouts"
NODES: Final = f"{NAME}-{NAMESPACE}-nodes"
OF_POLICIES: Final = {
    *(("multiazrollouts", verb, "") for verb in ("list", "watch", "get")),
    ("multiazrollouts/status", "patch", ""),
    ("statefulsets", "patch", ""),
}
# In the operator's own namespace only.
OWN: Final = {"leases", "secrets"}
KIND: Final = "multiazrollouts.rollout.grafana.com"


def policies(**values: Any) -> Values:
    return {"multiAZRollout": {"enabled": True, **values}}


def _read(objects: list[dict[str, Any]]) -> tuple[Environment, dict[str, int]]:
    """Return what the Deployment requests, and the ports that it names."""
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    env = get_field(deployment, f"{CONTAINER}.env")
    environment = read_environment({one["name"]: one.get("value", "") for one in env}, NAMESPACE)
    read_config(get_field(deployment, f"{CONTAINER}.args"), environment)
    ports = get_field(deployment, f"{CONTAINER}.ports")
    return environment, {one["name"]: one["containerPort"] for one in ports}


def _roles(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], set[tuple[str, str, str]]]:
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): granted(one)
        for one in objects
        if one["kind"] in ("Role", "ClusterRole")
    }


def test_maz_84_each_namespace_of_the_list_has_a_role() -> None:
    """MAZ-84: one that is the release's has the rest of its rights already."""
    objects = render_chart(policies(watchNamespaces=["loki", NAMESPACE], metricsPort=9090))
    roles = _roles(objects)
    own = roles["Role", NAMESPACE, NAME]

    assert roles["Role", NAMESPACE, WIDE] == OF_POLICIES
    there = {one for one in own if one[0] not in OWN}
    assert roles["Role", "loki", WIDE] == there | OF_POLICIES
    assert roles["ClusterRole", "", NODES] == {("nodes", "list", ""), ("nodes", "watch", "")}
    assert ("ClusterRole", "", WIDE) not in roles
    bound = [one for one in objects if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    for one in (each for each in bound if each["metadata"]["name"] in (WIDE, NODES)):
        assert one["roleRef"]["name"] == one["metadata"]["name"]
        assert one["subjects"][0] == {
            "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE
        }  # fmt: skip
    environment, ports = _read(objects)
    assert environment.watched == ("loki", NAMESPACE)
    assert (environment.metrics_port, environment.is_port_chosen) == (9090, True)
    assert ports["metrics"] == 9090


def test_maz_84_without_a_list_it_is_the_cluster() -> None:
    """MAZ-84: nodes are left out where they are not wanted."""
    objects = render_chart(policies(readNodes=False))
    roles = _roles(objects)

    assert roles["ClusterRole", "", WIDE] >= OF_POLICIES | {("pods", "delete", "")}
    assert not {one for one in roles["ClusterRole", "", WIDE] if one[0] in OWN}
    assert ("ClusterRole", "", NODES) not in roles
    environment, ports = _read(objects)
    assert (environment.watched, environment.metrics_port) == ((), 8080)
    assert (ports["metrics"], environment.is_port_chosen) == (8080, False)


def _selectors(**values: Any) -> list[Any]:
    objects = render_chart({**policies(watchNamespaces=["loki", NAMESPACE]), **values})
    found = [one["webhooks"][0].get("namespaceSelector") for one in objects if "webhooks" in one]
    assert len(found) == 4
    return [one for place, one in enumerate(found) if one not in found[:place]]


def test_maz_84_the_webhooks_cover_the_namespaces_of_the_list() -> None:
    """MAZ-84: labels and budgets hold there too; a selector of one's own is obeyed."""
    names = {
        "key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE, "loki"]
    }  # fmt: skip
    more = {"key": "team", "operator": "Exists"}
    own = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}

    assert _selectors() == [{"matchExpressions": [names]}]
    assert _selectors(namespaceSelector={"matchExpressions": [more]}) == [
        {"matchExpressions": [names, more]}
    ]
    assert _selectors(namespaceSelector={"matchLabels": {"a": "b"}}) == [
        {"matchLabels": {"a": "b"}}
    ]
    assert _selectors(namespaceSelector=None) == [None]
    assert _selectors(**policies(watchNamespaces=[NAMESPACE])) == [own]
    assert _selectors(**policies()) == [own]


def test_maz_84_the_port_of_the_server_is_no_second_one() -> None:
    assert "metrics" not in _read(render_chart(policies(metricsPort=8001)))[1]


def test_maz_84_switched_off_nothing_of_it_is_rendered() -> None:
    """MAZ-84: nor is the definition of the kind upgraded."""
    off = render_all({"multiAZRollout": {"watchNamespaces": ["loki"], "metricsPort": 9090}})

    assert off == render_all({})
    named = [one for one in off if "multiaz" in str(one)]
    assert [one["kind"] for one in named] == ["Role"]
    assert {one for one in granted(named[0]) if "multiaz" in one[0]} == {
        ("multiazrollouts", "list", "")
    }
    crds = [one for one in render_all(policies()) if is_hook(one) and one["kind"] == "ConfigMap"]
    assert ["multiazrollouts.yaml" in one["data"] for one in crds] == [True]
    rights = _roles(render_all(policies())).values()
    assert [one for grants in rights for one in grants if KIND in one] == [
        ("customresourcedefinitions", "patch", KIND)
    ]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (policies(watchNamespaces=["Bad_Name"]), "watchNamespaces"),
        (policies(watchNamespaces=["a", "a"]), "watchNamespaces"),
        (policies(metricsPort=80), "metricsPort"),
        (policies(metricsPort=8444), "metricsPort"),
        (policies(metricsPort=8443), "webhooks.port"),
        ({**policies(), "webhooks": {"port": 8080}}, "webhooks.port"),
        (policies(namespaces=["a"]), "namespaces"),
    ],
)
def test_maz_84_what_cannot_work_is_refused(values: Values, error: str) -> None:
    """MT-67, MT-70: before anything is installed."""
    with pytest.raises(ChartError, match=error):
        render_chart(values)
