"""The conditions of a Rollout: what holds of it, and why not.

`Ready` is kuberik's: true as soon as a release is written, false where its bake fails.
`Reconciling` and `Stalled` are for readers that know no kind of ours, as those of kstatus.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.releases.status import BakeStatus, HistoryEntry
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions
from rollout_operator.planning.releases.deployment import RECOVERING

READY: Final = "Ready"
RELEASES_UPDATED: Final = "ReleasesUpdated"
GATES_PASSING: Final = "GatesPassing"
DEPLOYMENT_BLOCKED: Final = "DeploymentBlocked"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
PATH_UNKNOWN: Final = "UpgradePathUnknown"
WANTED_FOUND: Final = "WantedVersionFound"
TARGET_CONFLICT: Final = "TargetConflict"

FAILED: Final = "RolloutFailed"
WRITING: Final = "WritingTargets"
NO_RELEASES: Final = "NoReleasesAvailable"
INVALID_SPEC: Final = "InvalidSpec"
NO_FLUX: Final = "FluxNotInstalled"
GATES_UNKNOWN: Final = "GateListFailed"
CHECKS_UNKNOWN: Final = "HealthCheckListFailed"
RECOVERY_TIMEOUT: Final = "RecoveryTimeout"
_IDLE: Final = "Idle"

_ORDER: Final[Mapping[str, int]] = {
    kind: place
    for place, kind in enumerate(
        (
            *(READY, RELEASES_UPDATED, GATES_PASSING, DEPLOYMENT_BLOCKED, RECOVERING),
            *(RECONCILING, STALLED, PATH_UNKNOWN, WANTED_FOUND, TARGET_CONFLICT),
        )
    )
}


def merge_conditions(
    before: Collection[StatusCondition],
    findings: Collection[ConditionFinding],
    *,
    generation: int,
    now: datetime,
) -> tuple[StatusCondition, ...]:
    """Return the conditions with what is found now; those that nothing was found of stay."""
    types = {finding.type for finding in findings}
    merged = stamp_conditions(findings, before, types=types, generation=generation, now=now)
    return tuple(sorted(merged, key=lambda condition: _ORDER.get(condition.type, len(_ORDER))))


def describe_ready(entry: HistoryEntry | None, *, is_writing: bool, note: str) -> ConditionFinding:
    """Return whether the current deployment is in place, as far as it is known (REL-87)."""
    if entry is None:
        return ConditionFinding(READY, False, "NothingDeployed", note or "nothing is deployed yet")
    own = (entry.message, entry.bake_status_message, note)
    version = f"version {entry.version.tag} {entry.bake_status or ''}".rstrip()
    text = "; ".join([version, *(part for part in own if part)])
    if entry.has_failed:
        return ConditionFinding(READY, False, "BakeTimeFailed", text)
    if is_writing:
        return ConditionFinding(READY, False, WRITING, text)
    if entry.is_active and entry.last_retry_timestamp is not None:
        return ConditionFinding(READY, False, "BakeTimeRetrying", text)
    is_baked = entry.bake_status == BakeStatus.SUCCEEDED and entry.bake_end_time is not None
    return ConditionFinding(READY, True, "BakeTimePassed" if is_baked else "RolloutSucceeded", text)


def describe_progress(
    entry: HistoryEntry | None, *, is_writing: bool, is_overdue: bool
) -> tuple[ConditionFinding, ConditionFinding]:
    """Return `Reconciling` and `Stalled`, of which at most one is true (RELB-08)."""
    text = "" if entry is None else entry.bake_status_message or ""
    is_failed = entry is not None and entry.has_failed
    is_busy = entry is not None and entry.is_active and not is_overdue
    busy = WRITING if is_writing else str(entry.bake_status) if entry else ""
    stalled = "BakeTimeFailed" if is_failed else RECOVERY_TIMEOUT
    is_stalled = is_failed or is_overdue
    return (
        ConditionFinding(RECONCILING, is_busy, busy if is_busy else _IDLE, text if is_busy else ""),
        ConditionFinding(
            STALLED, is_stalled, stalled if is_stalled else _IDLE, text if is_stalled else ""
        ),
    )
