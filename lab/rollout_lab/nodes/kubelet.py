"""Scheduler and kubelets: give pods nodes, start them, trouble them, end them.

Each pod has one step ahead of it at a time. How it answers over HTTP is decided in `pods`; which
behaviour it has is chosen when it is created.
"""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import (
    child,
    children,
    condition_of,
    is_terminating,
    name_of,
    namespace_of,
    number,
    text,
    timestamp,
    uid_of,
)
from rollout_lab.model.history import Commit
from rollout_lab.model.request import MERGE_PATCH, ApiRequest, ApiServer
from rollout_lab.nodes.behaviour import Behaviour, Choose, StartKind
from rollout_lab.nodes.pods import Place, PodEndpoints, find_node
from rollout_lab.virtual_loop.pace import Range, StepTimes, Timers, draw
from rollout_operator.kube.api import PODS, JsonObject

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


KUBELET: Final = "kubelet"
SCHEDULER: Final = "scheduler"
# The pauses of a real crash loop grow from 10 s to 5 min.
_LONGEST_DOUBLING: Final = 5


class _PodSlot(msgspec.Struct, kw_only=True):
    name: str
    namespace: str
    uid: str
    behaviour: Behaviour
    ip: str
    shape: Shape = Shape.NEW
    timer: int = 0
    crashes: int = 0
    is_failed: bool = False
    """Made to fail from outside: it does not come back by itself."""
    is_ending: bool = False


class Kubelets:
    """Plays every pod of a world. Told of commits by `see`, it works by timers."""

    def __init__(
        self,
        api: ApiServer,
        choose: Choose,
        *,
        timers: Timers,
        rng: random.Random,
        pace: StepTimes,
        endpoints: PodEndpoints,
    ) -> None:
        self.choose = choose
        self.place: Place = partial(find_node, api)
        self._api = api
        self._timers = timers
        self._rng = rng
        self._pace = pace
        self._endpoints = endpoints
        self._slots: dict[str, _PodSlot] = {}
        self._given = 0

    def see(self, commit: Commit) -> None:
        """Record a change of a pod."""
        pod = commit.after
        if pod is None:
            self._forget(uid_of(commit.before or {}))
            return
        slot = self._slots.get(uid_of(pod))
        if slot is None:
            self.admit(pod)
        elif is_terminating(pod) and not slot.is_ending:
            self._begin_end(slot)

    def see_node(self) -> None:
        """Record a change of nodes: pods that wait for a node may get it."""
        for slot in self._slots.values():
            waits = slot.shape is Shape.UNSCHEDULABLE and not slot.is_ending
            if waits and slot.behaviour.kind is not StartKind.PENDING:
                self._later(slot, self._soon(self._pace.scheduler), self._bind)

    def fail(self, name: str) -> None:
        """Crash a pod, or let it crash as soon as it runs; it stays so until `mend`.

        Raises LookupError where no living pod has that name.
        """
        slot = self._get_slot(name)
        slot.is_failed = True
        if slot.shape.is_running:
            self._crash(slot)

    def mend(self, name: str) -> None:
        """Make a pod well, whatever its behaviour was: a pod that has run is ready at once.

        Raises LookupError where no living pod has that name.
        """
        slot = self._get_slot(name)
        slot.is_failed = False
        slot.behaviour = replace(slot.behaviour, kind=StartKind.NORMAL)
        if slot.shape in (Shape.NEW, Shape.UNSCHEDULABLE):
            self._later(slot, self._soon(self._pace.scheduler), self._bind)
        elif slot.shape not in (Shape.CREATING, Shape.FAILED):
            self._timers.cancel(slot.timer)
            self._write(slot, Shape.READY)

    def _get_slot(self, name: str) -> _PodSlot:
        for slot in self._slots.values():
            if slot.name == name and not slot.is_ending:
                return slot
        raise LookupError(f"no living pod {name}")

    # Beginning

    def admit(self, pod: JsonObject) -> None:
        """Take a pod on as it is: new, or running already elsewhere."""
        slot = self._slots[uid_of(pod)] = _PodSlot(
            name=name_of(pod),
            namespace=namespace_of(pod),
            uid=uid_of(pod),
            behaviour=self.choose(pod),
            ip=text(pod, "status", "podIP") or self._next_ip(),
        )
        phase = text(pod, "status", "phase")
        if phase == "Running":
            self._resume(slot, pod)
        if is_terminating(pod):
            self._begin_end(slot)
        elif phase in ("", "Pending"):
            has_node = bool(text(pod, "spec", "nodeName"))
            pace = self._pace
            if has_node:
                self._later(slot, self._soon(pace.kubelet), self._create)
            else:
                self._later(slot, self._soon(pace.scheduler), self._bind)

    def _resume(self, slot: _PodSlot, pod: JsonObject) -> None:
        """Go on with a pod that was put into the world as it ran elsewhere."""
        statuses = children(pod, "status", "containerStatuses")
        if not any(child(status, "state", "running") for status in statuses):
            slot.shape = Shape.BACKOFF
            self._later(slot, slot.behaviour.starts_after, self._start)
            return
        is_ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in children(pod, "status", "conditions")
        )
        slot.shape = Shape.READY if is_ready else Shape.RUNNING
        self._listen(slot)
        if not is_ready or slot.behaviour.kind is not StartKind.NORMAL:
            self._later(slot, slot.behaviour.ready_after, self._settle)

    def _next_ip(self) -> str:
        self._given += 1
        high, low = divmod(self._given, 250)
        return f"10.{high // 256}.{high % 256}.{low + 1}"

    def _bind(self, slot: _PodSlot) -> None:
        pod = self._fetch(slot)
        if pod is None:
            return
        node = None if slot.behaviour.kind is StartKind.PENDING else self.place(pod)
        if node is None:
            self._write(slot, Shape.UNSCHEDULABLE, user=SCHEDULER)
            return
        conditions = [scheduled(pod, self._now())]
        bound: JsonObject = {
            **pod,
            "spec": {**child(pod, "spec"), "nodeName": node},
            "status": {**child(pod, "status"), "conditions": conditions},
        }
        self._api.put(bound, actor=SCHEDULER)
        self._later(slot, self._soon(self._pace.kubelet), self._create)

    def _create(self, slot: _PodSlot) -> None:
        self._write(slot, Shape.CREATING)
        self._later(slot, slot.behaviour.starts_after, self._start)

    def _start(self, slot: _PodSlot) -> None:
        self._write(slot, Shape.RUNNING)
        self._later(slot, slot.behaviour.ready_after, self._settle)
        if slot.is_failed:
            self._crash(slot)

    # Living

    def _settle(self, slot: _PodSlot) -> None:
        """Show what becomes of a pod that has run for a while."""
        match slot.behaviour.kind:
            case StartKind.NORMAL:
                self._write(slot, Shape.READY)
            case StartKind.NEVER_READY | StartKind.PENDING:
                pass
            case StartKind.CRASH_LOOP:
                self._crash(slot)
            case StartKind.GATE_CLOSED:
                self._write(slot, Shape.GATED)
            case StartKind.NO_STATUSES:
                self._write(slot, Shape.CLAIMED)
            case StartKind.FLAPPING:
                flipped = Shape.RUNNING if slot.shape is Shape.READY else Shape.READY
                self._write(slot, flipped)
                self._later(slot, slot.behaviour.period, self._settle)
            case StartKind.FAILED:
                self._write(slot, Shape.FAILED)
            case _:
                assert_never(slot.behaviour.kind)

    def _crash(self, slot: _PodSlot) -> None:
        self._write(slot, Shape.CRASHED)
        self._later(slot, self._soon(self._pace.kubelet), self._back_off)

    def _back_off(self, slot: _PodSlot) -> None:
        self._write(slot, Shape.BACKOFF)
        if not slot.is_failed:
            pause = slot.behaviour.period * 2 ** min(slot.crashes, _LONGEST_DOUBLING)
            self._later(slot, pause, self._start)
        slot.crashes += 1

    # Ending

    def _begin_end(self, slot: _PodSlot) -> None:
        slot.is_ending = True
        noticed = self._soon(self._pace.kubelet)
        self._later(slot, noticed + slot.behaviour.terminates_after, self._end)

    def _end(self, slot: _PodSlot) -> None:
        if slot.shape.is_running and slot.behaviour.shows_its_end:
            self._write(slot, Shape.SUCCEEDED)
            self._later(slot, self._soon(self._pace.kubelet), self._remove)
        else:
            self._remove(slot)

    def _remove(self, slot: _PodSlot) -> None:
        self._endpoints.leave(slot.ip, slot.uid)
        options: JsonObject = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": slot.uid},
        }
        self._call(slot, "delete", "", options)

    def _forget(self, uid: str) -> None:
        slot = self._slots.pop(uid, None)
        if slot is not None:
            self._timers.cancel(slot.timer)
            self._endpoints.leave(slot.ip, slot.uid)

    # Writing

    def _write(self, slot: _PodSlot, shape: Shape, *, user: str = KUBELET) -> None:
        pod = self._fetch(slot)
        if pod is None:
            return
        slot.shape = shape
        if shape.is_running:
            self._listen(slot)
        else:
            self._endpoints.leave(slot.ip, slot.uid)
        status = next_status(pod, shape, StatusPlace(ip=slot.ip, now=self._now()))
        patch: JsonObject = {"metadata": {"uid": slot.uid}, "status": status}
        self._call(slot, "patch", user, patch)

    def _call(self, slot: _PodSlot, verb: str, user: str, body: JsonObject) -> None:
        is_patch = verb == "patch"
        answer = self._api.call_now(
            ApiRequest(
                verb="patch" if is_patch else "delete",
                resource=PODS,
                namespace=slot.namespace,
                name=slot.name,
                subresource="status" if is_patch else "",
                body=body,
                content_type=MERGE_PATCH if is_patch else "application/json",
                user=user or KUBELET,
            )
        )
        # Gone, or another pod of its name: there is nothing left to do for this.
        if not answer.is_ok and answer.status not in (404, 409):
            raise RuntimeError(f"{user or KUBELET}: {verb} pod {slot.name}: {answer.message}")

    def _listen(self, slot: _PodSlot) -> None:
        self._endpoints.enter(slot.ip, pod=slot.name, uid=slot.uid, behaviour=slot.behaviour)

    def _fetch(self, slot: _PodSlot) -> JsonObject | None:
        pod = self._api.get(PODS, slot.namespace, slot.name)
        return pod if pod is not None and uid_of(pod) == slot.uid else None

    def _now(self) -> str:
        return timestamp(self._api.now())

    def _soon(self, span: Range) -> timedelta:
        return draw(self._rng, span)

    def _later(self, slot: _PodSlot, span: timedelta, step: Callable[[_PodSlot], None]) -> None:
        self._timers.cancel(slot.timer)
        slot.timer = self._timers.after(span, lambda: step(slot))
