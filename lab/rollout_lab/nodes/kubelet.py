"""Scheduler and kubelets: give pods nodes, start them, trouble them, end them.

Each pod has one step ahead of it at a time. What its status then says is decided in `pod_status`,
how it answers over HTTP in `pods`; which behaviour it has is chosen when it is created.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import (
    child,
    children,
    is_terminating,
    name_of,
    namespace_of,
    text,
    timestamp,
    uid_of,
)
from rollout_lab.model.history import Commit
from rollout_lab.model.request import MERGE_PATCH, ApiRequest, ApiServer
from rollout_lab.nodes.behaviour import Behaviour, Choose, StartKind
from rollout_lab.nodes.nodes import Place, find_node
from rollout_lab.nodes.pod_status import Shape, StatusPlace, next_status, scheduled
from rollout_lab.nodes.pods import PodEndpoints
from rollout_lab.virtual_loop.pace import Range, StepTimes, Timers, draw
from rollout_operator.kube.api import PODS, JsonObject

KUBELET: Final = "kubelet"
SCHEDULER: Final = "scheduler"
# The pauses of a real crash loop grow from 10 s to 5 min.
_LONGEST_DOUBLING: Final = 5


class _PodSlot(msgspec.Struct, kw_only=True):
    """One pod's place."""

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
        self._endpoints.leave(slot.ip)
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
            self._endpoints.leave(slot.ip)

    # Writing

    def _write(self, slot: _PodSlot, shape: Shape, *, user: str = KUBELET) -> None:
        pod = self._fetch(slot)
        if pod is None:
            return
        slot.shape = shape
        if shape.is_running:
            self._listen(slot)
        else:
            self._endpoints.leave(slot.ip)
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
