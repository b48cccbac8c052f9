"""A stand-in for grafana's chart: objects of the names, labels, words and rights that its has.

Only what a change to our chart can stumble over is here, written from its interface.
"""

from pathlib import Path
from typing import Any, Final

import yaml

NAMESPACE: Final = "{{ .Release.Namespace }}"
NAME: Final = "{{ .Release.Name }}"
SELECTOR: Final = {
    "app.kubernetes.io/name": "rollout-operator",
    "app.kubernetes.io/instance": NAME,
}
LABELS: Final = {
    "helm.sh/chart": "rollout-operator-0.52.0",
    **SELECTOR,
    "app.kubernetes.io/version": "v0.40.0",
    "app.kubernetes.io/managed-by": "{{ .Release.Service }}",
}
# Until 0.51 with `patch`.
PODS: Final = "list get watch delete"
PODS_051: Final = f"{PODS} patch"
_RBAC: Final = "rbac.authorization.k8s.io"
_ZONES: Final = "rollout-operator.grafana.com"
_SETS: Final = ("statefulsets", "statefulsets/scale")
# Name, rule and side effects of each webhook.
_WEBHOOKS: Final[tuple[tuple[str, str, str, tuple[str, ...], str], ...]] = (
    ("no-downscale", "UPDATE", "apps", _SETS, "None"),
    ("prepare-downscale", "UPDATE", "apps", _SETS, "NoneOnDryRun"),
    ("pod-eviction", "CREATE", "", ("pods/eviction",), "None"),
    ("zpdb-validation", "CREATE", _ZONES, ("zoneawarepoddisruptionbudgets",), "None"),
)

Template = dict[str, Any]


def write_chart(folder: Path, pods: str = PODS) -> Path:
    """Write the chart into a folder and return it; `pods` are the verbs of its Role on them."""
    (folder / "templates").mkdir(parents=True)
    chart = {"apiVersion": "v2", "name": "rollout-operator", "version": "0.52.0"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    values = {"webhooks": {"timeoutSeconds": 10}, "extraArgs": []}
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    objects = [*_accounts(), *_rights(pods), _service(), _deployment(), *_configurations()]
    text = yaml.safe_dump_all(objects)
    # A number, and a list.
    text = text.replace(": SECONDS", ": {{ .Values.webhooks.timeoutSeconds }}")
    (folder / "templates" / "all.yaml").write_text(text.replace("args: ARGS", f"args:{_ARGS}"))
    return folder


def write_unhooked_chart(folder: Path) -> Path:
    """Write what it makes of its Service where webhooks are off, and metrics are scraped."""
    (folder / "templates").mkdir(parents=True)
    chart = {"apiVersion": "v2", "name": "rollout-operator", "version": "0.52.0"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    port = {"port": 8001, "protocol": "TCP", "targetPort": "http-metrics", "name": "http-metrics"}
    spec = {"type": "ClusterIP", "clusterIP": "None", "ports": [port], "selector": SELECTOR}
    text = yaml.safe_dump(_object("v1", "Service", spec=spec))
    (folder / "templates" / "service.yaml").write_text(text)
    return folder


_ARGS: Final = """
        - -kubernetes.namespace={{ .Release.Namespace }}
        - -zpdb.pod-ready-annotation-patch-timeout=5s
        - -server-tls.enabled=true
        - -server-tls.self-signed-cert.secret-name=certificate
        - -server-tls.self-signed-cert.dns-name={{ .Release.Name }}.{{ .Release.Namespace }}.svc
        {{- range .Values.extraArgs }}
        - {{ . }}
        {{- end }}"""


def _object(api_version: str, kind: str, name: str = NAME, **fields: Any) -> Template:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS}
    if kind.startswith("Cluster") or kind.endswith("Configuration"):
        del metadata["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _rule(group: str, resources: str, verbs: str, name: str = "") -> Template:
    rule: Template = {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": verbs.split(),
    }
    return rule | ({"resourceNames": [name]} if name else {})


def _accounts() -> list[Template]:
    return [_object("v1", "ServiceAccount")]


def _rights(pods: str) -> list[Template]:
    role = [
        _rule("", "pods", pods),
        _rule("apps", "statefulsets", "list get watch patch"),
        _rule("apps", "statefulsets/status", "update"),
        _rule(_ZONES, "zoneawarepoddisruptionbudgets", "get list watch"),
        _rule(_ZONES, "replicatemplates/scale replicatemplates/status", "get patch"),
    ]
    secret = [_rule("", "secrets", "update get", "certificate"), _rule("", "secrets", "create")]
    kinds = "validatingwebhookconfigurations mutatingwebhookconfigurations"
    cluster = [_rule("admissionregistration.k8s.io", kinds, "list patch watch")]
    return [
        *_grant("Role", NAME, NAME, role),
        *_grant("Role", f"{NAME}-webhook-role", f"{NAME}-webhook-rolebinding", secret),
        *_grant(
            "ClusterRole",
            f"{NAME}-webhook-clusterrole",
            f"{NAME}-webhook-clusterrolebinding",
            cluster,
        ),
    ]


def _grant(kind: str, name: str, binding: str, rules: list[Template]) -> list[Template]:
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return [
        _object(f"{_RBAC}/v1", kind, name, rules=rules),
        _object(f"{_RBAC}/v1", f"{kind}Binding", binding, roleRef=reference, subjects=[subject]),
    ]


def _service() -> Template:
    port = {"port": 443, "protocol": "TCP", "targetPort": 8443, "name": "https"}
    return _object(
        "v1", "Service", spec={"type": "ClusterIP", "ports": [port], "selector": SELECTOR}
    )


def _deployment() -> Template:
    ports = [
        {"name": "http-metrics", "containerPort": 8001, "protocol": "TCP"},
        {"name": "https", "containerPort": 8443, "protocol": "TCP"},
    ]
    probe = {"path": "/ready", "port": "http-metrics"}
    container = {
        "name": "rollout-operator",
        "image": "docker.io/grafana/rollout-operator:v0.39.0",
        "args": "ARGS",
        "ports": ports,
        "readinessProbe": {"httpGet": probe, "initialDelaySeconds": 5, "timeoutSeconds": 1},
    }
    spec = {
        "replicas": 1,
        "minReadySeconds": 10,
        "selector": {"matchLabels": SELECTOR},
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": {
            "metadata": {"labels": SELECTOR},
            "spec": {"serviceAccountName": NAME, "containers": [container]},
        },
    }
    return _object("apps/v1", "Deployment", spec=spec)


def _configurations() -> list[Template]:
    return [_configuration(*webhook) for webhook in _WEBHOOKS]


def _configuration(
    hook: str, operation: str, group: str, resources: tuple[str, ...], effects: str
) -> Template:
    name = f"{hook}-{NAMESPACE}"
    kind = "Mutating" if hook == "prepare-downscale" else "Validating"
    service = {"namespace": NAMESPACE, "name": NAME, "path": f"/admission/{hook}", "port": 443}
    rule = {
        "operations": [operation],
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": [*resources],
        "scope": "Namespaced",
    }
    webhook = {
        "name": f"{name}.grafana.com",
        "clientConfig": {"service": service},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "sideEffects": effects,
        "failurePolicy": "Fail",
        "timeoutSeconds": "SECONDS",
    }
    made = _object(
        "admissionregistration.k8s.io/v1", f"{kind}WebhookConfiguration", name, webhooks=[webhook]
    )
    ours = {"grafana.com/inject-rollout-operator-ca": "true", "grafana.com/namespace": NAMESPACE}
    made["metadata"]["labels"] = {**LABELS, **ours}
    return made
