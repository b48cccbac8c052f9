"""The health of what a HealthCheck looks at, and what becomes of the status of the HealthCheck.

A Kustomization is as healthy as it and the objects that it applied; an object that is gone does not
count, since the Kustomization itself says what it lacks. Of rollout groups and MultiAZRollouts, all
pods must run the update revision. What cannot be read is a failure only after several attempts in a
row (RELB-37). What may not be read is unknown and waited for, except objects of an inventory whose
kind has no rule: most of these have no health.

Each attempt of Flux sets `Ready` to unknown first, so that a condition is never older than the last
attempt: how long a failure lasts is remembered across attempts.

A check waits until Flux has applied the release of its Rollout, and starts anew with each
deployment. Only a Rollout that selects a check resets it, from whatever namespace.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import HOLDING, Code, Reason, find_leading
from rollout_operator.model.units import quote
from rollout_operator.planning.wording import join_names, one_line
from rollout_operator.releases.model.plan import (
    CHECKED,
    KUSTOMIZATION,
    CheckClass,
    CheckFinding,
    FluxReference,
    HealthCheck,
    HealthCheckStatus,
    HealthStatus,
    ObjectStatus,
    StatusVerdict,
)
from rollout_operator.releases.model.releases import ReleaseRollout
from rollout_operator.releases.planning.bake import Labels, compute_cutoff, is_since, list_checks
from rollout_operator.releases.planning.flux import (
    JUDGED,
    ApiObject,
    assess_status,
    get_failure_time,
)

# With these reasons Flux has given up until the next interval, and says what is wrong.
_FAILURES: Final = frozenset(
    {"ArtifactFailed", "BuildFailed", "HealthCheckFailed", "PruneFailed", "ReconciliationFailed"}
)
# Flux writes whole seconds, rounded down: what failed after a deployment shall not seem older.
_RESOLUTION: Final = timedelta(seconds=1)

Tree = Mapping[str, object]

_MOST_UNREAD: Final = 3
"""So many evaluations in a row may fail to read something."""

# A group that is paused waits because it shall.
_STALLS: Final = HOLDING - {Code.POLICY_PAUSED}
# Nothing in them can fail, and to read Secrets is a right that no cluster should have to give.
_NEVER_READ: Final = frozenset({("", "Secret"), ("", "ConfigMap")})
_KINDS: Final[Mapping[CheckClass, str]] = {
    CheckClass.KUSTOMIZATION: KUSTOMIZATION,
    CheckClass.ROLLOUT_GROUP: "rollout group",
    CheckClass.MULTI_AZ_ROLLOUT: "MultiAZRollout",
}


class FluxFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure of an object of Flux, however often it was attempted."""

    since: datetime
    text: str
    attempt: tuple[object, ...]
    """What distinguishes it from another failure."""


def track_failure(
    tree: Mapping[str, object], before: FluxFailure | None, now: datetime
) -> FluxFailure | None:
    """Return the failure that goes on, or begins; None where there is none."""
    read = ApiObject(tree)
    ready = read.find_condition("Ready")
    if ready is None or not read.group.endswith(".toolkit.fluxcd.io"):
        return None
    attempt = (
        read.find_int("metadata", "generation"),
        read.get_text("status", "lastAttemptedRevision"),
        read.get_text("status", "lastHandledReconcileAt"),
    )
    earlier = before if before is not None and before.attempt == attempt else None
    if ready.status == "Unknown":
        return earlier
    if ready.status != "False" or ready.reason not in _FAILURES:
        return None
    since = now if ready.since is None else min(ready.since + _RESOLUTION, now)
    return FluxFailure(
        since=since if earlier is None else earlier.since,
        text=f"{ready.reason}: {ready.message.strip()}",
        attempt=attempt,
    )


def has_lasted(failure: FluxFailure | None, now: datetime, grace: timedelta) -> bool:
    """Return whether a failure counts: before that it may pass by itself."""
    return failure is not None and now - failure.since >= grace


def next_read(failures: Iterable[FluxFailure], now: datetime, grace: timedelta) -> timedelta | None:
    """Return after what time the first of them counts, None where none will."""
    waits = [
        grace - (now - failure.since) for failure in failures if not has_lasted(failure, now, grace)
    ]
    return min(waits, default=None)


class InventoryObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of an inventory. Without a namespace it is one of the cluster."""

    namespace: str
    name: str
    group: str
    kind: str

    @property
    def key(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


class InventoryFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found where an entry points to."""

    name: str
    verdict: StatusVerdict | None = None
    """None where there is no such object, or where it cannot be read."""
    problem: str = ""
    """Why it cannot be read."""
    may_pass: bool = False
    """Whether that may pass by itself."""
    is_unknown: bool = False
    """Whether it may not be read, and does not count."""
    failed_at: datetime | None = None
    """When it failed, as far as it says so."""


def parse_inventory_id(text: str) -> InventoryObject:
    """Return the object of `namespace_name_group_kind` (REL-109). Raises InvalidInput."""
    parts = text.rsplit("_", 2)
    namespace, separator, name = parts[0].partition("_")
    if len(parts) < 3 or not (separator and name and parts[2]):
        raise InvalidInput(f"inventory: {quote(text)} is no id: namespace_name_group_kind")
    return InventoryObject(
        # No name has an underscore; where a role has a colon, the inventory has two of them.
        namespace=namespace,
        name=name.replace("__", ":"),
        group=parts[1],
        kind=parts[2],
    )


def assess_inventory(
    own: StatusVerdict, findings: Sequence[InventoryFinding], failed_at: datetime | None = None
) -> CheckFinding:
    """Return the health of a Kustomization by itself and by what it applied (REL-108 to 110)."""
    if own.status in {ObjectStatus.FAILED, ObjectStatus.UNKNOWN}:
        return CheckFinding(status=HealthStatus.UNHEALTHY, text=own.text, failed_at=failed_at)
    is_pending = own.status is not ObjectStatus.CURRENT
    broken = [f"{finding.name}: {finding.problem}" for finding in findings if finding.problem]
    failed = _list_at(findings, {ObjectStatus.FAILED, ObjectStatus.UNKNOWN})
    waiting = _list_at(findings, {ObjectStatus.IN_PROGRESS, ObjectStatus.TERMINATING})
    if broken or failed:
        times = [inventory.failed_at for inventory in failed if inventory.failed_at is not None]
        text = join_names([*broken, *_show(failed)])
        return CheckFinding(
            status=HealthStatus.UNHEALTHY, text=text, failed_at=max(times, default=None)
        )
    if waiting:
        return CheckFinding(status=HealthStatus.PENDING, text=join_names(_show(waiting)))
    if is_pending or not findings:
        text = own.text if is_pending else "it has applied nothing yet"
        return CheckFinding(status=HealthStatus.PENDING, text=text)
    unknown = [finding.name for finding in findings if finding.is_unknown]
    note = f"may not be read, and does not count: {join_names(unknown)}" if unknown else ""
    text = "; ".join(filter(None, (own.text, note)))
    return CheckFinding(status=HealthStatus.HEALTHY, text=text)


def _list_at(
    findings: Iterable[InventoryFinding], statuses: set[ObjectStatus]
) -> list[InventoryFinding]:
    return [
        finding
        for finding in findings
        if finding.verdict is not None and finding.verdict.status in statuses
    ]


def _show(findings: Iterable[InventoryFinding]) -> list[str]:
    return [
        f"{finding.name}: {finding.verdict.text}"
        for finding in findings
        if finding.verdict is not None
    ]


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


def assess_forbidden(entry: InventoryObject, problem: str) -> InventoryFinding:
    if (entry.group, entry.kind) not in JUDGED:
        return InventoryFinding(name=entry.key, is_unknown=True)
    waiting = StatusVerdict(ObjectStatus.IN_PROGRESS, f"unknown: {problem}")
    return InventoryFinding(name=entry.key, verdict=waiting)


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
    settled = [_soften(finding) if unread < _MOST_UNREAD else finding for finding in findings]
    return assess_inventory(own.verdict, settled, own.failed_at)


def assess_unread(problem: str, unread: int) -> CheckFinding:
    is_lasting = unread >= _MOST_UNREAD
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
    """Let a finding wait where the object may be readable the next time."""
    if not (finding.problem and finding.may_pass):
        return finding
    verdict = StatusVerdict(ObjectStatus.IN_PROGRESS, finding.problem)
    return InventoryFinding(name=finding.name, verdict=verdict)


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
    annotation, text = CHECKED[own], check.named.get(own)
    if text is None:
        raise InvalidInput(f"annotation {annotation} is missing")
    segments = text.split("/")
    if len(segments) > 2 or not all(segments):
        raise InvalidInput(f"annotation {annotation}: {quote(text)} is no name or namespace/name")
    namespace = segments[0] if len(segments) == 2 else check.head.namespace
    return FluxReference(kind=_KINDS[own], namespace=namespace, name=segments[-1])


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
