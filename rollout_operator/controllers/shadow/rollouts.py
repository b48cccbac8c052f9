"""Observe rollout groups as the operator that acts does, and report what it would do.

The same decisions on the same snapshots, but of the caches only: nothing is read live. Budgets say
what they would grant, and write no record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.shadow.differences import Differences
from rollout_operator.controllers.worker import RESYNC, Result
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan, Reason, Replacement, ReplacePods
from rollout_operator.planning.budgets.rule import Refusal
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.rollout.zones import choose_limit
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates

# Budgets may count pods of other groups, whose events do not wake this group.
HELD_RECHECK: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowContext:
    """What a ShadowController works with."""

    observer: Observer
    arbiter: Arbiter
    differences: Differences
    group_states: GroupStates
    metrics: Metrics
    clock: Clock


class ShadowController:
    """Observes rollout groups by name, and writes nothing."""

    def __init__(self, context: ShadowContext) -> None:
        self._context = context

    async def reconcile(self, name: GroupName) -> Result:
        """Decide for a group, report what would be done, and return when to reconcile again."""
        context = self._context
        group = context.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._forget(name)
            return Result()
        context.metrics.begin_group(name)
        context.metrics.begin_shadow(name)
        context.metrics.group_reconciles.labels(name).inc()
        with context.metrics.group_reconcile_duration.labels(name).time():
            plan, going = await self._decide(group)
        left = await context.differences.compare(
            group, {replacement.pod.uid: replacement for replacement in going}
        )
        log_again = context.group_states.post(plan)
        if plan.failed:
            context.metrics.group_reconciles_failed.labels(name).inc()
        else:
            context.metrics.group_last_success.labels(name).set(context.clock.now().timestamp())
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
            choice = await choose_grantable(self._context.arbiter, action)
            going.extend(choice.going)
            reasons.extend(
                would(f"delete {replacement.pod.name}", replacement.reason.text, action.zone.name)
                for replacement in choice.going
            )
            reasons.extend(choice.held)
            if choice.held:
                again = min(again or HELD_RECHECK, HELD_RECHECK)
        # Without the actions, which pages would show as done.
        return replace(plan, actions=(), waits=(*reasons, *plan.waits), requeue_after=again), going

    def _forget(self, name: GroupName) -> None:
        self._context.differences.forget(name)
        self._context.group_states.forget(name)
        self._context.metrics.forget_group(name)


@dataclass(frozen=True, slots=True)
class GrantablePods:
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
