"""What decides besides StatefulSets and their pods: which objects of the input, and what of each.

Budgets, what zones mirror, the zone tracker, nodes, and the operator's webhook configurations go
into the simulated world; nothing else of their namespace does.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import msgspec

from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.model.fields import child, children, name_of, namespace_of, text
from rollout_lab.schemas.kinds import NODES, REPLICA_TEMPLATES
from rollout_operator.cli.dumps import BadDump
from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    NATIVE_BUDGETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import NAMESPACE_LABEL, InvalidInput
from rollout_operator.model.scaling import Reference, decode_entry
from rollout_operator.model.units import parse_duration
from rollout_operator.planning.wording import join_names

WEBHOOKS: Final = (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)
_HOOK: Final = (
    *("name", "rules", "failurePolicy", "sideEffects", "timeoutSeconds", "matchPolicy"),
    *("admissionReviewVersions", "objectSelector", "reinvocationPolicy"),
)
# Where nothing says more.
_IDLE: Final = "without effect here"
_WHY: Final[Mapping[str, str]] = {
    "Pod": "of no StatefulSet of a rollout group here",
    "StatefulSet": "in no rollout group of this namespace",
    **dict.fromkeys(
        (
            *(ZONE_BUDGETS.kind, NATIVE_BUDGETS.kind, REPLICA_TEMPLATES.kind),
            MULTI_AZ_ROLLOUTS.kind,
        ),
        "of another namespace",
    ),
    **dict.fromkeys((kind.kind for kind in WEBHOOKS), "of no operator of this namespace"),
    "HorizontalPodAutoscaler": "what it scales stays as it is, unless a change scales it",
    "ScaledObject": "what it scales stays as it is, unless a change scales it",
}


class Surveyed(msgspec.Struct, frozen=True, kw_only=True):
    """What the objects that decide belong to."""

    namespace: str
    mirrored: frozenset[Reference]
    """What StatefulSets of the groups take their counts from."""


_BOUNDS: Final = ("minAvailable", "maxUnavailable")
_PERCENTAGE: Final = re.compile(r"(\d{1,2}|100)%", re.ASCII)


def explain_left_out(kind: str) -> str:
    """Return why objects of a kind that were not chosen are left out."""
    return _WHY.get(kind, _IDLE)


def keep(obj: JsonObject, seen: Surveyed) -> tuple[Resource, JsonObject] | None:
    """Return the kind of an object and what is kept beside its metadata, None where it decides not.

    Kinds that only the object names are given the plural that nearly all kinds have.
    """
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind"))
    group = version.rpartition("/")[0]
    for resource, keep_parts in _KEPT_PARTS:
        if (resource.group, resource.kind) == (group, kind):
            is_here = not resource.is_namespaced or namespace_of(obj) == seen.namespace
            parts = keep_parts(obj, seen) if is_here else None
            return None if parts is None else (resource, parts)
    mirrored = Reference(group, kind, name_of(obj)) in seen.mirrored
    if not mirrored or namespace_of(obj) != seen.namespace:
        return None
    found = Resource(group, version.rpartition("/")[2], f"{kind.lower()}s", kind)
    return found, _keep_counts(obj)


def _keep_whole(obj: JsonObject, seen: Surveyed) -> JsonObject:
    return {part: child(obj, part) for part in ("spec", "status") if part in obj}


def _keep_native(obj: JsonObject, seen: Surveyed) -> JsonObject:
    """Return a native budget without the conditions of its status, which say it once more."""
    _check_bounds(obj)
    _check_selector(obj)
    status = {key: value for key, value in child(obj, "status").items() if key != "conditions"}
    return {"spec": child(obj, "spec"), "status": status}


def _check_bounds(obj: JsonObject) -> None:
    """Raise BadDump for bounds that no API server has let in: their pods could not be counted."""
    spec = child(obj, "spec")
    bounds = {key: spec[key] for key in _BOUNDS if spec.get(key) is not None}
    for key, bound in bounds.items():
        is_count = isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0
        if not is_count and not (isinstance(bound, str) and _PERCENTAGE.fullmatch(bound)):
            what = f"spec.{key}: {json.dumps(bound)} is neither a count nor a percentage"
            raise BadDump(f"{NATIVE_BUDGETS.kind} {name_of(obj)}: {what}")
    if len(bounds) > 1:
        raise BadDump(f"{NATIVE_BUDGETS.kind} {name_of(obj)}: only one of {join_names(_BOUNDS)}")


def _check_selector(obj: JsonObject) -> None:
    """Raise BadDump for a selector of another type: the budget would guard none, or all."""
    spec = child(obj, "spec")
    labels, terms = (
        child(spec, "selector").get(key) for key in ("matchLabels", "matchExpressions")
    )
    fields = (
        ("selector", spec.get("selector"), dict, "a mapping"),
        ("selector.matchLabels", labels, dict, "a mapping"),
        *((f"selector.matchLabels.{key}", label, str, "a text")
          for key, label in (labels.items() if isinstance(labels, dict) else ())),
        ("selector.matchExpressions", terms, list, "a list"),
    )  # fmt: skip
    for path, value, wanted, word in fields:
        if value is not None and not isinstance(value, wanted):
            what = f"spec.{path}: {json.dumps(value)} is not {word}"
            raise BadDump(f"{NATIVE_BUDGETS.kind} {name_of(obj)}: {what}")


def _keep_counts(obj: JsonObject) -> JsonObject:
    """Return what a scale shows of any kind: of the rest nothing decides."""
    return {
        part: {"replicas": child(obj, part)["replicas"]}
        for part in ("spec", "status")
        if "replicas" in child(obj, part)
    }


def _keep_tracker(obj: JsonObject, seen: Surveyed) -> JsonObject | None:
    """Return the times of downscales; a ConfigMap without any is no tracker."""
    data = {key: value for key, value in child(obj, "data").items() if _is_entry(value)}
    return {"data": data} if data else None


def _is_entry(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(decode_entry(value))
    except InvalidInput:
        return False


def _keep_node(obj: JsonObject, seen: Surveyed) -> JsonObject:
    """Return whether it is cordoned."""
    is_closed = child(obj, "spec").get("unschedulable") is True
    return {"spec": {"unschedulable": True} if is_closed else {}}


def _keep_hooks(obj: JsonObject, seen: Surveyed) -> JsonObject | None:
    """Return the hooks of the operator of this namespace."""
    is_labelled = child(obj, "metadata", "labels").get(NAMESPACE_LABEL) == seen.namespace
    hooks = [
        {**{key: hook[key] for key in _HOOK if key in hook}, "clientConfig": {"service": service}}
        for hook in children(obj, "webhooks")
        if (service := _read_service(hook, seen))
        if is_labelled or text(hook, "clientConfig", "service", "namespace") == seen.namespace
        if _name_hook(text(service, "path")) in REGISTRATIONS
    ]
    return {"webhooks": hooks} if hooks else None


def _read_service(hook: JsonObject, seen: Surveyed) -> JsonObject:
    """Return where a hook is served; by a URL it is taken for one of the operator's Service."""
    path = urlsplit(text(hook, "clientConfig", "url")).path
    by_url: JsonObject = {"namespace": seen.namespace, "name": "rollout-operator", "path": path}
    return child(hook, "clientConfig", "service") or (by_url if path else {})


def _name_hook(path: str) -> str:
    return path.removeprefix("/admission/")


def read_delay(budget: JsonObject) -> timedelta:
    """Return for how long a budget counts pods as down that are ready, zero where it says none."""
    try:
        return parse_duration(text(budget, "spec", "crossZoneEvictionDelay") or "0")
    except InvalidInput:
        return timedelta(0)  # the operator says so


def list_hooks(configurations: Iterable[JsonObject]) -> list[str]:
    """Return which of the operator's webhooks are registered, by their names."""
    paths = [
        text(hook, "clientConfig", "service", "path")
        for configuration in configurations
        for hook in children(configuration, "webhooks")
    ]
    return [name for name in REGISTRATIONS if name in map(_name_hook, paths)]


_KEPT_PARTS: Final[
    tuple[tuple[Resource, Callable[[JsonObject, Surveyed], JsonObject | None]], ...]
] = (
    (ZONE_BUDGETS, _keep_whole),
    (NATIVE_BUDGETS, _keep_native),
    (REPLICA_TEMPLATES, _keep_whole),
    (MULTI_AZ_ROLLOUTS, _keep_whole),
    (CONFIG_MAPS, _keep_tracker),
    (NODES, _keep_node),
    (VALIDATING_WEBHOOKS, _keep_hooks),
    (MUTATING_WEBHOOKS, _keep_hooks),
)
