"""The conditions of a policy: what holds of it, and why not.

`Ready` is what scripts wait for: everything updated and available. `Reconciling` and `Stalled` are
for readers that know no kind of ours: at most one of them is true, and then it is not `Ready`.
"""

from datetime import datetime
from typing import Final

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.policy.plan import PolicyPlan, PolicyWaitCode
from rollout_operator.model.policy.policy import RefusedPolicy
from rollout_operator.model.policy.status import PolicyStatus
from rollout_operator.model.policy.zones import ZoneResolution, ZonesCode
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions

ACCEPTED: Final = "Accepted"
ZONES_RESOLVED: Final = "ZonesResolved"
PROGRESSING: Final = "Progressing"
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
TYPES: Final = (ACCEPTED, ZONES_RESOLVED, PROGRESSING, READY, RECONCILING, STALLED)

DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
_UP_TO_DATE: Final = "UpToDate"
_BLOCKED: Final = "Blocked"
_ROLLING_OUT: Final = "RollingOut"

# Waits that are reasons of `Ready` themselves; of all others it is enough that pods roll out.
_OWN_REASON: Final = frozenset(
    {
        PolicyWaitCode.NO_SETS,
        PolicyWaitCode.SPANS_ZONES,
        PolicyWaitCode.NOT_ON_DELETE,
        PolicyWaitCode.SEVERAL_ZONES,
        PolicyWaitCode.ZONE_NOT_READY,
    }
)
# Only a person ends them.
_NEEDS_PERSON: Final = frozenset({PolicyWaitCode.SPANS_ZONES, PolicyWaitCode.NOT_ON_DELETE})
# A policy that is paused, or has nothing to do, is on its way nowhere.
_AT_REST: Final = frozenset(
    {PolicyWaitCode.UP_TO_DATE, PolicyWaitCode.NO_SETS, PolicyWaitCode.PAUSED}
)


def render_conditions(
    plan: PolicyPlan,
    resolution: ZoneResolution,
    *,
    before: PolicyStatus,
    generation: int,
    now: datetime,
) -> tuple[StatusCondition, ...]:
    """Return the conditions of a policy in service; `before` has those that they replace."""
    text, code = _explain(plan), plan.wait.code if plan.wait else None
    is_ready = code is PolicyWaitCode.UP_TO_DATE
    reason = _choose_ready_reason(plan)
    stalled = DEADLINE_EXCEEDED if plan.is_stalled else reason
    is_stalled = plan.is_stalled or code in _NEEDS_PERSON
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
    """Return the conditions of a policy that is not in service."""
    reason = refused.refusals[0].code
    text = "; ".join(one.text for one in refused.refusals)
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


def _explain(plan: PolicyPlan) -> str:
    """Return what is waited for or, where pods go, which."""
    if plan.wait is not None:
        return plan.wait.text
    going = plan.action.going if plan.action else ()
    return "; ".join(one.reason.text for one in going)


def _describe_zones(resolution: ZoneResolution) -> ConditionFinding:
    is_true = resolution.code is not ZonesCode.SPANS_ZONES
    findings = "; ".join(one.text for one in resolution.findings)
    return ConditionFinding(ZONES_RESOLVED, is_true, resolution.code, findings)


def _describe_progress(plan: PolicyPlan, text: str) -> ConditionFinding:
    code = plan.wait.code if plan.wait else None
    if plan.is_stalled:
        return ConditionFinding(PROGRESSING, False, DEADLINE_EXCEEDED, text)
    if plan.is_open:
        return ConditionFinding(PROGRESSING, True, PolicyWaitCode.BATCH_OPEN, text)
    if code is PolicyWaitCode.INTERVAL:
        return ConditionFinding(PROGRESSING, True, code, text)
    if code is PolicyWaitCode.PAUSED:
        return ConditionFinding(PROGRESSING, False, code, text)
    # Stopped as a whole it has no numbers, and may be up to date or not.
    is_done = code in _AT_REST or (bool(plan.zones) and not has_outdated(plan))
    return ConditionFinding(PROGRESSING, False, _UP_TO_DATE if is_done else _BLOCKED, text)


def has_outdated(plan: PolicyPlan) -> bool:
    """Tell whether pods are to be replaced, of a StatefulSet that is not paused by itself."""
    sets = (one for zone in plan.zones for one in zone.sets)
    return any(one.outdated for one in sets if not one.is_paused)


def _choose_ready_reason(plan: PolicyPlan) -> str:
    code = plan.wait.code if plan.wait else None
    if code is PolicyWaitCode.UP_TO_DATE:
        return _UP_TO_DATE
    return code if code in _OWN_REASON and code is not None else _ROLLING_OUT
