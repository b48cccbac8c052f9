"""The status of a pod as kubelets write it, for each state that a pod of ours can be in.

Pure: from the pod as it is now to its next status. When it changes is decided in `kubelet`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from rollout_lab.model.fields import child, children, condition_of, number, text
from rollout_operator.kube.api import JsonObject

HOST_IP: Final = "10.255.0.1"


class Shape(Enum):
    """What a pod looks like."""

    NEW = auto()
    """As it was created: no kubelet has seen it."""
    UNSCHEDULABLE = auto()
    CREATING = auto()
    RUNNING = auto()
    """Its containers run and are not ready."""
    READY = auto()
    GATED = auto()
    """Containers ready, the condition Ready held back by a readiness gate."""
    CLAIMED = auto()
    """Condition Ready true, and no container status that would prove it."""
    CRASHED = auto()
    """Its containers have just ended with an error."""
    BACKOFF = auto()
    """Its containers wait in CrashLoopBackOff."""
    FAILED = auto()
    SUCCEEDED = auto()

    @property
    def is_running(self) -> bool:
        """Return whether its containers run, so that it answers over HTTP."""
        return self in _RUNNING


_RUNNING: Final = (Shape.RUNNING, Shape.READY, Shape.GATED, Shape.CLAIMED)
_PHASES: Final[Mapping[Shape, str]] = {
    Shape.NEW: "Pending",
    Shape.UNSCHEDULABLE: "Pending",
    Shape.CREATING: "Pending",
    Shape.FAILED: "Failed",
    Shape.SUCCEEDED: "Succeeded",
}
_NOT_READY: Final[Mapping[Shape, str]] = {
    Shape.GATED: "ReadinessGatesNotReady",
    Shape.SUCCEEDED: "PodCompleted",
    Shape.FAILED: "PodFailed",
}


class StatusPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a status is written."""

    ip: str
    now: str
    """As `fields.timestamp` writes it."""


def next_status(pod: JsonObject, shape: Shape, place: StatusPlace) -> JsonObject:
    """Return the whole next status; times of conditions move only where the condition does."""
    if shape is Shape.UNSCHEDULABLE:
        return {"phase": "Pending", "conditions": [_unschedulable(pod, place)]}
    status: JsonObject = {
        "phase": _PHASES.get(shape, "Running"),
        "hostIP": HOST_IP,
        "startTime": text(pod, "status", "startTime") or place.now,
        "conditions": _conditions(pod, shape, place.now),
        "containerStatuses": ([] if shape is Shape.CLAIMED else _containers(pod, shape, place.now)),
    }
    if shape is not Shape.CREATING:
        status |= {"podIP": place.ip, "podIPs": [{"ip": place.ip}]}
    if shape is Shape.FAILED:
        status |= {"reason": "Evicted", "message": "the node was low on resource: memory"}
    return status


def scheduled(pod: JsonObject, now: str) -> JsonObject:
    """Return the condition that says that it has a node."""
    return _condition(pod, "PodScheduled", "", now)


def _unschedulable(pod: JsonObject, place: StatusPlace) -> JsonObject:
    condition = _condition(pod, "PodScheduled", "Unschedulable", place.now)
    return condition | {"message": "0/1 nodes are available"}


def _conditions(pod: JsonObject, shape: Shape, now: str) -> list[JsonObject]:
    are_containers_ready = shape in (Shape.READY, Shape.GATED, Shape.CLAIMED)
    is_ready = shape in (Shape.READY, Shape.CLAIMED)
    why = _NOT_READY.get(shape, "ContainersNotReady")
    return [
        scheduled(pod, now),
        _condition(pod, "Initialized", "", now),
        _condition(pod, "ContainersReady", "" if are_containers_ready else why, now),
        _condition(pod, "Ready", "" if is_ready else why, now),
    ]


def _condition(pod: JsonObject, kind: str, why_not: str, now: str) -> JsonObject:
    """Return a condition: true where there is no reason why not."""
    status = "False" if why_not else "True"
    since = now
    old = condition_of(pod, kind)
    if old.get("status") == status:
        since = text(old, "lastTransitionTime") or now
    condition: JsonObject = {"type": kind, "status": status, "lastTransitionTime": since}
    return condition | {"reason": why_not} if why_not else condition


def _containers(pod: JsonObject, shape: Shape, now: str) -> list[JsonObject]:
    before = {text(state, "name"): state for state in children(pod, "status", "containerStatuses")}
    return [
        _container(container, before.get(text(container, "name"), {}), shape, now)
        for container in children(pod, "spec", "containers")
    ]


def _container(container: JsonObject, before: JsonObject, shape: Shape, now: str) -> JsonObject:
    state = _state(before, shape, now)
    ended = child(before, "state", "terminated") or child(before, "lastState", "terminated")
    restarts = number(before, "restartCount")
    if shape.is_running and ended and not child(before, "state", "running"):
        restarts += 1
    return {
        "name": text(container, "name"),
        "image": text(container, "image"),
        "imageID": "" if shape is Shape.CREATING else text(container, "image"),
        "ready": shape in (Shape.READY, Shape.GATED),
        "started": shape.is_running,
        "restartCount": restarts,
        "state": state,
        "lastState": {"terminated": ended} if ended and "terminated" not in state else {},
    }


def _state(before: JsonObject, shape: Shape, now: str) -> JsonObject:
    if shape.is_running:
        running = child(before, "state", "running")
        return {"running": running or {"startedAt": now}}
    if shape is Shape.CREATING:
        return {"waiting": {"reason": "ContainerCreating"}}
    if shape is Shape.BACKOFF:
        message = "back-off restarting failed container"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    ended: JsonObject = {
        "exitCode": {Shape.SUCCEEDED: 0, Shape.FAILED: 137}.get(shape, 1),
        "reason": "Completed" if shape is Shape.SUCCEEDED else "Error",
        "startedAt": text(before, "state", "running", "startedAt") or now,
        "finishedAt": now,
    }
    return {"terminated": ended}
