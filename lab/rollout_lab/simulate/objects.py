"""What of the objects of the input goes into the simulated world, completed as a server would.

Beside StatefulSets and their pods that are budgets, what zones mirror, the zone tracker, nodes, and
the operator's webhook configurations; manifests that no server has seen yet are filled in. Of
containers, name and image are kept; what they are given, Secrets among it, never gets any further.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import msgspec

from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.controllers.members import new_pod, new_revision, ordinals_of, with_images
from rollout_lab.model.fields import (
    child,
    children,
    moment_of,
    name_of,
    namespace_of,
    number,
    text,
    timestamp,
    uid_of,
)
from rollout_lab.model.request import ApiRefusal, NotModelled
from rollout_lab.nodes.kubelet import Shape, StatusPlace, next_status
from rollout_lab.schemas.kinds import NODES, REPLICA_TEMPLATES, get_kind
from rollout_lab.schemas.metadata import BadField
from rollout_lab.simulate.flags import LAST_YEAR
from rollout_operator.cli.dumps import HINT, BadDump, is_of
from rollout_operator.guards.grants import read_record
from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    NATIVE_BUDGETS,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import NAMESPACE_LABEL, REVISION_LABEL, InvalidInput
from rollout_operator.model.objects import Pod
from rollout_operator.model.scaling import Reference, decode_entry
from rollout_operator.model.units import parse_duration
from rollout_operator.planning.wording import join_names, printable

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
            *(MULTI_AZ_ROLLOUTS.kind, ROLLOUT_HEALTH_CHECKS.kind),
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
    is_closed = child(obj, "spec").get("unschedulable") is True
    return {"spec": {"unschedulable": True} if is_closed else {}}


def _keep_hooks(obj: JsonObject, seen: Surveyed) -> JsonObject | None:
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
    (ROLLOUT_HEALTH_CHECKS, _keep_whole),
    (CONFIG_MAPS, _keep_tracker),
    (NODES, _keep_node),
    (VALIDATING_WEBHOOKS, _keep_hooks),
    (MUTATING_WEBHOOKS, _keep_hooks),
)


# Of all StatefulSets together, and of each other object whose count they may follow.
MOST_REPLICAS: Final = 10_000
# The API server takes no more annotations of an object, keys and values, and no larger request.
MOST_ANNOTATIONS: Final = 256 * 1024
LARGEST: Final = 3 * 1024 * 1024
# 68 years: what others add to a time as well.
LONGEST_GRACE_S: Final = 2**31 - 1
_TIMES: Final = ("Time", "Timestamp", "At")
_GRACE: Final = ("deletionGracePeriodSeconds", "terminationGracePeriodSeconds")
# Of people, whatever their keys are called.
_FREE: Final = ("annotations", "labels", "matchLabels", "data")


def check_replicas(objects: Iterable[JsonObject]) -> None:
    """Raise BadDump where objects that have been decoded want more pods than may be simulated."""
    total = 0
    for obj in objects:
        replicas = number(obj, "spec", "replicas")
        before = total if obj.get("kind") == STATEFULSETS.kind else 0
        if before + replicas > MOST_REPLICAS:
            beside = f" beside {before} of other StatefulSets" if before else ""
            raise BadDump(
                f"{obj.get('kind')} {name_of(obj)}: spec.replicas: {replicas}{beside} is more than"
                f" the {MOST_REPLICAS} that a simulation takes in all"
            )
        total = before + replicas


def check_object(obj: JsonObject) -> None:
    """Raise BadDump where an object is larger than any, or holds a time to which none is added."""
    what = f"{obj.get('kind')} {name_of(obj)}"
    annotations = child(obj, "metadata", "annotations")
    size = sum(len(f"{key}{text}".encode()) for key, text in annotations.items())
    if size > MOST_ANNOTATIONS:
        raise BadDump(
            f"{what}: metadata.annotations: {size} bytes are more than the {MOST_ANNOTATIONS} that"
            " the API server takes"
        )
    if (size := len(msgspec.json.encode(obj))) > LARGEST:
        raise BadDump(f"{what}: {size} bytes are more than the {LARGEST} of any request")
    for path, value in _list_fields(obj):
        if path.endswith(_TIMES) and isinstance(value, str) and _is_too_late(value):
            raise BadDump(f"{what}: {path}: {value[:40]}: after the year {LAST_YEAR}")
        if path.endswith(_GRACE) and isinstance(value, int) and value > LONGEST_GRACE_S:
            raise BadDump(f"{what}: {path}: {value} is more than {LONGEST_GRACE_S}")


def _is_too_late(time: str) -> bool:
    year = time[:4]
    return year.isascii() and year.isdecimal() and int(year) > LAST_YEAR


def _list_fields(obj: JsonObject) -> Iterator[tuple[str, object]]:
    """Yield paths and values; without recursion, as objects may be nested deeply."""
    left: list[tuple[str, object]] = [("", obj)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            inner = ((key, each) for key, each in value.items() if key not in _FREE)
            left += [(f"{path}.{key}" if path else key, each) for key, each in inner]
        elif isinstance(value, list):
            left += [(f"{path}[{place}]", each) for place, each in enumerate(value)]
        else:
            yield path, value


def find_newest(objects: Iterable[JsonObject]) -> datetime | None:
    """Return the latest time that any object tells of itself, or of a condition."""
    stamps: list[datetime] = []
    for obj in objects:
        for condition in (*children(obj, "status", "conditions"), child(obj, "metadata")):
            for key in ("lastTransitionTime", "creationTimestamp"):
                try:
                    stamps.append(moment_of(text(condition, key)))
                except ValueError:
                    continue  # absent, or written by another client
    return max(stamps, default=None)


_HEAD: Final = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations"),
)
# Kept by kubectl: the whole object, as it was last applied.
_LONGEST: Final = 200
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def trim_head(obj: JsonObject, is_namespaced: bool = True) -> JsonObject:
    """Return what is kept of the metadata. Raises BadDump where no API server has the object."""
    metadata = child(obj, "metadata")
    for key in ("name", "namespace", "uid", "resourceVersion"):
        if not text(metadata, key) and (is_namespaced or key != "namespace"):
            what = f"{obj.get('kind')} {name_of(obj)}".rstrip()
            raise BadDump(
                f"{what}: metadata.{key} is missing, so that no API server has it: {HINT}"
            )
    head = pick(metadata, _HEAD)
    if annotations := child(metadata, "annotations"):
        head["annotations"] = {key: it for key, it in annotations.items() if key != _APPLIED}
    return head


def trim_pod_spec(holder: JsonObject, also: Iterable[str] = ()) -> JsonObject:
    """Return what is kept of the spec of a pod or a template, with further fields of it."""
    containers = [
        pick(container, ("name", "image")) for container in children(holder, "spec", "containers")
    ]
    spec = child(holder, "spec")
    return {"containers": containers, **pick(spec, ("terminationGracePeriodSeconds", *also))}


def complete(obj: JsonObject, resource: Resource) -> None:
    """Fill in what the API server would write by itself, so that no later write changes it.

    Raises BadDump.
    """
    check_object(obj)
    try:
        get_kind(resource).default(obj)
        if resource == STATEFULSETS:
            get_kind(resource).check(obj)
    except BadField as error:
        bad = f"{error.field}: {error.value[:_LONGEST]}: the API server would refuse it"
        raise BadDump(f"{resource.kind} {printable(name_of(obj))}: {bad}") from None
    except ApiRefusal as refusal:
        raise BadDump(f"{resource.kind} {name_of(obj)}: {refusal.message}") from None
    except NotModelled as error:
        raise BadDump(f"{resource.kind} {name_of(obj)}: {error}") from None


def type_of(resource: Resource) -> JsonObject:
    """Return the type of an object of a kind, as it stands in it."""
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return {"apiVersion": version, "kind": resource.kind}


def pick(obj: JsonObject, keys: Iterable[str]) -> JsonObject:
    """Return the fields of these names that have a value."""
    return {key: obj[key] for key in keys if obj.get(key) is not None}


def is_under_way(pod: Pod) -> bool:
    """Return whether the operator was about to delete a pod when it was read.

    It decides anew in the copy: to a process that has just started, the record alone would say that
    another may still delete the pod, which the process that wrote it knows better.
    """
    try:
        record = read_record(pod)
    except InvalidInput:
        return False
    return record is not None and record.engine is DisruptionSource.ROLLOUT


def is_template_seen(sts: JsonObject, pods: Iterable[JsonObject]) -> bool:
    """Return whether the update revision that the status names is that of the template.

    Where no pod tells, a status that is behind counts as a controller that has not seen it.
    """
    if number(sts, "status", "observedGeneration") >= number(sts, "metadata", "generation"):
        return True
    template, update = child(sts, "spec", "template"), text(sts, "status", "updateRevision")
    made = {"metadata": _worn(template), "spec": child(template, "spec")}
    return any(
        text(pod, "metadata", "labels", REVISION_LABEL) == update and _holds(pod, made)
        for pod in pods
    )


def read_images(sts: JsonObject, pods: Iterable[JsonObject]) -> dict[str, dict[str, str]]:
    """Return the images of each revision of the pods that has all else of the template.

    With them the template is that revision again, and pods at it are not outdated.
    """
    told: dict[str, dict[str, str]] = {}
    for pod in pods:
        containers = children(pod, "spec", "containers")
        images = {text(container, "name"): text(container, "image") for container in containers}
        template = child(with_images(sts, images), "spec", "template")
        revision = text(pod, "metadata", "labels", REVISION_LABEL)
        if revision and _holds(pod, {**template, "metadata": _worn(template)}):
            told[revision] = images
    return told


def _worn(template: JsonObject) -> JsonObject:
    """Return what pods get of a template's metadata."""
    return {part: child(template, "metadata", part) for part in ("labels", "annotations")}


def _holds(found: object, made: object) -> bool:
    """Return whether everything of a template is in a pod, to which admission may have added."""
    if isinstance(made, dict):
        there = found if isinstance(found, dict) else {}
        return all(_holds(there.get(key), value) for key, value in made.items())
    if isinstance(made, list):
        items = found if isinstance(found, list) else []
        return all(any(_holds(item, wanted) for item in items) for wanted in made)
    return found == made or made is None


# Where `kubectl apply` puts what names none.
_DEFAULT: Final = "default"
# So long ago they were applied: no pod is new any more, and none waits for `minReadySeconds`.
_AGE: Final = timedelta(days=1)
_UID: Final = "manifest-"
_IP: Final = "10.255.1.1"
# A pod without UID tells not which set has made it; the others have no namespace.
_UNFILLED: Final = (PODS, NODES, *WEBHOOKS)


def fill_in(objects: Sequence[JsonObject], namespace: str, now: datetime) -> list[JsonObject]:
    """Return objects with the metadata that manifests lack.

    Manifests that name no namespace are in `namespace`; empty: where the other StatefulSets are.
    """
    there = {namespace_of(obj) for obj in objects if is_of(obj, STATEFULSETS)} - {""}
    home = namespace or (there.pop() if len(there) == 1 else _DEFAULT)
    stamp = timestamp(now - _AGE)
    return [_fill_in(obj, home, stamp) if _is_manifest(obj) else obj for obj in objects]


def is_filled_in(obj: JsonObject) -> bool:
    return uid_of(obj).startswith(_UID)


def make_pods(sts: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return a StatefulSet that was filled in, with the status of a whole one, and its pods."""
    revision = name_of(new_revision(sts, 1, 0))
    stamp = text(sts, "metadata", "creationTimestamp")
    pods: list[JsonObject] = []
    for ordinal in ordinals_of(sts):
        pod = new_pod(sts, child(sts, "spec", "template"), revision, ordinal)
        made = {"uid": f"{uid_of(sts)}-{ordinal}", "resourceVersion": "1"}
        head = {**child(pod, "metadata"), **made, "creationTimestamp": stamp}
        # A pod without a node would end at once.
        pod["spec"] = {**child(pod, "spec"), "nodeName": f"node-of-{name_of(pod)}"}
        status = next_status(pod, Shape.READY, StatusPlace(ip=_IP, now=stamp))
        pods.append({**pod, "metadata": head, "status": status})
    counts = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
    status = {
        **dict.fromkeys((*counts, "currentReplicas"), len(pods)),
        **dict.fromkeys(("currentRevision", "updateRevision"), revision),
        "observedGeneration": number(sts, "metadata", "generation"),
    }
    return {**sts, "status": status}, pods


def _is_manifest(obj: JsonObject) -> bool:
    """Return whether a person has written it: an API server would have given a UID.

    One with replicas in its status was read from a cluster, and has lost what it had there.
    """
    is_stored = uid_of(obj) or not name_of(obj) or number(obj, "status", "replicas")
    return not is_stored and not any(is_of(obj, resource) for resource in _UNFILLED)


def _fill_in(obj: JsonObject, namespace: str, stamp: str) -> JsonObject:
    place = namespace_of(obj) or namespace
    made: JsonObject = {
        "uid": f"{_UID}{obj.get('kind')}-{place}-{name_of(obj)}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": stamp,
    }
    # `kubectl create --dry-run -o yaml` writes a null.
    given = {key: value for key, value in child(obj, "metadata").items() if value is not None}
    return {**obj, "metadata": {**made, **given, "namespace": place}}
