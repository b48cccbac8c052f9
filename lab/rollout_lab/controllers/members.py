"""The pods of a StatefulSet: which are its own, what state they are in, what a new one looks like.

Pure. Sets that claim volumes are not modelled.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_lab.model.fields import (
    child,
    children,
    is_terminating,
    moment_of,
    name_of,
    namespace_of,
    number,
    text,
    uid_of,
)
from rollout_lab.schemas.labels import labels_of, matches
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import PARALLEL, REVISION_LABEL

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
API_VERSION: Final = "apps/v1"
STATEFULSET: Final = "StatefulSet"

_NAME: Final = re.compile(r"(.*)-([0-9]+)$")
_MOST_ORDINAL: Final = 2**31 - 1


class Member(msgspec.Struct, kw_only=True):
    """One version of a pod, and what the controller reads of it again and again: read once."""

    pod: JsonObject
    name: str
    parent: str
    """The name of a set, as its own name has it; see `parse_name`."""
    ordinal: int
    labels: Mapping[str, str]
    revision: str
    phase: str
    ready_since: str | None
    is_terminating: bool

    @property
    def is_running_and_ready(self) -> bool:
        """Return whether the controller counts it as ready; a terminating pod may well be."""
        return self.phase == "Running" and self.ready_since is not None

    def is_available(self, min_ready: int, now: datetime) -> bool:
        """Return whether it has been ready for `min_ready` seconds, whatever its phase."""
        since = self.ready_since
        if since is None:
            return False
        if min_ready == 0:
            return True
        return since != "" and moment_of(since) + timedelta(seconds=min_ready) <= now

    def is_unavailable(self, min_ready: int, now: datetime) -> bool:
        """Return whether it does not count as up: unavailable, or on its way out."""
        return self.is_terminating or not self.is_available(min_ready, now)

    def has_identity(self, set_name: str) -> bool:
        """Return whether name and label are those of a member of the set."""
        return (
            self.ordinal >= 0
            and self.parent == set_name
            and self.name == f"{set_name}-{self.ordinal}"
            and self.labels.get(POD_NAME_LABEL) == self.name
        )


def read_member(pod: JsonObject) -> Member:
    """Return what the controller reads of a pod."""
    parent, ordinal = parse_name(pod)
    labels = labels_of(pod)
    return Member(
        pod=pod,
        name=name_of(pod),
        parent=parent,
        ordinal=ordinal,
        labels=labels,
        revision=labels.get(REVISION_LABEL, ""),
        phase=phase_of(pod),
        ready_since=ready_since(pod),
        is_terminating=is_terminating(pod),
    )


def parse_name(pod: JsonObject) -> tuple[str, int]:
    """Return the names of set and ordinal in a pod's name; -1 where it holds none."""
    match = _NAME.match(name_of(pod))
    if match is None:
        return "", -1
    ordinal = int(match[2])
    return match[1], ordinal if ordinal <= _MOST_ORDINAL else -1


def ordinals_of(sts: JsonObject) -> range:
    """Return the ordinals that a set wants."""
    start = number(sts, "spec", "ordinals", "start")
    return range(start, start + number(sts, "spec", "replicas", default=1))


def is_parallel(sts: JsonObject) -> bool:
    """Return whether pods come and go without waiting for one another."""
    return text(sts, "spec", "podManagementPolicy") == PARALLEL


def selects(sts: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a set's selector matches labels."""
    return matches(child(sts, "spec", "selector"), labels)


def phase_of(pod: JsonObject) -> str:
    """Return the phase; empty for a pod that is not there yet."""
    return text(pod, "status", "phase")


def is_running_and_ready(pod: JsonObject) -> bool:
    """Return whether the controller counts it as ready; a terminating pod may well be."""
    return phase_of(pod) == "Running" and ready_since(pod) is not None


def ready_since(pod: JsonObject) -> str | None:
    """Return since when the condition Ready is true, None where it is not."""
    for condition in children(pod, "status", "conditions"):
        if condition.get("type") == "Ready":
            return (
                text(condition, "lastTransitionTime") if condition.get("status") == "True" else None
            )
    return None


def owner_reference(sts: JsonObject) -> JsonObject:
    """Return the reference by which a set controls an object."""
    return {
        "apiVersion": API_VERSION,
        "kind": STATEFULSET,
        "name": name_of(sts),
        "uid": uid_of(sts),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def new_pod(sts: JsonObject, template: JsonObject, revision: str, ordinal: int) -> JsonObject:
    """Return a pod that is to be created; it shares the parts of the template."""
    name = f"{name_of(sts)}-{ordinal}"
    identity = {
        REVISION_LABEL: revision,
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
    }
    metadata: JsonObject = {
        "name": name,
        "generateName": f"{name_of(sts)}-",
        "namespace": namespace_of(sts),
        "labels": {**child(template, "metadata", "labels"), **identity},
        "ownerReferences": [owner_reference(sts)],
    }
    head = child(template, "metadata")
    metadata |= {key: head[key] for key in ("annotations", "finalizers") if head.get(key)}
    spec: JsonObject = {**child(template, "spec"), "hostname": name}
    service = text(sts, "spec", "serviceName")
    if service:
        spec["subdomain"] = service
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
