"""How a pass ends: what is written where, what the conditions say, and when to reconcile again."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.plan import (
    ApplyTag,
    FluxTarget,
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
)
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.bake import (
    is_overdue,
    next_bake_pass,
)
from rollout_operator.planning.releases.contests import (
    describe_contest,
    get_contest_end,
    list_contested,
)
from rollout_operator.planning.releases.deployment import (
    render_success,
)
from rollout_operator.planning.releases.state import ReleasePass

_SOON: Final = timedelta(seconds=1)
_PINNED: Final = timedelta(seconds=30)
_REPORTED: Final = frozenset(
    {
        *(conditions.FAILED, conditions.NO_RELEASES, conditions.NO_FLUX),
        *(conditions.GATES_UNKNOWN, conditions.CHECKS_UNKNOWN),
    }
)


def finish(state: ReleasePass, reason: str) -> ReleasePlan:
    """Return the plan; `reason` is why `Ready` is false whatever is deployed."""
    unwritten = _list_unwritten(state)
    before = state.rollout.status.find_condition(conditions.RECONCILING)
    was_writing = before is not None and before.reason == conditions.WRITING
    is_writing = bool(unwritten) and (state.request is not None or was_writing)
    has_written = not unwritten and (state.request is not None or was_writing)
    contested = () if is_writing else _settle_contest(state, unwritten)
    _write(
        state, [target for target in unwritten if target not in contested], is_drift=not is_writing
    )
    if has_written and state.current is not None and not state.current.has_failed:
        state.events.append(render_success(state.current))
    overdue = state.current is not None and is_overdue(state.current, state.bake_context())
    problem = state.problem or (state.snapshot.write_problem if is_writing else "")
    _describe(state, reason, problem, is_writing=is_writing, is_overdue=overdue)
    if state.consumed:
        state.actions.append(RemoveIntents(intents=state.consumed))
    state.replace(consumed_intents=state.consumed)
    status = stamp_status(
        state.status, state.findings, state.snapshot, state.rollout.head.generation
    )
    if state.spec.wanted_version is None:
        kept = (
            condition
            for condition in status.conditions
            if condition.type != conditions.WANTED_FOUND
        )
        status = msgspec.structs.replace(status, conditions=tuple(kept))
    _report_changes(state, status)
    return ReleasePlan(
        status=status,
        actions=tuple(state.actions),
        events=tuple(state.events),
        requeue_after=_SOON if is_writing and not problem else _next_pass(state),
        problem=problem,
    )


def _settle_contest(state: ReleasePass, drifted: list[FluxTarget]) -> tuple[FluxTarget, ...]:
    """Return what is not corrected any more, and say so."""
    before, snapshot = state.rollout.status, state.snapshot
    contested = list_contested(drifted, snapshot.corrections, before, snapshot.now)
    if contested or before.has_condition(conditions.TARGET_CONFLICT):
        state.findings.append(describe_contest(contested, state.current_tag or ""))
    return contested


def _list_unwritten(state: ReleasePass) -> list[FluxTarget]:
    if state.current is None:
        return []
    return [target for target in state.snapshot.targets if target.tag != state.current_tag]


def _write(state: ReleasePass, unwritten: list[FluxTarget], *, is_drift: bool) -> None:
    tag = state.current_tag
    if tag is None or state.spec.is_suspended:
        return
    for flux_target in unwritten:
        state.actions.append(ApplyTag(target=flux_target, tag=tag, is_drift=is_drift))
        if is_drift:
            note = f"{flux_target.kind} {flux_target.name} has {flux_target.tag} and gets {tag}"
            state.events.append(ReleaseEvent(reason="DriftCorrected", note=note))


def _describe(
    state: ReleasePass, reason: str, problem: str, *, is_writing: bool, is_overdue: bool
) -> None:
    if problem or reason:
        ready = ConditionFinding(
            conditions.READY, False, reason or conditions.FAILED, problem or state.ready_note
        )
    else:
        ready = conditions.describe_ready(
            state.current, is_writing=is_writing, note=state.ready_note
        )
    state.findings.append(ready)
    state.findings += conditions.describe_progress(
        state.current, is_writing=is_writing, is_overdue=is_overdue
    )


def _report_changes(state: ReleasePass, status: ReleaseStatus) -> None:
    """Report conditions that say something else than before, and no others (RELB-06)."""
    for kind in (conditions.READY, conditions.GATES_PASSING, conditions.TARGET_CONFLICT):
        condition = status.find_condition(kind)
        if condition is None or not has_changed(state.rollout.status, status, kind):
            continue
        if kind == conditions.TARGET_CONFLICT:
            severity = Severity.WARN if condition.status == "True" else Severity.INFO
            note = condition.message or "no other writer undoes the tag any more"
            state.events.append(ReleaseEvent(reason=kind, note=note, severity=severity))
            continue
        # All that makes it ready, and a failed bake, has an event of its own.
        if kind != conditions.READY or condition.reason in _REPORTED:
            severity = Severity.INFO if condition.status == "True" else Severity.WARN
            state.events.append(
                ReleaseEvent(reason=condition.reason, note=condition.message, severity=severity)
            )


def _next_pass(state: ReleasePass) -> timedelta | None:
    entry = state.current
    if entry is not None and entry.is_active:
        if state.request is not None and state.manual is None:
            return None  # its own status brings the next pass
        is_manual = state.manual is not None
        return next_bake_pass(entry, state.bake_context(), is_manual=is_manual)
    if any(
        finding.type == conditions.TARGET_CONFLICT and finding.is_true for finding in state.findings
    ):
        return get_contest_end(state.snapshot.corrections, state.now)
    is_pinned = state.spec.wanted_version is not None and not state.spec.has_bake
    return _PINNED if is_pinned else None


def stamp_status(
    status: ReleaseStatus,
    findings: Collection[ConditionFinding],
    snapshot: ReleaseSnapshot,
    generation: int,
) -> ReleaseStatus:
    """Return the status with conditions for what is found."""
    merged = conditions.merge_conditions(
        status.conditions, findings, generation=generation, now=snapshot.now
    )
    return msgspec.structs.replace(status, observed_generation=generation, conditions=merged)


def has_changed(before: ReleaseStatus, after: ReleaseStatus, kind: str) -> bool:
    """Return whether a condition says something else than before."""
    old, new = before.find_condition(kind), after.find_condition(kind)
    said = None if old is None else (old.reason, old.message)
    return new is not None and (new.reason, new.message) != said
