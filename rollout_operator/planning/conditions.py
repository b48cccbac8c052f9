"""Conditions in the `status` of objects, and those of a policy.

Scripts wait for `Ready`: everything updated and available. `Reconciling` and `Stalled` are for
tools that know no kind of ours: at most one of them is true, and then `Ready` is not.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UnsetType

from rollout_operator.model.budget import ConditionDescription, StatusCondition
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.model.policy import (
    PolicyPhase,
    PolicyPlan,
    PolicyRefusalCode,
    PolicyStatus,
    RefusedPolicy,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.model.units import format_rfc3339, parse_rfc3339
from rollout_operator.planning.wording import cut, one_line

ACCEPTED: Final = "Accepted"
ZONES_RESOLVED: Final = "ZonesResolved"
PROGRESSING: Final = "Progressing"
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
TYPES: Final = (ACCEPTED, ZONES_RESOLVED, PROGRESSING, READY, RECONCILING, STALLED)
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
NOT_ON_DELETE: Final = "UpdateStrategyNotOnDelete"
SPANS_ZONES: Final = "StatefulSetSpansZones"
INTERVAL_WAIT: Final = "IntervalWait"
SEVERAL_ZONES: Final = "MultipleZonesUnavailable"
_UP_TO_DATE: Final = "UpToDate"
_ZONE_NOT_READY: Final = "ZoneNotReady"
_BLOCKED: Final = "Blocked"
_ROLLING_OUT: Final = "RollingOut"
# Reasons of `Ready`; for all other codes it is RollingOut.
_READY_REASONS: Final[Mapping[Code, str]] = {
    Code.UP_TO_DATE: _UP_TO_DATE,
    Code.NO_STATEFUL_SETS: "NoStatefulSets",
    Code.STATEFUL_SET_SPANS_ZONES: SPANS_ZONES,
    Code.WRONG_STRATEGY: NOT_ON_DELETE,
    Code.SEVERAL_ZONES_NOT_READY: SEVERAL_ZONES,
    Code.ZONE_LEFT_SHORT: "ZoneLeftShort",
    Code.ZONE_NOT_READY: _ZONE_NOT_READY,
    Code.PAUSED_ZONE_NOT_READY: _ZONE_NOT_READY,
    Code.BUDGET_USED: _ZONE_NOT_READY,
    Code.PODS_STARTING: _ZONE_NOT_READY,
}
_PAUSES: Final = frozenset({Code.PAUSED, Code.POLICY_PAUSED})
_AT_REST: Final = frozenset({Code.UP_TO_DATE, Code.NO_STATEFUL_SETS}) | _PAUSES
_BLOCKED_PHASES: Final = (PolicyPhase.BLOCKED, PolicyPhase.INVALID)
# All that block a policy; never renamed (MAZ-52).
REASONS: Final = (
    *(str(code) for code in PolicyRefusalCode),
    SPANS_ZONES,
    NOT_ON_DELETE,
    SEVERAL_ZONES,
    DEADLINE_EXCEEDED,
)


class ConditionFinding(msgspec.Struct, frozen=True):
    type: str
    is_true: bool
    reason: str
    text: str


def stamp_conditions(
    findings: Iterable[ConditionFinding],
    before: Collection[StatusCondition],
    *,
    types: Collection[str],
    generation: int,
    now: datetime,
) -> tuple[StatusCondition, ...]:
    """Return conditions for the findings, then those of `before` of other `types`.

    A condition keeps its time as long as its status.
    """
    own = tuple(
        StatusCondition(
            type=finding.type,
            status=str(finding.is_true),
            reason=finding.reason,
            # A terminal shows it, and it may quote a tenant.
            message=one_line(finding.text),
            last_transition_time=_choose_time(finding, before, now),
            observed_generation=generation,
        )
        for finding in findings
    )
    return (
        *own,
        *(status_condition for status_condition in before if status_condition.type not in types),
    )


def describe_conditions(conditions: Iterable[StatusCondition]) -> Iterator[ConditionDescription]:
    for condition in conditions:
        yield ConditionDescription(
            type=condition.type,
            is_true=condition.status == str(True),
            reason=condition.reason,
            message=cut(condition.message),
            since=parse_time(condition.last_transition_time),
        )


def parse_time(text: str | UnsetType) -> datetime | None:
    """Return a time of a status, None if it is absent or cannot be parsed."""
    try:
        return None if isinstance(text, UnsetType) else parse_rfc3339(text)
    except InvalidInput:
        return None


def render_conditions(
    plan: PolicyPlan,
    resolution: ZoneResolution,
    *,
    before: PolicyStatus,
    generation: int,
    now: datetime,
) -> tuple[StatusCondition, ...]:
    text, code = _explain(plan), _find_code(plan)
    is_ready = code is Code.UP_TO_DATE
    reason = _READY_REASONS.get(code, _ROLLING_OUT) if code else _ROLLING_OUT
    stalled = DEADLINE_EXCEEDED if plan.is_stalled else reason
    is_error = plan.leading is not None and plan.leading.severity is Severity.ERROR
    is_stalled = plan.is_stalled or plan.needs_person or is_error
    is_reconciling = not is_stalled and code not in _AT_REST
    findings = (
        ConditionFinding(ACCEPTED, True, ACCEPTED, "the policy is in service"),
        _describe_zones(resolution),
        _describe_progress(plan, text),
        ConditionFinding(READY, is_ready, reason, text),
        ConditionFinding(RECONCILING, is_reconciling, reason, text),
        ConditionFinding(STALLED, is_stalled, stalled, text if is_stalled else ""),
    )
    return stamp_conditions(
        findings, before.conditions, types=TYPES, generation=generation, now=now
    )


def render_refusal(
    refused: RefusedPolicy, *, before: PolicyStatus, now: datetime
) -> tuple[StatusCondition, ...]:
    reason = refused.refusals[0].code
    text = "; ".join(refusal.text for refusal in refused.refusals)
    findings = (
        ConditionFinding(ACCEPTED, False, reason, text),
        ConditionFinding(PROGRESSING, False, _BLOCKED, text),
        ConditionFinding(READY, False, reason, text),
        ConditionFinding(RECONCILING, False, reason, ""),
        ConditionFinding(STALLED, True, reason, text),
    )
    return stamp_conditions(
        findings, before.conditions, types=TYPES, generation=refused.head.generation, now=now
    )


def has_outdated(plan: PolicyPlan) -> bool:
    """Return whether pods are to be replaced, of StatefulSets that are not paused."""
    sets = (sts for zone in plan.zones for sts in zone.sets)
    return any(sts.outdated for sts in sets if not sts.is_paused)


def list_blocking(status: PolicyStatus) -> tuple[str, ...]:
    """Return the reasons that do not end by themselves: a person or the cluster must act."""
    held = [status.get_reason(READY)] if status.phase in _BLOCKED_PHASES else []
    if status.get_reason(PROGRESSING) == DEADLINE_EXCEEDED:
        held.append(DEADLINE_EXCEEDED)
    return tuple(held)


def _choose_time(
    finding: ConditionFinding, before: Iterable[StatusCondition], now: datetime
) -> str:
    wanted = (finding.type, str(finding.is_true))
    same = (
        status_condition
        for status_condition in before
        if (status_condition.type, status_condition.status) == wanted
    )
    kept = next((condition.last_transition_time for condition in same), "")
    return kept or format_rfc3339(now.replace(microsecond=0))


def _explain(plan: PolicyPlan) -> str:
    """Return what is waited for, or which pods go."""
    going = plan.action.going if plan.action else ()
    return "; ".join(
        wait.text for wait in plan.waits or [replacement.reason for replacement in going]
    )


def _find_code(plan: PolicyPlan) -> Code | None:
    return plan.leading.code if plan.leading else None


def _describe_zones(resolution: ZoneResolution) -> ConditionFinding:
    is_true = resolution.code is not ZonesCode.SPANS_ZONES
    findings = "; ".join(finding.text for finding in resolution.findings)
    return ConditionFinding(ZONES_RESOLVED, is_true, resolution.code, findings)


def _describe_progress(plan: PolicyPlan, text: str) -> ConditionFinding:
    code = _find_code(plan)
    if plan.is_stalled:
        return ConditionFinding(PROGRESSING, False, DEADLINE_EXCEEDED, text)
    if plan.is_open:
        return ConditionFinding(PROGRESSING, True, "BatchOpen", text)
    if plan.next_batch is not None:
        return ConditionFinding(PROGRESSING, True, INTERVAL_WAIT, text)
    if code in _PAUSES:
        return ConditionFinding(PROGRESSING, False, "Paused", text)
    # Without numbers it may be up to date or not.
    is_done = code in _AT_REST or (bool(plan.zones) and not has_outdated(plan))
    return ConditionFinding(PROGRESSING, False, _UP_TO_DATE if is_done else _BLOCKED, text)
