"""Reconcile the replicas of rollout groups, and report what would be scaled.

As `controllers.scaling`, by the caches and by reads of references and of the zone tracker. No pod
is called: a delayed downscale waits for the pods' own answers, which only the operator that acts
has, and is reported up to that point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.shadow.rollouts import would
from rollout_operator.controllers.worker import RESYNC, Result
from rollout_operator.guards.downscales.times import Times
from rollout_operator.kube.scales.references import References
from rollout_operator.model.errors import ApiError, InvalidInput
from rollout_operator.model.group import Group
from rollout_operator.model.names import SCALING_ANNOTATIONS, GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Plan, Reason
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.planning.scaling.plan import list_references, plan_scaling
from rollout_operator.planning.wording import count
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowScalingContext:
    """What a ShadowScalingController works with."""

    observer: Observer
    times: Times
    references: References
    group_states: GroupStates
    metrics: Metrics
    cluster_domain: str


class ShadowScalingController:
    """Observes the replicas of rollout groups by name, and writes nothing."""

    def __init__(self, context: ShadowScalingContext) -> None:
        self._context = context
        self._known: set[GroupName] = set()

    async def reconcile(self, name: GroupName) -> Result:
        """Decide for a group, report what would be done, and return when to reconcile again."""
        context = self._context
        group = context.observer.observe(name)
        sets = [zone.sts for zone in group.zones]
        if not any(SCALING_ANNOTATIONS & sts.annotations.keys() for sts in sets):
            self._forget(group)
            return Result()
        self._known.add(name)
        context.references.want(name, list_references(sets))
        times, problem = await self._read_times(sets)
        scaling = ScalingSnapshot(
            group=group,
            times=times,
            source=context.times.source,
            times_problem=problem,
            scales=context.references.readings,
            cluster_domain=context.cluster_domain,
        )
        plan = plan_scaling(scaling)
        log_again = context.group_states.post(_explain(plan), Subject.SCALING)
        times_due = (RESYNC, plan.requeue_after, log_again)
        return Result(again=min(time for time in times_due if time is not None))

    async def _read_times(self, sets: Sequence[StatefulSet]) -> tuple[Mapping[Uid, datetime], str]:
        """Return when sets were scaled down last, and why times are not known."""
        times = self._context.times
        try:
            await times.refresh()
        except (ApiError, InvalidInput) as error:
            return {}, f"{error}"
        return times.recall(sets), ""

    def _forget(self, group: Group) -> None:
        if group.name not in self._known:
            return
        self._known.discard(group.name)
        context = self._context
        context.references.want(group.name, ())
        if group.zones or group.unreadable:
            context.group_states.post(Plan(group=group.name), Subject.SCALING)
            return
        # Again: the last reconcile may have reported it after it was forgotten.
        context.group_states.forget(group.name)
        context.metrics.forget_group(group.name)


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
