"""Bring one rollout group nearer to its update revision."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.rollout.executor import Executor
from rollout_operator.controllers.rollout.steps import Steps
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


@dataclass(slots=True, kw_only=True)
class RolloutController:
    """Reconciles rollout groups by name."""

    observer: Observer
    executor: Executor
    deletes: OwnDeletes
    attempts: Attempts
    group_states: GroupStates
    metrics: Metrics
    clock: Clock
    refresh: Callable[[str], None]
    """Make the caches list again; the argument says why."""
    _steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self._steps = Steps(
            executor=self.executor,
            deletes=self.deletes,
            attempts=self.attempts,
            refresh=self.refresh,
            resync=RESYNC,
        )

    async def reconcile(self, name: GroupName) -> Result:
        """Reconcile the group once, do what is due, and return when to reconcile again."""
        group = self.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._forget(name)
            return Result()
        self.metrics.begin_group(name)
        self.metrics.group_reconciles.labels(name).inc()
        has_failed = True  # unless proven otherwise: a bug passes by here as well
        try:
            with self.metrics.group_reconcile_duration.labels(name).time():
                plan, again = await self._reconcile_once(group)
            has_failed = plan.failed
        finally:
            if has_failed:
                self.metrics.group_reconciles_failed.labels(name).inc()
        log_again = self.group_states.post(plan)
        if not has_failed and not _BLIND.intersection(reason.code for reason in plan.waits):
            self.metrics.group_last_success.labels(name).set(self.clock.now().timestamp())
        return Result(again=min(again, plan.requeue_after or RESYNC, log_again or RESYNC))

    async def _reconcile_once(self, group: Group) -> tuple[Plan, timedelta]:
        """Return the plan with the outcome of its actions, and when to reconcile again."""
        has_unknown = bool(self.deletes.list_unknown(group.owners))
        if step := await self._steps.settle(group):
            return Plan(group=group.name, waits=step.reasons, failed=step.failed), step.again
        if has_unknown:
            group = self.observer.observe(group.name)
        plan = plan_group(group)
        with self.group_states.carrying_out(plan):
            step = await self._steps.carry_out(group, plan.actions)
        failed = plan.failed or step.failed
        return replace(plan, waits=(*step.reasons, *plan.waits), failed=failed), step.again

    def _forget(self, name: GroupName) -> None:
        self._steps.forget(name)
        self.group_states.forget(name)
        self.metrics.forget_group(name)
