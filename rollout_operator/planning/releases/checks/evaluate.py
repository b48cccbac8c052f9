"""The health of what a HealthCheck looks at, from objects as they are on the wire.

A Kustomization has its own status and that of each object that it applied. Rollout groups and
MultiAZRollouts of this operator are their StatefulSets, whose pods must all run the update
revision; a MultiAZRollout must be ready itself as well. What cannot be read may be there the next
time: it counts as a failure only once it could not be read several times in a row (RELB-37).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.model.outcome import Code, Reason
from rollout_operator.model.reasons.urgency import HOLDING, find_leading
from rollout_operator.model.releases.health import CheckFinding, HealthStatus
from rollout_operator.model.releases.object_status import ObjectStatus, StatusVerdict
from rollout_operator.planning.releases.checks.failures import FluxFailure
from rollout_operator.planning.releases.flux.inventory import (
    InventoryFinding,
    InventoryObject,
    assess_inventory,
)
from rollout_operator.planning.releases.kstatus.assess import assess_status
from rollout_operator.planning.releases.kstatus.fields import ApiObject
from rollout_operator.planning.releases.kstatus.witness import get_failure_time

Tree = Mapping[str, object]

MOST_UNREAD: Final = 3
"""So many evaluations in a row may fail to read something."""

# A group that is paused waits because it shall.
_STALLS: Final = HOLDING - {Code.POLICY_PAUSED}
# Nothing in them can fail, and to read Secrets is a right that no cluster should have to give.
_NEVER_READ: Final = frozenset({("", "Secret"), ("", "ConfigMap")})


def needs_read(entry: InventoryObject) -> bool:
    """Return whether an object of an inventory must be read to know its status."""
    return (entry.group, entry.kind) not in _NEVER_READ


def assess_object(
    name: str, tree: Tree, now: datetime, failure: FluxFailure | None = None
) -> InventoryFinding:
    """Return what one object is at, and when it failed; `failure` is Flux's, where it counts."""
    verdict = assess_status(tree, now)
    if failure is not None and verdict.status is not ObjectStatus.TERMINATING:
        failed = StatusVerdict(ObjectStatus.FAILED, failure.text)
        return InventoryFinding(name=name, verdict=failed, failed_at=failure.since)
    return InventoryFinding(name=name, verdict=verdict, failed_at=get_failure_time(tree))


def assess_held(hold: CheckFinding, own: InventoryFinding) -> CheckFinding:
    """Return the health of a Kustomization that has yet to apply a release, or fails with it.

    What it has applied is of the version before, and says nothing (RELB-16).
    """
    if own.verdict is None or own.verdict.status is not ObjectStatus.FAILED:
        return hold
    return CheckFinding(
        status=HealthStatus.UNHEALTHY, text=own.verdict.text, failed_at=own.failed_at
    )


def assess_kustomization(
    own: InventoryFinding, findings: Iterable[InventoryFinding], unread: int
) -> CheckFinding:
    """Return the health of a Kustomization and of what it applied (REL-108 to 111).

    `unread` counts the evaluations in a row, this included, that could not read something.
    """
    if own.verdict is None:
        return assess_unread(own.problem or "there is none", unread)
    settled = [_soften(finding) if unread < MOST_UNREAD else finding for finding in findings]
    return assess_inventory(own.verdict, settled, own.failed_at)


def assess_unread(problem: str, unread: int) -> CheckFinding:
    """Return the health of what cannot be read."""
    is_lasting = unread >= MOST_UNREAD
    status = HealthStatus.UNHEALTHY if is_lasting else HealthStatus.PENDING
    return CheckFinding(status=status, text=problem)


def assess_policy(own: Tree, sets: Sequence[Tree], now: datetime) -> CheckFinding:
    """Return the health of a MultiAZRollout by its conditions, and of what it owns (RELB-36)."""
    read = ApiObject(own)
    if read.find_condition("Ready") is None:
        return CheckFinding(status=HealthStatus.PENDING, text="it has no status yet")
    verdict = assess_status(own, now)
    if verdict.status is ObjectStatus.FAILED:
        return CheckFinding(
            status=HealthStatus.UNHEALTHY, text=verdict.text, failed_at=get_failure_time(own)
        )
    if verdict.status is not ObjectStatus.CURRENT:
        return CheckFinding(status=HealthStatus.PENDING, text=verdict.text)
    return assess_sets(sets, now)


def assess_group(sets: Sequence[Tree], now: datetime, stall: CheckFinding | None) -> CheckFinding:
    """Return the health of a rollout group; `stall` is what only a person ends, where it waits."""
    finding = assess_sets(sets, now)
    return finding if stall is None or finding.status is HealthStatus.HEALTHY else stall


def describe_stall(waits: Sequence[Reason], since: datetime) -> CheckFinding | None:
    """Return what a group waits for where a person must act; None where it goes on by itself."""
    leading = find_leading(waits)
    if leading is None or leading.code not in _STALLS:
        return None
    return CheckFinding(status=HealthStatus.UNHEALTHY, text=leading.text, failed_at=since)


def assess_sets(sets: Sequence[Tree], now: datetime) -> CheckFinding:
    """Return the health of StatefulSets that roll out together: all pods updated, and ready."""
    if not sets:
        return CheckFinding(status=HealthStatus.PENDING, text="it has no StatefulSet yet")
    findings = [_assess_set(sts, now) for sts in sets]
    finding = assess_inventory(StatusVerdict(ObjectStatus.CURRENT), findings)
    if finding.status is not HealthStatus.HEALTHY:
        return finding
    return msgspec.structs.replace(finding, text="all pods run the update revision and are ready")


def _assess_set(tree: Tree, now: datetime) -> InventoryFinding:
    name = ApiObject(tree).get_text("metadata", "name")
    return assess_object(f"StatefulSet {name}", tree, now)


def _soften(finding: InventoryFinding) -> InventoryFinding:
    """Return a finding that waits where what cannot be read may be there the next time."""
    if not (finding.problem and finding.may_pass):
        return finding
    verdict = StatusVerdict(ObjectStatus.IN_PROGRESS, finding.problem)
    return InventoryFinding(name=finding.name, verdict=verdict)
