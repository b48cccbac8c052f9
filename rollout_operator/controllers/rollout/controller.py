"""Bring one rollout group nearer to its update revision."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.live_reads import EXPIRED_IN_A_ROW
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.retries import (
    Attempt,
    Attempts,
    find_retry_after,
    name_attempt,
)
from rollout_operator.controllers.rollout.executor import Executor
from rollout_operator.controllers.rollout.reports import Report
from rollout_operator.controllers.worker import Result
from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.model.errors import ApiError
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Action, Code, Plan, Reason, Severity
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates

# Every group is looked at this often when nothing happens: under the five minutes after which
# dashboards call a group unattended.
RESYNC: Final = timedelta(minutes=4)
# An own delete that the cache has not shown for this long proves that the cache lags.
LAG_LIMIT: Final = timedelta(seconds=5)
# First wait after the store contradicted the cache; doubles up to LAG_LIMIT.
RECHECK_WAIT: Final = timedelta(milliseconds=50)
_RECHECKS: Final = Backoff(first=RECHECK_WAIT, most=LAG_LIMIT)
# How often a delete without an answer is read back while it may still be carried out.
UNKNOWN_WAIT: Final = timedelta(seconds=5)
# Budgets may look at pods of other groups, whose events do not wake this one. It costs no request.
HELD_RECHECK: Final = timedelta(seconds=10)
# A reconcile that ends so has not seen to the group: the time of the last success stands still.
_BLIND: Final = frozenset({Code.BACKING_OFF, Code.VIEW_STALE, Code.LIVE_READ_EXPIRED})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActionOutcome:
    """What trying one action came to."""

    reasons: tuple[Reason, ...] = ()
    again: timedelta = RESYNC
    failed: bool = False


class RolloutController:
    """Reconciles rollout groups by name."""

    def __init__(self, context: RolloutContext) -> None:
        self._context = context
        self._attempts = context.attempts
        self._rechecks: dict[GroupName, int] = {}

    async def reconcile(self, name: GroupName) -> Result:
        """Look at the group once, do what is due, and say when to look again."""
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
                plan, again = await self._look(group)
            has_failed = plan.failed
        finally:
            if has_failed:
                context.metrics.group_reconciles_failed.labels(name).inc()
        log_again = context.group_states.post(plan)
        if not has_failed and not _BLIND.intersection(reason.code for reason in plan.waits):
            context.metrics.group_last_success.labels(name).set(context.clock.now().timestamp())
        return Result(again=min(again, plan.look_again or RESYNC, log_again or RESYNC))

    async def _look(self, group: Group) -> tuple[Plan, timedelta]:
        """Return the plan with all that came of it, and when to look again."""
        context = self._context
        if context.deletes.list_unknown(group.owners):
            step = await self._read_back(group)
            if step.failed or step.reasons:
                return Plan(group=group.name, waits=step.reasons, failed=step.failed), step.again
            group = context.observer.observe(group.name)
        if context.deletes.longest_unseen(group.owners) > LAG_LIMIT:
            context.refresh("own delete not seen")
        plan = plan_group(group)
        with context.group_states.carrying_out(plan):
            steps = [await self._try(group, action) for action in plan.actions]
        again = min((step.again for step in steps), default=RESYNC)
        if context.deletes.list_unknown(group.owners):
            again = min(again, UNKNOWN_WAIT)
        reasons = [reason for step in steps for reason in step.reasons]
        failed = plan.failed or any(step.failed for step in steps)
        return replace(plan, waits=(*reasons, *plan.waits), failed=failed), again

    async def _read_back(self, group: Group) -> _ActionOutcome:
        attempt = ("read back", group.name)
        wait, failure = self._attempts.wait_before(attempt)
        if wait:
            return _ActionOutcome(reasons=(_back_off(failure),), again=wait)
        try:
            await self._context.executor.read_back(group.owners)
        except ApiError as error:
            return self._fail(attempt, error)
        self._attempts.note_success(attempt)
        return _ActionOutcome()

    async def _try(self, group: Group, action: Action) -> _ActionOutcome:
        """Carry out one action, unless it failed lately. An error stays with its zone (D-18)."""
        attempt = name_attempt(action)
        wait, failure = self._attempts.wait_before(attempt)
        if wait:
            return _ActionOutcome(reasons=(_back_off(failure, action.zone.name),), again=wait)
        report = await self._context.executor.carry_out(group, action)
        if report.error is not None:
            step = self._fail(attempt, report.error, action.zone.name)
            return replace(step, reasons=(*step.reasons, *report.notes))
        refused = [note.text for note in report.notes if note.code is Code.DELETE_REFUSED]
        if refused and not report.deleted:
            wait = self._attempts.note_failure(attempt, refused[0])
            return _ActionOutcome(reasons=tuple(report.notes), again=wait)
        if report.is_cut_short and not report.deleted:
            return self._expire(attempt, report, action.zone.name)
        self._attempts.note_success(attempt)
        again = self._choose_recheck(group.name, report)
        if not report.held:
            return _ActionOutcome(reasons=tuple(report.notes), again=again)
        held = _name_held(report, action.zone.name)
        waits = [one.look_again or HELD_RECHECK for one in report.held]
        return _ActionOutcome(reasons=(*held, *report.notes), again=min(again, *waits))

    def _fail(self, attempt: Attempt, error: ApiError, zone: str = "") -> _ActionOutcome:
        asked = find_retry_after(error)
        wait = self._attempts.note_failure(attempt, str(error), at_least=asked)
        log.debug("Attempt failed", attempt=attempt[0], zone=zone, again_in=wait, err=error)
        return _ActionOutcome(reasons=(_back_off(str(error), zone),), again=wait, failed=True)

    def _expire(self, attempt: Attempt, report: Report, zone: str) -> _ActionOutcome:
        """A live read was too old before anything was done: the next one may be, too."""
        wait = self._attempts.note_failure(attempt, report.cut_short)
        has_failed = self._attempts.count(attempt) >= EXPIRED_IN_A_ROW
        reason = Reason(
            code=Code.LIVE_READ_EXPIRED,
            text=f"a live read was too old before a pod was deleted: {report.cut_short}",
            severity=Severity.WARN if has_failed else Severity.DEBUG,
            zone=zone,
        )
        return _ActionOutcome(reasons=(reason, *report.notes), again=wait, failed=has_failed)

    def _choose_recheck(self, name: GroupName, report: Report) -> timedelta:
        """Return when to look again if no event comes first."""
        if report.deleted or report.is_cut_short or not report.is_contradicted:
            self._rechecks.pop(name, None)
        if report.is_cut_short:
            return RECHECK_WAIT
        if not report.is_contradicted:
            return LAG_LIMIT + RECHECK_WAIT if report.deleted else RESYNC
        self._rechecks[name] = self._rechecks.get(name, 0) + 1
        wait = _RECHECKS.bound(self._rechecks[name])
        if wait == LAG_LIMIT:
            self._context.refresh("the API server contradicts the cache")
        return wait

    def _forget(self, name: GroupName) -> None:
        self._rechecks.pop(name, None)
        self._context.group_states.forget(name)
        self._context.metrics.forget_group(name)


def _name_held(report: Report, zone: str) -> tuple[Reason, ...]:
    """Return each reason once for which budgets hold pods of a zone back."""
    return tuple({one.reason: replace(one.reason, zone=zone) for one in report.held}.values())


def _back_off(error: str, zone: str = "") -> Reason:
    text = f"the last attempt failed and will be repeated: {error}"
    return Reason(code=Code.BACKING_OFF, text=text, severity=Severity.WARN, zone=zone)
