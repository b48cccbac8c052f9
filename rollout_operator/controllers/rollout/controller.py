"""Bring one rollout group nearer to its update revision."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.rollout.executor import Executor
from rollout_operator.controllers.rollout.steps import StepContext, Steps
from rollout_operator.controllers.worker import RESYNC, Result
from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates

# A reconcile that ends so has done nothing for the group: the time of the last success stands
# still.
_BLIND: Final = frozenset({Code.BACKING_OFF, Code.SNAPSHOT_STALE, Code.LIVE_READ_EXPIRED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutContext:
    """What a RolloutController works with."""

    observer: Observer
    executor: Executor
    deletes: OwnDeletes
    attempts: Attempts
    group_states: GroupStates
    metrics: Metrics
    clock: Clock
    refresh: Callable[[str], None]
    """Make the caches list again; the argument says why."""


class RolloutController:
    """Reconciles rollout groups by name."""

    def __init__(self, context: RolloutContext) -> None:
        self._context = context
        self._steps = Steps(
            StepContext(
                executor=context.executor,
                deletes=context.deletes,
                attempts=context.attempts,
                refresh=context.refresh,
                resync=RESYNC,
            )
        )

    async def reconcile(self, name: GroupName) -> Result:
        """Reconcile the group once, do what is due, and return when to reconcile again."""
        context = self._context
        group = context.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._forget(name)
            return Result()
        context.metrics.begin_group(name)
        context.metrics.group_reconciles.labels(name).inc()
        has_failed = True  # unless proven otherwise: a bug passes by here as well
        try:
            with context.metrics.group_reconcile_duration.labels(name).time():
                plan, again = await self._reconcile_once(group)
            has_failed = plan.failed
        finally:
            if has_failed:
                context.metrics.group_reconciles_failed.labels(name).inc()
        log_again = context.group_states.post(plan)
        if not has_failed and not _BLIND.intersection(reason.code for reason in plan.waits):
            context.metrics.group_last_success.labels(name).set(context.clock.now().timestamp())
        return Result(again=min(again, plan.requeue_after or RESYNC, log_again or RESYNC))

    async def _reconcile_once(self, group: Group) -> tuple[Plan, timedelta]:
        """Return the plan with the outcome of its actions, and when to reconcile again."""
        context = self._context
        has_unknown = bool(context.deletes.list_unknown(group.owners))
        if step := await self._steps.settle(group):
            return Plan(group=group.name, waits=step.reasons, failed=step.failed), step.again
        if has_unknown:
            group = context.observer.observe(group.name)
        plan = plan_group(group)
        with context.group_states.carrying_out(plan):
            step = await self._steps.carry_out(group, plan.actions)
        failed = plan.failed or step.failed
        return replace(plan, waits=(*step.reasons, *plan.waits), failed=failed), step.again

    def _forget(self, name: GroupName) -> None:
        self._steps.forget(name)
        self._context.group_states.forget(name)
        self._context.metrics.forget_group(name)
