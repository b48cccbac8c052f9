"""The shipped manifests rendered with components, and what tests check of the result."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from rollout_operator.config.flags import FLAGS
from tests.code_rules import ROOT
from tests.kustomize import Object, render

MANIFESTS: Final = ROOT / "manifests"
BASE: Final = MANIFESTS / "base"
WEBHOOKS, LEAST, DEPLOYMENTS = "webhooks", "webhooks-least-privilege", "no-downscale-deployments"
TRACKER, SCALING, MIRRORING, MONITORING = "zone-tracker", "scaling", "mirroring", "monitoring"
REPLICAS, PRIORITY = "replicas", "priority-class"
POLICIES, NODE_LABELS = "multi-az-rollouts", "multi-az-rollouts-nodes"
NETWORK, CERTIFICATES = "network-policy", "client-certificates"

VALIDATING: Final = "ValidatingWebhookConfiguration"
MUTATING: Final = "MutatingWebhookConfiguration"
# What the component `network-policy` needs as values.
NETWORK_PARAMETERS: Final[Object] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "rollout-operator-network",
        "annotations": {"config.kubernetes.io/local-config": "true"},
    },
    "data": {
        "from-api-server": "192.0.2.0/28",
        "to-api-server": "192.0.2.16/28",
        "nodes": "198.51.100.0/24",
        "monitoring-namespace": "monitoring",
    },
}
# With dashes, as most have: what is put together from parts must not be taken apart by them.
NAMESPACE: Final = "my-own-ns"

Rendered = dict[tuple[str, str], Object]


def install(
    at: Path, *components: str, namespace: str = NAMESPACE, more: Sequence[Object] = ()
) -> list[Object]:
    """Render the base in a namespace with these components, as a user would write it."""
    write_kustomization(at, *components, namespace=namespace, more=more)
    return render(at)


def write_kustomization(
    at: Path, *components: str, namespace: str = NAMESPACE, more: Sequence[Object] = ()
) -> None:
    """Write what a user would: the namespace one level below the one that lists components.

    `more` are objects of the user's own, such as parameters of components.
    """
    (at / "operator").mkdir(parents=True)
    inner = {
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": [lead_to(at / "operator", BASE)],
    }
    (at / "more.yaml").write_text(yaml.safe_dump_all(more))
    outer = {
        "kind": "Kustomization",
        "resources": ["operator", *(["more.yaml"] if more else [])],
        "components": [lead_to(at, MANIFESTS / "components" / name) for name in components],
    }
    (at / "operator" / "kustomization.yaml").write_text(yaml.safe_dump(inner))
    (at / "kustomization.yaml").write_text(yaml.safe_dump(outer))


def lead_to(at: Path, folder: Path) -> str:
    """Return the path to a folder; kustomize takes no absolute one."""
    return os.path.relpath(folder, at.resolve())


def by_name(objects: list[Object]) -> Rendered:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def container_of(objects: Rendered) -> Object:
    (only,) = objects["Deployment", "rollout-operator"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def get_field(one: Any, path: str) -> Any:
    """Return what stands at a path such as `spec.ports.0.name`, None where there is nothing."""
    for key in path.split("."):
        if isinstance(one, list):
            one = one[int(key)] if int(key) < len(one) else None
        else:
            one = (one or {}).get(key)
    return one


def granted(role: Object) -> set[tuple[str, str, str]]:
    """Return what a role grants as resource, verb and, where it is limited, name."""
    return {
        (resource, verb, name)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def list_fields(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Yield the paths of all fields of a schema, with what it says of each."""
    for name, field in schema.get("properties", {}).items():
        own = f"{path}.{name}".lstrip(".")
        yield own, field
        yield from list_fields(field, own)
    if "items" in schema:
        yield from list_fields(schema["items"], f"{path}[]")


def default(name: str) -> Any:
    """Return what a flag is where it is not given."""
    (flag,) = (flag for flag in FLAGS if flag.name == name)
    return flag.default


def leaves(value: object) -> Iterator[str]:
    match value:
        case dict():
            for inner in value.values():
                yield from leaves(inner)
        case list():
            for inner in value:
                yield from leaves(inner)
        case str():
            yield value
