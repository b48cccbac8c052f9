"""What is to be done for a Rollout now: the one decision, from one snapshot.

In this order: left-over annotations go; a retry starts; the policy's tag joins the list;
candidates, gates and health are judged; the current release bakes; and the next is deployed if
nothing holds it back. That is the newest that gates let through and that did not fail before, while
nothing bakes, nothing failed and health is not against it; or the release that is requested by
name, unless the registry does not have its tag. A tag that objects of Flux would refuse is not
deployed: a plan is tried before it is recorded, and made again with what was refused.

The status is written once, and follows from the snapshot alone: a plan that was carried out plans
nothing new. Where another writer undoes the tag of an object again and again, the object is left
alone for a while, and the status says so; a new deployment is written all the same.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.wording import join_names
from rollout_operator.releases.model.plan import (
    ApplyTag,
    Correction,
    FluxTarget,
    ReleaseAction,
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
    RequestReconcile,
)
from rollout_operator.releases.model.releases import (
    AnnouncedReleases,
    HistoryEntry,
    RefusedRelease,
    Release,
    ReleaseCandidates,
    ReleaseRollout,
    ReleaseStatus,
)
from rollout_operator.releases.planning import bake, candidates

_MOST_CORRECTIONS: Final = 5
_WINDOW: Final = timedelta(minutes=10)

_SOON: Final = timedelta(seconds=1)
_PINNED: Final = timedelta(seconds=30)
_WITH_EVENTS: Final = (
    *(candidates.READY, candidates.GATES_PASSING, candidates.DEPLOYMENT_BLOCKED),
    *(candidates.STALLED, candidates.PATH_UNKNOWN, candidates.TARGET_CONFLICT),
)
_REPORTED: Final = frozenset(
    {
        *(candidates.FAILED, candidates.NO_RELEASES, candidates.NO_FLUX),
        *(candidates.GATES_UNKNOWN, candidates.CHECKS_UNKNOWN),
    }
)


def plan_release(snapshot: ReleaseSnapshot) -> ReleasePlan:
    """Return what is to be done for a Rollout (REL-85)."""
    if isinstance(snapshot.rollout, RefusedRelease):
        return _plan_refused(snapshot.rollout, snapshot)
    return _run(_ReleasePass(snapshot, snapshot.rollout))


class _ReleasePass:
    """The snapshot, and the status, events and actions that come of it."""

    def __init__(self, snapshot: ReleaseSnapshot, rollout: ReleaseRollout) -> None:
        self.snapshot = snapshot
        self.now = snapshot.now
        self.rollout = rollout
        self.spec = rollout.spec
        self.status = rollout.status
        self.intents = candidates.without_left_over(rollout)
        self.consumed = candidates.list_left_over(rollout)
        self.checks = bake.list_checks(
            rollout.head, self.spec.checks, snapshot.checks, snapshot.namespaces
        )
        self.clear_after: timedelta | None = None
        """After what time what had to wait may begin."""
        self.findings: list[ConditionFinding] = []
        self.events: list[ReleaseEvent] = []
        self.actions: list[ReleaseAction] = []
        self.problem = ""
        self.ready_note = ""
        self.request: candidates.DeployRequest | None = None
        self.manual: candidates.ManualRequest | None = None

    @property
    def current(self) -> HistoryEntry | None:
        return self.status.current

    @property
    def current_tag(self) -> str | None:
        return None if self.current is None else self.current.version.tag

    def replace(self, **fields: object) -> None:
        self.status = msgspec.structs.replace(self.status, **fields)

    def consume(self, *annotations: str) -> None:
        """Record that annotations had their effect."""
        self.consumed += candidates.consume(self.intents, annotations)
        self.intents = candidates.drop_intents(self.intents, annotations)

    def list_unwritten(self) -> list[FluxTarget]:
        if self.current is None:
            return []
        return [target for target in self.snapshot.targets if target.tag != self.current_tag]

    def is_unwritable(self) -> bool:
        """Return whether objects of Flux refuse the tag of the current deployment for sure."""
        refuses = self.snapshot.write_problem and not self.snapshot.may_be_written
        return bool(refuses and self.list_unwritten())

    def must_wait(self) -> bool:
        """Return whether no deployment or retry can begin now, and note until when."""
        self.clear_after = bake.next_clear_time(self.checks, self.now)
        return self.clear_after is not None

    def bake_context(self) -> bake.BakeContext:
        return bake.BakeContext(
            spec=self.spec,
            checks=self.checks,
            now=self.now,
            is_recovering=self.is_recovering(),
            blocker=self.explain_blocker(),
        )

    def is_recovering(self) -> bool:
        """Return whether failures do not count for the current deployment."""
        # A deployment of this pass decided anew.
        now = next(
            (finding.is_true for finding in self.findings if finding.type == candidates.RECOVERING),
            None,
        )
        return self.status.has_condition(candidates.RECOVERING) if now is None else now

    def explain_blocker(self) -> str:
        """Return what Flux has yet to do (RELB-16). Without a bake its writes are enough."""
        snapshot = self.snapshot
        return bake.describe_flux_wait(
            self.rollout, self.current_tag, snapshot.targets, snapshot.compat
        )

    def choose_newer(self) -> ReleaseCandidates:
        return candidates.choose_candidates(self.announced(), self.snapshot.compat)

    def announced(self) -> AnnouncedReleases:
        before = self.rollout.status
        deployed = () if before.current is None else (before.current.version,)
        return AnnouncedReleases(
            available=self.status.available_releases,
            current=self.current_tag,
            latest=self.snapshot.policy.latest,
            before=tuple(each.tag for each in (*deployed, *before.release_candidates)),
            order=self.snapshot.policy.order,
        )


def _list_contested(
    targets: Iterable[FluxTarget],
    corrections: Sequence[Correction],
    before: ReleaseStatus,
    now: datetime,
) -> tuple[FluxTarget, ...]:
    """Return the targets that are left alone now (RELB-12).

    A process that has begun anew remembers no corrections: it goes by the condition in `before`.
    """
    if not corrections and _is_on_record(before, now):
        return tuple(targets)
    return tuple(
        target for target in targets if _is_contested(_list_times(target, corrections), now)
    )


def _get_contest_end(corrections: Sequence[Correction], now: datetime) -> timedelta:
    """Return after what time what is contested may be corrected again."""
    last = max((correction.at for correction in corrections), default=now)
    return max(last + _WINDOW - now, timedelta(0))


def list_drifted(plan: ReleasePlan) -> tuple[tuple[str, str], ...]:
    """Return kind and name of the objects that had another tag than they should."""
    return tuple(
        (action.target.kind, action.target.name)
        for action in plan.actions
        if isinstance(action, ApplyTag) and action.is_drift
    )


def remember(
    corrections: Iterable[Correction],
    plan: ReleasePlan,
    now: datetime,
    failed: Collection[tuple[str, str]] = (),
) -> tuple[Correction, ...]:
    """Return the corrections that count still, with those of a plan that was carried out.

    All of a contest are kept while it lasts, which is as long again after its last correction.

    `failed` are kind and name of the objects that could not be written: no other writer undid that.
    """
    drifted = (place for place in list_drifted(plan) if place not in failed)
    made = (Correction(kind=kind, name=name, at=now) for kind, name in drifted)
    return (*(each for each in corrections if now - each.at < 2 * _WINDOW), *made)


def _describe_contest(contested: Sequence[FluxTarget], tag: str) -> ConditionFinding:
    if not contested:
        return ConditionFinding(candidates.TARGET_CONFLICT, False, "Settled", "")
    names = join_names([f"{target.kind} {target.name} ({target.tag})" for target in contested])
    text = f"another writer undoes {tag} again and again: {names}"
    return ConditionFinding(candidates.TARGET_CONFLICT, True, candidates.TARGET_CONFLICT, text)


def _list_times(target: FluxTarget, corrections: Iterable[Correction]) -> Sequence[datetime]:
    place = (target.kind, target.name)
    # What one pass corrects of an object counts once.
    return sorted(
        {correction.at for correction in corrections if (correction.kind, correction.name) == place}
    )


def _is_contested(times: Sequence[datetime], now: datetime) -> bool:
    recent = times[-_MOST_CORRECTIONS:]
    return (
        len(recent) == _MOST_CORRECTIONS
        and recent[-1] - recent[0] <= _WINDOW
        and now - recent[-1] < _WINDOW
    )


def _is_on_record(before: ReleaseStatus, now: datetime) -> bool:
    condition = before.find_condition(candidates.TARGET_CONFLICT)
    if condition is None or condition.status != "True":
        return False
    try:
        return now - parse_rfc3339(condition.last_transition_time) < _WINDOW
    except InvalidInput:
        return False


def _finish(state: _ReleasePass, reason: str) -> ReleasePlan:
    """Return the plan; `reason` is why `Ready` is false whatever is deployed."""
    unwritten = state.list_unwritten()
    before = state.rollout.status.find_condition(candidates.RECONCILING)
    was_writing = before is not None and before.reason == candidates.WRITING
    is_begun = state.request is not None or was_writing
    is_writing = bool(unwritten) and is_begun
    has_written = not unwritten and is_begun
    contested = () if is_writing else _settle_contest(state, unwritten)
    _write(
        state, [target for target in unwritten if target not in contested], is_drift=not is_writing
    )
    if has_written and state.current is not None and not state.current.has_failed:
        state.events.append(
            candidates.render_success(state.current, is_written=bool(state.snapshot.targets))
        )
    overdue = state.current is not None and bake.is_overdue(state.current, state.bake_context())
    problem = state.problem or (state.snapshot.write_problem if state.list_unwritten() else "")
    _describe(state, reason, problem, is_writing=is_writing, is_overdue=overdue)
    if state.consumed:
        state.actions.append(RemoveIntents(intents=state.consumed))
    state.replace(consumed_intents=state.consumed)
    status = _stamp_status(
        state.status, state.findings, state.snapshot, state.rollout.head.generation
    )
    if state.spec.wanted_version is None:
        kept = (
            condition
            for condition in status.conditions
            if condition.type != candidates.WANTED_FOUND
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


def _settle_contest(state: _ReleasePass, drifted: list[FluxTarget]) -> tuple[FluxTarget, ...]:
    before, snapshot = state.rollout.status, state.snapshot
    contested = _list_contested(drifted, snapshot.corrections, before, snapshot.now)
    if contested or before.has_condition(candidates.TARGET_CONFLICT):
        state.findings.append(_describe_contest(contested, state.current_tag or ""))
    return contested


def _write(state: _ReleasePass, unwritten: list[FluxTarget], *, is_drift: bool) -> None:
    tag = state.current_tag
    if tag is None or state.spec.is_suspended:
        return
    for flux_target in unwritten:
        state.actions.append(ApplyTag(target=flux_target, tag=tag, is_drift=is_drift))


def _describe(
    state: _ReleasePass, reason: str, problem: str, *, is_writing: bool, is_overdue: bool
) -> None:
    if problem or reason:
        ready = ConditionFinding(
            candidates.READY, False, reason or candidates.FAILED, problem or state.ready_note
        )
    else:
        nowhere = "" if state.snapshot.targets else candidates.NOWHERE
        notes = (nowhere, state.ready_note, _describe_hold(state), _explain_contest(state))
        note = "; ".join(filter(None, notes if state.current else notes[1:]))
        ready = candidates.describe_ready(state.current, is_writing=is_writing, note=note)
    state.findings.append(ready)
    state.findings += candidates.describe_progress(
        state.current, is_writing=is_writing, is_overdue=is_overdue
    )


def _describe_hold(state: _ReleasePass) -> str:
    """Return what holds the next release back, in the words of its own condition."""
    if state.request is not None:
        return ""  # it is deployed now
    found = {finding.type: finding for finding in state.findings}
    blocked, gates = (
        found.get(kind) for kind in (candidates.DEPLOYMENT_BLOCKED, candidates.GATES_PASSING)
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


def _explain_contest(state: _ReleasePass) -> str:
    kind = candidates.TARGET_CONFLICT
    found = (finding for finding in state.findings if finding.type == kind and finding.is_true)
    return next((finding.text for finding in found), "")


def _report_changes(state: _ReleasePass, status: ReleaseStatus) -> None:
    """Report conditions that say something else than before, and no others (RELB-06)."""
    changed = (kind for kind in _WITH_EVENTS if _has_changed(state.rollout.status, status, kind))
    for condition in filter(None, map(status.find_condition, changed)):
        if (event := _choose_event(condition)) is not None:
            state.events.append(event)


def _choose_event(condition: StatusCondition) -> ReleaseEvent | None:
    is_true, reason, note = condition.status == "True", condition.reason, condition.message
    match condition.type:
        case candidates.GATES_PASSING:
            # Each release has those that pass: they crowd out no other.
            return _report(reason, note, is_good=is_true, is_routine=is_true)
        case candidates.TARGET_CONFLICT:
            note = note or "no other writer undoes the tag any more"
            return _report(condition.type, note, is_good=not is_true)
        # All that makes it ready, and a failed bake, has an event of its own.
        case candidates.READY if reason in _REPORTED:
            return _report(reason, note, is_good=is_true)
        # Health has one where a release waits for it.
        case candidates.DEPLOYMENT_BLOCKED if reason in bake.HOLDING:
            return _report(reason, note, is_good=reason == bake.BlockedCode.SUSPENDED)
        case candidates.STALLED if is_true and reason == candidates.RECOVERY_TIMEOUT:
            return _report(reason, note)
        case candidates.PATH_UNKNOWN if is_true:
            return _report(reason, note)
    return None


def _report(
    reason: str, note: str, *, is_good: bool = False, is_routine: bool = False
) -> ReleaseEvent:
    severity = Severity.INFO if is_good else Severity.WARN
    return ReleaseEvent(reason=reason, note=note, severity=severity, is_routine=is_routine)


def _next_pass(state: _ReleasePass) -> timedelta | None:
    if state.clear_after is not None:
        return state.clear_after
    entry = state.current
    if entry is not None and entry.is_active:
        if state.request is not None and state.manual is None:
            return None  # its own status brings the next pass
        is_manual = state.manual is not None
        return bake.next_bake_pass(entry, state.bake_context(), is_manual=is_manual)
    if any(
        finding.type == candidates.TARGET_CONFLICT and finding.is_true for finding in state.findings
    ):
        return _get_contest_end(state.snapshot.corrections, state.now)
    is_pinned = state.spec.wanted_version is not None and not state.spec.has_bake
    return _PINNED if is_pinned else None


def _stamp_status(
    status: ReleaseStatus,
    findings: Collection[ConditionFinding],
    snapshot: ReleaseSnapshot,
    generation: int,
) -> ReleaseStatus:
    merged = candidates.merge_conditions(
        status.conditions, findings, generation=generation, now=snapshot.now
    )
    return msgspec.structs.replace(status, observed_generation=generation, conditions=merged)


def _has_changed(before: ReleaseStatus, after: ReleaseStatus, kind: str) -> bool:
    old, new = before.find_condition(kind), after.find_condition(kind)
    said = None if old is None else (old.reason, old.message)
    return new is not None and (new.reason, new.message) != said


def _plan_refused(refused: RefusedRelease, snapshot: ReleaseSnapshot) -> ReleasePlan:
    """Return a plan that deploys nothing, and keeps versions and gates up to date."""
    reason, text, status = candidates.INVALID_SPEC, refused.problem, refused.status
    findings = [
        ConditionFinding(candidates.READY, False, reason, text),
        ConditionFinding(candidates.RECONCILING, False, reason, ""),
        ConditionFinding(candidates.STALLED, True, reason, text),
    ]
    if refused.announced is not None and not snapshot.policy.problem:
        state = _ReleasePass(snapshot, refused.announced)
        _discover(state, keeps_all=True)
        _assess_all_gates(state)
        status = state.status
        findings += state.findings
    status = _stamp_status(status, findings, snapshot, refused.head.generation)
    is_new = _has_changed(refused.status, status, candidates.READY)
    events = (candidates.render_failure(reason, text),) if is_new else ()
    return ReleasePlan(status=status, events=events)


def _run(state: _ReleasePass) -> ReleasePlan:
    snapshot = state.snapshot
    _retry(state)
    if snapshot.policy.problem:
        state.problem = snapshot.policy.problem
        return _finish(state, snapshot.policy.reason or candidates.FAILED)
    _discover(state)
    if not state.status.available_releases:
        state.ready_note = "the image policy has announced no release yet"
        return _finish(state, candidates.NO_RELEASES)
    _settle_intents(state)
    state.manual = candidates.find_manual(
        state.spec, state.intents, state.status.available_releases
    )
    verdict = _assess_all_gates(state)
    health = _assess_blockers(state)
    if state.current is not None:
        entry, events = bake.advance_bake(state.current, state.bake_context())
        state.replace(history=(entry, *state.status.history[1:]))
        state.events += events
    _choose_request(state, verdict, health)
    state.problem = state.manual.problem if state.manual else ""
    if state.request is not None and (refusal := snapshot.refused.get(state.request.release.tag)):
        state.problem = f"{state.request.release.tag} is not deployed: {refusal}"
        state.request = None
    if state.request is not None and state.must_wait():
        state.request = None
    if state.request is not None:
        _deploy(state, state.request)
    return _finish(state, candidates.FAILED if state.problem else "")


def _retry(state: _ReleasePass) -> None:
    if names.RETRY not in state.intents:
        return
    if state.current is not None and state.current.has_failed:
        if state.must_wait():
            return
        entry, event = candidates.retry(state.current, state.intents, state.now)
        state.replace(history=(entry, *state.status.history[1:]))
        state.events.append(event)
        state.actions += [RequestReconcile(target=target) for target in state.snapshot.targets]
        state.consume(names.DEPLOY_USER)
    state.consume(names.RETRY)


def _discover(state: _ReleasePass, *, keeps_all: bool = False) -> None:
    """With `keeps_all`, forget only what there is no room for."""
    policy = state.snapshot.policy
    state.status, events = candidates.discover(state.status, policy, state.snapshot.metadata)
    spec = None if keeps_all else state.spec
    state.status = candidates.forget(state.status, spec, policy.latest, state.now)
    state.events += events
    text = "what the image policy selects is on record"
    state.findings.append(
        ConditionFinding(candidates.RELEASES_UPDATED, True, "ReleasesUpdated", text)
    )


def _settle_intents(state: _ReleasePass) -> None:
    """Drop intents that want what is there already (RELB-09, RELB-11)."""
    if candidates.is_done_already(state.spec, state.intents, state.current):
        note = f"{state.current_tag} is deployed already"
        state.events.append(ReleaseEvent(reason="ForceDeployNoop", note=note))
        state.consume(names.FORCE_DEPLOY, *candidates.ATTRIBUTION)
    bypass = state.intents.get(names.BYPASS_GATES)
    if bypass and candidates.is_superseded(bypass, state.announced(), state.snapshot.compat):
        note = f"{bypass} is not newer than {state.current_tag}"
        state.events.append(ReleaseEvent(reason="BypassGatesDropped", note=note))
        state.consume(names.BYPASS_GATES)


def _deploy(state: _ReleasePass, request: candidates.DeployRequest) -> None:
    recovery = candidates.decide_recovery(
        state.current,
        state.checks,
        state.now,
        was_recovering=state.is_recovering(),
        is_manual=request.is_manual,
        compat=state.snapshot.compat,
    )
    history, events = candidates.deploy(
        state.status.history, request, state.spec, state.intents, state.now
    )
    state.findings.append(recovery)
    state.events += events
    state.replace(history=history)
    state.consume(*candidates.list_consumed(request))
    state.replace(release_candidates=state.choose_newer().releases)


def _assess_all_gates(state: _ReleasePass) -> candidates.GatesVerdict:
    newer = state.choose_newer()
    gates = candidates.list_gates(state.rollout.head, state.snapshot.gates)
    excluded = candidates.list_excluded(
        newer.releases, state.status.history, state.intents, state.snapshot.compat
    )
    bypass = state.intents.get(names.BYPASS_GATES)
    if bypass in {release.tag for release in excluded} and len(excluded) < len(newer.releases):
        bypass = None  # it is not deployed by itself, and would hold the others
    verdict = candidates.assess_gates(newer.releases, gates, bypass, state.snapshot.schedule_holds)
    state.replace(
        release_candidates=newer.releases,
        gated_release_candidates=verdict.allowed,
        gates=bake.bound_gates(verdict.summaries),
        excluded_releases=excluded,
    )
    state.findings.append(
        ConditionFinding(candidates.GATES_PASSING, verdict.is_passing, verdict.code, verdict.text)
    )
    text = _explain_unknown_path(state) if newer.is_path_unknown else ""
    state.ready_note = text
    if text or state.status.has_condition(candidates.PATH_UNKNOWN):
        reason = candidates.PATH_UNKNOWN if text else "Comparable"
        found_path = ConditionFinding(candidates.PATH_UNKNOWN, bool(text), reason, text)
        state.findings.append(found_path)
    return verdict


def _explain_unknown_path(state: _ReleasePass) -> str:
    policy, text = state.snapshot.policy, f"no release can be compared with {state.current_tag}"
    problem = "" if policy.order is None else policy.order.problem
    return f"{text}: {problem}" if problem else text


def _assess_blockers(state: _ReleasePass) -> bake.HealthVerdict:
    """Return what holds deployments back apart from gates (REL-56)."""
    failed = state.current if state.current and state.current.has_failed else None
    forgiven = (
        failed.failed_health_checks if failed and candidates.is_unblocked(state.intents) else ()
    )
    if state.spec.is_suspended:
        verdict = bake.HealthVerdict(code=bake.BlockedCode.SUSPENDED, text="spec.suspend is true")
    elif state.manual is not None:
        verdict = _assess_wanted(state)
    else:
        verdict = bake.assess_health(state.checks, forgiven)
    state.findings.append(
        ConditionFinding(
            candidates.DEPLOYMENT_BLOCKED, verdict.is_blocking, verdict.code, verdict.text
        )
    )
    return verdict


def _assess_wanted(state: _ReleasePass) -> bake.HealthVerdict:
    """Return whether a pin is held because the registry does not have its tag (RELB-23).

    Where that is to be verified, a registry that has not answered yet holds it as well.
    """
    wanted, metadata = state.spec.wanted_version, state.snapshot.metadata
    is_known = wanted in {release.tag for release in state.status.available_releases}
    is_answered = is_known or wanted in metadata
    is_done = wanted is None or wanted == state.current_tag
    if state.snapshot.verifies_wanted and not is_answered and not is_done:
        text = f"no registry has said yet whether it has the tag {wanted}"
        finding = ConditionFinding(candidates.WANTED_FOUND, False, "NotVerified", text)
        state.findings.append(finding)
        return bake.HealthVerdict(code=bake.BlockedCode.WANTED_NOT_VERIFIED, text=text)
    if wanted is not None and is_answered:
        is_found = is_known or metadata[wanted] is not None
        text = "" if is_found else f"the registry has no tag {wanted}"
        reason = "Found" if is_found else "NotFound"
        finding = ConditionFinding(candidates.WANTED_FOUND, is_found, reason, text)
        state.findings.append(finding)
        if not is_found and state.snapshot.verifies_wanted:
            return bake.HealthVerdict(code=bake.BlockedCode.WANTED_NOT_FOUND, text=text)
    return bake.HealthVerdict(code=bake.BlockedCode.MANUAL, text="the release is requested by name")


def _choose_request(
    state: _ReleasePass, verdict: candidates.GatesVerdict, health: bake.HealthVerdict
) -> None:
    """Request the release that is to be deployed now, if there is one."""
    if health.code in bake.HOLDING:
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
    elif (
        state.current is None
        or not state.current.has_failed
        or candidates.is_unblocked(state.intents)
    ):
        _make_request(state, choice.tag, verdict)


def _choose_next(state: _ReleasePass, verdict: candidates.GatesVerdict) -> Release | None:
    """Return the newest release that gates and its own past let through."""
    pool = verdict.passed
    if state.current is None:
        # Gates do not hold a first deployment back (REL-53).
        pool = pool or verdict.allowed or state.status.release_candidates
    elif (
        state.current.is_active
        and not bake.is_overdue(state.current, state.bake_context())
        and not state.is_unwritable()
    ):
        return None
    excluded = {release.tag for release in state.status.excluded_releases}
    return next((release for release in pool if release.tag not in excluded), None)


def _report_blocked(state: _ReleasePass, health: bake.HealthVerdict, candidate: Release) -> None:
    before = state.rollout.status
    condition = before.find_condition(candidates.DEPLOYMENT_BLOCKED)
    is_same = (
        condition is not None
        and condition.message == health.text
        and before.gated_release_candidates[:1] == (candidate,)
        and before.has_condition(candidates.GATES_PASSING)
    )
    if not is_same:
        state.events.append(
            candidates.render_failure("HealthCheckBlocking", f"{candidate.tag}: {health.text}")
        )


def _make_request(
    state: _ReleasePass, tag: str, verdict: candidates.GatesVerdict | None = None
) -> None:
    """Request a deployment; `verdict` is that of gates where these have a say."""
    stored = next(
        (release for release in state.status.available_releases if release.tag == tag), None
    )
    intents = state.intents
    failed = state.current is not None and state.current.has_failed
    blocked = candidates.drop_intents(intents, [names.UNBLOCK_FAILED])
    excluded = candidates.list_excluded(
        state.status.release_candidates, state.status.history, blocked, state.snapshot.compat
    )
    would_not = failed or tag in {release.tag for release in excluded}
    state.request = candidates.DeployRequest(
        release=stored or candidates.make_release(tag, state.snapshot.metadata.get(tag)),
        is_manual=verdict is None,
        is_forced=intents.get(names.FORCE_DEPLOY) == tag,
        is_bypassing=(
            verdict is not None
            and verdict.is_bypass_needed
            and intents.get(names.BYPASS_GATES) == tag
        ),
        is_unblocking=verdict is not None and candidates.is_unblocked(intents) and would_not,
        is_written=all(target.tag == tag for target in state.snapshot.targets),
    )
