"""The conditions of a policy: what holds of it, and why not.

`Ready` is what scripts wait for: everything updated and available. `Reconciling` and `Stalled` are
for readers that know no kind of ours: at most one of them is true, and then it is not `Ready`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rollout_operator.model.policy.plan import PolicyPlan, PolicyWaitCode
from rollout_operator.model.policy.policy import RefusedPolicy
from rollout_operator.model.policy.status import PolicyCondition, PolicyStatus
from rollout_operator.model.policy.zones import ZoneResolution, ZonesCode
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.wording import one_line

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


@dataclass(frozen=True, slots=True)
class _Finding:
    kind: str
    is_true: bool
    reason: str
    text: str


def render_conditions(
    plan: PolicyPlan,
    resolution: ZoneResolution,
    *,
    before: PolicyStatus,
    generation: int,
    now: datetime,
) -> tuple[PolicyCondition, ...]:
    """Return the conditions of a policy in service; `before` has those that they replace."""
    text, code = _explain(plan), plan.wait.code if plan.wait else None
    is_ready = code is PolicyWaitCode.UP_TO_DATE
    reason = _choose_ready_reason(plan)
    stalled = DEADLINE_EXCEEDED if plan.is_stalled else reason
    is_stalled = plan.is_stalled or code in _NEEDS_PERSON
    is_reconciling = not is_stalled and code not in _AT_REST
    findings = (
        _Finding(ACCEPTED, True, ACCEPTED, "the policy is in service"),
        _find_zones(resolution),
        _find_progress(plan, text),
        _Finding(READY, is_ready, reason, text),
        _Finding(RECONCILING, is_reconciling, reason, text),
        _Finding(STALLED, is_stalled, stalled, text if is_stalled else ""),
    )
    return _stamp(findings, before, generation, now)


def render_refusal(
    refused: RefusedPolicy, *, before: PolicyStatus, now: datetime
) -> tuple[PolicyCondition, ...]:
    """Return the conditions of a policy that is not in service."""
    reason = refused.refusals[0].code
    text = "; ".join(one.text for one in refused.refusals)
    findings = (
        _Finding(ACCEPTED, False, reason, text),
        _Finding(PROGRESSING, False, _BLOCKED, text),
        _Finding(READY, False, reason, text),
        _Finding(RECONCILING, False, reason, ""),
        _Finding(STALLED, True, reason, text),
    )
    return _stamp(findings, before, refused.head.generation, now)


def _explain(plan: PolicyPlan) -> str:
    """Return what is waited for or, where pods go, which."""
    if plan.wait is not None:
        return plan.wait.text
    going = plan.action.going if plan.action else ()
    return "; ".join(one.reason.text for one in going)


def _find_zones(resolution: ZoneResolution) -> _Finding:
    is_true = resolution.code is not ZonesCode.SPANS_ZONES
    notes = "; ".join(one.text for one in resolution.notes)
    return _Finding(ZONES_RESOLVED, is_true, resolution.code, notes)


def _find_progress(plan: PolicyPlan, text: str) -> _Finding:
    code = plan.wait.code if plan.wait else None
    if plan.is_stalled:
        return _Finding(PROGRESSING, False, DEADLINE_EXCEEDED, text)
    if plan.is_open:
        return _Finding(PROGRESSING, True, PolicyWaitCode.BATCH_OPEN, text)
    if code is PolicyWaitCode.INTERVAL:
        return _Finding(PROGRESSING, True, code, text)
    if code is PolicyWaitCode.PAUSED:
        return _Finding(PROGRESSING, False, code, text)
    # Stopped as a whole it has no numbers, and may be up to date or not.
    is_done = code in _AT_REST or (bool(plan.zones) and not has_outdated(plan))
    return _Finding(PROGRESSING, False, _UP_TO_DATE if is_done else _BLOCKED, text)


def has_outdated(plan: PolicyPlan) -> bool:
    """Tell whether pods are to be replaced, of a StatefulSet that is not paused by itself."""
    sets = (one for zone in plan.zones for one in zone.sets)
    return any(one.outdated for one in sets if not one.is_paused)


def _choose_ready_reason(plan: PolicyPlan) -> str:
    code = plan.wait.code if plan.wait else None
    if code is PolicyWaitCode.UP_TO_DATE:
        return _UP_TO_DATE
    return code if code in _OWN_REASON and code is not None else _ROLLING_OUT


def _stamp(
    findings: Iterable[_Finding], before: PolicyStatus, generation: int, now: datetime
) -> tuple[PolicyCondition, ...]:
    """Return conditions, each with since when it has its status; those of others stay."""
    own = tuple(
        PolicyCondition(
            type=one.kind,
            status=str(one.is_true),
            reason=one.reason,
            # A terminal shows it: what it quotes of a tenant must not steer that.
            message=one_line(one.text),
            last_transition_time=_find_time(before, one, now),
            observed_generation=generation,
        )
        for one in findings
    )
    return (*own, *(one for one in before.conditions if one.type not in TYPES))


def _find_time(before: PolicyStatus, finding: _Finding, now: datetime) -> str:
    known = before.find_condition(finding.kind)
    is_same = known is not None and known.status == str(finding.is_true)
    kept = known.last_transition_time if known is not None and is_same else ""
    return kept or format_rfc3339(now.replace(microsecond=0))
