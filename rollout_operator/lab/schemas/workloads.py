"""Rules of StatefulSets, Deployments, ReplicaSets and ControllerRevisions.

StatefulSets are modelled in full as far as rollouts go; the two others as far as webhooks and
`/scale` need them. What controllers make of them is not decided here.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, number, text
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.invalid import IMMUTABLE, Problems
from rollout_operator.lab.schemas.labels import is_empty, matches, strings
from rollout_operator.lab.schemas.metadata import check_label_name, check_labels
from rollout_operator.lab.schemas.pod_specs import default_claims, default_template
from rollout_operator.lab.schemas.rules import Rules

_HISTORY_LIMIT: Final = 10
_PROGRESS_SECONDS: Final = 600
_MAY_CHANGE: Final = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
)
_FROZEN: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)
_SET_FIELDS: Final = frozenset(
    (*_MAY_CHANGE, "selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
)
_COUNTS: Final = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def _spec_of(obj: JsonObject) -> JsonObject:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        not_modelled(f"an object whose spec is {spec!r}")
    return spec


def _default_set(obj: JsonObject) -> None:
    spec = _spec_of(obj)
    for key in spec.keys() - _SET_FIELDS:
        del spec[key]
    spec.setdefault("serviceName", "")
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    assert isinstance(strategy, dict)
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate" and isinstance(rolling, dict):
        rolling.setdefault("partition", 0)
        # Behind a feature gate that is off by default: dropped.
        rolling.pop("maxUnavailable", None)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    assert isinstance(retention, dict)
    for key in ("whenDeleted", "whenScaled"):
        retention.setdefault(key, "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", _HISTORY_LIMIT)
    default_template(spec)
    default_claims(spec)


def _default_set_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


def _check_set(obj: JsonObject, problems: Problems) -> None:
    spec = child(obj, "spec")
    policy = spec["podManagementPolicy"]
    if policy not in ("OrderedReady", "Parallel"):
        problems.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    _check_strategy(child(spec, "updateStrategy"), problems)
    for key in ("whenDeleted", "whenScaled"):
        value = text(spec, "persistentVolumeClaimRetentionPolicy", key)
        if value not in ("Retain", "Delete"):
            field = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
            problems.unsupported(field, value, ("Retain", "Delete"))
    problems.negative("spec.replicas", spec["replicas"])
    problems.negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    problems.negative("spec.ordinals.start", child(spec, "ordinals").get("start"))
    _check_selector(spec, problems, "empty selector is invalid for statefulset")
    _check_template(spec, problems)


def _check_strategy(strategy: JsonObject, problems: Problems) -> None:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        problems.invalid(
            "spec.updateStrategy",
            {"Type": kind, "RollingUpdate": rolling},
            "must be 'RollingUpdate' or 'OnDelete'",
        )
    elif kind == "OnDelete" and rolling is not None:
        assert isinstance(rolling, dict)
        shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": None}
        problems.invalid(
            "spec.updateStrategy.rollingUpdate",
            shown,
            "only allowed for updateStrategy 'RollingUpdate'",
        )
    elif isinstance(rolling, dict):
        field = "spec.updateStrategy.rollingUpdate.partition"
        problems.negative(field, rolling.get("partition"))


def _check_selector(spec: JsonObject, problems: Problems, empty: str) -> None:
    selector = spec.get("selector")
    if not isinstance(selector, dict):
        problems.require("spec.selector")
    else:
        check_labels("spec.selector.matchLabels", strings(selector, "matchLabels"), problems)
        if is_empty(selector):
            problems.invalid("spec.selector", {}, empty)
    labels = strings(spec, "template", "metadata", "labels")
    # No selector matches nothing, an empty one everything.
    if not isinstance(selector, dict) or not matches(selector, labels):
        field = "spec.template.metadata.labels"
        problems.invalid(field, labels, "`selector` does not match template `labels`")


def _check_template(spec: JsonObject, problems: Problems) -> None:
    inner = child(spec, "template", "spec")
    containers = inner.get("containers")
    if not isinstance(containers, list) or not containers:
        problems.require("spec.template.spec.containers")
        containers = []
    for index, one in enumerate(containers):
        for key in ("name", "image"):
            if isinstance(one, dict) and not one.get(key):
                problems.require(f"spec.template.spec.containers[{index}].{key}")
    restart = text(inner, "restartPolicy")
    if restart != "Always":
        problems.unsupported("spec.template.spec.restartPolicy", restart, ("Always",))


def _check_new_set(obj: JsonObject, problems: Problems) -> None:
    service = text(obj, "spec", "serviceName")
    if service:
        check_label_name("spec.serviceName", service, problems)


def _check_set_update(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    before, after = child(old, "spec"), child(new, "spec")
    frozen = (before.keys() | after.keys()) - set(_MAY_CHANGE)
    if any(before.get(key) != after.get(key) for key in frozen):
        problems.forbid("spec", _FROZEN)


def _check_set_status(_: JsonObject, new: JsonObject, problems: Problems) -> None:
    status = child(new, "status")
    for key in ("replicas", *_COUNTS, "observedGeneration", "collisionCount"):
        problems.negative(f"status.{key}", status.get(key))
    total = number(status, "replicas")
    for key in _COUNTS:
        if number(status, key) > total:
            problems.invalid(
                f"status.{key}", number(status, key), "cannot be greater than status.replicas"
            )
    available = number(status, "availableReplicas")
    if available > number(status, "readyReplicas"):
        problems.invalid(
            "status.availableReplicas", available, "cannot be greater than status.readyReplicas"
        )


STATEFULSET: Final = Rules(
    counted=("spec",),
    has_label_name=True,
    defaults={"spec": _default_set, "status": _default_set_status},
    check=_check_set,
    check_new=_check_new_set,
    check_update=_check_set_update,
    check_status=_check_set_status,
)


def _default_deployment(obj: JsonObject) -> None:
    spec = _spec_of(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    assert isinstance(strategy, dict)
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        assert isinstance(rolling, dict)
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", _HISTORY_LIMIT)
    spec.setdefault("progressDeadlineSeconds", _PROGRESS_SECONDS)
    default_template(spec)


def _default_replicaset(obj: JsonObject) -> None:
    spec = _spec_of(obj)
    spec.setdefault("replicas", 1)
    default_template(spec)


def _default_plain_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    if status.get("availableReplicas") == 0:
        del status["availableReplicas"]


def _default_deployment_status(obj: JsonObject) -> None:
    _default_plain_status(obj)
    status = child(obj, "status")
    if status.get("replicas") == 0:
        del status["replicas"]


def _default_replicaset_status(obj: JsonObject) -> None:
    _default_plain_status(obj)
    child(obj, "status").setdefault("replicas", 0)


def _check_plain(obj: JsonObject, problems: Problems) -> None:
    spec = child(obj, "spec")
    problems.negative("spec.replicas", spec["replicas"])
    problems.negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    _check_selector(spec, problems, "empty selector is invalid for deployment")
    _check_template(spec, problems)


def _check_plain_update(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    selector = child(new, "spec").get("selector")
    if selector != child(old, "spec").get("selector"):
        problems.invalid("spec.selector", selector, IMMUTABLE)


def _count_annotations(old: JsonObject, new: JsonObject) -> None:
    """Raise the generation for changed annotations: ReplicaSets copy them."""
    metadata = child(new, "metadata")
    changed = metadata.get("annotations") != child(old, "metadata").get("annotations")
    if changed and old.get("spec") == new.get("spec"):
        metadata["generation"] = number(metadata, "generation") + 1


def _keep_labels(old: JsonObject, new: JsonObject) -> None:
    metadata, before = child(new, "metadata"), child(old, "metadata")
    metadata.pop("labels", None)
    if "labels" in before:
        metadata["labels"] = before["labels"]


DEPLOYMENT: Final = Rules(
    counted=("spec",),
    defaults={"spec": _default_deployment, "status": _default_deployment_status},
    settle=_count_annotations,
    settle_status=_keep_labels,
    check=_check_plain,
    check_update=_check_plain_update,
)
REPLICASET: Final = Rules(
    counted=("spec",),
    defaults={"spec": _default_replicaset, "status": _default_replicaset_status},
    check=_check_plain,
    check_update=_check_plain_update,
)


def _default_revision(obj: JsonObject) -> None:
    obj.setdefault("revision", 0)


def _check_revision(obj: JsonObject, problems: Problems) -> None:
    problems.negative("revision", obj["revision"])


def _check_new_revision(obj: JsonObject, problems: Problems) -> None:
    if "data" not in obj:
        problems.require("data", "data is mandatory")
    elif not isinstance(obj["data"], dict):
        problems.require("data", "data must be a valid JSON object")


def _check_revision_update(old: JsonObject, new: JsonObject, problems: Problems) -> None:
    if old.get("data") != new.get("data"):
        problems.invalid("data", new.get("data"), IMMUTABLE)


CONTROLLER_REVISION: Final = Rules(
    parts=frozenset({"data", "revision"}),
    raw=frozenset({"data"}),
    defaults={"revision": _default_revision},
    check=_check_revision,
    check_new=_check_new_revision,
    check_update=_check_revision_update,
)
