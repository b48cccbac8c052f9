"""Rules of StatefulSets, as far as rollouts go, and of their ControllerRevisions.

What controllers make of them is not decided here.
"""

import re
from typing import Final

from rollout_lab.model.fields import child, name_of, text
from rollout_lab.model.request import not_modelled
from rollout_lab.schemas.metadata import check_name
from rollout_lab.schemas.pod_specs import check_template, default_template
from rollout_lab.schemas.refusals import check_not_negative, expect
from rollout_lab.schemas.rules import Rules
from rollout_operator.kube.api import JsonObject

_HISTORY_LIMIT: Final = 10
_SHARE: Final = re.compile(r"[1-9][0-9]?%|100%")
_RETENTION: Final = "persistentVolumeClaimRetentionPolicy"
_MAY_CHANGE: Final = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *(_RETENTION, "minReadySeconds"),
)
_SET_FIELDS: Final = frozenset((*_MAY_CHANGE, "selector", "serviceName", "podManagementPolicy"))
_COUNTS: Final = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def _default_set(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        not_modelled(f"a StatefulSet whose spec is {spec!r}")
    expect(not spec.get("volumeClaimTemplates"), "a set without claims", spec)
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
        rolling.setdefault("maxUnavailable", 1)  # since 1.37
    retention = spec.setdefault(_RETENTION, {})
    assert isinstance(retention, dict)
    for key in ("whenDeleted", "whenScaled"):
        retention.setdefault(key, "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", _HISTORY_LIMIT)
    default_template(spec)


def _default_set_status(obj: JsonObject) -> None:
    status = obj.setdefault("status", {})
    assert isinstance(status, dict)
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


def _begin_set(obj: JsonObject) -> None:
    # Sets that are older than this rule have other names.
    if service := text(obj, "spec", "serviceName"):
        check_name("spec.serviceName", service, is_label=True)


def _check_set(obj: JsonObject) -> None:
    spec, status = child(obj, "spec"), child(obj, "status")
    # Also where a schedule of the tests wants fewer than none.
    check_not_negative("StatefulSet.apps", name_of(obj), "spec.replicas", spec["replicas"])
    check_template(spec)
    most = child(spec, "updateStrategy", "rollingUpdate").get("maxUnavailable", 1)
    is_share = isinstance(most, str) and bool(_SHARE.fullmatch(most))
    expect(is_share or (isinstance(most, int) and most > 0), "maxUnavailable", most)
    for key in _COUNTS:
        # A rolling update that deletes a pod of no revision that counts leads to this.
        check_not_negative("StatefulSet.apps", name_of(obj), f"status.{key}", status.get(key))


def _check_set_update(old: JsonObject, new: JsonObject) -> None:
    before, after = child(old, "spec"), child(new, "spec")
    frozen = (before.keys() | after.keys()) - set(_MAY_CHANGE)
    changed = [key for key in frozen if before.get(key) != after.get(key)]
    expect(not changed, "a change of", changed)


STATEFULSET: Final = Rules(
    raises_generation=("spec",),
    has_label_name=True,
    defaults={"spec": _default_set, "status": _default_set_status},
    on_create=_begin_set,
    check=_check_set,
    check_update=_check_set_update,
)


def _default_revision(obj: JsonObject) -> None:
    obj.setdefault("revision", 0)


CONTROLLER_REVISION: Final = Rules(
    parts=frozenset({"data", "revision"}),
    raw=frozenset({"data"}),
    defaults={"revision": _default_revision},
)
