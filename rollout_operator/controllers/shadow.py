"""Observe rollout groups as the operator that acts does, and report what this one would do.

The same decisions, but by the caches only: references and the zone tracker alone are read live.
Budgets report what they would grant, and write no record. No pod is called: only the operator that
acts has the pods' answers, so a delayed downscale is reported up to that point.

Two operators differ over a pod if this one would have deleted it, and it has stayed for a minute in
which that was decided again and again; or if it was deleted, and this one would have kept it. The
caches of StatefulSets and of pods are not of the same moment, so a delete is assessed again for a
short while before it counts.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.worker import HELD_RECHECK, RESYNC, Result
from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.downscales import DownscaleTimes
from rollout_operator.guards.grants import DisruptionRequest
from rollout_operator.kube.scales import References
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import SCALING_ANNOTATIONS, ApiError, GroupName, InvalidInput, Uid
from rollout_operator.model.objects import Group, Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Code, Plan, Reason, Replacement, ReplacePods
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.planning.budgets import Refusal
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.rollout import is_replaced, plan_group, would_replace
from rollout_operator.planning.scaling import list_references, plan_scaling
from rollout_operator.planning.wording import count
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import GroupStates, Metrics, Subject

# Grafana's operator reconciles every five seconds, and waits for caches and its own limits.
STAYS_FOR: Final = timedelta(minutes=1)
# So far one watch may be behind the other, and a decision behind its snapshot.
_SETTLES_IN: Final = timedelta(seconds=2)
# Pods of a group that are assessed again at a time, each at the cost of a plan of the group. An
# operator that deletes more at once cannot be compared with.
MOST_SETTLING: Final = 32


class _Went(NamedTuple):
    pod: Pod
    at: timedelta


class _Watched(msgspec.Struct):
    wanted: dict[Uid, timedelta] = {}
    """Pods that this operator would delete, and since when on the clock's `elapsed`."""
    dropped: dict[Uid, timedelta] = {}
    """Pods that it would have deleted until then."""
    went: list[_Went] = []
    reported: set[Uid] = set()
    """Pods of `wanted` that have been counted."""


class Differences:
    """Compares the decisions of this operator with what happens to pods."""

    def __init__(self, sets: StatefulSetStore, clock: Clock, metrics: Metrics) -> None:
        self._sets, self._clock = sets, clock
        self._counter = metrics.shadow_differences
        self._groups: dict[GroupName, _Watched] = {}
        self.total = 0

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        if not (isinstance(old, Pod) and isinstance(new, Pod)) or old.owner_uid is None:
            return
        sts = self._sets.get_by_uid(old.owner_uid)
        if not isinstance(sts, StatefulSet) or not is_replaced(sts, old, new):
            return
        watched = None if sts.group is None else self._groups.get(sts.group)
        if watched is None or len(watched.went) >= MOST_SETTLING:
            return
        if old.uid not in watched.wanted and old.uid not in watched.dropped:
            watched.went.append(_Went(old, self._clock.elapsed()))

    async def compare(self, group: Group, wanted: Mapping[Uid, Replacement]) -> timedelta | None:
        """Count the differences, given the pods that this operator would delete now.

        Returns after how long to compare again if no event comes first.
        """
        watched, now = self._groups.setdefault(group.name, _Watched()), self._clock.elapsed()
        self._drop(watched, wanted, now)
        left = [
            self._compare_wanted(group.name, watched, replacement, now)
            for replacement in wanted.values()
        ]
        for gone in tuple(watched.went):
            wait = None
            if not would_replace(group, gone.pod):
                wait = self._compare_went(group.name, gone, now)
            if wait is None:
                watched.went.remove(gone)
            left.append(wait)
            await asyncio.sleep(0)  # other tasks may run
        return min((wait for wait in left if wait is not None), default=None)

    def forget(self, group: GroupName) -> None:
        self._groups.pop(group, None)

    def _compare_wanted(
        self, group: GroupName, watched: _Watched, replacement: Replacement, now: timedelta
    ) -> timedelta | None:
        """Count a pod that stayed for too long, once; return how much longer it may stay."""
        uid = replacement.pod.uid
        if uid in watched.reported:
            return None
        left = watched.wanted.setdefault(uid, now) + STAYS_FOR - now
        if left > timedelta(0):
            return left
        watched.reported.add(uid)
        text = "This operator would have deleted a pod that stays"
        self._count(group, replacement.pod, "not_deleted", text, replacement.reason.text)
        return None

    def _compare_went(self, group: GroupName, went: _Went, now: timedelta) -> timedelta | None:
        """Count a pod that should have stayed, once no other explanation can come."""
        left = went.at + _SETTLES_IN - now
        if left > timedelta(0):
            return left
        text = "A pod was deleted that this operator would have kept"
        self._count(group, went.pod, "deleted", text, "it was not this pod's turn")
        return None

    def _drop(self, watched: _Watched, wanted: Mapping[Uid, Replacement], now: timedelta) -> None:
        for uid in watched.wanted.keys() - wanted.keys():
            del watched.wanted[uid]
            watched.reported.discard(uid)
            watched.dropped[uid] = now
        for uid, at in list(watched.dropped.items()):
            if now - at >= _SETTLES_IN:
                del watched.dropped[uid]

    def _count(self, group: GroupName, pod: Pod, kind: str, text: str, why: str) -> None:
        self.total += 1
        self._counter.labels(group, kind).inc()  # one of `metrics.SHADOW_DIFFERENCES`
        log.warn(text, group=group, pod=pod.name, uid=pod.uid, why=why)


class ShadowController(msgspec.Struct, frozen=True, kw_only=True):
    observer: Observer
    arbiter: Arbiter
    differences: Differences
    group_states: GroupStates
    metrics: Metrics
    clock: Clock

    async def reconcile(self, name: GroupName) -> Result:
        group = self.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._forget(name)
            return Result()
        self.metrics.begin_group(name)
        self.metrics.begin_shadow(name)
        self.metrics.group_reconciles.labels(name).inc()
        with self.metrics.group_reconcile_duration.labels(name).time():
            plan, going = await self._decide(group)
        wanted = {replacement.pod.uid: replacement for replacement in going}
        left = await self.differences.compare(group, wanted)
        log_again = self.group_states.post(plan)
        if plan.failed:
            self.metrics.group_reconciles_failed.labels(name).inc()
        else:
            self.metrics.group_last_success.labels(name).set(self.clock.now().timestamp())
        times = (RESYNC, plan.requeue_after, log_again, left)
        return Result(again=min(time for time in times if time is not None))

    async def _decide(self, group: Group) -> tuple[Plan, list[Replacement]]:
        plan, reasons, going = plan_group(group), list[Reason](), list[Replacement]()
        again = plan.requeue_after
        for action in plan.actions:
            if not isinstance(action, ReplacePods):
                what = f"record revision {action.revision}"
                reasons.append(would(what, action.reason.text, action.zone.name))
                continue
            choice = await choose_grantable(self.arbiter, action)
            going.extend(choice.going)
            reasons.extend(
                would(f"delete {replacement.pod.name}", replacement.reason.text, action.zone.name)
                for replacement in choice.going
            )
            reasons.extend(choice.held)
            if choice.held:
                again = min(again or HELD_RECHECK, HELD_RECHECK)
        # Without the actions, which pages would show as done.
        waits = (*reasons, *plan.waits)
        shown = dataclasses.replace(plan, actions=(), waits=waits, requeue_after=again)
        return shown, going

    def _forget(self, name: GroupName) -> None:
        self.differences.forget(name)
        self.group_states.forget(name)
        self.metrics.forget_group(name)


class _GrantablePods(msgspec.Struct, frozen=True):
    going: Sequence[Replacement]
    held: Sequence[Reason]


async def choose_grantable(arbiter: Arbiter, action: ReplacePods) -> _GrantablePods:
    """Return the pods of an action that budgets would grant, and why the others are held."""
    going: list[Replacement] = []
    held: list[Refusal] = []
    limit, engine = choose_limit(action.zone)[0], DisruptionSource.ROLLOUT
    for share in action.shares:
        requests = [
            DisruptionRequest(pod=one.pod, engine=engine, limit=limit) for one in share.pods
        ]
        refusals = await arbiter.assess_all(requests)
        pairs = list(zip(share.pods, refusals, strict=True))
        going.extend([pair for pair, refusal in pairs if refusal is None][: share.room])
        held.extend(refusal for _, refusal in pairs if refusal is not None)
    zone = action.zone.name
    reasons = dict.fromkeys(replace(refusal.reason, zone=zone) for refusal in held)
    return _GrantablePods(going, tuple(reasons))


def would(what: str, why: str, zone: str) -> Reason:
    text = f"would {what}, but shadow mode writes nothing: {why}"
    return Reason(Code.SHADOW_MODE, text, zone=zone)


@dataclass(slots=True, kw_only=True)
class ShadowScalingController:
    observer: Observer
    times: DownscaleTimes
    references: References
    group_states: GroupStates
    metrics: Metrics
    cluster_domain: str
    _known: set[GroupName] = field(default_factory=set, init=False)

    async def reconcile(self, name: GroupName) -> Result:
        group = self.observer.observe(name)
        sets = [zone.sts for zone in group.zones]
        if not any(SCALING_ANNOTATIONS & sts.annotations.keys() for sts in sets):
            self._forget(group)
            return Result()
        self._known.add(name)
        self.references.want(name, list_references(sets))
        problem = ""
        try:
            await self.times.refresh()
        except (ApiError, InvalidInput) as error:
            problem = f"{error}"
        scaling = ScalingSnapshot(
            group=group,
            times={} if problem else self.times.recall(sets),
            source=self.times.source,
            times_problem=problem,
            scales=self.references.readings,
            cluster_domain=self.cluster_domain,
        )
        plan = plan_scaling(scaling)
        log_again = self.group_states.post(_explain(plan), Subject.SCALING)
        times_due = (RESYNC, plan.requeue_after, log_again)
        return Result(again=min(time for time in times_due if time is not None))

    def _forget(self, group: Group) -> None:
        if group.name not in self._known:
            return
        self._known.discard(group.name)
        self.references.want(group.name, ())
        if group.zones or group.unreadable:
            self.group_states.post(Plan(group=group.name), Subject.SCALING)
            return
        # Again: the last reconcile may have reported it after it was forgotten.
        self.group_states.forget(group.name)
        self.metrics.forget_group(group.name)


def _explain(plan: ScalingPlan) -> Plan:
    due = [
        would(
            f"scale {change.zone.name} from {change.zone.replicas} to {change.replicas}",
            change.reason.text,
            change.zone.name,
        )
        for change in plan.scale
    ]
    requests = []
    for calls in plan.pod_calls:
        if calls.post:
            zone = calls.zone.name
            why = f"{count(len(calls.post), 'pod')} of {zone} may only go when prepared"
            requests.append(would("call pods to prepare", why, zone))
    failing = [problem for problem in plan.problems if problem.zone in plan.failed]
    odd = tuple(problem for problem in plan.problems if problem not in failing)
    return Plan(group=plan.group, waits=(*due, *requests, *plan.waits, *failing), problems=odd)
