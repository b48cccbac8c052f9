"""One rollout group as every outlet shows it.

Decides what of a decision is shown, and the sentence to read first; all sentences are those of
reasons. The numbers are of the snapshot, the reasons of the decision, which may be a moment older.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.description import (
    DownscaleDescription,
    GroupDescription,
    Phase,
    Step,
    Waiting,
)
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import (
    Action,
    Code,
    Plan,
    Reason,
    RecordRevision,
    ReplacePods,
    Severity,
)
from rollout_operator.model.reasons.remedies import REMEDIES, render_path
from rollout_operator.model.reasons.urgency import find_leading
from rollout_operator.planning.description.pace import Pace, measure_pace
from rollout_operator.planning.description.phase import Progress, choose_phase
from rollout_operator.planning.description.zones import (
    MOST_PODS,
    describe_zone,
    find_turn,
    is_starting,
)
from rollout_operator.planning.rollout.pods import render_outdated
from rollout_operator.planning.rollout.readiness import (
    DownCause,
    Readiness,
    measure_readiness,
    render_readiness,
)
from rollout_operator.planning.rollout.zones import find_group_blocker, is_paused, order_zones
from rollout_operator.planning.wording import cut

# Each pod may bring a reason of its own.
MOST_REASONS: Final = 100

# Of a thousand pods that go at once a person reads no more than the first few.
MOST_STEPS: Final = 20

_UNDECIDED: Final = "nothing has been decided yet"


def describe_group(
    group: Group,
    plan: Plan,
    looked: datetime,
    since: datetime | None = None,
    *,
    is_underway: bool = False,
    most_pods: int = MOST_PODS,
) -> GroupDescription:
    """Return one group; whatever its objects hold, nothing is raised, and the size is bounded.

    `plan` is that of rollout and scaling, made when `looked` says; `since` when its leading reason
    is the same, None where that is not known. `is_underway`: it is being carried out.
    Of each zone `most_pods` pods are shown.
    """
    zones = order_zones(group.zones)
    readinesses = tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)
    turn = find_turn(readinesses) if find_group_blocker(group) is None else None
    described = tuple(
        describe_zone(zone, readiness, group, is_busy=readiness is turn, most_pods=most_pods)
        for zone, readiness in zip(zones, readinesses, strict=True)
    )
    steps = _list_steps(group, plan.actions, turn)
    plan = _complete(plan, readinesses, steps, group.now)
    progress = _describe_progress(group, zones, readinesses)
    phase = choose_phase(plan, steps, progress)
    pace = measure_pace(group) if progress.is_due else Pace()
    headline = _choose_headline(plan, phase, steps)
    return GroupDescription(
        name=group.name,
        phase=phase,
        headline=cut(headline.text) if headline is not None else _UNDECIDED,
        code=headline.code if headline is not None else None,
        since=since,
        looked=looked,
        desired=sum(zone.desired for zone in described),
        ready=sum(zone.ready for zone in described),
        updated=sum(zone.updated for zone in described),
        began=pace.began,
        expected_end=pace.expected_end if phase is Phase.ROLLING_OUT else None,
        zones=described,
        underway_since=looked if is_underway else None,
        steps=steps,
        waits=tuple(
            _list_waiting([wait for wait in plan.waits if wait.code is not Code.UP_TO_DATE])
        ),
        problems=tuple(_list_waiting(plan.problems)),
        downscale=_describe_downscale(group),
        policy=group.driver or UNSET,
    )


def describe_reason(reason: Reason) -> Waiting:
    """Return a reason with what a person can do about it; what passes by itself needs nothing."""
    return Waiting(
        code=reason.code,
        text=cut(reason.text),
        severity=reason.severity,
        zone=reason.zone,
        remedy="" if reason.severity is Severity.DEBUG else REMEDIES.get(reason.code, ""),
        link=render_path(reason.code),
    )


def _list_steps(
    group: Group, actions: Sequence[Action], turn: Readiness | None
) -> tuple[Step, ...]:
    """Return what `actions` do that `group` does not show yet; else the pod that goes next.

    A decision is carried out after it was made: what the caches show of it is done. `turn` is the
    zone whose turn it is.
    """
    untouched = {pod.uid for zone in group.zones for pod in zone.pods if not pod.is_terminating}
    untouched -= group.deletions.keys()
    sets = {zone.sts.uid: zone.sts for zone in group.zones}
    due = (step for action in actions for step in _list_due(action, untouched, sets))
    return tuple(islice(due, MOST_STEPS)) or _list_next(turn)


def _list_due(action: Action, untouched: set[Uid], sets: dict[Uid, StatefulSet]) -> Iterator[Step]:
    zone = action.zone.name
    match action:
        case ReplacePods(going=going):
            for replacement in going:
                if replacement.pod.uid in untouched:
                    text = cut(replacement.reason.text)
                    yield Step(
                        code=replacement.reason.code, text=text, zone=zone, pod=replacement.pod.name
                    )
        case RecordRevision(revision=revision, reason=reason):
            sts = sets.get(action.zone.uid)
            if sts is not None and sts.current_revision != revision:
                yield Step(code=reason.code, text=cut(reason.text), zone=zone)
        case _:
            assert_never(action)


def _list_next(turn: Readiness | None) -> tuple[Step, ...]:
    """Return the lowest outdated pod of a zone that stands: it goes when there is room."""
    if turn is None:
        return ()
    sts = turn.sts
    pod = next((pod for pod in turn.standing if pod.revision != sts.update_revision), None)
    if pod is None:
        return ()
    text = cut(render_outdated(pod, sts))
    return (Step(code=Code.POD_OUTDATED, text=text, zone=sts.name, pod=pod.name, is_waiting=True),)


def _list_waiting(reasons: Sequence[Reason]) -> Iterator[Waiting]:
    distinct = list(dict.fromkeys(reasons))
    yield from map(describe_reason, distinct[:MOST_REASONS])
    hidden = distinct[MOST_REASONS:]
    if hidden:
        more = f"and {len(hidden)} more"
        yield describe_reason(replace(hidden[0], text=more, zone=""))


def _complete(
    plan: Plan, readinesses: Sequence[Readiness], steps: Sequence[Step], now: datetime
) -> Plan:
    """Return a plan that says at least why a group which it calls done is not whole any more.

    Pods that have been starting for long are no matter of time alone.
    """
    short = [readiness for readiness in readinesses if not readiness.is_whole]
    if any(_is_stuck(readiness, now) for readiness in readinesses):
        plan = dataclasses.replace(plan, waits=tuple(map(_raise_start, plan.waits)))
    if steps or not short or any(wait.code is not Code.UP_TO_DATE for wait in plan.waits):
        return plan
    text, zone = render_readiness(short[0]), short[0].sts.name
    return dataclasses.replace(plan, waits=(Reason(Code.ZONE_NOT_READY, text, zone=zone),))


def _raise_start(wait: Reason) -> Reason:
    is_start = wait.code is Code.PODS_STARTING
    return replace(wait, severity=Severity.INFO) if is_start else wait


def _describe_progress(
    group: Group, zones: Sequence[Zone], readinesses: Sequence[Readiness]
) -> Progress:
    # Of a paused zone no revision is recorded, however long it has been rolled out.
    is_due = any(
        _has_outdated(zone)
        or (zone.sts.current_revision != zone.sts.update_revision and not is_paused(zone.sts))
        for zone in zones
    )
    is_going = any(_has_leaving(zone) for zone in zones)
    is_growing = any(
        readiness.used < readiness.sts.replicas
        and all(pod.is_starting for pod in readiness.newcomers)
        for readiness in readinesses
    )
    return Progress(
        is_due=is_due,
        is_coming_up=not any(_is_stuck(readiness, group.now) for readiness in readinesses),
        is_whole=all(readiness.is_whole for readiness in readinesses),
        is_scaling=group.downscale is not None or is_going or is_growing,
    )


def _has_outdated(zone: Zone) -> bool:
    sts = zone.sts
    return any(pod.revision != sts.update_revision for _, pod in zone.list_pods(sts.ordinals))


def _has_leaving(zone: Zone) -> bool:
    """Return whether pods exist that the spec wants no more."""
    sts = zone.sts
    return any(
        sts.ordinal_of(pod.name) is not None and sts.find_ordinal(pod.name, sts.ordinals) is None
        for pod in zone.own_pods
    )


def _is_stuck(readiness: Readiness, now: datetime) -> bool:
    """Return whether a pod is down that neither starts nor goes."""
    return bool(readiness.unreadable) or any(
        down_pod.why is DownCause.UNREADY and not is_starting(down_pod.pod, now)
        for down_pod in readiness.down
    )


def _choose_headline(plan: Plan, phase: Phase, steps: Sequence[Step]) -> Reason | Step | None:
    """Return what is done, where that goes on; else why it does not."""
    leading = find_leading(plan.waits)
    is_done = phase in (Phase.SCALING, Phase.ROLLED_OUT)
    if leading is not None and leading.code is Code.UP_TO_DATE and not is_done:
        leading = None  # it is not true any more
    now = next((step for step in steps if not step.is_waiting), None)
    if phase is Phase.ROLLING_OUT and now is not None:
        return now
    return leading or next(iter(steps), None)


def _describe_downscale(group: Group) -> DownscaleDescription | None:
    if group.downscale is None:
        return None
    return DownscaleDescription(zone=group.downscale.zone, text=cut(group.downscale.text))
