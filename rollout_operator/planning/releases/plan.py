"""What is to be done for a Rollout now: the one decision, from one snapshot.

In this order: annotations that are left over go; a retry starts; the policy's tag joins the list;
candidates, gates and health are judged; the current release bakes; and the next is deployed if
nothing holds it back. That is the newest that gates let through and that did not fail before, while
nothing bakes, nothing failed and health is not against it; or the release that is requested by
name, whatever else there is. A pin may be held as well: where the registry does not have its tag.

What objects of Flux would not take, by their admission or for lack of a right, is not deployed: a
plan that begins a deployment is tried before it is recorded, and made again with what was refused.

The status is written once, and all of it follows from the snapshot: a plan that was carried out
plans nothing new.
"""

from rollout_operator.model import names
from rollout_operator.model.releases.plan import (
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RequestReconcile,
)
from rollout_operator.model.releases.release import Release
from rollout_operator.model.releases.rollout import RefusedRelease
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.bake import advance_bake, is_overdue
from rollout_operator.planning.releases.bounds import bound_gates
from rollout_operator.planning.releases.deployment import (
    DeployRequest,
    decide_recovery,
    deploy,
    list_consumed,
    render_failure,
    retry,
)
from rollout_operator.planning.releases.discovery import discover, forget, make_release
from rollout_operator.planning.releases.ending import finish, has_changed, stamp_status
from rollout_operator.planning.releases.gates import GatesVerdict, assess_gates, list_gates
from rollout_operator.planning.releases.health import (
    HOLDING,
    BlockedCode,
    HealthVerdict,
    assess_health,
)
from rollout_operator.planning.releases.intents import ATTRIBUTION, drop_intents, is_unblocked
from rollout_operator.planning.releases.selection import (
    find_manual,
    is_done_already,
    is_superseded,
    list_excluded,
)
from rollout_operator.planning.releases.state import ReleasePass


def plan_release(snapshot: ReleaseSnapshot) -> ReleasePlan:
    """Return what is to be done for a Rollout (REL-85)."""
    if isinstance(snapshot.rollout, RefusedRelease):
        return _plan_refused(snapshot.rollout, snapshot)
    return _run(ReleasePass(snapshot, snapshot.rollout))


def _plan_refused(refused: RefusedRelease, snapshot: ReleaseSnapshot) -> ReleasePlan:
    """Return a plan that deploys nothing; versions and gates are kept up to date."""
    reason, text, status = conditions.INVALID_SPEC, refused.problem, refused.status
    findings = [
        ConditionFinding(conditions.READY, False, reason, text),
        ConditionFinding(conditions.RECONCILING, False, reason, ""),
        ConditionFinding(conditions.STALLED, True, reason, text),
    ]
    if refused.announced is not None and not snapshot.policy.problem:
        state = ReleasePass(snapshot, refused.announced)
        _discover(state, keeps_all=True)
        assess_all_gates(state)
        status = state.status
        findings += state.findings
    status = stamp_status(status, findings, snapshot, refused.head.generation)
    is_new = has_changed(refused.status, status, conditions.READY)
    events = (render_failure(reason, text),) if is_new else ()
    return ReleasePlan(status=status, events=events)


def _run(state: ReleasePass) -> ReleasePlan:
    snapshot = state.snapshot
    _retry(state)
    if snapshot.policy.problem:
        state.problem = snapshot.policy.problem
        return finish(state, snapshot.policy.reason or conditions.FAILED)
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
    state.problem = state.manual.problem if state.manual else ""
    if state.request is not None and (refusal := snapshot.refused.get(state.request.release.tag)):
        state.problem = f"{state.request.release.tag} is not deployed: {refusal}"
        state.request = None
    if state.request is not None and state.must_wait():
        state.request = None
    if state.request is not None:
        _deploy(state, state.request)
    return finish(state, conditions.FAILED if state.problem else "")


def _retry(state: ReleasePass) -> None:
    if state.intents.retry is None:
        return
    if state.current is not None and state.current.has_failed:
        if state.must_wait():
            return
        entry, event = retry(state.current, state.intents, state.now)
        state.replace(history=(entry, *state.status.history[1:]))
        state.events.append(event)
        state.actions += [RequestReconcile(target=target) for target in state.snapshot.targets]
        state.consume(names.DEPLOY_USER)
    state.consume(names.RETRY)


def _discover(state: ReleasePass, *, keeps_all: bool = False) -> None:
    """`keeps_all` forgets nothing but what there is no room for."""
    policy = state.snapshot.policy
    state.status, events = discover(state.status, policy, state.snapshot.metadata)
    spec = None if keeps_all else state.spec
    state.status = forget(state.status, spec, policy.latest, state.now)
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
    bypass = state.intents.bypass_gates
    if bypass and is_superseded(bypass, state.announced(), state.snapshot.compat):
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


def assess_all_gates(state: ReleasePass) -> GatesVerdict:
    newer = state.choose_newer()
    gates = list_gates(state.rollout.head, state.snapshot.gates)
    verdict = assess_gates(
        newer.releases, gates, state.intents.bypass_gates, state.snapshot.schedule_holds
    )
    state.replace(
        release_candidates=newer.releases,
        gated_release_candidates=verdict.allowed,
        gates=bound_gates(verdict.summaries),
        excluded_releases=list_excluded(
            newer.releases, state.status.history, state.intents, state.snapshot.compat
        ),
    )
    state.findings.append(
        ConditionFinding(conditions.GATES_PASSING, verdict.is_passing, verdict.code, verdict.text)
    )
    text = _explain_unknown_path(state) if newer.is_path_unknown else ""
    state.ready_note = text
    if text or state.status.has_condition(conditions.PATH_UNKNOWN):
        reason = conditions.PATH_UNKNOWN if text else "Comparable"
        found_path = ConditionFinding(conditions.PATH_UNKNOWN, bool(text), reason, text)
        state.findings.append(found_path)
    return verdict


def _explain_unknown_path(state: ReleasePass) -> str:
    policy, text = state.snapshot.policy, f"no release can be compared with {state.current_tag}"
    problem = "" if policy.order is None else policy.order.problem
    return f"{text}: {problem}" if problem else text


def assess_blockers(state: ReleasePass) -> HealthVerdict:
    """Return what holds deployments back apart from gates (REL-56)."""
    failed = state.current if state.current and state.current.has_failed else None
    forgiven = failed.failed_health_checks if failed and is_unblocked(state.intents) else ()
    if state.spec.is_suspended:
        verdict = HealthVerdict(code=BlockedCode.SUSPENDED, text="spec.suspend is true")
    elif state.manual is not None:
        verdict = _assess_wanted(state)
    else:
        verdict = assess_health(state.checks, forgiven)
    state.findings.append(
        ConditionFinding(
            conditions.DEPLOYMENT_BLOCKED, verdict.is_blocking, verdict.code, verdict.text
        )
    )
    return verdict


def _assess_wanted(state: ReleasePass) -> HealthVerdict:
    """Return whether a pin is held because the registry does not have its tag (RELB-23).

    Where that is to be verified, a registry that has not answered yet holds it as well.
    """
    wanted, metadata = state.spec.wanted_version, state.snapshot.metadata
    is_known = wanted in {release.tag for release in state.status.available_releases}
    is_answered = is_known or wanted in metadata
    is_done = wanted is None or wanted == state.current_tag
    if state.snapshot.verifies_wanted and not is_answered and not is_done:
        text = f"no registry has said yet whether it has the tag {wanted}"
        finding = ConditionFinding(conditions.WANTED_FOUND, False, "NotVerified", text)
        state.findings.append(finding)
        return HealthVerdict(code=BlockedCode.WANTED_NOT_VERIFIED, text=text)
    if wanted is not None and is_answered:
        is_found = is_known or metadata[wanted] is not None
        text = "" if is_found else f"the registry has no tag {wanted}"
        reason = "Found" if is_found else "NotFound"
        finding = ConditionFinding(conditions.WANTED_FOUND, is_found, reason, text)
        state.findings.append(finding)
        if not is_found and state.snapshot.verifies_wanted:
            return HealthVerdict(code=BlockedCode.WANTED_NOT_FOUND, text=text)
    return HealthVerdict(code=BlockedCode.MANUAL, text="the release is requested by name")


def choose_request(state: ReleasePass, verdict: GatesVerdict, health: HealthVerdict) -> None:
    """Request the release that is to be deployed now, if there is one."""
    if health.code in HOLDING:
        return
    if state.manual is not None:
        if state.manual.tag and state.manual.tag != state.current_tag:
            _make_request(state, state.manual.tag)
        return
    choice = _choose_next(state, verdict)
    if choice is None:
        return
    if state.current is not None and health.is_blocking:
        _report_blocked(state, health, choice)
    elif state.current is None or not state.current.has_failed or is_unblocked(state.intents):
        _make_request(state, choice.tag, verdict)


def _choose_next(state: ReleasePass, verdict: GatesVerdict) -> Release | None:
    """Return the newest release that gates and its own past let through."""
    pool = verdict.passed
    if state.current is None:
        # Gates do not hold a first deployment back (REL-53).
        pool = pool or verdict.allowed or state.status.release_candidates
    elif (
        state.current.is_active
        and not is_overdue(state.current, state.bake_context())
        and not state.is_unwritable()
    ):
        return None
    excluded = {release.tag for release in state.status.excluded_releases}
    return next((release for release in pool if release.tag not in excluded), None)


def _report_blocked(state: ReleasePass, health: HealthVerdict, candidate: Release) -> None:
    before = state.rollout.status
    condition = before.find_condition(conditions.DEPLOYMENT_BLOCKED)
    is_same = (
        condition is not None
        and condition.message == health.text
        and before.gated_release_candidates[:1] == (candidate,)
        and before.has_condition(conditions.GATES_PASSING)
    )
    if not is_same:
        state.events.append(
            render_failure("HealthCheckBlocking", f"{candidate.tag}: {health.text}")
        )


def _make_request(state: ReleasePass, tag: str, verdict: GatesVerdict | None = None) -> None:
    """Request a deployment; `verdict` is that of gates where these have a say."""
    stored = next(
        (release for release in state.status.available_releases if release.tag == tag), None
    )
    failed = state.current is not None and state.current.has_failed
    blocked = drop_intents(state.intents, [names.UNBLOCK_FAILED])
    excluded = list_excluded(
        state.status.release_candidates, state.status.history, blocked, state.snapshot.compat
    )
    would_not = failed or tag in {release.tag for release in excluded}
    state.request = DeployRequest(
        release=stored or make_release(tag, state.snapshot.metadata.get(tag)),
        is_manual=verdict is None,
        is_forced=state.intents.force_deploy == tag,
        is_bypassing=(
            verdict is not None and verdict.is_bypass_needed and state.intents.bypass_gates == tag
        ),
        is_unblocking=verdict is not None and is_unblocked(state.intents) and would_not,
        is_written=all(target.tag == tag for target in state.snapshot.targets),
    )
