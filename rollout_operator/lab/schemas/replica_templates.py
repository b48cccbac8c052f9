"""Rules of ReplicaTemplates: a custom resource whose schema is in `manifests/crds`.

What sets it apart from the kinds that are built in: a schema decides what is kept and judged, and
`status` is absent until somebody writes it.
"""

from collections.abc import Mapping
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.invalid import Problems
from rollout_operator.lab.schemas.rules import Rules

_LARGEST: Final = 2**31 - 1
_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "spec": {"replicas": int, "labelSelector": str},
    "status": {"replicas": int},
}


def _prune(obj: JsonObject, part: str) -> None:
    """Drop, in place, the fields that the schema does not have."""
    if part not in obj:
        return
    known, given = _FIELDS[part], child(obj, part)
    for key, value in given.items():
        if key in known and type(value) is not known[key]:
            not_modelled(f"a ReplicaTemplate whose {part}.{key} is {value!r}")
    obj[part] = {key: value for key, value in given.items() if key in known}


def _default_spec(obj: JsonObject) -> None:
    _prune(obj, "spec")
    if "spec" in obj:
        obj["spec"] = {"replicas": 1, **child(obj, "spec")}


def _default_status(obj: JsonObject) -> None:
    _prune(obj, "status")


def _keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Leave it as it was: the status of a custom resource is written alone."""
    new["metadata"] = dict(child(old, "metadata"))


def _check(obj: JsonObject, problems: Problems) -> None:
    replicas = child(obj, "spec").get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        why = "spec.replicas in body should be greater than or equal to 0"
        problems.invalid("spec.replicas", replicas, why)
    _check_count(".spec.replicas", replicas, problems)
    _check_count(".status.replicas", child(obj, "status").get("replicas"), problems)


def _check_status(_: JsonObject, new: JsonObject, problems: Problems) -> None:
    _check_count(".status.replicas", child(new, "status").get("replicas"), problems)


def _check_count(field: str, value: object, problems: Problems) -> None:
    """Judge what the `scale` subresource shows."""
    if isinstance(value, int) and value < 0:
        problems.invalid(field, value, "should be a non-negative integer")
    elif isinstance(value, int) and value > _LARGEST:
        problems.invalid(field, value, f"should be less than or equal to {_LARGEST}")


REPLICA_TEMPLATE: Final = Rules(
    raw=frozenset({"spec", "status"}),
    counted=("spec",),
    defaults={"spec": _default_spec, "status": _default_status},
    settle_status=_keep_metadata,
    check=_check,
    check_status=_check_status,
)
