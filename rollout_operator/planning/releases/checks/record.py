"""What becomes of the status of a HealthCheck that was evaluated, and what holds it pending.

A check may look healthy while Flux has yet to apply the release of its Rollout, so that it would
speak of the version before. So it waits until Flux is through, and is looked at after that: a bake
starts only with what was seen of the new version.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from rollout_operator.model.releases.health import (
    CheckFinding,
    HealthCheck,
    HealthCheckStatus,
    HealthStatus,
)
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.releases.health import Labels, list_checks
from rollout_operator.planning.wording import one_line


def record_finding(
    before: HealthCheckStatus, finding: CheckFinding, now: datetime
) -> HealthCheckStatus:
    """Return the status with what was found (REL-112). Without news it is the same."""
    is_new = before.status != finding.status or before.last_change_time is None
    error = before.last_error_time
    if finding.status is HealthStatus.UNHEALTHY:
        # Without a time of its own a failure keeps that at which it was seen first.
        last_error = error if before.status == HealthStatus.UNHEALTHY else None
        error = finding.failed_at or last_error or now
    return msgspec.structs.replace(
        before,
        status=str(finding.status),
        message=one_line(finding.text) or None,
        last_change_time=now if is_new else before.last_change_time,
        last_error_time=error,
    )


def find_flux_blocker(
    check: HealthCheck,
    rollouts: Iterable[ReleaseRollout],
    namespaces: Mapping[str, Labels],
    waits: Mapping[str, str],
) -> CheckFinding | None:
    """Return why a check says nothing of the release of a Rollout yet, None where it can.

    `waits` says, by namespace and name of a Rollout, what Flux has yet to do for it.
    """
    for rollout in rollouts:
        current, wait = rollout.status.current, waits.get(rollout.head.key, "")
        if not wait or current is None or not current.is_active:
            continue
        if current.bake_start_time is None and list_checks(
            rollout.head, rollout.spec.checks, (check,), namespaces
        ):
            text = f"waiting for Flux to apply {current.version.tag} of {rollout.head.key}: {wait}"
            return CheckFinding(status=HealthStatus.PENDING, text=text)
    return None
