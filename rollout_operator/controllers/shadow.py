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
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.worker import HELD_RECHECK, RESYNC, Controller, Result, Waker
from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.grants import DisruptionRequest
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import ApiError, GroupName, InvalidInput, Uid
from rollout_operator.model.objects import AnyPod, Group, Pod, StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, Replacement, ReplacePods
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.planning.budgets import Refusal
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.rollout import is_replaced, plan_group, would_replace
from rollout_operator.planning.scaling import is_scaled, list_references, plan_scaling
from rollout_operator.planning.wording import count
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics, merge_plans

# Grafana's operator reconciles every five seconds, and waits for caches and its own limits.
STAYS_FOR: Final = timedelta(minutes=1)
# So far one watch may be behind the other, and a decision behind its snapshot.
_SETTLES_IN: Final = timedelta(seconds=2)
# Groups that are reconciled at a time; it costs no request but those for the zone tracker.
_WORKERS: Final = 8
# Pods of a group that are assessed again at a time, each at the cost of a plan of the group. An
# operator that deletes more at once cannot be compared with.
MOST_SETTLING: Final = 32


class _Went(NamedTuple):
    pod: Pod
    at: timedelta


class _Turn(msgspec.Struct):
    """That this operator would delete a pod: times are of the clock's `elapsed`."""

    since: timedelta
    ended: timedelta | None = None
    is_counted: bool = False


class _Watched(msgspec.Struct):
    turns: dict[Uid, _Turn] = {}
    """By pod; those that have ended, for as long as watches may be apart."""
    went: list[_Went] = []


class Differences:
    """Compares the decisions of this operator with what happens to pods."""

    def __init__(self, sets: StatefulSetStore, clock: Clock, metrics: Metrics) -> None:
        self._sets, self._clock = sets, clock
        self._counter = metrics.shadow_differences
        self._groups: dict[GroupName, _Watched] = {}
        self.total = 0

    def on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        if not (isinstance(old, Pod) and isinstance(new, Pod)) or old.owner_uid is None:
            return
        sts = self._sets.get_by_uid(old.owner_uid)
        if not isinstance(sts, StatefulSet) or not is_replaced(sts, old, new):
            return
        watched = None if sts.group is None else self._groups.get(sts.group)
        if watched is None or len(watched.went) >= MOST_SETTLING:
            return
        if old.uid not in watched.turns:
            watched.went.append(_Went(old, self._clock.elapsed()))

    async def compare(self, group: Group, wanted: Mapping[Uid, Replacement]) -> timedelta | None:
        """Count the differences, given the pods that this operator would delete now.

        Returns after how long to compare again if no event comes first.
        """
        watched, now = self._groups.setdefault(group.name, _Watched()), self._clock.elapsed()
        left: list[timedelta] = []
        for uid, turn in [*watched.turns.items()]:
            if uid not in wanted:
                turn.ended = now if turn.ended is None else turn.ended
            if turn.ended is not None and (uid in wanted or now - turn.ended >= _SETTLES_IN):
                del watched.turns[uid]
        for uid, replacement in wanted.items():
            turn = watched.turns.setdefault(uid, _Turn(now))
            if now - turn.since < STAYS_FOR:
                left.append(turn.since + STAYS_FOR - now)
            elif not turn.is_counted:
                turn.is_counted = True
                text = "This operator would have deleted a pod that stays"
                self._count(group.name, replacement.pod, text, replacement.reason.text)
        for gone in tuple(watched.went):
            if would_replace(group, gone.pod):
                watched.went.remove(gone)
            elif now - gone.at < _SETTLES_IN:
                left.append(gone.at + _SETTLES_IN - now)
            else:
                watched.went.remove(gone)
                text = "A pod was deleted that this operator would have kept"
                self._count(group.name, gone.pod, text, "it was not this pod's turn")
            await asyncio.sleep(0)  # other tasks may run
        return min(left, default=None)

    def forget(self, group: GroupName) -> None:
        self._groups.pop(group, None)

    def _count(self, group: GroupName, pod: Pod, text: str, why: str) -> None:
        self.total += 1
        self._counter.labels(group).inc()
        log.warn(text, group=group, pod=pod.name, uid=pod.uid, why=why)


class ShadowController(Feature):
    def __init__(self, context: Context, arbiter: Arbiter) -> None:
        client = context.open("observing", Priority.READ)
        self._context, self._arbiter = context, arbiter
        self._observer = context.make_observer(client)
        self._times = context.make_records(client)
        self._references = context.make_references(client)
        self._differences = Differences(context.sets, context.clock, context.metrics)
        self.controller = Controller(
            "reconcile shadow", self.reconcile, workers=_WORKERS, rng=context.rng
        )
        self.controllers = (self.controller,)
        self.waker = Waker(context.sets, self.controller.add_after)
        context.set_informer.on_change(self.waker.on_set)
        # Before the group is woken by the same change.
        context.pod_informer.on_change(self._differences.on_pod)
        context.wake_groups(self.waker)
        self._references.on_change(self.controller.add)
        context.health.part("shadow mode", describe=self._describe)

    def start(self, tasks: TaskStack) -> None:
        tasks.start("references", self._references.run())
        super().start(tasks)

    async def reconcile(self, name: GroupName) -> Result:
        context, metrics = self._context, self._context.metrics
        group = self._observer.observe(name)
        if not group.zones and not group.unreadable:
            self._differences.forget(name)
            self._references.want(name, ())
            context.group_states.forget(name)
            metrics.forget_group(name)
            return Result()
        metrics.begin_group(name)
        metrics.shadow_differences.labels(name)
        metrics.group_reconciles.labels(name).inc()
        with metrics.group_reconcile_duration.labels(name).time():
            plan, going = await self._decide(group)
        wanted = {replacement.pod.uid: replacement for replacement in going}
        left = await self._differences.compare(group, wanted)
        scaling, scaling_again = await self._decide_counts(group)
        log_again = context.group_states.post(merge_plans([plan, scaling]))
        if plan.failed:
            metrics.group_reconciles_failed.labels(name).inc()
        else:
            metrics.group_last_success.labels(name).set(context.clock.now().timestamp())
        times = (RESYNC, plan.requeue_after, log_again, left, scaling_again)
        return Result(again=min(time for time in times if time is not None))

    async def _decide(self, group: Group) -> tuple[Plan, list[Replacement]]:
        plan, reasons, going = plan_group(group), list[Reason](), list[Replacement]()
        again = plan.requeue_after
        for action in plan.actions:
            if not isinstance(action, ReplacePods):
                what = f"record revision {action.revision}"
                reasons.append(would(what, action.reason.text, action.zone.name))
                continue
            choice = await choose_grantable(self._arbiter, action)
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

    async def _decide_counts(self, group: Group) -> tuple[Plan, timedelta | None]:
        sets = [zone.sts for zone in group.zones]
        references = list_references(sets) if is_scaled(sets) else ()
        self._references.want(group.name, references)
        if not is_scaled(sets):
            return Plan(group=group.name), None
        problem = ""
        try:
            await self._times.refresh()
        except (ApiError, InvalidInput) as error:
            problem = f"{error}"
        plan = plan_scaling(
            ScalingSnapshot(
                group=group,
                times={} if problem else self._times.recall(sets),
                source=self._times.source,
                times_problem=problem,
                scales=self._references.readings,
                cluster_domain=self._context.settings.cluster_domain,
            )
        )
        return _explain(plan), plan.requeue_after

    def _describe(self) -> str:
        total = self._differences.total
        return f"nothing is written; {total} differences from the operator that acts"


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
