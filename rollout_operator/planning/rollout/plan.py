"""Decide for a whole group: the one way into planning, and the order of concerns.

First what stops the group, then which zone may move, then which of its pods. At most one zone has
pods down at any time: a zone that is short is the only one looked at, two short zones stop all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec.structs

from rollout_operator.model.group import Group
from rollout_operator.model.outcome import Action, Code, Plan, Reason, RecordRevision, Severity
from rollout_operator.planning.rollout.pods import choose_pods, count_outdated
from rollout_operator.planning.rollout.progress import count_pods
from rollout_operator.planning.rollout.readiness import (
    Readiness,
    assess_readiness,
    render_readiness,
)
from rollout_operator.planning.rollout.zones import (
    choose_limit,
    find_group_blocker,
    is_paused,
    list_podless,
    list_warnings,
    order_zones,
)
from rollout_operator.planning.wording import count, join_names, verb


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """What zones come to. `stays` ends the walk: no later zone may be touched."""

    actions: tuple[Action, ...] = ()
    waits: tuple[Reason, ...] = ()
    stays: bool = False


def plan_group(group: Group) -> Plan:
    """Return all that one snapshot of a group leads to.

    The same group gives an equal plan, in whatever order its zones and pods come. A plan without an
    action has at least one wait.
    """
    zones = order_zones(group.zones)
    warnings = list_warnings(zones)
    readinesses = tuple(assess_readiness(zone, group.deletions, group.now) for zone in zones)
    progress = tuple(map(count_pods, readinesses))
    blocker = find_group_blocker(group)
    if group.driver and _is_rolled_out(readinesses):
        return Plan(group=group.name, waits=(_up_to_date(readinesses),), progress=progress)
    if blocker is not None:
        return Plan(
            group=group.name,
            waits=blocker.reasons,
            problems=warnings,
            failed=blocker.is_failure,
            requeue_after=blocker.requeue_after,
            progress=progress,
        )
    steps = _plan_zones(readinesses)
    times = (
        wait
        for readiness in readinesses
        for wait in (readiness.available_in, readiness.settles_in)
        if wait
    )
    return Plan(
        group=group.name,
        actions=steps.actions,
        waits=steps.waits if steps.actions or steps.waits else (_up_to_date(readinesses),),
        problems=(*warnings, *list_podless(readinesses)),
        requeue_after=min(times, default=None),
        progress=progress,
    )


def _is_rolled_out(readinesses: Iterable[Readiness]) -> bool:
    """Tell whether a group that another engine rolls out has nothing left to do."""
    return all(
        readiness.is_whole
        and not count_outdated(readiness)
        and readiness.sts.current_revision == readiness.sts.update_revision
        for readiness in readinesses
    )


def _plan_zones(readinesses: Sequence[Readiness]) -> _Steps:
    short = [readiness for readiness in readinesses if not readiness.is_whole]
    if len(short) > 1:
        text = "; ".join(render_readiness(readiness) for readiness in short)
        return _Steps(waits=(Reason(Code.SEVERAL_ZONES_NOT_READY, text, Severity.WARN),))
    if short:
        return _plan_short_zone(
            short[0], [readiness for readiness in readinesses if readiness is not short[0]]
        )
    return _walk(readinesses)


def _plan_short_zone(readiness: Readiness, others: Sequence[Readiness]) -> _Steps:
    """Return the steps of the only zone that is not whole, and why the others wait (ROLL-16)."""
    steps = _plan_paused_short(readiness) if is_paused(readiness.sts) else _plan_zone(readiness)
    behind = _list_waiting(others)
    if steps.actions or not behind:
        return replace(steps, waits=(*steps.waits, *_wait_behind(readiness, others)))
    tail = f"; {join_names(behind)} {verb(len(behind), 'waits', 'wait')}"
    first = replace(steps.waits[0], text=f"{steps.waits[0].text}{tail}")
    return replace(steps, waits=(first, *_list_paused(others)))


def _walk(readinesses: Sequence[Readiness]) -> _Steps:
    """Return the steps of zones that are all whole: by name, until one has outdated pods."""
    done = _Steps()
    for place, readiness in enumerate(readinesses):
        steps = _plan_zone(readiness)
        waits = (*done.waits, *steps.waits)
        if steps.stays:
            waits = (*waits, *_wait_behind(readiness, readinesses[place + 1 :]))
        done = _Steps(actions=(*done.actions, *steps.actions), waits=waits)
        if steps.stays:
            break
    return done


def _plan_zone(readiness: Readiness) -> _Steps:
    sts = readiness.sts
    if is_paused(sts):
        return _Steps(waits=_list_paused([readiness]))
    if count_outdated(readiness):
        # In percent of what there is: newcomers give nothing, and lend no room either.
        limit, _ = choose_limit(msgspec.structs.replace(sts, replicas=readiness.used))
        action, wait = choose_pods(readiness, limit)
        return _Steps(
            actions=(action,) if action else (), waits=(wait,) if wait else (), stays=True
        )
    if not readiness.is_whole or readiness.used < sts.replicas:
        # Newcomers may never become ready: others go on meanwhile (D-67).
        wait = Reason(Code.ZONE_NOT_READY, render_readiness(readiness), zone=sts.name)
        return _Steps(waits=(wait,), stays=not readiness.is_whole)
    if sts.current_revision != sts.update_revision:
        return _Steps(actions=(_record(readiness),))
    return _Steps()


def _plan_paused_short(readiness: Readiness) -> _Steps:
    """Return why nothing moves: a paused zone that is short blocks the others (W-32)."""
    text = f"paused {render_readiness(readiness)}"
    wait = Reason(Code.PAUSED_ZONE_NOT_READY, text, Severity.WARN, readiness.sts.name)
    return _Steps(waits=(wait,), stays=True)


def _record(readiness: Readiness) -> RecordRevision:
    sts = readiness.sts
    text = (
        f"{sts.name} has {readiness.used} of {readiness.used} pods ready at revision "
        f"{sts.update_revision}, its status still names {sts.current_revision} as current"
    )
    reason = Reason(Code.ROLLED_OUT, text, zone=sts.name)
    return RecordRevision(zone=sts, revision=sts.update_revision, reason=reason)


def _list_paused(readinesses: Iterable[Readiness]) -> tuple[Reason, ...]:
    """Return a reason for each paused zone that has something to do."""
    return tuple(
        Reason(
            Code.PAUSED,
            f"{readiness.sts.name} is paused: {count(outdated, 'outdated pod')} "
            f"{verb(outdated, 'waits', 'wait')}",
            zone=readiness.sts.name,
        )
        for readiness in readinesses
        if is_paused(readiness.sts) and (outdated := count_outdated(readiness))
    )


def _list_waiting(readinesses: Iterable[Readiness]) -> list[str]:
    """Return the names of the zones that would have something to do if it were their turn."""
    return [
        readiness.sts.name
        for readiness in readinesses
        if not is_paused(readiness.sts)
        and (
            count_outdated(readiness)
            or readiness.sts.current_revision != readiness.sts.update_revision
        )
    ]


def _wait_behind(readiness: Readiness, others: Sequence[Readiness]) -> tuple[Reason, ...]:
    """Return why zones other than the one whose turn it is do not move."""
    paused, names = _list_paused(others), _list_waiting(others)
    if not names:
        return paused
    text = f"{join_names(names)} {verb(len(names), 'waits', 'wait')} for {readiness.sts.name}"
    return (*paused, Reason(Code.ANOTHER_ZONE_FIRST, text, Severity.DEBUG))


def _up_to_date(readinesses: Sequence[Readiness]) -> Reason:
    pods = sum(readiness.used for readiness in readinesses)
    zones = count(len(readinesses), "zone")
    text = f"{count(pods, 'pod')} of {zones}: all ready at the update revision"
    return Reason(Code.UP_TO_DATE, text, Severity.DEBUG)
