"""What is to be done for a Rollout now: the one decision, from one snapshot.

In this order: annotations that are left over go; a retry starts; the policy's tag joins the list;
candidates, gates and health are judged; the current release bakes; and the next is deployed if
nothing holds it back. The status is written once, and all of it follows from the snapshot: a plan
that was carried out plans nothing new.
"""

from rollout_operator.model import names
from rollout_operator.model.releases.plan import (
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RequestReconcile,
)
from rollout_operator.model.releases.rollout import RefusedRelease
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.bake import (
    advance_bake,
)
from rollout_operator.planning.releases.choice import choose_request
from rollout_operator.planning.releases.deployment import (
    DeployRequest,
    decide_recovery,
    deploy,
    list_consumed,
    render_failure,
    retry,
)
from rollout_operator.planning.releases.discovery import discover, forget
from rollout_operator.planning.releases.ending import finish, has_changed, stamp_status
from rollout_operator.planning.releases.intents import (
    ATTRIBUTION,
)
from rollout_operator.planning.releases.judgement import assess_all_gates, assess_blockers
from rollout_operator.planning.releases.selection import (
    find_manual,
    is_done_already,
    is_superseded,
)
from rollout_operator.planning.releases.state import ReleasePass


def plan_release(snapshot: ReleaseSnapshot) -> ReleasePlan:
    """Return what is to be done for a Rollout (REL-85)."""
    if isinstance(snapshot.rollout, RefusedRelease):
        return _plan_refused(snapshot.rollout, snapshot)
    return _run(ReleasePass(snapshot, snapshot.rollout))


def _plan_refused(refused: RefusedRelease, snapshot: ReleaseSnapshot) -> ReleasePlan:
    reason, text, status = conditions.INVALID_SPEC, refused.problem, refused.status
    findings = (
        ConditionFinding(conditions.READY, False, reason, text),
        ConditionFinding(conditions.RECONCILING, False, reason, ""),
        ConditionFinding(conditions.STALLED, True, reason, text),
    )
    status = stamp_status(status, findings, snapshot, refused.head.generation)
    is_new = has_changed(refused.status, status, conditions.READY)
    events = (render_failure(reason, text),) if is_new else ()
    return ReleasePlan(status=status, events=events)


def _run(state: ReleasePass) -> ReleasePlan:
    _retry(state)
    if state.snapshot.policy.problem:
        state.problem = state.snapshot.policy.problem
        return finish(state, state.snapshot.policy.reason or conditions.FAILED)
    _discover(state)
    if not state.status.available_releases:
        state.ready_note = "the image policy has announced no release yet"
        return finish(state, conditions.NO_RELEASES)
    _settle_intents(state)
    state.manual = find_manual(state.spec, state.intents, state.status.available_releases)
    verdict = assess_all_gates(state)
    health = assess_blockers(state)
    _bake(state)
    choose_request(state, verdict, health)
    if state.request is not None:
        _deploy(state, state.request)
    state.problem = state.manual.problem if state.manual else ""
    return finish(state, conditions.FAILED if state.problem else "")


def _retry(state: ReleasePass) -> None:
    if state.intents.retry is None:
        return
    if state.current is not None and state.current.has_failed:
        entry, event = retry(state.current, state.intents, state.now)
        state.replace(history=(entry, *state.status.history[1:]))
        state.events.append(event)
        state.actions += [RequestReconcile(target=target) for target in state.snapshot.targets]
        state.consume(names.DEPLOY_USER)
    state.consume(names.RETRY)


def _discover(state: ReleasePass) -> None:
    policy = state.snapshot.policy
    state.status, events = discover(state.status, policy, state.snapshot.metadata)
    state.status = forget(state.status, state.spec, policy.latest, state.now)
    state.events += events
    text = "what the image policy selects is on record"
    state.findings.append(
        ConditionFinding(conditions.RELEASES_UPDATED, True, "ReleasesUpdated", text)
    )


def _settle_intents(state: ReleasePass) -> None:
    """Drop intents that want what is there already (RELB-09, RELB-11)."""
    if is_done_already(state.spec, state.intents, state.current):
        note = f"{state.current_tag} is deployed already"
        state.events.append(ReleaseEvent(reason="ForceDeployNoop", note=note))
        state.consume(names.FORCE_DEPLOY, *ATTRIBUTION)
    bypass, recorded = state.intents.bypass_gates, state.status.available_releases
    order = state.snapshot.policy.order if state.snapshot.compat.compares_versions else None
    if bypass and is_superseded(bypass, state.current_tag, recorded, order):
        note = f"{bypass} is not newer than {state.current_tag}"
        state.events.append(ReleaseEvent(reason="BypassGatesDropped", note=note))
        state.consume(names.BYPASS_GATES)


def _bake(state: ReleasePass) -> None:
    if state.current is not None:
        step = advance_bake(state.current, state.bake_context())
        state.replace(history=(step.entry, *state.status.history[1:]))
        state.events += step.events


def _deploy(state: ReleasePass, request: DeployRequest) -> None:
    recovery = decide_recovery(
        state.current,
        state.checks,
        state.now,
        was_recovering=state.is_recovering(),
        is_manual=request.is_manual,
        compat=state.snapshot.compat,
    )
    history, events = deploy(state.status.history, request, state.spec, state.intents, state.now)
    state.findings.append(recovery)
    state.events += events
    state.replace(history=history)
    state.consume(*list_consumed(request))
    state.replace(release_candidates=state.choose_newer().releases)
