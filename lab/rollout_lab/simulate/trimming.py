"""What of an object goes into the simulated world: what decides there, completed as a server would.

Of containers, name and image are kept; what they are given, Secrets among it, never gets any
further.
"""

from collections.abc import Iterable
from typing import Final

from rollout_lab.model.fields import child, children, name_of, text
from rollout_lab.model.request import ApiRefusal, NotModelled
from rollout_lab.schemas.kinds import get_kind
from rollout_lab.schemas.refusals import BadField
from rollout_lab.simulate.bounds import check_object
from rollout_operator.cli.dumps import HINT, BadDump
from rollout_operator.guards.grants import read_record
from rollout_operator.kube.api import STATEFULSETS, JsonObject, Resource
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.objects import Pod
from rollout_operator.planning.wording import printable

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
