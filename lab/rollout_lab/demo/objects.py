"""The objects of a story, and the changes that people make to them.

Pure: what a person would write into a file or type, as the API server takes it.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.demo.flags import DemoSettings
from rollout_lab.model.request import STRATEGIC_PATCH, ApiRequest, api_version_of, create, patch
from rollout_lab.nodes.pods import node
from rollout_lab.schemas.kinds import NODES, REPLICA_TEMPLATES
from rollout_lab.zones import ZoneSpec, statefulset
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    GROUP_LABEL,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    NO_DOWNSCALE,
    PAUSED,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from rollout_operator.model.units import format_duration

GROUP: Final = "ingester"
NAMESPACE: Final = "demo"
# Who the people of the stories are, for the API server and for the reader.
PERSON: Final = "you"
OPERATOR: Final = "operator"
FIRST: Final = "v1"
# In a cluster these are hours.
APART: Final = timedelta(seconds=5)
DELAY: Final = timedelta(seconds=8)
PAUSE_OF_POLICY: Final = timedelta(seconds=2)
GUARDED: Final = {NO_DOWNSCALE: "true"}
PREPARED: Final = {PREPARE_DOWNSCALE: "true", MIN_TIME_BETWEEN_DOWNSCALES: "12h"}
FOLLOWING: Final = PREPARED | {MIN_TIME_BETWEEN_DOWNSCALES: format_duration(APART)}
MIRROR: Final = {
    MIRROR_NAME: GROUP,
    MIRROR_KIND: REPLICA_TEMPLATES.kind,
    MIRROR_API_VERSION: api_version_of(REPLICA_TEMPLATES),
    DOWNSCALE_DELAY: format_duration(DELAY),
    DOWNSCALE_DELAY_URL: "http://pod:8080/prepare-delayed-downscale",
}
# By these a budget knows pods and StatefulSets.
_SELECTED: Final = {GROUP_LABEL: GROUP}
_PREPARE_AT: Final = {PREPARE_PATH: "prepare-shutdown", PREPARE_PORT: "8080"}
_ZONE_LABEL: Final = "topology.kubernetes.io/zone"


def is_operator(actor: str) -> bool:
    """Return whether a replica of the operator has done something."""
    return actor.startswith(OPERATOR)


def create_zone(
    settings: DemoSettings, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> ApiRequest:
    """Return the request that creates the StatefulSet of one zone.

    Its pods run on the zone's own nodes, and budgets know them.
    """
    zone = ZoneSpec(
        name=name,
        group=GROUP,
        replicas=settings.pods,
        max_unavailable=settings.limit,
        image=FIRST,
        labels=labels,
        annotations={**(_PREPARE_AT if PREPARE_DOWNSCALE in labels else {}), **annotations},
        pod_labels=_SELECTED,
        node_selector={_ZONE_LABEL: name},
    )
    return create(STATEFULSETS, statefulset(zone, NAMESPACE), NAMESPACE, PERSON)


def follow(leading: str) -> dict[str, str]:
    """Return the annotation of a zone that follows another, if any."""
    return {LEADING_ZONE: leading} if leading else {}


def create_template(replicas: int) -> ApiRequest:
    """Return the request that creates the object whose replicas all zones have."""
    selector = f"{GROUP_LABEL}={GROUP}"
    return _make(REPLICA_TEMPLATES, {"replicas": replicas, "labelSelector": selector})


def create_policy(settings: DemoSettings) -> ApiRequest:
    """Return the request that creates the policy over the group: its last zone goes first."""
    pause = round(PAUSE_OF_POLICY.total_seconds())
    spec: JsonObject = {
        "statefulSetSelector": {"matchLabels": _SELECTED},
        "rollingUpdate": {"maxUnavailable": settings.limit, "intervalSeconds": pause},
        "azOrder": [*reversed(settings.names)],
    }
    return _make(MULTI_AZ_ROLLOUTS, spec)


def create_webhook(hook: str) -> ApiRequest:
    """Return the request by which the API server calls one of the operator's webhooks."""
    obj = REGISTRATIONS[hook](NAMESPACE)
    is_mutating = obj["kind"] == MUTATING_WEBHOOKS.kind
    resource = MUTATING_WEBHOOKS if is_mutating else VALIDATING_WEBHOOKS
    return create(resource, obj, user=PERSON)


def name_node(zone: str, number: int = 1) -> str:
    return f"node-{zone.removeprefix('zone-')}{number}"


def set_up_nodes(settings: DemoSettings) -> list[ApiRequest]:
    """Return the requests that make nodes, the budget, and the webhook that evictions pass."""
    nodes = [
        node(name_node(zone, number), {_ZONE_LABEL: zone})
        for zone in settings.names
        for number in (1, 2)
    ]
    spec: JsonObject = {"selector": {"matchLabels": _SELECTED}, "maxUnavailable": settings.limit}
    # Of a single zone a budget has nothing to tell apart.
    budgets = [_make(ZONE_BUDGETS, spec)] if settings.zones > 1 else []
    made = [create(NODES, each, user=PERSON) for each in nodes]
    return [*made, *budgets, create_webhook("pod-eviction")]


def change_version(name: str, version: str) -> ApiRequest:
    """Return the request that gives a zone a new template."""
    spec = {"containers": [{"name": "app", "image": version}]}
    body: JsonObject = {"spec": {"template": {"spec": spec}}}
    return patch(STATEFULSETS, name, body, NAMESPACE, PERSON, kind=STRATEGIC_PATCH)


def pause(name: str, *, is_paused: bool) -> ApiRequest:
    """Return the request that pauses a zone, or releases it."""
    body: JsonObject = {"metadata": {"annotations": {PAUSED: "true" if is_paused else None}}}
    return patch(STATEFULSETS, name, body, NAMESPACE, PERSON)


def allow_downscale(name: str) -> ApiRequest:
    """Return the request that takes the label away which forbids it."""
    body: JsonObject = {"metadata": {"labels": {NO_DOWNSCALE: None}}}
    return patch(STATEFULSETS, name, body, NAMESPACE, PERSON)


def scale(name: str, replicas: int, resource: Resource = STATEFULSETS) -> ApiRequest:
    body: JsonObject = {"spec": {"replicas": replicas}}
    return patch(resource, name, body, NAMESPACE, PERSON, subresource="scale")


def cordon(name: str, *, is_cordoned: bool = True) -> ApiRequest:
    """Return the request by which a node takes no new pods, or takes them again."""
    return patch(NODES, name, {"spec": {"unschedulable": is_cordoned or None}}, user=PERSON)


def _make(resource: Resource, spec: JsonObject) -> ApiRequest:
    body: JsonObject = {"apiVersion": api_version_of(resource), "kind": resource.kind}
    return create(resource, {**body, "metadata": {"name": GROUP}, "spec": spec}, NAMESPACE, PERSON)
