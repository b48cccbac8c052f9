"""The components for hardened clusters: what the network lets through, which clients may call."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from rollout_operator.config.checks import read_config
from tests.flows import End, Flow, passes
from tests.kustomize import KustomizeError
from tests.pages import example_of
from tests.rendered import (
    CERTIFICATES,
    NAMESPACE,
    NETWORK,
    NETWORK_PARAMETERS,
    REPLICAS,
    WEBHOOKS,
    Rendered,
    by_name,
    container_of,
    default,
    install,
)

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

PAGE: Final = "webhooks.md"
POLICY: Final = ("NetworkPolicy", "rollout-operator")
DEPLOYMENT: Final = ("Deployment", "rollout-operator")


ADDRESSES: Final = NETWORK_PARAMETERS["data"]
OPERATOR: Final = End(
    address="10.1.0.1", namespace=NAMESPACE, labels={"app.kubernetes.io/name": "rollout-operator"}
)
REPLICA: Final = End(address="10.1.0.2", namespace=NAMESPACE, labels=OPERATOR.labels)
LOOKALIKE: Final = End(address="10.1.0.3", namespace="other", labels=OPERATOR.labels)
INGESTER: Final = End(address="10.1.0.4", namespace=NAMESPACE, labels={"name": "ingester-zone-a"})
STRANGER: Final = End(address="10.1.0.5", namespace="other", labels={"name": "ingester-zone-a"})
PROMETHEUS: Final = End(address="10.1.0.6", namespace="monitoring")
DNS: Final = End(address="10.1.0.7", namespace="kube-system", labels={"k8s-app": "kube-dns"})
OF_SYSTEM: Final = End(address="10.1.0.8", namespace="kube-system", labels={"k8s-app": "other"})
CALLING: Final = End(address="192.0.2.1")
API_SERVER: Final = End(address="192.0.2.17")
NODE: Final = End(address="198.51.100.7")
INTERNET: Final = End(address="203.0.113.9")
METADATA: Final = End(address="169.254.169.254")

MUST_PASS: Final = {
    "the API server calls a webhook": Flow(source=CALLING, target=OPERATOR, port=8443),
    "a kubelet probes": Flow(source=NODE, target=OPERATOR, port=8001),
    "Prometheus scrapes": Flow(source=PROMETHEUS, target=OPERATOR, port=8001),
    "a replica passes a review on": Flow(source=REPLICA, target=OPERATOR, port=8444),
    "to the API server by its Service": Flow(source=OPERATOR, target=API_SERVER, port=443),
    "to the API server behind it": Flow(source=OPERATOR, target=API_SERVER, port=6443),
    "a name is looked up": Flow(source=OPERATOR, target=DNS, port=53, protocol="UDP"),
    "a long answer to that": Flow(source=OPERATOR, target=DNS, port=53),
    "a pod is called for its downscale": Flow(source=OPERATOR, target=INGESTER, port=3100),
    "other pods do as before": Flow(source=INGESTER, target=STRANGER, port=9095),
    "and are reached as before": Flow(source=STRANGER, target=INGESTER, port=9095),
}
MUST_NOT_PASS: Final = {
    "a pod of the namespace makes up a review": Flow(source=INGESTER, target=OPERATOR, port=8443),
    "a pod of another namespace does": Flow(source=STRANGER, target=OPERATOR, port=8443),
    "a node does": Flow(source=NODE, target=OPERATOR, port=8443),
    "the monitoring does": Flow(source=PROMETHEUS, target=OPERATOR, port=8443),
    "a replica does": Flow(source=REPLICA, target=OPERATOR, port=8443),
    "a pod of the namespace plays a replica": Flow(source=INGESTER, target=OPERATOR, port=8444),
    "a pod with its labels elsewhere does": Flow(source=LOOKALIKE, target=OPERATOR, port=8444),
    "the caller of webhooks does": Flow(source=CALLING, target=OPERATOR, port=8444),
    "a pod of the namespace reads the status": Flow(source=INGESTER, target=OPERATOR, port=8001),
    "the internet does": Flow(source=INTERNET, target=OPERATOR, port=8001),
    "to pods of other namespaces": Flow(source=OPERATOR, target=STRANGER, port=3100),
    "to operators of other namespaces": Flow(source=OPERATOR, target=LOOKALIKE, port=8444),
    "to the internet": Flow(source=OPERATOR, target=INTERNET, port=443),
    "to the credentials of the node": Flow(source=OPERATOR, target=METADATA, port=80),
    "to the kubelet beside the API server": Flow(source=OPERATOR, target=API_SERVER, port=10250),
    "to nodes": Flow(source=OPERATOR, target=NODE, port=10250),
    "to others of kube-system": Flow(source=OPERATOR, target=OF_SYSTEM, port=53, protocol="UDP"),
    "to DNS, for something else": Flow(source=OPERATOR, target=DNS, port=9153),
}


@pytest.fixture(scope="module")
def hardened(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    at = tmp_path_factory.mktemp("hardened")
    components = (WEBHOOKS, REPLICAS, CERTIFICATES, NETWORK)
    return by_name(install(at, *components, more=[NETWORK_PARAMETERS]))


@pytest.mark.parametrize("flow", MUST_PASS.values(), ids=MUST_PASS)
def test_what_the_operator_needs_passes(hardened: Rendered, flow: Flow) -> None:
    """DEP-92: and what other pods do is not concerned."""
    assert passes([hardened[POLICY]], flow)


@pytest.mark.parametrize("flow", MUST_NOT_PASS.values(), ids=MUST_NOT_PASS)
def test_nothing_else_passes(hardened: Rendered, flow: Flow) -> None:
    """SI-24: each of these gets through without the policy."""
    assert not passes([hardened[POLICY]], flow)
    assert passes([], flow)


def test_the_policy_knows_the_ports(hardened: Rendered, tmp_path: Path) -> None:
    """DEP-84: it adds itself and nothing else, in the operator's namespace."""
    policy = hardened[POLICY]
    served = {port["containerPort"] for port in container_of(hardened)["ports"]}
    ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}

    assert ports == served == {8001, default("server-tls.port"), default("server-tls.peer-port")}
    assert policy["metadata"]["namespace"] == NAMESPACE
    bare = by_name(install(tmp_path / "bare"))
    alone = by_name(install(tmp_path / "alone", NETWORK, more=[NETWORK_PARAMETERS]))
    assert alone == {**bare, POLICY: alone[POLICY]}


def test_without_addresses_it_does_not_render(tmp_path: Path) -> None:
    """Better no policy than one that cuts the API server off, or lets all in."""
    with pytest.raises(KustomizeError, match=r"by ConfigMap\S+/rollout-operator-network"):
        install(tmp_path / "none", NETWORK)
    for key in ADDRESSES:
        rest = {other: text for other, text in ADDRESSES.items() if other != key}
        with pytest.raises(KustomizeError, match=rf"data\.{key}` is missing"):
            install(tmp_path / key, NETWORK, more=[{**NETWORK_PARAMETERS, "data": rest}])


def test_sec03_only_a_client_with_a_certificate_is_served(
    hardened: Rendered, tmp_path: Path
) -> None:
    """SEC-03, SEC-20: the name as well, since the CA of a cluster signs for kubelets too."""
    container = container_of(hardened)
    config = read_config([word.replace("$(POD_NAMESPACE)", "a") for word in container["args"]])

    assert (config.client_ca_file, config.client_name) == (
        "/etc/rollout-operator/client-ca/ca.crt",
        "kube-apiserver",
    )
    (mount,) = container["volumeMounts"]
    (volume,) = hardened[DEPLOYMENT]["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": mount["name"], "configMap": {"name": "rollout-operator-client-ca"}}
    assert mount["readOnly"]
    assert config.client_ca_file == f"{mount['mountPath']}/ca.crt"
    command = example_of(PAGE, "kubectl create configmap")
    assert command.endswith(" rollout-operator-client-ca --from-file=ca.crt")
    before, after = (
        by_name(install(tmp_path / name, *components))
        for name, components in (("1", (WEBHOOKS,)), ("2", (WEBHOOKS, CERTIFICATES)))
    )
    assert {key for key in before if before[key] != after[key]} == {DEPLOYMENT}
    assert set(after) == set(before), "no right is added"


def test_the_page_shows_every_parameter() -> None:
    shown = yaml.safe_load(example_of(PAGE, "name: rollout-operator-network"))

    assert set(shown.pop("data")) == set(ADDRESSES)
    assert {**shown, "data": ADDRESSES} == NETWORK_PARAMETERS
