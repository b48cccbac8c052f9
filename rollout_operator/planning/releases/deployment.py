"""What a deployment writes into history: the new entry, the end of the entry before, and a retry.

The entry is an intent. Objects of Flux are written after it, so that a crash between the two leaves
a deployment that is completed, and none without an entry.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.plan import ReleaseEvent
from rollout_operator.model.releases.release import Release
from rollout_operator.model.releases.rollout import ReleaseCompat, ReleaseIntents, ReleaseSpec
from rollout_operator.model.releases.status import (
    BakeStatus,
    HistoryEntry,
    TriggeredBy,
    TriggerKind,
)
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases.bake import compute_cutoff, has_error
from rollout_operator.planning.releases.bounds import MOST_OF_HISTORY, keep_first
from rollout_operator.planning.releases.health import is_unhealthy
from rollout_operator.planning.releases.intents import ATTRIBUTION

DEPLOYING: Final = "BakeTimeDeploying"
CANCELLED: Final = "BakeTimeCancelled"
RETRY_REQUESTED: Final = "RetryRequested"
NOWHERE: Final = "no object of Flux is annotated for it"
RECOVERING: Final = "BakeFailureDisabled"

_SYSTEM: Final = TriggeredBy(kind=TriggerKind.SYSTEM, name="rollout-controller")


class DeployRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A release that is to be deployed, and what let it through."""

    release: Release
    is_manual: bool = False
    is_forced: bool = False
    is_bypassing: bool = False
    is_unblocking: bool = False
    is_written: bool = True
    """Whether all objects of Flux carry its tag already."""

    @property
    def is_requested(self) -> bool:
        """Return whether a person has a part in it (RELB-34)."""
        return self.is_manual or self.is_bypassing or self.is_unblocking


def deploy(
    history: tuple[HistoryEntry, ...],
    request: DeployRequest,
    spec: ReleaseSpec,
    intents: ReleaseIntents,
    now: datetime,
) -> tuple[tuple[HistoryEntry, ...], tuple[ReleaseEvent, ...]]:
    """Return the history with a new deployment at its head (REL-59, 63 to 65 and 68)."""
    events: list[ReleaseEvent] = []
    past, tag = history, request.release.tag
    if history and history[0].is_active:
        past = (_cancel(history[0], tag, now), *history[1:])
        note = f"{history[0].version.tag} is superseded by {tag}"
        events.append(ReleaseEvent(reason=CANCELLED, note=note))
    # Without a bake it is over once Flux has it.
    is_over = request.is_written and not spec.has_bake
    entry = HistoryEntry(
        version=request.release,
        timestamp=now,
        id=1 + ((past[0].id if past else 0) or 0),
        message=_choose_message(request, intents),
        triggered_by=_choose_trigger(request, intents),
        bake_status=BakeStatus.SUCCEEDED if is_over else BakeStatus.DEPLOYING,
        bake_status_message="no bake is configured" if is_over else "waiting for the bake to start",
    )
    if spec.has_bake:
        note = f"{tag} is being deployed"
        events.append(ReleaseEvent(reason=DEPLOYING, note=note, is_routine=True))
    kept = keep_first((entry, *past)[: spec.history_limit], MOST_OF_HISTORY)
    return kept, tuple(events)


def list_consumed(request: DeployRequest) -> tuple[str, ...]:
    """Return the annotations that a deployment uses up (REL-70, RELB-11)."""
    used = (
        (names.FORCE_DEPLOY, request.is_forced),
        (names.BYPASS_GATES, request.is_bypassing),
        (names.UNBLOCK_FAILED, request.is_unblocking),
    )
    return (*(annotation for annotation, is_used in used if is_used), *ATTRIBUTION)


def decide_recovery(
    before: HistoryEntry | None,
    checks: Iterable[HealthCheck],
    now: datetime,
    *,
    was_recovering: bool,
    is_manual: bool,
    compat: ReleaseCompat,
) -> ConditionFinding:
    """Return whether failures count for a new deployment, once and for all (REL-67).

    `before` is the entry that it supersedes, as it was, and `checks` are as they are.
    """
    health_checks = tuple(checks)
    if before is not None and before.bake_status not in {None, BakeStatus.SUCCEEDED}:
        is_over = not before.is_active and before.bake_status != BakeStatus.CANCELLED
        cutoff = compute_cutoff(before, now)
        has_failed = was_recovering or any(has_error(check, cutoff, now) for check in health_checks)
        if is_over or has_failed or not compat.trusts_cancelled:
            text = f"{before.version.tag} did not succeed; failures do not count"
            return ConditionFinding(RECOVERING, True, "PreviousBakeFailed", text)
    if is_manual and any(is_unhealthy(check) for check in health_checks):
        text = "HealthChecks were unhealthy before; failures do not count"
        return ConditionFinding(RECOVERING, True, "DeployedWithUnhealthyHealthChecks", text)
    return ConditionFinding(RECOVERING, False, "Normal", "failures count")


def retry(
    entry: HistoryEntry, intents: ReleaseIntents, now: datetime
) -> tuple[HistoryEntry, ReleaseEvent]:
    """Return a failed deployment as it starts anew (REL-81, RELB-35)."""
    entry = msgspec.structs.replace(
        entry,
        bake_status=BakeStatus.DEPLOYING,
        bake_status_message=None,
        bake_start_time=None,
        bake_end_time=None,
        failed_health_checks=(),
        last_retry_timestamp=now,
        retries=entry.retries + 1,
        last_retry_by=intents.deploy_user or None,
    )
    note = f"{entry.version.tag} is tried again"
    return entry, ReleaseEvent(reason=RETRY_REQUESTED, note=note)


def render_success(entry: HistoryEntry, *, is_written: bool) -> ReleaseEvent:
    """Return the event of a deployment whose objects of Flux are written, where there are any."""
    note = f"{entry.version.tag} is deployed: {entry.message or ''}"
    if is_written:
        return ReleaseEvent(reason="DeploymentSucceeded", note=note)
    note = f"{note}; {NOWHERE}"
    return ReleaseEvent(reason="DeploymentSucceeded", note=note, severity=Severity.WARN)


def render_failure(reason: str, text: str) -> ReleaseEvent:
    """Return the event of a pass that did not get on."""
    return ReleaseEvent(reason=reason, note=text, severity=Severity.WARN)


def _cancel(entry: HistoryEntry, tag: str, now: datetime) -> HistoryEntry:
    return msgspec.structs.replace(
        entry,
        bake_status=BakeStatus.CANCELLED,
        bake_status_message=f"superseded by {tag}",
        bake_end_time=now,
        message=f"Deployment was cancelled by that of {tag}",
    )


def _choose_message(request: DeployRequest, intents: ReleaseIntents) -> str:
    own = intents.deploy_message or intents.deployment_message
    if request.is_requested and own:
        return own
    flags = (
        ("with force deploy", request.is_forced),
        ("with gate bypass", request.is_bypassing),
        ("with failed bake unblock", request.is_unblocking),
    )
    first = "Manual deployment" if request.is_manual else "Automatic deployment"
    return ", ".join((first, *(text for text, is_set in flags if is_set)))


def _choose_trigger(request: DeployRequest, intents: ReleaseIntents) -> TriggeredBy:
    if request.is_requested and intents.deploy_user:
        return TriggeredBy(kind=TriggerKind.USER, name=intents.deploy_user)
    return _SYSTEM
