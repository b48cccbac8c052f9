"""What the network lets through where the component `network-policy` is listed."""

from typing import Final

import pytest

from tests.flows import End, Flow, passes
from tests.kustomize import Object
from tests.rendered import (
    NAMESPACE,
    NETWORK,
    NETWORK_PARAMETERS,
    REPLICAS,
    WEBHOOKS,
    by_name,
    install,
)
from tests.stories import check_tables

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

OWN: Final = {"app.kubernetes.io/name": "rollout-operator"}
ZONE: Final = {"name": "ingester-zone-a"}
ENDS: Final = {
    "operator": End(address="10.1.0.1", namespace=NAMESPACE, labels=OWN),
    "replica": End(address="10.1.0.2", namespace=NAMESPACE, labels=OWN),
    "lookalike": End(address="10.1.0.3", namespace="other", labels=OWN),
    "ingester": End(address="10.1.0.4", namespace=NAMESPACE, labels=ZONE),
    "stranger": End(address="10.1.0.5", namespace="other", labels=ZONE),
    "prometheus": End(address="10.1.0.6", namespace="monitoring"),
    "dns": End(address="10.1.0.7", namespace="kube-system", labels={"k8s-app": "kube-dns"}),
    "kube-system": End(address="10.1.0.8", namespace="kube-system", labels={"k8s-app": "other"}),
    # Two ranges of the API server: where it calls from, and where it is called.
    "api-calls": End(address="192.0.2.1"),
    "api-server": End(address="192.0.2.17"),
    "node": End(address="198.51.100.7"),
    "internet": End(address="203.0.113.9"),
    "metadata": End(address="169.254.169.254"),
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Object:
    at = tmp_path_factory.mktemp("hardened")
    objects = by_name(install(at, WEBHOOKS, REPLICAS, NETWORK, more=[NETWORK_PARAMETERS]))
    return objects["NetworkPolicy", "rollout-operator"]


def show(case: str, policy: Object) -> str:
    source, target, port = case.split()
    number, _, protocol = port.partition("/")
    flow = Flow(
        source=ENDS[source], target=ENDS[target], port=int(number), protocol=protocol or "TCP"
    )

    assert passes([], flow)
    return "passes" if passes([policy], flow) else "-"


test_a_flow = check_tables(__file__, network=show)
