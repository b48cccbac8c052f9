"""How a deployed release proves itself, and which HealthChecks hold back the next one.

A bake starts once every HealthCheck is healthy since the cutoff: the deployment or the last retry.
It fails by an error of a HealthCheck from the cutoff on, or by a late start; a release in recovery
mode, which follows a failure, fails only by time. Times in the future, from other clocks, count as
now.

Most clients write whole seconds, rounded down, so such a time counts from the start of the second
of the cutoff on. In return nothing begins in a second in which such a time was written: it would
seem newer.

An object has 1.5 MiB at most, and a status that is too large is refused as a whole. So each part
that repeats what others write has a bound, and the newest stays.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.objects import LabelSelector, WatchedHead
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import format_duration, format_rfc3339
from rollout_operator.planning.wording import join_names
from rollout_operator.releases.model.plan import FluxTarget, HealthCheck, HealthStatus, ReleaseEvent
from rollout_operator.releases.model.releases import (
    BakeStatus,
    CheckSelector,
    FailedHealthCheck,
    GateSummary,
    HistoryEntry,
    ReleaseCompat,
    ReleaseRollout,
    ReleaseSpec,
)

Labels = Mapping[str, str]
_Item = TypeVar("_Item")

MOST_OF_RELEASES: Final = 256 * 1024
"""Bytes; candidates may be as many again, before gates and after."""
MOST_OF_HISTORY: Final = 256 * 1024
_MOST_OF_GATES: Final = 128 * 1024
MOST_FAILED: Final = 100
"""HealthChecks that an entry names, of which only the first have their message."""
_MOST_QUOTED: Final = 10
_MOST_ALLOWED: Final = 20
# No registry takes longer tags.
_LONGEST_TAG: Final = 128

_STARTED: Final = "BakeTimeStarted"
_PASSED: Final = "BakeTimePassed"
FAILED: Final = "BakeTimeFailed"

# After this a release in recovery mode counts as stalled where no timeout says otherwise.
_RECOVERY: Final = timedelta(hours=1)
_SOON: Final = timedelta(seconds=1)
_LEAST_POLL: Final = timedelta(seconds=10)
_LONGEST_POLL: Final = timedelta(minutes=1)


@unique
class BlockedCode(StrEnum):
    """Reasons of the condition `DeploymentBlocked`. Never renamed."""

    UNHEALTHY = "UnhealthyHealthChecks"
    HEALTHY = "HealthChecksHealthy"
    MANUAL = "ManualDeployment"
    SUSPENDED = "Suspended"
    WANTED_NOT_FOUND = "WantedVersionNotFound"
    WANTED_NOT_VERIFIED = "WantedVersionNotVerified"


HOLDING: Final = frozenset(
    {BlockedCode.SUSPENDED, BlockedCode.WANTED_NOT_FOUND, BlockedCode.WANTED_NOT_VERIFIED}
)
"""What holds a release back that is requested by name, too."""


class HealthVerdict(msgspec.Struct, frozen=True, kw_only=True):
    code: BlockedCode
    text: str = ""

    @property
    def is_blocking(self) -> bool:
        return self.code not in {BlockedCode.HEALTHY, BlockedCode.MANUAL}


def list_checks(
    head: WatchedHead,
    selector: CheckSelector | None,
    checks: Iterable[HealthCheck],
    namespaces: Mapping[str, Labels],
) -> tuple[HealthCheck, ...]:
    """Return the HealthChecks of a Rollout, by namespace and name (REL-54).

    `namespaces` has the labels of all that are known; in an unknown namespace none is found.
    """
    if selector is None or selector.selector is None:
        return ()
    labels, spaces = selector.selector, selector.namespaces
    selected = (
        check
        for check in checks
        if labels.takes(check.labels) and _is_within(check.head.namespace, head, spaces, namespaces)
    )
    return tuple(sorted(selected, key=lambda check: (check.head.namespace, check.head.name)))


def takes_check(rollout: ReleaseRollout, check: HealthCheck) -> bool:
    """Return whether a HealthCheck may belong to a Rollout, by its labels alone."""
    checks = rollout.spec.checks
    return (
        checks is not None and checks.selector is not None and checks.selector.takes(check.labels)
    )


def selects_namespaces(rollout: ReleaseRollout) -> bool:
    """Return whether HealthChecks of other namespaces may belong to a Rollout."""
    return rollout.spec.checks is not None and rollout.spec.checks.namespaces is not None


def assess_health(
    checks: Iterable[HealthCheck], forgiven: Collection[FailedHealthCheck] = ()
) -> HealthVerdict:
    """Return whether the next release waits for health (REL-55).

    `forgiven` are those for which the current release failed, where that is not to stop the next
    one (RELB-25).
    """
    forgiven_checks = {(check.namespace, check.name) for check in forgiven}
    failing = [
        check
        for check in checks
        if is_unhealthy(check) and (check.head.namespace, check.head.name) not in forgiven_checks
    ]
    if not failing:
        return HealthVerdict(code=BlockedCode.HEALTHY, text="no HealthCheck is unhealthy")
    texts = [f"{check.head.key} ({check.status.message or 'unhealthy'})" for check in failing]
    return HealthVerdict(code=BlockedCode.UNHEALTHY, text=f"unhealthy: {join_names(texts)}")


def is_unhealthy(check: HealthCheck) -> bool:
    """Return whether a check found a failure; pending and not yet evaluated are none."""
    return check.status.status == HealthStatus.UNHEALTHY


def _is_within(
    namespace: str,
    head: WatchedHead,
    spaces: LabelSelector | None,
    namespaces: Mapping[str, Labels],
) -> bool:
    if spaces is None:
        return namespace == head.namespace
    return namespace in namespaces and spaces.takes(namespaces[namespace])


def keep_first(items: Sequence[_Item], most: int) -> tuple[_Item, ...]:
    """Return the first items that have so many bytes together, and always one."""
    if _measure(items) <= most:
        return tuple(items)
    room, kept = most, list[_Item]()
    for item in items:
        room -= _measure(item)
        if kept and room < 0:
            break
        kept.append(item)
    return tuple(kept)


def keep_last(items: Sequence[_Item], most: int) -> tuple[_Item, ...]:
    return keep_first(items[::-1], most)[::-1]


def bound_gates(gates: tuple[GateSummary, ...]) -> tuple[GateSummary, ...]:
    """Return the summaries of gates: of too many those that are closed, then the first."""
    if _measure(gates) <= _MOST_OF_GATES:
        return gates
    shorter = (_shorten(gate) for gate in gates)
    kept = keep_first(sorted(shorter, key=lambda gate: gate.passing is not False), _MOST_OF_GATES)
    return tuple(sorted(kept, key=lambda gate: gate.name))


def _bound_failed(failed: Sequence[FailedHealthCheck]) -> tuple[FailedHealthCheck, ...]:
    quoted = failed[:_MOST_QUOTED]
    named = (
        msgspec.structs.replace(check, message=None) for check in failed[_MOST_QUOTED:MOST_FAILED]
    )
    return (*quoted, *named) if len(failed) > MOST_FAILED else tuple(failed)


def _shorten(gate: GateSummary) -> GateSummary:
    allowed = gate.allowed_versions
    if not allowed:
        return gate
    message = f"{gate.message}; it allows {len(allowed)} versions, of which the first are shown"
    shown = tuple(tag[:_LONGEST_TAG] for tag in allowed[:_MOST_ALLOWED])
    return msgspec.structs.replace(gate, allowed_versions=shown, message=message)


def _measure(part: object) -> int:
    return len(msgspec.json.encode(part))


class BakeContext(msgspec.Struct, frozen=True, kw_only=True):
    spec: ReleaseSpec
    checks: tuple[HealthCheck, ...]
    now: datetime
    is_recovering: bool = False
    blocker: str = ""
    """What Flux has yet to do before a bake may start."""


_BakeStep = tuple[HistoryEntry, tuple[ReleaseEvent, ...]]


def advance_bake(entry: HistoryEntry, context: BakeContext) -> _BakeStep:
    """Return the deployment as time and health leave it (REL-71 to 78)."""
    if not entry.is_active:
        return entry, ()
    failed = None if context.is_recovering else _find_failure(entry, context)
    if failed is not None:
        return failed
    started: tuple[ReleaseEvent, ...] = ()
    if entry.bake_start_time is None:
        waits = _explain_wait(entry, context)
        if waits:
            return msgspec.structs.replace(entry, bake_status_message=waits), ()
        if not context.spec.has_bake:
            return _end(entry, BakeStatus.SUCCEEDED, "no bake is configured"), ()
        entry = msgspec.structs.replace(
            entry,
            bake_status=BakeStatus.IN_PROGRESS,
            bake_start_time=context.now,
            bake_status_message=_describe_start(context),
        )
        started = (_event(_STARTED, entry),)
    entry, events = _finish(entry, context)
    return entry, started + events


def _describe_start(context: BakeContext) -> str:
    """Return a text that stays true: it has the end, not the time left."""
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
    """Return whether a time of a check is at the cutoff or later."""
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


def _find_failure(entry: HistoryEntry, context: BakeContext) -> _BakeStep | None:
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
) -> _BakeStep:
    entry = msgspec.structs.replace(
        _end(entry, BakeStatus.FAILED, text),
        bake_end_time=now,
        failed_health_checks=_bound_failed(failed),
    )
    return entry, (_event(FAILED, entry, Severity.WARN),)


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


def _finish(entry: HistoryEntry, context: BakeContext) -> _BakeStep:
    span, began = context.spec.bake_time, entry.bake_start_time
    if span is None:
        done = _end(entry, BakeStatus.SUCCEEDED, "every HealthCheck became healthy")
        return msgspec.structs.replace(done, bake_end_time=context.now), ()
    if began is None or context.now - began < span:
        return entry, ()
    done = _end(entry, BakeStatus.SUCCEEDED, f"the bake of {format_duration(span)} passed")
    done = msgspec.structs.replace(done, bake_end_time=context.now)
    return done, (_event(_PASSED, done),)


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
    """Return what Flux has yet to do until all targets run a tag (RELB-16).

    Without a bake its writes are enough.
    """
    waits = compat.waits_for_flux and rollout.waits_for_flux and rollout.spec.has_bake
    for target in targets:
        if target.tag != tag:
            return f"{target.kind} {target.name} does not have the tag yet"
        if waits and target.waiting_for:
            return f"{target.kind} {target.name}: {target.waiting_for}"
    return ""
