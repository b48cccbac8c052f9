"""What is shipped for MultiAZRollouts: rights, the page's own Deployment, and its sample."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import read_environment
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.custom import decode_policy
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.model.policy import Policy
from tests.kustomize import render
from tests.rendered import (
    BASE,
    MANIFESTS,
    NAMESPACE,
    NODE_LABELS,
    POLICIES,
    WEBHOOKS,
    by_name,
    container_of,
    get_field,
    granted,
    install,
)

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

FOLDER: Final = MANIFESTS / "multi-az-rollouts"
NAME: Final = "rollout-operator"
OWN: Final = "grafana-rollout-operator"
SPEC: Final = "spec.template.spec"
CONTAINER: Final = f"{SPEC}.containers.0"
FIELDS: Final[dict[str, Any]] = {
    "metadata.name": NAME,
    "metadata.namespace": OWN,
    "metadata.labels": {"app": NAME},
    "spec.replicas": 1,
    "spec.selector.matchLabels": {"app": NAME},
    f"{SPEC}.serviceAccountName": NAME,
    f"{CONTAINER}.name": "operator",
    f"{CONTAINER}.command": None,
    f"{CONTAINER}.args": None,
    f"{CONTAINER}.resources": {
        "limits": {"cpu": "500m", "memory": "512Mi"},
        "requests": {"cpu": "200m", "memory": "256Mi"},
    },
    f"{CONTAINER}.env": [
        {"name": "WATCH_NAMESPACE", "value": ""},
        {"name": "LOG_LEVEL", "value": "info"},
        {"name": "OPERATOR_NAME", "value": NAME},
    ],
}


def test_maz_83_the_deployment_is_that_of_the_page() -> None:
    """MAZ-83, MAZ-P13: in a namespace of its own, with an environment and no arguments."""
    found = by_name(render(FOLDER))["Deployment", NAME]

    assert {path: get_field(found, path) for path in FIELDS} == FIELDS


def test_maz_83_it_starts_with_nothing_but_its_environment() -> None:
    """MAZ-83: all namespaces, and the port that the Deployment names."""
    container = container_of(by_name(render(FOLDER)))
    found = read_environment({one["name"]: one["value"] for one in container["env"]}, OWN)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}

    config = read_config([], found)
    assert (config.server_port, config.extra_port) == tuple(ports.values())
    assert (found.watched, found.own_namespace, found.warnings) == ((), OWN, ())


def test_the_service_of_the_status_page_finds_the_deployment() -> None:
    """`status` of another namespace calls the operator through it."""
    objects = by_name(render(FOLDER))
    service, deployment = objects["Service", NAME], objects["Deployment", NAME]
    (port,) = service["spec"]["ports"]

    assert service["metadata"]["namespace"] == OWN
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    ports = {one["containerPort"] for one in container_of(objects)["ports"]}
    assert port["targetPort"] == port["port"] == 8001
    assert 8001 in ports
    # A Deployment such as that of the page names no ports, and asks for no token.
    assert objects["ServiceAccount", NAME]["automountServiceAccountToken"] is True


def test_maz_83_security_and_probes_are_those_of_the_base() -> None:
    page, base = by_name(render(FOLDER)), by_name(render(BASE))
    one, other = container_of(page), container_of(base)

    for key in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "image"):
        assert one[key] == other[key]
    pods = [objects["Deployment", NAME]["spec"]["template"]["spec"] for objects in (page, base)]
    assert pods[0]["securityContext"] == pods[1]["securityContext"]


def test_maz_84_it_may_what_base_and_component_may_and_read_nodes(tmp_path: Path) -> None:
    """MAZ-84: everywhere, but for the Lease, which is its own."""
    page, parts = by_name(render(FOLDER)), by_name(install(tmp_path, POLICIES, NODE_LABELS))
    base = granted(parts["Role", NAME]) | granted(parts["Role", f"{NAME}-{POLICIES}"])
    own = {one for one in base if one[0] == "leases"}

    assert granted(page["Role", NAME]) == own
    assert granted(page["ClusterRole", NAME]) == base - own
    nodes = parts["ClusterRole", f"{NAME}-{NAMESPACE}-nodes"]
    assert granted(page["ClusterRole", f"{NAME}-nodes"]) == granted(nodes)
    assert granted(nodes) == {("nodes", "list", ""), ("nodes", "watch", "")}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": OWN}
    for (kind, name), one in page.items():
        if kind.endswith("Binding"):
            assert one["subjects"] == [subject]
            assert (one["roleRef"]["kind"], name) == (kind.removesuffix("Binding"), name)


@pytest.mark.parametrize("others", [(), (WEBHOOKS,)])
def test_maz_84_the_components_enable_it_in_the_own_namespace(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    objects = by_name(install(tmp_path, *others, POLICIES, NODE_LABELS))
    container = container_of(objects)
    wide = f"{NAME}-{NAMESPACE}-nodes"

    assert container["args"][-1] == "-multi-az-rollouts.enabled=true"
    binding = objects["ClusterRoleBinding", wide]
    assert binding["roleRef"]["name"] == wide
    assert binding["subjects"][0]["namespace"] == NAMESPACE


def test_maz_83_the_sample_is_three_zones_in_the_order_of_the_page() -> None:
    """MT-20: one pod at a time, half a minute between, three StatefulSets by a label."""
    policy, *sets = _read_sample()

    assert isinstance(policy, Policy)
    assert policy.zone_order == ("us-west-2a", "us-west-2b", "us-west-2c")
    assert (policy.max_unavailable.of(3), policy.interval.total_seconds()) == (1, 30)
    assert [one.replicas for one in sets] == [3, 3, 3]
    assert {one.strategy for one in sets} == {"OnDelete"}
    assert [policy.selector.may_take(one.labels) for one in sets] == [True] * 3
    assert [one.node_selector[TOPOLOGY_KEYS[0]] for one in sets] == [*policy.zone_order]


def _read_sample() -> list[Any]:
    """Return what is decoded of the sample, but for its Service."""
    decoders: dict[str, Any] = {"MultiAZRollout": decode_policy, "StatefulSet": decode_adoptable}
    head = {"namespace": "prod", "uid": "u1", "resourceVersion": "1"}
    found = []
    for one in yaml.safe_load_all((FOLDER / "sample.yaml").read_text()):
        if decode := decoders.get(one["kind"]):
            one["metadata"] |= head
            found.append(decode(msgspec.json.encode(one)))
    return found
