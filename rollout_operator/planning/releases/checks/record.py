"""What a HealthCheck names, what holds it pending, and what becomes of its status.

A check may look healthy while Flux has yet to apply the release of its Rollout, so that it would
speak of the version before. So it waits until Flux is through, and is looked at after that: a bake
starts only with what was seen of the new version.

What it found before a deployment says nothing of the release: it starts anew. Only a Rollout that
selects a check resets it, from whatever namespace. In the original a check in another namespace is
never reset, so that a check which stays healthy holds each bake up for ever.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.flux import KUSTOMIZATION, FluxReference
from rollout_operator.model.releases.health import (
    CheckClass,
    CheckFinding,
    HealthCheck,
    HealthCheckStatus,
    HealthStatus,
)
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.model.units import quote
from rollout_operator.planning.releases.bake import compute_cutoff, is_since
from rollout_operator.planning.releases.health import Labels, list_checks
from rollout_operator.planning.wording import one_line

_NAMED: Final[Mapping[CheckClass, tuple[str, str]]] = {
    CheckClass.KUSTOMIZATION: (KUSTOMIZATION, names.CHECKED_KUSTOMIZATION),
    CheckClass.ROLLOUT_GROUP: ("rollout group", names.CHECKED_GROUP),
    CheckClass.MULTI_AZ_ROLLOUT: ("MultiAZRollout", names.CHECKED_POLICY),
}


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


def find_class(check: HealthCheck) -> CheckClass | None:
    """Return the class of a check, None where others write its status (REL-106)."""
    classes = (kind for kind in CheckClass if kind == check.check_class)
    return next(classes, None)


def parse_check_reference(check: HealthCheck, own: CheckClass) -> FluxReference:
    """Return what a check looks at (REL-107). Raises InvalidInput, which names the annotation."""
    kind, annotation = _NAMED[own]
    text = _map_texts(check)[own]
    if text is None:
        raise InvalidInput(f"annotation {annotation} is missing")
    segments = text.split("/")
    if len(segments) > 2 or not all(segments):
        raise InvalidInput(f"annotation {annotation}: {quote(text)} is no name or namespace/name")
    namespace = segments[0] if len(segments) == 2 else check.head.namespace
    return FluxReference(kind=kind, namespace=namespace, name=segments[-1])


def _map_texts(check: HealthCheck) -> Mapping[CheckClass, str | None]:
    return {
        CheckClass.KUSTOMIZATION: check.kustomization,
        CheckClass.ROLLOUT_GROUP: check.rollout_group,
        CheckClass.MULTI_AZ_ROLLOUT: check.policy,
    }


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
        if changed is None or not is_since(changed, compute_cutoff(current, now), now):
            return HealthCheckStatus(
                status=HealthStatus.PENDING,
                last_change_time=now,
                message=f"reset for {current.version.tag} of {rollout.head.key}",
            )
    return None
