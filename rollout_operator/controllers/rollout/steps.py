"""Carry out the actions of a plan, as often as is worth it, and say when to reconcile again.

An action that failed, was refused or was contradicted is tried again later; what that means for the
API server is decided in `retries`. Deletes without an answer are read back before anything else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.backoff import CONTRADICTIONS
from rollout_operator.controllers.live_reads import EXPIRED_IN_A_ROW
from rollout_operator.controllers.retries import Attempt, Attempts, get_retry_after, name_attempt
from rollout_operator.controllers.rollout.executor import Executor
from rollout_operator.controllers.rollout.reports import Report
from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.model.errors import ApiError
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Action, Code, Reason, Severity
from rollout_operator.telemetry.logs import log

# An own delete that the cache has not shown for this long proves that the cache lags.
LAG_LIMIT: Final = CONTRADICTIONS.most
RECHECK_WAIT: Final = CONTRADICTIONS.first
# How often a delete without an answer is read back while it may still be carried out.
UNKNOWN_WAIT: Final = timedelta(seconds=5)
# Budgets may count pods of other groups, whose events do not wake this group. It costs no request.
HELD_RECHECK: Final = timedelta(seconds=10)


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of trying actions."""

    again: timedelta
    reasons: tuple[Reason, ...] = ()
    failed: bool = False


@dataclass(slots=True, kw_only=True)
class Steps:
    """Tries actions, and remembers by name how often they were contradicted."""

    executor: Executor
    deletes: OwnDeletes
    attempts: Attempts
    refresh: Callable[[str], None]
    """Make the caches list again; the argument says why."""
    resync: timedelta
    """When to reconcile again where nothing else says so."""
    _rechecks: dict[GroupName, int] = field(default_factory=dict, init=False)

    def forget(self, name: GroupName) -> None:
        """Forget a group that is gone."""
        self._rechecks.pop(name, None)

    async def settle(self, group: Group) -> StepOutcome | None:
        """Find out the outcome of deletes without an answer; return why nothing may go on."""
        if self.deletes.list_unknown(group.owners):
            step = await self._read_back(group)
            if step.failed or step.reasons:
                return step
        if self.deletes.longest_unseen(group.owners) > LAG_LIMIT:
            self.refresh("own delete not seen")
        return None

    async def carry_out(self, group: Group, actions: Sequence[Action]) -> StepOutcome:
        """Try actions one after the other. An error stays with its zone (D-18)."""
        steps = [await self._try(group, action) for action in actions]
        again = min((step.again for step in steps), default=self.resync)
        if self.deletes.list_unknown(group.owners):
            again = min(again, UNKNOWN_WAIT)
        reasons = tuple(reason for step in steps for reason in step.reasons)
        return StepOutcome(again=again, reasons=reasons, failed=any(step.failed for step in steps))

    async def _read_back(self, group: Group) -> StepOutcome:
        attempt = ("read back", group.name)
        wait, failure = self.attempts.wait_before(attempt)
        if wait:
            return StepOutcome(reasons=(_back_off(failure),), again=wait)
        try:
            await self.executor.read_back(group.owners)
        except ApiError as error:
            return self._fail(attempt, error)
        self.attempts.record_success(attempt)
        return StepOutcome(again=self.resync)

    async def _try(self, group: Group, action: Action) -> StepOutcome:
        """Carry out one action, unless it failed lately. An error stays with its zone (D-18)."""
        attempt = name_attempt(action)
        wait, failure = self.attempts.wait_before(attempt)
        if wait:
            return StepOutcome(reasons=(_back_off(failure, action.zone.name),), again=wait)
        report = await self.executor.carry_out(group, action)
        if report.error is not None:
            step = self._fail(attempt, report.error, action.zone.name)
            return replace(step, reasons=(*step.reasons, *report.reasons))
        refused = [reason.text for reason in report.reasons if reason.code is Code.DELETE_REFUSED]
        if refused and not report.deleted:
            wait = self.attempts.record_failure(attempt, refused[0])
            return StepOutcome(reasons=tuple(report.reasons), again=wait)
        if report.is_cut_short and not report.deleted:
            return self._expire(attempt, report, action.zone.name)
        self.attempts.record_success(attempt)
        again = self._choose_recheck(group.name, report)
        if not report.held:
            return StepOutcome(reasons=tuple(report.reasons), again=again)
        held = _name_held(report, action.zone.name)
        waits = [refusal.requeue_after or HELD_RECHECK for refusal in report.held]
        return StepOutcome(reasons=(*held, *report.reasons), again=min(again, *waits))

    def _fail(self, attempt: Attempt, error: ApiError, zone: str = "") -> StepOutcome:
        wanted = get_retry_after(error)
        wait = self.attempts.record_failure(attempt, str(error), at_least=wanted)
        log.debug("Attempt failed", attempt=attempt[0], zone=zone, again_in=wait, err=error)
        return StepOutcome(reasons=(_back_off(str(error), zone),), again=wait, failed=True)

    def _expire(self, attempt: Attempt, report: Report, zone: str) -> StepOutcome:
        """Return the outcome of a live read that was too old before anything was done."""
        wait = self.attempts.record_failure(attempt, report.cut_short)
        has_failed = self.attempts.count(attempt) >= EXPIRED_IN_A_ROW
        reason = Reason(
            code=Code.LIVE_READ_EXPIRED,
            text=f"a live read was too old before a pod was deleted: {report.cut_short}",
            severity=Severity.WARN if has_failed else Severity.DEBUG,
            zone=zone,
        )
        return StepOutcome(reasons=(reason, *report.reasons), again=wait, failed=has_failed)

    def _choose_recheck(self, name: GroupName, report: Report) -> timedelta:
        """Return when to reconcile again if no event comes first."""
        if report.deleted or report.is_cut_short or not report.is_contradicted:
            self._rechecks.pop(name, None)
        if report.is_cut_short:
            return RECHECK_WAIT
        if not report.is_contradicted:
            return LAG_LIMIT + RECHECK_WAIT if report.deleted else self.resync
        self._rechecks[name] = self._rechecks.get(name, 0) + 1
        wait = CONTRADICTIONS.bound(self._rechecks[name])
        if wait == LAG_LIMIT:
            self.refresh("the API server contradicts the cache")
        return wait


def _name_held(report: Report, zone: str) -> tuple[Reason, ...]:
    """Return each reason once for which budgets hold pods of a zone back."""
    return tuple(
        {refusal.reason: replace(refusal.reason, zone=zone) for refusal in report.held}.values()
    )


def _back_off(error: str, zone: str = "") -> Reason:
    text = f"the last attempt failed and will be repeated: {error}"
    return Reason(code=Code.BACKING_OFF, text=text, severity=Severity.WARN, zone=zone)
