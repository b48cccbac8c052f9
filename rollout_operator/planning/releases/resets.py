"""When a HealthCheck starts anew: what it found before a deployment says nothing of the release.

Only a Rollout that selects a check resets it, from whatever namespace. In the original a check in
another namespace is never reset, so that a check which stays healthy holds each bake up for ever.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from rollout_operator.model.releases.health import HealthCheck, HealthCheckStatus, HealthStatus
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.releases.bake import compute_cutoff
from rollout_operator.planning.releases.health import Labels, list_checks


def find_reset(
    check: HealthCheck,
    rollouts: Iterable[ReleaseRollout],
    namespaces: Mapping[str, Labels],
    now: datetime,
) -> HealthCheckStatus | None:
    """Return the status with which a check starts anew, None where it need not (REL-104, 105)."""
    changed = check.status.last_change_time
    for rollout in rollouts:
        current = rollout.status.current
        selected = list_checks(rollout.head, rollout.spec.checks, (check,), namespaces)
        if current is None or not selected:
            continue
        if changed is None or min(changed, now) < compute_cutoff(current, now):
            return HealthCheckStatus(
                status=HealthStatus.PENDING,
                last_change_time=now,
                message=f"reset for {current.version.tag} of {rollout.head.key}",
            )
    return None
