"""Rules of pods: what a new pod gets, what may change later, what a status keeps.

A new pod also gets what the server's own admission plug-ins write: its ServiceAccount, priority and
the two tolerations of failing nodes. The token volume of a ServiceAccount is left out.
"""

from collections.abc import Callable
from typing import Final

from rollout_lab.model.fields import child, children, text
from rollout_lab.model.request import not_modelled
from rollout_lab.schemas.pod_specs import check_pod_spec, default_pod_spec
from rollout_lab.schemas.refusals import expect
from rollout_lab.schemas.rules import Rules
from rollout_operator.kube.api import JsonObject

_FAILING_NODE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED: Final[list[JsonObject]] = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in _FAILING_NODE
]
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
    spec.setdefault("enableServiceLinks", True)


def _default_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    for condition in children(status, "conditions"):
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for key in ("containerStatuses", "initContainerStatuses"):
        for container in children(status, key):
            for field, empty in _NEW_STATUS.items():
                container.setdefault(field, empty())


def _begin(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if not text(spec, "serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    for key in ("priorityClassName", "tolerations"):
        expect(not spec.get(key), f"a pod without {key}", spec.get(key))
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec["tolerations"] = [dict(toleration) for toleration in _TOLERATED]


def _settle_status(old: JsonObject, new: JsonObject) -> None:
    metadata, before = child(new, "metadata"), child(old, "metadata")
    for key in ("deletionTimestamp", "ownerReferences"):
        metadata.pop(key, None)
        if key in before:
            metadata[key] = before[key]
    quality = text(old, "status", "qosClass")
    if quality:
        new["status"] = {**child(new, "status"), "qosClass": quality}


def _check(obj: JsonObject) -> None:
    check_pod_spec(child(obj, "spec"))


def _check_update(old: JsonObject, new: JsonObject) -> None:
    expect(old["spec"] == new["spec"], "a change of a pod's spec", new["spec"])


POD: Final = Rules(
    raises_generation=("spec",),
    defaults={"spec": _default_spec, "status": _default_status},
    on_create=_begin,
    on_status_update=_settle_status,
    check=_check,
    check_update=_check_update,
)
