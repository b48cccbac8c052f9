"""Scheduler and kubelets: give pods nodes, start them, trouble them, end them.

Each pod has one step ahead of it at a time. What its status then says is decided in `pod_status`,
how it answers over HTTP in `pods`; which behaviour it has is chosen when it is created.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, assert_never

from rollout_operator.kube.api import PODS, JsonObject, Resource
from rollout_operator.lab.model.fields import (
    child,
    children,
    is_terminating,
    name_of,
    namespace_of,
    text,
    timestamp,
    uid_of,
)
from rollout_operator.lab.model.history import Commit
from rollout_operator.lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest
from rollout_operator.lab.nodes.behaviour import Behaviour, Choose, StartKind
from rollout_operator.lab.nodes.nodes import find_node
from rollout_operator.lab.nodes.pod_status import Shape, StatusPlace, next_status, scheduled
from rollout_operator.lab.nodes.pods import PodEndpoints
from rollout_operator.lab.virtual_loop.pace import Range, StepTimes, Timers, draw

KUBELET: Final = "kubelet"
SCHEDULER: Final = "scheduler"
# The pauses of a real crash loop grow from 10 s to 5 min.
_LONGEST_DOUBLING: Final = 5


class PodApi(Protocol):
    """What kubelets need of the API server."""

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None: ...

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]: ...

    def call_now(self, request: ApiRequest) -> ApiAnswer: ...

    def put(self, obj: JsonObject, *, actor: str) -> None: ...

    def now(self) -> datetime: ...


@dataclass(slots=True, kw_only=True)
class _PodSlot:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a kubelet works with."""

    timers: Timers
    rng: random.Random
    pace: StepTimes
    endpoints: PodEndpoints


class Kubelets:
    """Plays every pod of a world. Told of commits by `see`, it works by timers."""

    def __init__(self, api: PodApi, means: Means, choose: Choose) -> None:
        self.choose = choose
        self._api = api
        self._means = means
        self._seats: dict[str, _PodSlot] = {}
        self._given = 0

    def see(self, commit: Commit) -> None:
        """Take note of a change of a pod."""
        pod = commit.after
        if pod is None:
            self._forget(uid_of(commit.before or {}))
            return
        seat = self._seats.get(uid_of(pod))
        if seat is None:
            self.admit(pod)
        elif is_terminating(pod) and not seat.is_ending:
            self._begin_end(seat)

    def see_node(self) -> None:
        """Take note of a change of a node: pods that wait for one may get it."""
        for seat in self._seats.values():
            waits = seat.shape is Shape.UNSCHEDULABLE and not seat.is_ending
            if waits and seat.behaviour.kind is not StartKind.PENDING:
                self._later(seat, self._soon(self._means.pace.scheduler), self._bind)

    def fail(self, name: str) -> None:
        """Crash a pod, or let it crash as soon as it runs; it stays so until `mend`.

        Raises LookupError where no living pod has that name.
        """
        seat = self._find(name)
        seat.is_failed = True
        if seat.shape.is_running:
            self._crash(seat)

    def mend(self, name: str) -> None:
        """Make a pod well, whatever its behaviour was: one that has run is ready at once.

        Raises LookupError where no living pod has that name.
        """
        seat = self._find(name)
        seat.is_failed = False
        seat.behaviour = replace(seat.behaviour, kind=StartKind.NORMAL)
        if seat.shape in (Shape.NEW, Shape.UNSCHEDULABLE):
            self._later(seat, self._soon(self._means.pace.scheduler), self._bind)
        elif seat.shape not in (Shape.CREATING, Shape.FAILED):
            self._means.timers.cancel(seat.timer)
            self._write(seat, Shape.READY)

    def _find(self, name: str) -> _PodSlot:
        for seat in self._seats.values():
            if seat.name == name and not seat.is_ending:
                return seat
        raise LookupError(f"no living pod {name}")

    # Beginning

    def admit(self, pod: JsonObject) -> None:
        """Take a pod on as it is: new, or running already elsewhere."""
        seat = self._seats[uid_of(pod)] = _PodSlot(
            name=name_of(pod),
            namespace=namespace_of(pod),
            uid=uid_of(pod),
            behaviour=self.choose(pod),
            ip=text(pod, "status", "podIP") or self._next_ip(),
        )
        phase = text(pod, "status", "phase")
        if phase == "Running":
            self._resume(seat, pod)
        if is_terminating(pod):
            self._begin_end(seat)
        elif phase in ("", "Pending"):
            has_node = bool(text(pod, "spec", "nodeName"))
            pace = self._means.pace
            if has_node:
                self._later(seat, self._soon(pace.kubelet), self._create)
            else:
                self._later(seat, self._soon(pace.scheduler), self._bind)

    def _resume(self, seat: _PodSlot, pod: JsonObject) -> None:
        """Go on with a pod that was put into the world as it ran elsewhere."""
        statuses = children(pod, "status", "containerStatuses")
        if not any(child(one, "state", "running") for one in statuses):
            seat.shape = Shape.BACKOFF
            self._later(seat, seat.behaviour.starts_after, self._start)
            return
        is_ready = any(
            one.get("type") == "Ready" and one.get("status") == "True"
            for one in children(pod, "status", "conditions")
        )
        seat.shape = Shape.READY if is_ready else Shape.RUNNING
        self._listen(seat)
        if not is_ready or seat.behaviour.kind is not StartKind.NORMAL:
            self._later(seat, seat.behaviour.ready_after, self._settle)

    def _next_ip(self) -> str:
        self._given += 1
        high, low = divmod(self._given, 250)
        return f"10.{high // 256}.{high % 256}.{low + 1}"

    def _bind(self, seat: _PodSlot) -> None:
        pod = self._look(seat)
        if pod is None:
            return
        node = None if seat.behaviour.kind is StartKind.PENDING else find_node(self._api, pod)
        if node is None:
            self._write(seat, Shape.UNSCHEDULABLE, user=SCHEDULER)
            return
        conditions = [scheduled(pod, self._now())]
        bound: JsonObject = {
            **pod,
            "spec": {**child(pod, "spec"), "nodeName": node},
            "status": {**child(pod, "status"), "conditions": conditions},
        }
        self._api.put(bound, actor=SCHEDULER)
        self._later(seat, self._soon(self._means.pace.kubelet), self._create)

    def _create(self, seat: _PodSlot) -> None:
        self._write(seat, Shape.CREATING)
        self._later(seat, seat.behaviour.starts_after, self._start)

    def _start(self, seat: _PodSlot) -> None:
        self._write(seat, Shape.RUNNING)
        self._later(seat, seat.behaviour.ready_after, self._settle)
        if seat.is_failed:
            self._crash(seat)

    # Living

    def _settle(self, seat: _PodSlot) -> None:
        """Show what becomes of a pod that has run for a while."""
        match seat.behaviour.kind:
            case StartKind.NORMAL:
                self._write(seat, Shape.READY)
            case StartKind.NEVER_READY | StartKind.PENDING:
                pass
            case StartKind.CRASH_LOOP:
                self._crash(seat)
            case StartKind.GATE_CLOSED:
                self._write(seat, Shape.GATED)
            case StartKind.NO_STATUSES:
                self._write(seat, Shape.CLAIMED)
            case StartKind.FLAPPING:
                flipped = Shape.RUNNING if seat.shape is Shape.READY else Shape.READY
                self._write(seat, flipped)
                self._later(seat, seat.behaviour.period, self._settle)
            case StartKind.FAILED:
                self._write(seat, Shape.FAILED)
            case _:
                assert_never(seat.behaviour.kind)

    def _crash(self, seat: _PodSlot) -> None:
        self._write(seat, Shape.CRASHED)
        self._later(seat, self._soon(self._means.pace.kubelet), self._back_off)

    def _back_off(self, seat: _PodSlot) -> None:
        self._write(seat, Shape.BACKOFF)
        if not seat.is_failed:
            pause = seat.behaviour.period * 2 ** min(seat.crashes, _LONGEST_DOUBLING)
            self._later(seat, pause, self._start)
        seat.crashes += 1

    # Ending

    def _begin_end(self, seat: _PodSlot) -> None:
        seat.is_ending = True
        noticed = self._soon(self._means.pace.kubelet)
        self._later(seat, noticed + seat.behaviour.terminates_after, self._end)

    def _end(self, seat: _PodSlot) -> None:
        if seat.shape.is_running and seat.behaviour.shows_its_end:
            self._write(seat, Shape.SUCCEEDED)
            self._later(seat, self._soon(self._means.pace.kubelet), self._remove)
        else:
            self._remove(seat)

    def _remove(self, seat: _PodSlot) -> None:
        self._means.endpoints.leave(seat.ip)
        options: JsonObject = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": seat.uid},
        }
        self._call(seat, "delete", "", options)

    def _forget(self, uid: str) -> None:
        seat = self._seats.pop(uid, None)
        if seat is not None:
            self._means.timers.cancel(seat.timer)
            self._means.endpoints.leave(seat.ip)

    # Writing

    def _write(self, seat: _PodSlot, shape: Shape, *, user: str = KUBELET) -> None:
        pod = self._look(seat)
        if pod is None:
            return
        seat.shape = shape
        if shape.is_running:
            self._listen(seat)
        else:
            self._means.endpoints.leave(seat.ip)
        status = next_status(pod, shape, StatusPlace(ip=seat.ip, now=self._now()))
        patch: JsonObject = {"metadata": {"uid": seat.uid}, "status": status}
        self._call(seat, "patch", user, patch)

    def _call(self, seat: _PodSlot, verb: str, user: str, body: JsonObject) -> None:
        is_patch = verb == "patch"
        answer = self._api.call_now(
            ApiRequest(
                verb="patch" if is_patch else "delete",
                resource=PODS,
                namespace=seat.namespace,
                name=seat.name,
                subresource="status" if is_patch else "",
                body=body,
                content_type=MERGE_PATCH if is_patch else "application/json",
                user=user or KUBELET,
            )
        )
        # Gone, or another one of its name: there is nothing left to do for this one.
        if not answer.is_ok and answer.status not in (404, 409):
            raise RuntimeError(f"{user or KUBELET}: {verb} pod {seat.name}: {answer.message}")

    def _listen(self, seat: _PodSlot) -> None:
        self._means.endpoints.enter(seat.ip, pod=seat.name, uid=seat.uid, behaviour=seat.behaviour)

    def _look(self, seat: _PodSlot) -> JsonObject | None:
        pod = self._api.get(PODS, seat.namespace, seat.name)
        return pod if pod is not None and uid_of(pod) == seat.uid else None

    def _now(self) -> str:
        return timestamp(self._api.now())

    def _soon(self, span: Range) -> timedelta:
        return draw(self._means.rng, span)

    def _later(self, seat: _PodSlot, span: timedelta, step: Callable[[_PodSlot], None]) -> None:
        self._means.timers.cancel(seat.timer)
        seat.timer = self._means.timers.after(span, lambda: step(seat))
