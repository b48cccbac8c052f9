"""The webhook configurations of the operator, as its manifests register them.

Without their match conditions, which spare the operator reviews that it would allow anyhow.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL

SERVICE: Final = "rollout-operator"
TIMEOUT: Final = timedelta(seconds=10)
EVICTION_TIMEOUT: Final = timedelta(seconds=5)
_REPLICAS: Final[JsonObject] = {
    "operations": ["UPDATE"],
    "apiGroups": ["apps"],
    "resources": ["statefulsets", "statefulsets/scale"],
}
_EVICTIONS: Final[JsonObject] = {
    "operations": ["CREATE"],
    "apiGroups": [""],
    "resources": ["pods/eviction"],
}

_BUDGETS: Final[JsonObject] = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": ["rollout-operator.grafana.com"],
    "resources": ["zoneawarepoddisruptionbudgets"],
}


def no_downscale(namespace: str) -> JsonObject:
    """Return the configuration that reviews before fewer replicas are stored."""
    return _configuration("Validating", "no-downscale", namespace, _REPLICAS, TIMEOUT)


def prepare_downscale(namespace: str, timeout: timedelta = TIMEOUT) -> JsonObject:
    """Return the configuration by which pods are prepared before fewer replicas are stored."""
    return _configuration("Mutating", "prepare-downscale", namespace, _REPLICAS, timeout)


def pod_eviction(namespace: str) -> JsonObject:
    """Return the configuration that reviews before a pod is evicted."""
    return _configuration("Validating", "pod-eviction", namespace, _EVICTIONS, EVICTION_TIMEOUT)


def zpdb_validation(namespace: str, timeout: timedelta = TIMEOUT) -> JsonObject:
    """Return the configuration that reviews before a budget is stored."""
    return _configuration("Validating", "zpdb-validation", namespace, _BUDGETS, timeout)


REGISTRATIONS: Final[Mapping[str, Callable[[str], JsonObject]]] = {
    "no-downscale": no_downscale,
    "prepare-downscale": prepare_downscale,
    "pod-eviction": pod_eviction,
    "zpdb-validation": zpdb_validation,
}
"""All of them, by the last part of the path that is called."""


def _configuration(
    kind: str, hook: str, namespace: str, wanted: JsonObject, timeout: timedelta
) -> JsonObject:
    name = f"{hook}-{namespace}"
    service = {
        "name": SERVICE,
        "namespace": namespace,
        "path": f"/admission/{hook}",
        "port": 443,
    }
    rule = {**wanted, "apiVersions": ["v1"], "scope": "Namespaced"}
    here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    webhook = {
        "name": f"{name}.grafana.com",
        "clientConfig": {"service": service},
        "rules": [rule],
        "namespaceSelector": {"matchExpressions": [here]},
        "failurePolicy": "Fail",
        "sideEffects": "None" if kind == "Validating" else "NoneOnDryRun",
        "timeoutSeconds": round(timeout.total_seconds()),
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {
            "name": name,
            "labels": {INJECT_CA_LABEL: "true", NAMESPACE_LABEL: namespace},
        },
        "webhooks": [webhook],
    }
