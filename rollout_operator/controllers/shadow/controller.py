"""Observe rollout groups as the operator that acts does, and report what it would do.

The same decisions on the same snapshots, but of the caches only: nothing is read live but
references and the zone tracker. Budgets say what they would grant, and write no record. No pod is
called: a delayed downscale waits for the pods' own answers, which only the operator that acts has,
and is reported up to that point.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.shadow.differences import Differences
from rollout_operator.controllers.worker import RESYNC, Result
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.guards.downscales.times import DownscaleTimes
from rollout_operator.kube.scales.references import References
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.errors import ApiError, InvalidInput
from rollout_operator.model.group import Group
from rollout_operator.model.names import SCALING_ANNOTATIONS, GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, Replacement, ReplacePods
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.planning.budgets.rule import Refusal
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.rollout.zones import choose_limit
from rollout_operator.planning.scaling.plan import list_references, plan_scaling
from rollout_operator.planning.wording import count
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates, Subject

# Budgets may count pods of other groups, whose events do not wake this group.
HELD_RECHECK: Final = timedelta(seconds=10)


class ShadowController(msgspec.Struct, frozen=True, kw_only=True):
    """Observes rollout groups by name, and writes nothing."""

    observer: Observer
    arbiter: Arbiter
    differences: Differences
    group_states: GroupStates
    metrics: Metrics
    clock: Clock

    async def reconcile(self, name: GroupName) -> Result:
        """Decide for a group, report what would be done, and return when to reconcile again."""
        group = self.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._forget(name)
            return Result()
        self.metrics.begin_group(name)
        self.metrics.begin_shadow(name)
        self.metrics.group_reconciles.labels(name).inc()
        with self.metrics.group_reconcile_duration.labels(name).time():
            plan, going = await self._decide(group)
        left = await self.differences.compare(
            group, {replacement.pod.uid: replacement for replacement in going}
        )
        log_again = self.group_states.post(plan)
        if plan.failed:
            self.metrics.group_reconciles_failed.labels(name).inc()
        else:
            self.metrics.group_last_success.labels(name).set(self.clock.now().timestamp())
        times = (RESYNC, plan.requeue_after, log_again, left)
        return Result(again=min(time for time in times if time is not None))

    async def _decide(self, group: Group) -> tuple[Plan, list[Replacement]]:
        """Return the plan with its actions as reasons, and the pods that it would delete."""
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
        return dataclasses.replace(
            plan, actions=(), waits=(*reasons, *plan.waits), requeue_after=again
        ), going

    def _forget(self, name: GroupName) -> None:
        self.differences.forget(name)
        self.group_states.forget(name)
        self.metrics.forget_group(name)


class GrantablePods(msgspec.Struct, frozen=True):
    """The pods of a zone that would be deleted, and why the rest is held."""

    going: Sequence[Replacement]
    held: Sequence[Reason]


async def choose_grantable(arbiter: Arbiter, action: ReplacePods) -> GrantablePods:
    """Return the pods of an action that budgets grant; nothing is reserved."""
    going: list[Replacement] = []
    held: list[Refusal] = []
    for share in action.shares:
        requests = [_build_request(pod, action) for pod in share.pods]
        refusals = await arbiter.assess_all(requests)
        pairs = list(zip(share.pods, refusals, strict=True))
        going.extend([pair for pair, refusal in pairs if refusal is None][: share.room])
        held.extend(refusal for _, refusal in pairs if refusal is not None)
    zone = action.zone.name
    reasons = dict.fromkeys(replace(refusal.reason, zone=zone) for refusal in held)
    return GrantablePods(going, tuple(reasons))


def would(what: str, why: str, zone: str) -> Reason:
    """Return the reason for an action that shadow mode does not carry out."""
    return Reason(
        Code.SHADOW_MODE, f"would {what}, but shadow mode writes nothing: {why}", zone=zone
    )


def _build_request(replacement: Replacement, action: ReplacePods) -> DisruptionRequest:
    return DisruptionRequest(
        pod=replacement.pod, engine=DisruptionSource.ROLLOUT, limit=choose_limit(action.zone)[0]
    )


@dataclass(slots=True, kw_only=True)
class ShadowScalingController:
    """Observes the replicas of rollout groups by name, and writes nothing."""

    observer: Observer
    times: DownscaleTimes
    references: References
    group_states: GroupStates
    metrics: Metrics
    cluster_domain: str
    _known: set[GroupName] = field(default_factory=set, init=False)

    async def reconcile(self, name: GroupName) -> Result:
        """Decide for a group, report what would be done, and return when to reconcile again."""
        group = self.observer.observe(name)
        sets = [zone.sts for zone in group.zones]
        if not any(SCALING_ANNOTATIONS & sts.annotations.keys() for sts in sets):
            self._forget(group)
            return Result()
        self._known.add(name)
        self.references.want(name, list_references(sets))
        times, problem = await self._read_times(sets)
        scaling = ScalingSnapshot(
            group=group,
            times=times,
            source=self.times.source,
            times_problem=problem,
            scales=self.references.readings,
            cluster_domain=self.cluster_domain,
        )
        plan = plan_scaling(scaling)
        log_again = self.group_states.post(_explain(plan), Subject.SCALING)
        times_due = (RESYNC, plan.requeue_after, log_again)
        return Result(again=min(time for time in times_due if time is not None))

    async def _read_times(self, sets: Sequence[StatefulSet]) -> tuple[Mapping[Uid, datetime], str]:
        """Return when sets were scaled down last, and why times are not known."""
        times = self.times
        try:
            await times.refresh()
        except (ApiError, InvalidInput) as error:
            return {}, f"{error}"
        return times.recall(sets), ""

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
    """Return a plan with its actions as reasons."""
    due = [
        would(
            f"scale {change.zone.name} from {change.zone.replicas} to {change.replicas}",
            change.reason.text,
            change.zone.name,
        )
        for change in plan.scale
    ]
    requests = [
        _render_calls(calls.zone.name, len(calls.post)) for calls in plan.pod_calls if calls.post
    ]
    failing = [problem for problem in plan.problems if problem.zone in plan.failed]
    odd = tuple(problem for problem in plan.problems if problem not in failing)
    return Plan(group=plan.group, waits=(*due, *requests, *plan.waits, *failing), problems=odd)


def _render_calls(zone: str, pods: int) -> Reason:
    why = f"{count(pods, 'pod')} of {zone} may only go when prepared"
    return would("call pods to prepare", why, zone)
