"""How a release that is deployed proves itself: it starts to bake, and succeeds or fails.

A bake starts once every HealthCheck is healthy since the cutoff: the deployment or the last retry.
An error of a HealthCheck from the cutoff on fails it, and so does a start that is overdue, but for
a release in recovery mode: it follows a failure, and only time is against it. Times to come, which
another clock wrote, count as now.

Most clients write whole seconds, rounded down. Such a time counts in the whole second of the
cutoff: who finds a release healthy or broken at once would else write of a time before it. In
return nothing begins in a second in which such a time was written: it would seem newer.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.health import HealthCheck, HealthStatus
from rollout_operator.model.releases.plan import FluxTarget, ReleaseEvent
from rollout_operator.model.releases.rollout import ReleaseCompat, ReleaseRollout, ReleaseSpec
from rollout_operator.model.releases.status import BakeStatus, FailedHealthCheck, HistoryEntry
from rollout_operator.model.units import format_duration, format_rfc3339
from rollout_operator.planning.releases.bounds import bound_failed
from rollout_operator.planning.wording import join_names

STARTED: Final = "BakeTimeStarted"
PASSED: Final = "BakeTimePassed"
FAILED: Final = "BakeTimeFailed"

# After this a release in recovery mode counts as stalled where no timeout says otherwise.
_RECOVERY: Final = timedelta(hours=1)
_SOON: Final = timedelta(seconds=1)
_LEAST_POLL: Final = timedelta(seconds=10)
_LONGEST_POLL: Final = timedelta(minutes=1)


class BakeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a bake depends on."""

    spec: ReleaseSpec
    checks: tuple[HealthCheck, ...]
    now: datetime
    is_recovering: bool = False
    blocker: str = ""
    """What Flux has yet to do before a bake may start."""


class BakeStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass makes of a deployment."""

    entry: HistoryEntry
    events: tuple[ReleaseEvent, ...] = ()


def advance_bake(entry: HistoryEntry, context: BakeContext) -> BakeStep:
    """Return the deployment as time and health leave it (REL-71 to 78)."""
    if not entry.is_active:
        return BakeStep(entry=entry)
    failed = None if context.is_recovering else _find_failure(entry, context)
    if failed is not None:
        return failed
    started: tuple[ReleaseEvent, ...] = ()
    if entry.bake_start_time is None:
        waits = _explain_wait(entry, context)
        if waits:
            return BakeStep(entry=msgspec.structs.replace(entry, bake_status_message=waits))
        if not context.spec.has_bake:
            return BakeStep(entry=_end(entry, BakeStatus.SUCCEEDED, "no bake is configured"))
        entry = msgspec.structs.replace(
            entry,
            bake_status=BakeStatus.IN_PROGRESS,
            bake_start_time=context.now,
            bake_status_message=_describe_start(context),
        )
        started = (_event(STARTED, entry),)
    step = _finish(entry, context)
    return BakeStep(entry=step.entry, events=started + step.events)


def _describe_start(context: BakeContext) -> str:
    """Return what holds from now on: with the end, and not with what is left, which changes."""
    text, span = "every HealthCheck is healthy; the bake has started", context.spec.bake_time
    if span is None:
        return text
    end = format_rfc3339((context.now + span).replace(microsecond=0))
    return f"{text}, {format_duration(span)} until {end}"


def compute_cutoff(entry: HistoryEntry, now: datetime) -> datetime:
    """Return since when health counts."""
    retried = entry.last_retry_timestamp
    latest = entry.timestamp if retried is None else max(entry.timestamp, retried)
    return min(latest, now)


def is_since(stamp: datetime, cutoff: datetime, now: datetime) -> bool:
    """Return whether a time that a check has is of the cutoff or later."""
    stamp = min(stamp, now)
    return stamp >= (cutoff if stamp.microsecond else cutoff.replace(microsecond=0))


def next_clear_time(checks: Iterable[HealthCheck], now: datetime) -> timedelta | None:
    """Return after what time a cutoff is told from the times of checks; None where it is now."""
    second = now.replace(microsecond=0)
    stamps = (
        stamp
        for check in checks
        for stamp in (check.status.last_change_time, check.status.last_error_time)
    )
    is_clear = second == now or second not in stamps
    return None if is_clear else second + timedelta(seconds=1) - now


def has_error(check: HealthCheck, cutoff: datetime, now: datetime) -> bool:
    """Return whether a check saw a failure from the cutoff on, whatever it says now."""
    error = check.status.last_error_time
    return error is not None and is_since(error, cutoff, now)


def is_overdue(entry: HistoryEntry, context: BakeContext) -> bool:
    """Return whether a release in recovery mode has not become healthy in time (RELB-18)."""
    if not context.is_recovering or not entry.is_active or entry.bake_start_time is not None:
        return False
    limit = _RECOVERY if context.spec.deploy_timeout is None else context.spec.deploy_timeout
    return context.now - compute_cutoff(entry, context.now) > limit


def next_bake_pass(entry: HistoryEntry, context: BakeContext, *, is_manual: bool) -> timedelta:
    """Return when time alone may change a deployment that is active (REL-90, RELB-19)."""
    now, spec = context.now, context.spec
    if entry.bake_start_time is not None:
        ends = min(entry.bake_start_time, now) + (spec.bake_time or timedelta(0))
        return max(ends - now, _SOON)
    waited = now - compute_cutoff(entry, now)
    if spec.deploy_timeout is None:
        return _poll(waited)
    left = spec.deploy_timeout - waited
    if left < timedelta(0):
        return _poll(-left)
    # A person may wait for news of a release that was requested by name.
    share = max(left / 10, _LEAST_POLL) if is_manual else left
    return max(min(left, share), _SOON)


def _poll(waited: timedelta) -> timedelta:
    """Return a pause that grows with what was waited."""
    return min(max(waited, _LEAST_POLL), _LONGEST_POLL)


def _find_failure(entry: HistoryEntry, context: BakeContext) -> BakeStep | None:
    now, timeout = context.now, context.spec.deploy_timeout
    cutoff = compute_cutoff(entry, now)
    is_late = timeout is not None and now - cutoff > timeout
    if is_late and timeout is not None and entry.bake_start_time is None:
        silent = [
            check
            for check in context.checks
            if not _is_healthy_since(check, cutoff, now, after=True)
        ]
        text = f"the deploy timeout of {format_duration(timeout)} passed before the bake started"
        return _fail(entry, now, text, tuple(_describe_silent(check) for check in silent))
    failing = [check for check in context.checks if has_error(check, cutoff, now)]
    if not failing:
        return None
    began = entry.bake_start_time
    is_baking = began is not None and any(has_error(check, began, now) for check in failing)
    when = "after the bake started" if is_baking else "after deployment, before the bake started"
    named = [
        f"{check.head.key} ({check.status.message})" if check.status.message else check.head.key
        for check in failing
    ]
    text = f"a HealthCheck failed {when}: {join_names(named)}"
    return _fail(
        entry, now, text, tuple(_describe(check, check.status.message) for check in failing)
    )


def _fail(
    entry: HistoryEntry, now: datetime, text: str, failed: tuple[FailedHealthCheck, ...]
) -> BakeStep:
    entry = msgspec.structs.replace(
        _end(entry, BakeStatus.FAILED, text),
        bake_end_time=now,
        failed_health_checks=bound_failed(failed),
    )
    return BakeStep(entry=entry, events=(_event(FAILED, entry, Severity.WARN),))


def _explain_wait(entry: HistoryEntry, context: BakeContext) -> str:
    """Return what a bake waits for, empty where it may start (REL-74, RELB-16)."""
    if context.blocker:
        return f"waiting for Flux: {context.blocker}"
    cutoff = compute_cutoff(entry, context.now)
    late = [
        check.head.key
        for check in context.checks
        if not _is_healthy_since(check, cutoff, context.now)
    ]
    return f"waiting for health: {join_names(late)}" if late else ""


def _is_healthy_since(
    check: HealthCheck, cutoff: datetime, now: datetime, *, after: bool = False
) -> bool:
    changed = check.status.last_change_time
    if check.status.status != HealthStatus.HEALTHY or changed is None:
        return False
    return min(changed, now) > cutoff if after else is_since(changed, cutoff, now)


def _finish(entry: HistoryEntry, context: BakeContext) -> BakeStep:
    span, began = context.spec.bake_time, entry.bake_start_time
    if span is None:
        done = _end(entry, BakeStatus.SUCCEEDED, "every HealthCheck became healthy")
        return BakeStep(entry=msgspec.structs.replace(done, bake_end_time=context.now))
    if began is None or context.now - began < span:
        return BakeStep(entry=entry)
    done = _end(entry, BakeStatus.SUCCEEDED, f"the bake of {format_duration(span)} passed")
    done = msgspec.structs.replace(done, bake_end_time=context.now)
    return BakeStep(entry=done, events=(_event(PASSED, done),))


def _end(entry: HistoryEntry, status: BakeStatus, text: str) -> HistoryEntry:
    return msgspec.structs.replace(entry, bake_status=status, bake_status_message=text)


def _describe(check: HealthCheck, message: str | None) -> FailedHealthCheck:
    return FailedHealthCheck(name=check.head.name, namespace=check.head.namespace, message=message)


def _describe_silent(check: HealthCheck) -> FailedHealthCheck:
    status = check.status.status or "not evaluated"
    return _describe(check, check.status.message or f"its status is {status}")


def _event(reason: str, entry: HistoryEntry, severity: Severity = Severity.INFO) -> ReleaseEvent:
    note = f"{entry.version.tag}: {entry.bake_status_message}"
    return ReleaseEvent(reason=reason, note=note, severity=severity)


def describe_flux_wait(
    rollout: ReleaseRollout,
    tag: str | None,
    targets: Iterable[FluxTarget],
    compat: ReleaseCompat,
) -> str:
    """Return what is waited for until all targets run a tag (RELB-16); empty for nothing.

    Without a bake its writes are enough.
    """
    waits = compat.waits_for_flux and rollout.waits_for_flux and rollout.spec.has_bake
    for target in targets:
        if target.tag != tag:
            return f"{target.kind} {target.name} does not have the tag yet"
        if waits and target.waiting_for:
            return f"{target.kind} {target.name}: {target.waiting_for}"
    return ""
