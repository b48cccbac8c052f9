"""How a pass ends: what is written where, what the conditions say, and when to reconcile again."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model.condition import StatusCondition
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
from rollout_operator.planning.releases.bake import is_overdue, next_bake_pass
from rollout_operator.planning.releases.contests import (
    describe_contest,
    get_contest_end,
    list_contested,
)
from rollout_operator.planning.releases.deployment import NOWHERE, render_success
from rollout_operator.planning.releases.health import HOLDING, BlockedCode
from rollout_operator.planning.releases.state import ReleasePass

_SOON: Final = timedelta(seconds=1)
_PINNED: Final = timedelta(seconds=30)
_WITH_EVENTS: Final = (
    *(conditions.READY, conditions.GATES_PASSING, conditions.DEPLOYMENT_BLOCKED),
    *(conditions.STALLED, conditions.PATH_UNKNOWN, conditions.TARGET_CONFLICT),
)
_REPORTED: Final = frozenset(
    {
        *(conditions.FAILED, conditions.NO_RELEASES, conditions.NO_FLUX),
        *(conditions.GATES_UNKNOWN, conditions.CHECKS_UNKNOWN),
    }
)


def finish(state: ReleasePass, reason: str) -> ReleasePlan:
    """Return the plan; `reason` is why `Ready` is false whatever is deployed."""
    unwritten = state.list_unwritten()
    before = state.rollout.status.find_condition(conditions.RECONCILING)
    was_writing = before is not None and before.reason == conditions.WRITING
    is_begun = state.request is not None or was_writing
    is_writing = bool(unwritten) and is_begun
    has_written = not unwritten and is_begun
    contested = () if is_writing else _settle_contest(state, unwritten)
    _write(
        state, [target for target in unwritten if target not in contested], is_drift=not is_writing
    )
    if has_written and state.current is not None and not state.current.has_failed:
        state.events.append(render_success(state.current, is_written=bool(state.snapshot.targets)))
    overdue = state.current is not None and is_overdue(state.current, state.bake_context())
    problem = state.problem or (state.snapshot.write_problem if state.is_unwritable() else "")
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
        tag="" if state.request is None else state.request.release.tag,
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


def _write(state: ReleasePass, unwritten: list[FluxTarget], *, is_drift: bool) -> None:
    tag = state.current_tag
    if tag is None or state.spec.is_suspended:
        return
    for flux_target in unwritten:
        state.actions.append(ApplyTag(target=flux_target, tag=tag, is_drift=is_drift))


def _describe(
    state: ReleasePass, reason: str, problem: str, *, is_writing: bool, is_overdue: bool
) -> None:
    if problem or reason:
        ready = ConditionFinding(
            conditions.READY, False, reason or conditions.FAILED, problem or state.ready_note
        )
    else:
        nowhere = "" if state.snapshot.targets else NOWHERE
        notes = (nowhere, state.ready_note, _describe_hold(state), _explain_contest(state))
        note = "; ".join(filter(None, notes if state.current else notes[1:]))
        ready = conditions.describe_ready(state.current, is_writing=is_writing, note=note)
    state.findings.append(ready)
    state.findings += conditions.describe_progress(
        state.current, is_writing=is_writing, is_overdue=is_overdue
    )


def _describe_hold(state: ReleasePass) -> str:
    """Return what holds the next release back, in the words of its own condition."""
    if state.request is not None:
        return ""  # it is deployed now
    found = {finding.type: finding for finding in state.findings}
    blocked, gates = (
        found.get(kind) for kind in (conditions.DEPLOYMENT_BLOCKED, conditions.GATES_PASSING)
    )
    excluded = {release.tag: release for release in state.status.excluded_releases}
    tags = [release.tag for release in state.status.release_candidates]
    if state.manual is not None:
        tags, excluded = [state.manual.tag] if state.manual.tag != state.current_tag else [], {}
    is_waiting = any(tag not in excluded for tag in tags)
    if blocked is not None and blocked.is_true and is_waiting:
        return f"held: {blocked.text}"
    if gates is not None and not gates.is_true and tags and state.manual is None:
        return f"held: {gates.text}"
    return f"held: {tags[0]}: {excluded[tags[0]].reason}" if tags and not is_waiting else ""


def _explain_contest(state: ReleasePass) -> str:
    """Return who undoes the tag, in the words of the condition."""
    kind = conditions.TARGET_CONFLICT
    found = (finding for finding in state.findings if finding.type == kind and finding.is_true)
    return next((finding.text for finding in found), "")


def _report_changes(state: ReleasePass, status: ReleaseStatus) -> None:
    """Report conditions that say something else than before, and no others (RELB-06)."""
    changed = (kind for kind in _WITH_EVENTS if has_changed(state.rollout.status, status, kind))
    for condition in filter(None, map(status.find_condition, changed)):
        if (event := _choose_event(condition)) is not None:
            state.events.append(event)


def _choose_event(condition: StatusCondition) -> ReleaseEvent | None:
    """Return what is to be reported of a condition that has changed."""
    is_true, reason, note = condition.status == "True", condition.reason, condition.message
    match condition.type:
        case conditions.GATES_PASSING:
            # Each release has those that pass: they crowd out no other.
            return _report(reason, note, is_good=is_true, is_routine=is_true)
        case conditions.TARGET_CONFLICT:
            note = note or "no other writer undoes the tag any more"
            return _report(condition.type, note, is_good=not is_true)
        # All that makes it ready, and a failed bake, has an event of its own.
        case conditions.READY if reason in _REPORTED:
            return _report(reason, note, is_good=is_true)
        # Health has one where a release waits for it.
        case conditions.DEPLOYMENT_BLOCKED if reason in HOLDING:
            return _report(reason, note, is_good=reason == BlockedCode.SUSPENDED)
        case conditions.STALLED if is_true and reason == conditions.RECOVERY_TIMEOUT:
            return _report(reason, note)
        case conditions.PATH_UNKNOWN if is_true:
            return _report(reason, note)
    return None


def _report(
    reason: str, note: str, *, is_good: bool = False, is_routine: bool = False
) -> ReleaseEvent:
    severity = Severity.INFO if is_good else Severity.WARN
    return ReleaseEvent(reason=reason, note=note, severity=severity, is_routine=is_routine)


def _next_pass(state: ReleasePass) -> timedelta | None:
    if state.clear_after is not None:
        return state.clear_after
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
