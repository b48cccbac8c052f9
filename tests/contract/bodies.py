"""Objects that sequences create, and what is read of answers."""

from typing import Any, Final

import yaml
from rollout_lab.model.request import ApiAnswer

from rollout_operator.kube.api import JsonObject

Json = Any
OTHER_UID = "11111111-2222-3333-4444-555555555555"
# The shortest of kinds, but for their names.
SHORTEST: Final[dict[str, JsonObject]] = yaml.safe_load("""
secret: {apiVersion: v1, kind: Secret}
pdb: {apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {selector: {matchLabels: {app: x}}}}
zpdb:
  apiVersion: rollout-operator.grafana.com/v1
  kind: ZoneAwarePodDisruptionBudget
  spec: {selector: {matchLabels: {app: x}}}
template: {apiVersion: rollout-operator.grafana.com/v1, kind: ReplicaTemplate, spec: {}}
source: {apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, spec: {}}
ks:
  apiVersion: kustomize.toolkit.fluxcd.io/v1
  kind: Kustomization
  spec: {postBuild: {substitute: {}}}
vhook: &configuration
  apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  webhooks:
  - name: guard.example.org
    clientConfig: {url: "https://127.0.0.1:1/x"}
    rules:
    - operations: [UPDATE]
      apiGroups: [nothing.example.org]
      apiVersions: [v1]
      resources: [nothings]
    sideEffects: None
    admissionReviewVersions: [v1]
mhook: {<<: *configuration, kind: MutatingWebhookConfiguration}
revision: {apiVersion: apps/v1, kind: ControllerRevision, data: {spec: {x: 1}}, revision: 1}
""")


def shortest(kind: str, name: str) -> JsonObject:
    return {**SHORTEST[kind], "metadata": {"name": name}}


def config_map(name: str, **metadata: object) -> JsonObject:
    """Return a ConfigMap: an object without any behaviour of its own."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"key": "value"},
    }


def statefulset(name: str, replicas: int | None = 3, **spec: object) -> JsonObject:
    """Return a StatefulSet with as little said as the API takes."""
    labels = {"name": name}
    fields: JsonObject = {
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": "v1"}]},
        },
        **spec,
    }
    if replicas is not None:
        fields["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": fields,
    }


def pod(name: str, *, node: str = "", image: str = "v1", **metadata: object) -> JsonObject:
    """Return a pod, bound to a node where one is given: only those end gracefully."""
    spec: JsonObject = {"containers": [{"name": "app", "image": image}]}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}, **metadata},
        "spec": {**spec, "automountServiceAccountToken": False},
    }


def eviction(name: str, **options: object) -> JsonObject:
    head: JsonObject = {"metadata": {"name": name}}
    body: JsonObject = {"apiVersion": "policy/v1", "kind": "Eviction", **head}
    return {**body, "deleteOptions": options} if options else body


def delete_options(**fields: object) -> JsonObject:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **fields}


def owner(body: Json) -> JsonObject:
    """Return the reference by which a dependant names its owner."""
    meta = body["metadata"]
    named = {key: meta[key] for key in ("name", "uid")}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], **named}


def version_of(answer: ApiAnswer) -> str:
    body: Json = answer.body
    return str(body["metadata"]["resourceVersion"])


def has_one_owner(answer: ApiAnswer) -> bool:
    return len(tree(answer)["metadata"].get("ownerReferences", ())) == 1


def is_going(answer: ApiAnswer) -> bool:
    return "deletionTimestamp" in tree(answer)["metadata"]


def tree(answer: ApiAnswer) -> Json:
    """Return a copy of the object that was answered, to be changed and sent back."""
    return _copy(answer.body)


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value
