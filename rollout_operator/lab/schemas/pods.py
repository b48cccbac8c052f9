"""Rules of pods: what a new one gets, what may change later, what a status keeps.

A new pod also gets what the server's own admission plug-ins write: its ServiceAccount, priority and
the two tolerations of failing nodes. The token volume of a ServiceAccount is left out.
"""

from collections.abc import Callable
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, children, number, text
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.invalid import IMMUTABLE, Problems
from rollout_operator.lab.schemas.pod_specs import default_pod_spec, default_requests, quality_of
from rollout_operator.lab.schemas.rules import Rules

_TOLERATED_SECONDS: Final = 300
_FAILING_NODE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MAY_CHANGE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)\n"
)
_FREE: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_CONTAINERS: Final = ("containers", "initContainers")
_STATUS_LISTS: Final = ("containerStatuses", "initContainerStatuses")
_NEW_STATUS: Final[dict[str, Callable[[], object]]] = {
    "state": dict,
    "lastState": dict,
    "ready": bool,
    "restartCount": int,
    "image": str,
    "imageID": str,
}


def _default_spec(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        not_modelled(f"a pod whose spec is {spec!r}")
    default_pod_spec(spec)
    default_requests(spec)
    spec.setdefault("enableServiceLinks", True)


def _default_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    for one in children(status, "conditions"):
        one.setdefault("lastProbeTime", None)
        one.setdefault("lastTransitionTime", None)
    for key in _STATUS_LISTS:
        for one in children(status, key):
            for field, empty in _NEW_STATUS.items():
                one.setdefault(field, empty())


def _begin(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    obj["status"] = {"phase": "Pending", "qosClass": quality_of(spec)}
    if not text(spec, "serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    if text(spec, "priorityClassName"):
        not_modelled("a pod with a priorityClassName")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _tolerate_failing_nodes(spec)


def _tolerate_failing_nodes(spec: JsonObject) -> None:
    given = children(spec, "tolerations")
    missing: list[JsonObject] = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _TOLERATED_SECONDS,
        }
        for key in _FAILING_NODE
        if not any(_tolerates(one, key) for one in given)
    ]
    if missing:
        spec["tolerations"] = [*given, *missing]


def _tolerates(toleration: JsonObject, key: str) -> bool:
    effect = toleration.get("effect")
    return effect in (None, "NoExecute") and toleration.get("key") in (None, key)


def _settle_status(old: JsonObject, new: JsonObject) -> None:
    metadata, before = child(new, "metadata"), child(old, "metadata")
    for key in ("deletionTimestamp", "ownerReferences"):
        metadata.pop(key, None)
        if key in before:
            metadata[key] = before[key]
    status = child(new, "status")
    quality = text(old, "status", "qosClass")
    if quality and status.get("qosClass") != quality and not status.get("qosClass"):
        new["status"] = {**status, "qosClass": quality}


def _check(obj: JsonObject, problems: Problems) -> None:
    containers = child(obj, "spec").get("containers")
    if not isinstance(containers, list) or not containers:
        problems.require("spec.containers")
        return
    for index, one in enumerate(containers):
        for key in ("name", "image"):
            if isinstance(one, dict) and not one.get(key):
                problems.require(f"spec.containers[{index}].{key}")


def _check_update(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    before, after = child(old, "spec"), child(new, "spec")
    for key in _CONTAINERS:
        if len(children(after, key)) != len(children(before, key)):
            problems.forbid(f"spec.{key}", "pod updates may not add or remove containers")
            return
    kept = children(before, "tolerations")
    if any(one not in children(after, "tolerations") for one in kept):
        not_modelled("an update of a pod that takes tolerations away")
    if _without_free(before) != _without_free(after):
        problems.forbid("spec", _MAY_CHANGE)


def _without_free(spec: JsonObject) -> JsonObject:
    """Return a spec without what may change; a grace period may go from below zero to one."""
    rest = {key: value for key, value in spec.items() if key not in _FREE}
    if number(spec, "terminationGracePeriodSeconds") < 0:
        rest["terminationGracePeriodSeconds"] = 1
    for key in _CONTAINERS:
        if key in rest:
            rest[key] = [_without_image(one) for one in children(spec, key)]
    return rest


def _without_image(container: JsonObject) -> JsonObject:
    return {key: value for key, value in container.items() if key != "image"}


def _check_status(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    quality = text(new, "status", "qosClass")
    if quality != text(old, "status", "qosClass"):
        problems.invalid("status.qosClass", quality, IMMUTABLE)


POD: Final = Rules(
    counted=("spec",),
    defaults={"spec": _default_spec, "status": _default_status},
    begin=_begin,
    settle_status=_settle_status,
    check=_check,
    check_update=_check_update,
    check_status=_check_status,
)
