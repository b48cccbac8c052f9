"""The two webhooks of disruption budgets as shipped: rendered, and what they bring to whom."""

import copy
import re
from pathlib import Path
from typing import Any, Final

import pytest

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL
from tests.rendered import (
    DEPLOYMENTS,
    NAMESPACE,
    VALIDATING,
    WEBHOOKS,
    Rendered,
    by_name,
    hook_of,
    install,
)

NAMES: Final = ("pod-eviction", "zpdb-validation")
RULES: Final[dict[str, dict[str, Any]]] = {
    "pod-eviction": {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "resources": ["pods/eviction"],
    },
    "zpdb-validation": {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": ["rollout-operator.grafana.com"],
        "resources": ["zoneawarepoddisruptionbudgets"],
    },
}


@pytest.fixture
def plain(tmp_path: Path) -> Rendered:
    return by_name(install(tmp_path, WEBHOOKS))


@pytest.mark.parametrize("name", NAMES)
def test_dep35_a_configuration_is_as_users_know_it(plain: Rendered, name: str) -> None:
    """DEP-35: names, path, rule, side effects, time-out and failure policy."""
    hook = copy.deepcopy(hook_of(plain, VALIDATING, name))
    del hook["matchConditions"]

    assert hook == {
        "name": f"{name}-{NAMESPACE}.grafana.com",
        "clientConfig": {
            "service": {
                "name": "rollout-operator",
                "namespace": NAMESPACE,
                "path": f"/admission/{name}",
                "port": 443,
            }
        },
        "rules": [{**RULES[name], "apiVersions": ["v1"], "scope": "Namespaced"}],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE]}
            ]
        },
        "failurePolicy": "Fail",
        # An eviction is recorded on its pod, and what is not used counts until this time is over.
        "sideEffects": "NoneOnDryRun" if name == "pod-eviction" else "None",
        "timeoutSeconds": 5 if name == "pod-eviction" else 10,
        "admissionReviewVersions": ["v1"],
    }


@pytest.mark.parametrize("name", NAMES)
def test_dep18_the_operator_writes_its_ca_into_it(plain: Rendered, name: str) -> None:
    labels = plain[VALIDATING, f"{name}-{NAMESPACE}"]["metadata"]["labels"]

    assert labels[INJECT_CA_LABEL] == "true"
    assert labels[NAMESPACE_LABEL] == NAMESPACE
    assert "caBundle" not in hook_of(plain, VALIDATING, name)["clientConfig"]


@pytest.mark.parametrize(
    ("pod", "is_own"),
    [
        ("rollout-operator-5d8f9c7b6-x7k2p", True),
        ("rollout-operator-645d8c7b99-22222", True),
        ("rollout-operator-x-10000", False),
        ("rollout-operator-x-22222", False),
        ("rollout-operator-5d8f9c7b6-10000", False),
        ("rollout-operator-payments-x7k2p", False),
        ("rollout-operator-5d8f9c7b6", False),
        ("rollout-operator-0", False),
        ("rollout-operator-zone-a-0", False),
        ("my-rollout-operator-5d8f9c7b6-x7k2p", False),
        ("ingester-zone-a-0", False),
    ],
)
def test_dep87_pods_of_the_operator_can_always_be_drained(
    plain: Rendered, pod: str, is_own: bool
) -> None:
    """Otherwise a node with the only replica could never be drained while it does not answer."""
    (condition,) = hook_of(plain, VALIDATING, "pod-eviction")["matchConditions"]

    (pattern,) = re.findall(r"^!request\.name\.matches\('([^']+)'\)$", condition["expression"])
    assert bool(re.search(pattern, pod)) == is_own
    assert ("Deployment", "rollout-operator") in plain


def test_no_selector_hides_a_pod_from_the_webhook(plain: Rendered) -> None:
    """An eviction carries no labels of its pod: a selector on objects would let all pass."""
    assert "objectSelector" not in hook_of(plain, VALIDATING, "pod-eviction")


def test_dep86_only_a_new_meaning_reaches_the_operator(plain: Rendered) -> None:
    """Each field is looked for before it is read: an error of a condition refuses the request."""
    (condition,) = hook_of(plain, VALIDATING, "zpdb-validation")["matchConditions"]
    terms = [term.strip() for term in condition["expression"].split("||")]

    assert terms == [
        "oldObject == null",
        "object == null",
        "!has(object.spec)",
        "!has(oldObject.spec)",
        "object.spec != oldObject.spec",
        "(has(object.metadata.annotations) ? object.metadata.annotations : {})"
        " != (has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {})",
    ]


def test_guarding_deployments_changes_neither(tmp_path: Path) -> None:
    """The component is about `no-downscale` alone."""
    plain = by_name(install(tmp_path / "plain", WEBHOOKS))
    more = by_name(install(tmp_path / "more", WEBHOOKS, DEPLOYMENTS))

    for name in NAMES:
        key = (VALIDATING, f"{name}-{NAMESPACE}")
        assert plain[key] == more[key]
