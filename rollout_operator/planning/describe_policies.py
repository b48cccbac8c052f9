"""One MultiAZRollout as every outlet shows it.

Numbers, zones and batches are those of its status, which every process can read. What it waits for
comes from the process that decides; elsewhere its condition `Ready` says it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import UnsetType
from msgspec.structs import replace

from rollout_operator.model.description import (
    BatchDescription,
    GroupDescription,
    Phase,
    PolicyDescription,
    PolicySetDescription,
    PolicyZoneDescription,
)
from rollout_operator.model.objects import Group, Unreadable
from rollout_operator.model.outcome import Code, Plan, Reason, Severity
from rollout_operator.model.policy import (
    Policy,
    PolicyPhase,
    PolicyPlan,
    PolicyScope,
    PolicySetStatus,
    PolicyStatus,
    PolicyZoneStatus,
    RefusedPolicy,
    WatchedPolicy,
    ZoneCounts,
)
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.conditions import (
    DEADLINE_EXCEEDED,
    INTERVAL_WAIT,
    PROGRESSING,
    READY,
    describe_conditions,
    parse_time,
)
from rollout_operator.planning.describe_groups import describe_group, describe_reason
from rollout_operator.planning.wording import cut

_UNDECIDED: Final = "nothing has been decided yet"
_GOING: Final = "it is being deleted: no batch begins"
# A batch begins sooner after its pause, but for a process that has much to do.
DUE_AFTER: Final = timedelta(seconds=10)
# An operator that is starting, or that learns of the kind, has written a status by then.
OBEYED_WITHIN: Final = timedelta(minutes=2)
_HELD: Final = (PolicyPhase.BLOCKED, PolicyPhase.INVALID)
_LOUD: Final = (Severity.WARN, Severity.ERROR)
_PAUSES: Final = (Code.INTERVAL_WAIT, Code.ZONE_SOAK)


def describe_policy(
    watched: WatchedPolicy,
    scope: PolicyScope | RefusedPolicy | None,
    waits: Sequence[Reason] = (),
    *,
    now: datetime,
    counts: Sequence[ZoneCounts] = (),
) -> PolicyDescription:
    """Return one policy.

    `scope` is what it owns, or why it is refused; None where it is being deleted. `waits` are what
    a process has decided that acts for it, `counts` are the numbers of that decision, where they
    are newer than its status.
    """
    if isinstance(scope, RefusedPolicy):
        text = "; ".join(refusal.text for refusal in scope.refusals)
        described = _describe_status(watched)
        return replace(
            described,
            phase=PolicyPhase.INVALID,
            headline=cut(text),
            reason=scope.refusals[0].code,
            next_batch=None,
        )
    described = _describe_status(watched)
    if scope is None:
        return replace(described, headline=_GOING)
    described = _with_counts(replace(described, groups=tuple(sorted(scope.groups))), counts)
    is_pause = not waits or waits[0].code in _PAUSES
    if is_pause and _is_due(described, now):
        return _with_waits(described, [_explain_due(described)])
    return _with_waits(described, waits) if waits else described


def find_disobedience(
    watched: WatchedPolicy, now: datetime, *, is_switched_off: bool = False
) -> Reason | None:
    """Return that no operator looks after a policy, None where one does or still may.

    `is_switched_off`: the operator of its namespace says that it obeys none.
    """
    created = watched.policy.head.created
    text = "the operator of the namespace obeys no MultiAZRollouts"
    if not is_switched_off:
        is_new = created is not None and now - created < OBEYED_WITHIN
        if watched.status.observed_generation or watched.status.conditions or is_new:
            return None
        since = "" if created is None else f" since it was created at {format_rfc3339(created)}"
        text = f"no operator has looked at it{since}"
    return Reason(Code.POLICY_NOT_OBEYED, text, severity=Severity.WARN)


def list_worst_policies(policies: Iterable[PolicyDescription]) -> list[PolicyDescription]:
    """Return policies as people read them; a pause is a step of a rollout that goes on."""
    return sorted(policies, key=lambda policy: (_rank(policy), policy.namespace, policy.name))


def is_held(policy: PolicyDescription) -> bool:
    """Return whether a person or the cluster has to mend something."""
    leading = policy.waits[0].severity if policy.waits else None
    return policy.phase in _HELD or has_stalled(policy) or leading in _LOUD


def has_stalled(policy: PolicyDescription) -> bool:
    """Return whether a batch makes no progress: the phase says so of all else that is stuck."""
    return any(
        condition.is_true and condition.reason == DEADLINE_EXCEEDED
        for condition in policy.conditions
    )


def _rank(policy: PolicyDescription) -> int:
    if is_held(policy):
        return 0
    if policy.phase == PolicyPhase.IDLE:
        return 4
    if policy.phase == PolicyPhase.PAUSED:
        return 2
    return 3 if policy.phase == PolicyPhase.PROGRESSING or _is_in_pause(policy) else 1


def _is_in_pause(policy: PolicyDescription) -> bool:
    return any(
        (condition.type, condition.reason) == (PROGRESSING, INTERVAL_WAIT)
        for condition in policy.conditions
    )


def _is_due(policy: PolicyDescription, now: datetime) -> bool:
    """Return whether a pause has been over for so long that something else holds the batch."""
    end = policy.next_batch
    return end is not None and _is_in_pause(policy) and now - end > DUE_AFTER


def _explain_due(policy: PolicyDescription) -> Reason:
    end = "" if policy.next_batch is None else format_rfc3339(policy.next_batch)
    return Reason(Code.BATCH_DUE, f"the pause was over at {end}, and the next batch has not begun")


def describe_driven(group: Group, plan: PolicyPlan, now: datetime) -> GroupDescription:
    """Return what a policy owns as if it were a rollout group, by the plan of this moment.

    A batch that has stalled waits for a person.
    """
    actions = () if plan.action is None else (plan.action,)
    decided = Plan(group=group.name, actions=actions, waits=plan.waits, failed=plan.is_stalled)
    return describe_group(group, decided, now)


def describe_idle(policy: PolicyDescription, now: datetime) -> GroupDescription:
    """Return a policy that drives nothing as such a group: refused, obeyed by nobody, or new."""
    is_held = policy.phase == PolicyPhase.INVALID or policy.code is Code.POLICY_NOT_OBEYED
    return GroupDescription(
        name=policy.name,
        phase=Phase.HELD if is_held else Phase.WAITING,
        headline=policy.headline,
        code=policy.code,
        looked=now,
        desired=policy.desired,
        ready=policy.ready,
        updated=policy.updated,
    )


def describe_unreadable_policy(broken: Unreadable) -> PolicyDescription:
    return PolicyDescription(
        name=broken.name,
        namespace=broken.namespace,
        phase=PolicyPhase.INVALID,
        headline=cut(broken.error),
        code=Code.OBJECT_UNREADABLE,
    )


def _with_counts(described: PolicyDescription, counts: Sequence[ZoneCounts]) -> PolicyDescription:
    sets = {sts.name: sts for zone in counts for sts in zone.sets}
    if not sets:
        return described

    def renew(shown: PolicySetDescription) -> PolicySetDescription:
        now = sets.get(shown.name)
        if now is None:
            return shown
        unavailable = now.replicas - now.ready
        return replace(
            shown, desired=now.replicas, updated=now.updated, outdated=now.outdated,
            unavailable=unavailable,
        )  # fmt: skip

    return replace(
        described,
        desired=sum(sts.replicas for sts in sets.values()),
        updated=sum(sts.updated for sts in sets.values()),
        ready=sum(sts.ready for sts in sets.values()),
        zones=tuple(replace(zone, sets=tuple(map(renew, zone.sets))) for zone in described.zones),
    )


def _with_waits(described: PolicyDescription, waits: Sequence[Reason]) -> PolicyDescription:
    return replace(
        described,
        headline=cut(waits[0].text),
        code=waits[0].code,
        waits=tuple(describe_reason(wait) for wait in waits if wait.code is not Code.UP_TO_DATE),
    )


def _describe_status(watched: WatchedPolicy) -> PolicyDescription:
    status, policy = watched.status, watched.policy
    ready = status.find_condition(READY)
    return PolicyDescription(
        name=watched.name,
        namespace=watched.namespace,
        phase=status.phase,
        headline=cut(ready.message) if ready is not None else _UNDECIDED,
        reason=status.get_reason(READY),
        desired=status.total_pods or 0,
        updated=status.updated_pods or 0,
        ready=status.ready_pods or 0,
        began=parse_time(status.start_time),
        completed=parse_time(status.completion_time),
        zones=tuple(map(_describe_zone, status.zones)),
        unknown_zones=tuple(map(cut, status.unknown_zones)),
        batch=_describe_batch(status),
        next_batch=parse_time(status.next_batch_time),
        is_paused=isinstance(policy, Policy) and policy.is_paused,
        conditions=tuple(describe_conditions(status.conditions)),
    )


def _describe_zone(zone: PolicyZoneStatus) -> PolicyZoneDescription:
    return PolicyZoneDescription(
        name=cut(zone.name),
        order=zone.order,
        state=zone.state,
        sets=tuple(map(_describe_set, zone.stateful_sets)),
    )


def _describe_set(status: PolicySetStatus) -> PolicySetDescription:
    return PolicySetDescription(
        name=status.name,
        source=status.source,
        desired=status.replicas,
        updated=status.updated_pods,
        outdated=status.outdated_pods,
        unavailable=status.unavailable_pods,
    )


def _describe_batch(status: PolicyStatus) -> BatchDescription | None:
    batch = status.last_batch
    if isinstance(batch, UnsetType):
        return None
    return BatchDescription(
        number=batch.number,
        zone=cut(batch.zone),
        stateful_set=batch.stateful_set,
        pods=tuple(pod.name for pod in batch.pods),
        began=parse_time(batch.start_time),
        completed=parse_time(batch.completion_time),
    )
