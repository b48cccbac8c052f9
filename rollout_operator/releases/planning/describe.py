"""Rollouts of `kuberik.com`, their gates, schedules and HealthChecks as every outlet shows them.

Everything follows from the objects alone, and nothing is decided anew: every replica, and a command
that only reads, says the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.description import (
    DeploymentDescription,
    GateDescription,
    HealthCheckDescription,
    ReleaseDescription,
    ReleasePhase,
    ReleaseWait,
    ScheduleDescription,
    SelectedCheckDescription,
    TargetDescription,
)
from rollout_operator.model.diagnosis import FindingCode, ReleaseFacts
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.objects import Unreadable, WatchedHead
from rollout_operator.model.units import check_time
from rollout_operator.planning.conditions import describe_conditions
from rollout_operator.planning.wording import cut, join_names, render_time
from rollout_operator.releases.model.plan import (
    OF_FLUX,
    CheckClass,
    FluxTarget,
    HealthCheck,
    ImagePolicy,
    ReleaseObjects,
)
from rollout_operator.releases.model.releases import (
    INTENTS,
    SCHEDULE,
    BakeStatus,
    FailedHealthCheck,
    GateSummary,
    HistoryEntry,
    RefusedRelease,
    ReleaseGate,
    ReleaseRollout,
    ReleaseStatus,
    ScheduleAction,
    ScheduleObject,
)
from rollout_operator.releases.planning import bake, candidates
from rollout_operator.releases.planning.bake import (
    BlockedCode,
    Labels,
    list_checks,
    selects_namespaces,
)
from rollout_operator.releases.planning.candidates import (
    READY,
    RECOVERING,
    GatesCode,
    list_gates,
    without_left_over,
)
from rollout_operator.releases.planning.health_checks import find_class
from rollout_operator.releases.planning.schedules import (
    HORIZON,
    IN_SYNC,
    INVALID,
    NOT_WRITTEN,
    describe_refusal,
)

MOST_TAGS: Final = 20
_ROLLOUT: Final = "Rollout"
_MOST_GATES: Final = 50
_NOT_OBSERVED: Final = "NotObserved"
_NOT_RECONCILED: Final = "NotReconciled"
_TERMINATING: Final = "Terminating"
_EXCLUDED: Final = "Excluded"

# What makes `Ready` false whatever is deployed. While it lasts, nothing is decided anew.
_PROBLEMS: Final = frozenset(
    {
        *(candidates.FAILED, candidates.NO_RELEASES, candidates.NO_FLUX),
        *(candidates.GATES_UNKNOWN, candidates.CHECKS_UNKNOWN),
    }
)
_ROLE: Final = (
    "give the operator the rights of `releases`, for other namespaces those of `releases-cluster`"
)
_BY_NAME: Final = "`rollout.kuberik.com/force-deploy` with a tag deploys it all the same"
REMEDIES: Final[Mapping[str, str]] = {
    _NOT_RECONCILED: "fix what the error names",
    _TERMINATING: "when it stays, look at the finalizers of the Rollout",
    _NOT_OBSERVED: "when it stays, see that an operator with `-releases.enabled` acts here",
    candidates.INVALID_SPEC: "correct the spec",
    candidates.FAILED: "fix what is named: the image policy, a right of the operator, an object of"
    " Flux, or an annotation",
    candidates.NO_FLUX: "install image-reflector-controller, source-controller and"
    " kustomize-controller of Flux",
    candidates.NO_RELEASES: "see why the image policy selects no tag",
    candidates.GATES_UNKNOWN: _ROLE,
    candidates.CHECKS_UNKNOWN: _ROLE,
    bake.FAILED: "look at the failed HealthChecks. `rollout.kuberik.com/retry` tries it once more,"
    ' `rollout.kuberik.com/unblock-failed: "true"` lets the next version through, and'
    " `spec.wantedVersion` goes back to an older version",
    candidates.RECOVERY_TIMEOUT: "look at the HealthChecks; a newer version may come by itself",
    candidates.TARGET_CONFLICT: "find what writes the object beside this Rollout, such as a"
    " Kustomization that applies it, and have it leave the tag alone",
    BlockedCode.SUSPENDED: "set `spec.suspend` to false",
    BlockedCode.WANTED_NOT_FOUND: "push the tag, or correct `spec.wantedVersion`",
    BlockedCode.WANTED_NOT_VERIFIED: "see in the log why the registry does not answer",
    BlockedCode.UNHEALTHY: f"look at the HealthChecks; {_BY_NAME}",
    GatesCode.BLOCKING: "open the gates that are named, or see what keeps them closed;"
    " `rollout.kuberik.com/bypass-gates` with a tag lets it past them",
    GatesCode.SCHEDULES: "when it stays, fix what is named: the schedule, or what its condition"
    " `Ready` says of its gates, or a right of the operator; `rollout.kuberik.com/bypass-gates`"
    " with a tag lets it past them",
    GatesCode.NONE_ALLOWED: "add the version to `spec.allowedVersions` of the gates;"
    " `rollout.kuberik.com/bypass-gates` with a tag lets it past them",
    _EXCLUDED: _BY_NAME,
    candidates.PATH_UNKNOWN: f"set `spec.wantedVersion`; {_BY_NAME}",
    **dict.fromkeys((BakeStatus.DEPLOYING, BakeStatus.IN_PROGRESS, candidates.WRITING), ""),
}
"""What a person can do, by each reason why a Rollout does not go on; empty where time ends it."""
_PHASES: Final[Mapping[str, ReleasePhase]] = {
    bake.FAILED: ReleasePhase.FAILED,
    BakeStatus.IN_PROGRESS: ReleasePhase.BAKING,
    BakeStatus.DEPLOYING: ReleasePhase.DEPLOYING,
    candidates.WRITING: ReleasePhase.DEPLOYING,
    **dict.fromkeys(
        (
            *(_NOT_RECONCILED, candidates.INVALID_SPEC, candidates.FAILED, candidates.NO_FLUX),
            *(candidates.GATES_UNKNOWN, candidates.CHECKS_UNKNOWN, candidates.RECOVERY_TIMEOUT),
            *(candidates.TARGET_CONFLICT, BlockedCode.SUSPENDED),
            *(BlockedCode.WANTED_NOT_FOUND, BlockedCode.WANTED_NOT_VERIFIED),
        ),
        ReleasePhase.HELD,
    ),
}

# A person reads no more of one Rollout; its status has the rest.
MOST_DEPLOYMENTS: Final = 5
_MOST_PLACES: Final = 50
_ALONE: Final = ReleaseObjects()
_UNDECIDED: Final = "nothing has been decided yet"


def describe_gates(
    head: WatchedHead,
    summaries: Iterable[GateSummary],
    gates: Iterable[ReleaseGate],
    schedules: Iterable[ScheduleObject],
) -> Iterator[GateDescription]:
    """Yield what the status of a Rollout says of its gates, with the schedules behind them."""
    by_name = {gate.head.name: gate for gate in list_gates(head, gates)}
    by_title = {name_schedule(each): each for each in schedules}
    for summary in summaries:
        schedule = name_owner(by_name[summary.name]) if summary.name in by_name else ""
        owner = describe_schedule(by_title[schedule]) if schedule in by_title else None
        is_closed = owner is not None and summary.passing is False
        allowed = summary.allowed_versions
        yield GateDescription(
            name=summary.name,
            is_passing=summary.passing is not False,
            text=cut(summary.message or ""),
            allowed=None if allowed is None else tuple(map(cut, allowed[:MOST_TAGS])),
            schedule=cut(schedule),
            schedule_problem=_explain_fault(owner) if owner is not None and is_closed else "",
            opens=_find_opening(owner) if owner is not None and is_closed else None,
        )


def name_owner(gate: ReleaseGate) -> str:
    """Return the schedule that keeps a gate, as it says itself; empty where none does."""
    labels, controller = gate.origin.labels, gate.origin.controller
    kind, name = labels.get(names.SCHEDULE_KIND, ""), labels.get(names.SCHEDULE_NAME, "")
    if controller is not None:
        kind, name = controller.kind, controller.name
    if not kind or not name:
        return ""
    return _name(kind, gate.head.namespace if kind == SCHEDULE else "", name)


def name_schedule(schedule: ScheduleObject) -> str:
    return _name(schedule.kind, schedule.head.namespace, schedule.head.name)


def order_schedules(schedules: Iterable[ScheduleObject]) -> tuple[ScheduleObject, ...]:
    """Return schedules by name, those of the cluster last."""
    return tuple(sorted(schedules, key=lambda each: (each.head.namespace == "", each.head.name)))


def describe_schedule(schedule: ScheduleObject) -> ScheduleDescription:
    """Return one schedule, by what its status says."""
    status = schedule.status
    ready = next((condition for condition in status.conditions if condition.type == READY), None)
    is_refused = ready is not None and ready.status != "True"
    action = None if schedule.schedule is None else schedule.schedule.action
    is_open = action is not None and status.active == (action is ScheduleAction.ALLOW)
    changes = _choose_fit(status.next_transition)
    text = _render_state(schedule, is_open=is_open, changes=changes)
    if schedule.problem or ready is None:
        text = schedule.problem or "no operator has decided on it yet"
    elif is_refused:
        # It holds releases all the same where its gates cannot be written (RELB-42).
        text = f"{text}; {ready.message}" if ready.reason == NOT_WRITTEN else ready.message
    return ScheduleDescription(
        kind=schedule.kind,
        name=schedule.head.name,
        namespace=schedule.head.namespace,
        is_open=is_open,
        text=cut(text),
        reason="" if ready is None else ready.reason,
        is_active=status.active,
        action="" if action is None else action,
        active_rules=tuple(map(cut, status.active_rules[:MOST_TAGS])),
        changes=changes,
        time_zone="" if schedule.schedule is None else cut(schedule.schedule.time_zone),
        rollouts=status.matching_rollouts,
        gates=status.managed_gates[:_MOST_GATES],
        conditions=tuple(describe_conditions(status.conditions)),
    )


def _name(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {f'{namespace}/' if namespace else ''}{name}"


def _render_state(schedule: ScheduleObject, *, is_open: bool, changes: datetime | None) -> str:
    state = "open" if is_open else "closed"
    active = schedule.status.active_rules
    rules = f" by {join_names(active)}" if active else ""
    until = "" if changes is None else f", until {render_time(changes)}"
    return f"{state}{rules}{until}"


def _find_opening(schedule: ScheduleDescription) -> datetime | None:
    """Return when the gates of a schedule open that are closed now."""
    return None if schedule.is_open or schedule.reason == INVALID else schedule.changes


def _explain_fault(schedule: ScheduleDescription) -> str:
    """Return why a schedule opens its gates at no time that is known; empty where it does."""
    if schedule.reason == INVALID:
        return schedule.text
    is_shut = not schedule.is_open and schedule.reason == IN_SYNC and schedule.changes is None
    return f"its rules do not change that within {HORIZON.days} days" if is_shut else ""


def list_release_waits(
    rollout: ReleaseRollout | RefusedRelease, error: str = "", latest: str = ""
) -> Iterator[ReleaseWait]:
    """Yield all reasons; none where the newest version is in place.

    `error` is why the last pass over it failed, where this process made it. `latest` is the tag
    that its image policy selects, as far as that is known.
    """
    if isinstance(rollout, RefusedRelease):
        yield _wait(candidates.INVALID_SPEC, rollout.problem)
        return
    if rollout.head.is_terminating:
        yield _wait(_TERMINATING, "it is being deleted: nothing is deployed")
        return
    if error:
        yield _wait(_NOT_RECONCILED, f"the last pass over it failed: {error}")
    status = rollout.status
    if not status.observed_generation:
        yield _wait(_NOT_OBSERVED, "no operator has decided on it yet")
    elif status.observed_generation < rollout.head.generation:
        yield _wait(_NOT_OBSERVED, "no operator has decided on its newest spec yet")
    yield from _list_problems(status)
    yield from _list_of_current(status)
    yield from _list_of_next(rollout)
    if latest and latest not in {release.tag for release in status.available_releases}:
        yield _wait(_NOT_OBSERVED, f"no operator has decided on {latest} yet")


def choose_release_phase(status: ReleaseStatus, waits: tuple[ReleaseWait, ...]) -> ReleasePhase:
    if not waits:
        return ReleasePhase.WAITING if status.current is None else ReleasePhase.DEPLOYED
    return _PHASES.get(waits[0].reason, ReleasePhase.WAITING)


def choose_next_tag(rollout: ReleaseRollout | RefusedRelease) -> str:
    """Return the tag that is deployed as soon as nothing holds it back, empty for none."""
    status = rollout.status
    current = "" if status.current is None else status.current.version.tag
    wanted = ""
    if isinstance(rollout, ReleaseRollout):
        wanted = rollout.spec.wanted_version or rollout.intents.get(names.FORCE_DEPLOY) or ""
    if wanted:
        return "" if wanted == current else wanted
    excluded = {release.tag for release in status.excluded_releases}
    pools = (status.gated_release_candidates, status.release_candidates)
    tags = (release.tag for pool in pools for release in pool if release.tag not in excluded)
    return next(tags, "")


def _list_problems(status: ReleaseStatus) -> Iterator[ReleaseWait]:
    ready = status.find_condition(candidates.READY)
    if ready is not None and ready.status != "True" and ready.reason in _PROBLEMS:
        yield _wait(ready.reason, ready.message)


def _list_of_current(status: ReleaseStatus) -> Iterator[ReleaseWait]:
    """Yield what is wrong with the version that is deployed, or what it waits for."""
    current = status.current
    if current is not None and current.has_failed:
        yield _wait(bake.FAILED, current.bake_status_message or "its bake failed")
    stalled = status.find_condition(candidates.STALLED)
    is_overdue = stalled is not None and stalled.reason == candidates.RECOVERY_TIMEOUT
    if stalled is not None and is_overdue and stalled.status == "True":
        yield _wait(candidates.RECOVERY_TIMEOUT, stalled.message)
    yield from _list_true(status, candidates.TARGET_CONFLICT)
    if current is not None and current.is_active:
        busy = status.find_condition(candidates.RECONCILING)
        is_writing = busy is not None and busy.reason == candidates.WRITING
        reason = candidates.WRITING if is_writing else str(current.bake_status)
        yield _wait(reason, current.bake_status_message or f"{current.version.tag} is deployed")


def _list_of_next(rollout: ReleaseRollout) -> Iterator[ReleaseWait]:
    status, next_tag = rollout.status, choose_next_tag(rollout)
    blocked = status.find_condition(candidates.DEPLOYMENT_BLOCKED)
    if next_tag and blocked is not None and blocked.status == "True":
        yield _wait(blocked.reason, blocked.message)
    is_manual = rollout.spec.wanted_version is not None or bool(
        rollout.intents.get(names.FORCE_DEPLOY)
    )
    gates = status.find_condition(candidates.GATES_PASSING)
    is_held = gates is not None and gates.status == "False" and bool(status.release_candidates)
    if gates is not None and is_held and not is_manual and status.current is not None:
        yield _wait(gates.reason, gates.message)
    for release in status.excluded_releases if not is_manual else ():
        yield _wait(_EXCLUDED, f"{release.tag}: {release.reason}")
    yield from _list_true(status, candidates.PATH_UNKNOWN)


def _list_true(status: ReleaseStatus, kind: str) -> Iterator[ReleaseWait]:
    condition = status.find_condition(kind)
    if condition is not None and condition.status == "True":
        yield _wait(kind, condition.message)


def _wait(reason: str, text: str) -> ReleaseWait:
    # A status may have any reason: people and other controllers write it, too.
    return ReleaseWait(reason=reason, text=cut(text), remedy=REMEDIES.get(reason, ""))


def describe_release(
    rollout: ReleaseRollout | RefusedRelease,
    objects: ReleaseObjects = _ALONE,
    targets: Sequence[FluxTarget] = (),
    error: str = "",
) -> ReleaseDescription:
    """Return one Rollout, among others of all kinds; `targets` are its own.

    `error` is why the last pass over it failed, where this process made it.
    """
    status = rollout.status
    waits = tuple(list_release_waits(rollout, error, _find_latest(rollout, objects.policies)))
    ready = status.find_condition(candidates.READY)
    headline, reason = _UNDECIDED, ""
    if waits:
        headline, reason = waits[0].text, waits[0].reason
    elif ready is not None:
        headline, reason = cut(ready.message), ready.reason
    described = ReleaseDescription(
        name=rollout.head.name,
        namespace=rollout.head.namespace,
        phase=choose_release_phase(status, waits),
        headline=headline,
        reason=reason,
        tag="" if status.current is None else cut(status.current.version.tag),
        next=cut(choose_next_tag(rollout)),
        candidates=tuple(cut(candidate.tag) for candidate in status.release_candidates[:MOST_TAGS]),
        announced=cut(status.available_releases[-1].tag) if status.available_releases else "",
        gates=tuple(describe_gates(rollout.head, status.gates, objects.gates, objects.schedules)),
        history=tuple(map(_describe_entry, status.history[:MOST_DEPLOYMENTS])),
        waits=waits,
        conditions=tuple(describe_conditions(status.conditions)),
    )
    if isinstance(rollout, RefusedRelease):
        return described
    return _with_spec(described, rollout, objects, targets)


def describe_unreadable_release(broken: Unreadable) -> ReleaseDescription:
    """Return a Rollout of which nothing is known but its name."""
    return ReleaseDescription(
        name=broken.name,
        namespace=broken.namespace,
        phase=ReleasePhase.HELD,
        headline=cut(broken.error),
        reason=candidates.INVALID_SPEC,
    )


def _find_latest(rollout: ReleaseRollout | RefusedRelease, policies: Iterable[ImagePolicy]) -> str:
    if isinstance(rollout, RefusedRelease):
        return ""
    spec = rollout.spec
    place = (spec.policy_namespace or rollout.head.namespace, spec.policy_name)
    found = (each.latest for each in policies if (each.head.namespace, each.head.name) == place)
    return next((latest.tag for latest in found if latest is not None), "")


def _with_spec(
    described: ReleaseDescription,
    rollout: ReleaseRollout,
    objects: ReleaseObjects,
    targets: Sequence[FluxTarget],
) -> ReleaseDescription:
    spec, head = rollout.spec, rollout.head
    checks = list_checks(head, spec.checks, objects.checks, objects.namespaces)
    intents = without_left_over(rollout)
    return msgspec.structs.replace(
        described,
        wanted=spec.wanted_version or "",
        policy=f"{spec.policy_namespace or head.namespace}/{spec.policy_name}",
        is_suspended=spec.is_suspended,
        requests=tuple(cut(f"{key}: {intents[key]}") for key in INTENTS if key in intents),
        is_retry_requested=names.RETRY in intents,
        checks=tuple(map(_describe_check, checks[:_MOST_PLACES])),
        targets=tuple(map(_describe_target, targets[:_MOST_PLACES])),
        bake_ends=_find_bake_end(rollout),
        deadline=_find_deadline(rollout),
    )


def _find_bake_end(rollout: ReleaseRollout) -> datetime | None:
    current = rollout.status.current
    if current is None or not current.is_active or current.bake_start_time is None:
        return None
    return _add_span(current.bake_start_time, rollout.spec.bake_time)


def _find_deadline(rollout: ReleaseRollout) -> datetime | None:
    current = rollout.status.current
    is_recovering = rollout.status.has_condition(RECOVERING)
    if current is None or not current.is_active or current.bake_start_time is not None:
        return None
    started = max(current.timestamp, current.last_retry_timestamp or current.timestamp)
    return None if is_recovering else _add_span(started, rollout.spec.deploy_timeout)


def _describe_entry(entry: HistoryEntry) -> DeploymentDescription:
    version = entry.version
    return DeploymentDescription(
        tag=cut(version.tag),
        id=entry.id,
        version=cut(version.version or ""),
        revision=cut(version.revision or ""),
        began=_choose_fit(entry.timestamp),
        status=cut(entry.bake_status or ""),
        text=cut(entry.bake_status_message or ""),
        message=cut(entry.message or ""),
        by="" if entry.triggered_by is None else cut(entry.triggered_by.name),
        bake_began=_choose_fit(entry.bake_start_time),
        bake_ended=_choose_fit(entry.bake_end_time),
        failed_checks=tuple(map(_render_failed, entry.failed_health_checks[:_MOST_PLACES])),
        retries=entry.retries,
    )


def _render_failed(check: FailedHealthCheck) -> str:
    text = f": {check.message}" if check.message else ""
    return cut(f"{check.namespace}/{check.name}{text}")


def _describe_check(check: HealthCheck) -> SelectedCheckDescription:
    status = check.status
    return SelectedCheckDescription(
        name=check.head.key, status=cut(status.status), text=cut(status.message or "")
    )


def _describe_target(target: FluxTarget) -> TargetDescription:
    return TargetDescription(
        kind=target.kind,
        name=target.name,
        variable=target.variable,
        tag=None if target.tag is None else cut(target.tag),
        waiting_for=cut(target.waiting_for),
    )


def describe_check(
    check: HealthCheck, rollouts: Iterable[ReleaseRollout], namespaces: Mapping[str, Labels]
) -> HealthCheckDescription:
    """Return one HealthCheck; `rollouts` are all that may select it."""
    status, own = check.status, (check,)
    selecting = sorted(
        rollout.head.key
        for rollout in rollouts
        if list_checks(rollout.head, rollout.spec.checks, own, namespaces)
    )
    return HealthCheckDescription(
        name=check.head.name,
        namespace=check.head.namespace,
        status=cut(status.status),
        text=cut(status.message or ""),
        check_class=cut(check.check_class),
        object=cut(check.named.get(check.check_class, "")),
        changed=_choose_fit(status.last_change_time),
        failed=_choose_fit(status.last_error_time),
        rollouts=tuple(selecting),
    )


def gather_facts(objects: ReleaseObjects) -> ReleaseFacts:
    """Return what `doctor` looks at of the objects of a namespace."""
    broken = objects.list_unreadable(_ROLLOUT)
    needs = {
        "releases-registries": any(
            repository.pull_secret or repository.certificates or repository.proxy
            for repository in objects.repositories
        ),
        "releases-cluster": any(not schedule.head.namespace for schedule in objects.schedules)
        or any(map(selects_namespaces, objects.list_obeyed())),
        "releases-inventory": any(
            find_class(check) is CheckClass.KUSTOMIZATION for check in objects.checks
        ),
    }
    return ReleaseFacts(
        rollouts=(*(each.head.name for each in objects.rollouts), *(each.name for each in broken)),
        absent=tuple(kind for kind in objects.absent if kind not in OF_FLUX),
        problems=tuple(_list_disobeyed(objects)),
        needs=frozenset(component for component, is_needed in needs.items() if is_needed),
    )


def _list_disobeyed(objects: ReleaseObjects) -> Iterator[tuple[FindingCode, str, str]]:
    for broken in objects.unreadable:
        is_rollout, code = broken.kind == _ROLLOUT, FindingCode.RELEASE_OBJECT_UNREADABLE
        title = f"{broken.kind} {broken.name}"
        yield FindingCode.RELEASE_REFUSED if is_rollout else code, title, broken.error
    for release in objects.rollouts:
        if isinstance(release, RefusedRelease):
            title = f"{_ROLLOUT} {release.head.name}"
            yield FindingCode.RELEASE_REFUSED, title, release.problem
    for schedule in objects.schedules:
        # Some, such as an unknown time zone, only the operator finds.
        if problem := schedule.problem or describe_refusal(schedule.status):
            yield FindingCode.SCHEDULE_INVALID, f"{schedule.kind} {schedule.head.name}", problem


def _choose_fit(time: datetime | None) -> datetime | None:
    """Return a time in UTC, None where it is out of range."""
    try:
        return None if time is None else check_time(time).astimezone(UTC)
    except InvalidInput:
        return None


def _add_span(time: datetime | None, span: timedelta | None) -> datetime | None:
    """Return the sum, None without either or out of range."""
    try:
        return None if time is None or span is None else _choose_fit(time + span)
    except OverflowError:
        return None
