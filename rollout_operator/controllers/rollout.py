"""Bring one rollout group nearer to its update revision."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.attempts import Attempts
from rollout_operator.controllers.executor import Executor, Report
from rollout_operator.controllers.memory import OwnDeletes
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.worker import Result
from rollout_operator.model.errors import ApiError, TooManyRequests
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan, Reason, Severity
from rollout_operator.planning.group import plan_group
from rollout_operator.telemetry.board import Board
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Every group is looked at this often when nothing happens: under the five minutes after which
# dashboards call a group unattended.
RESYNC: Final = timedelta(minutes=4)
# An own delete that the cache has not shown for this long proves that the cache lags.
LAG_LIMIT: Final = timedelta(seconds=5)
# First wait after the store contradicted the cache; doubles up to LAG_LIMIT.
RECHECK_WAIT: Final = timedelta(milliseconds=50)
# Longest Retry-After that we obey.
RETRY_AFTER_LIMIT: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a RolloutController works with."""

    observer: Observer
    executor: Executor
    deletes: OwnDeletes
    attempts: Attempts
    board: Board
    metrics: Metrics
    clock: Clock
    refresh: Callable[[str], None]
    """Make the caches list again; the argument says why."""


class RolloutController:
    """Reconciles rollout groups by name."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rechecks: dict[GroupName, int] = {}

    async def reconcile(self, name: GroupName) -> Result:
        """Look at the group once, do what is due, and say when to look again."""
        parts = self._parts
        group = parts.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._forget(name)
            return Result()
        parts.metrics.begin_group(name)
        parts.metrics.group_reconciles.labels(name).inc()
        with parts.metrics.group_reconcile_duration.labels(name).time():
            plan, again = await self._look(name)
        owed = parts.board.post(plan)
        if plan.failed:
            parts.metrics.group_reconciles_failed.labels(name).inc()
        elif not any(reason.code is Code.BACKING_OFF for reason in plan.waits):
            parts.metrics.group_last_success.labels(name).set(parts.clock.now().timestamp())
        return Result(again=min(again, plan.look_again or RESYNC, owed or RESYNC))

    async def _look(self, name: GroupName) -> tuple[Plan, timedelta]:
        """Return the plan with all that came of it, and when to look again."""
        parts = self._parts
        try:
            await parts.executor.read_back(name)
        except ApiError as error:
            return self._fail(Plan(group=name), [error])
        group = parts.observer.observe(name)
        plan = plan_group(group)
        if parts.deletes.longest_unseen(name) > LAG_LIMIT:
            parts.refresh("own delete not seen")
        if not plan.actions:
            parts.attempts.note_success(name)
            return plan, RESYNC
        wait, failure = parts.attempts.wait_before(plan)
        if wait:
            return _back_off(plan, failure), wait
        report = await parts.executor.carry_out(group, plan)
        plan = replace(plan, waits=(*plan.waits, *report.notes))
        if report.errors:
            return self._fail(plan, report.errors)
        parts.attempts.note_success(name)
        return plan, self._choose_recheck(name, report)

    def _fail(self, plan: Plan, errors: list[ApiError]) -> tuple[Plan, timedelta]:
        waits = [
            min(error.retry_after, RETRY_AFTER_LIMIT)
            for error in errors
            if isinstance(error, TooManyRequests) and error.retry_after is not None
        ]
        text = "; ".join(str(error) for error in errors)
        at_least = max(waits, default=timedelta(0))
        wait = self._parts.attempts.note_failure(plan, text, at_least=at_least)
        log.debug("Reconcile failed", group=plan.group, again_in=wait, err=text)
        return replace(_back_off(plan, text), failed=True), wait

    def _choose_recheck(self, name: GroupName, report: Report) -> timedelta:
        """Return when to look again if no event comes first."""
        if not any(note.code is Code.VIEW_CHANGED for note in report.notes):
            self._rechecks.pop(name, None)
            return LAG_LIMIT + RECHECK_WAIT if report.deleted else RESYNC
        count = self._rechecks[name] = self._rechecks.get(name, 0) + 1
        wait: timedelta = RECHECK_WAIT * 2 ** min(count - 1, 10)
        if wait > LAG_LIMIT:
            self._parts.refresh("the API server contradicts the cache")
            return LAG_LIMIT
        return wait

    def _forget(self, name: GroupName) -> None:
        self._rechecks.pop(name, None)
        self._parts.attempts.note_success(name)
        self._parts.board.forget(name)
        self._parts.metrics.forget_group(name)


def _back_off(plan: Plan, error: str) -> Plan:
    text = f"the last attempt failed and will be repeated: {error}"
    reason = Reason(code=Code.BACKING_OFF, text=text, severity=Severity.WARN)
    return replace(plan, waits=(reason, *plan.waits))
