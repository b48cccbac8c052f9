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
    looks = tuple(assess_readiness(zone, group.deletions, group.now) for zone in zones)
    progress = tuple(map(count_pods, looks))
    blocker = find_group_blocker(group)
    if blocker is not None:
        return Plan(
            group=group.name,
            waits=blocker.reasons,
            problems=warnings,
            failed=blocker.is_failure,
            look_again=blocker.look_again,
            progress=progress,
        )
    steps = _plan_zones(looks)
    times = (wait for look in looks for wait in (look.available_in, look.settles_in) if wait)
    return Plan(
        group=group.name,
        actions=steps.actions,
        waits=steps.waits if steps.actions or steps.waits else (_up_to_date(looks),),
        problems=(*warnings, *list_podless(looks)),
        look_again=min(times, default=None),
        progress=progress,
    )


def _plan_zones(looks: Sequence[Readiness]) -> _Steps:
    short = [look for look in looks if not look.is_whole]
    if len(short) > 1:
        text = "; ".join(render_readiness(look) for look in short)
        return _Steps(waits=(Reason(Code.SEVERAL_ZONES_NOT_READY, text, Severity.WARN),))
    if short:
        return _plan_short_zone(short[0], [look for look in looks if look is not short[0]])
    return _walk(looks)


def _plan_short_zone(look: Readiness, others: Sequence[Readiness]) -> _Steps:
    """Return the steps of the only zone that is not whole, and why the others wait (ROLL-16)."""
    steps = _plan_paused_short(look) if is_paused(look.sts) else _plan_zone(look)
    behind = _find_waiting(others)
    if steps.actions or not behind:
        return replace(steps, waits=(*steps.waits, *_wait_behind(look, others)))
    tail = f"; {join_names(behind)} {verb(len(behind), 'waits', 'wait')}"
    first = replace(steps.waits[0], text=f"{steps.waits[0].text}{tail}")
    return replace(steps, waits=(first, *_find_paused(others)))


def _walk(looks: Sequence[Readiness]) -> _Steps:
    """Return the steps of zones that are all whole: by name, until one has outdated pods."""
    done = _Steps()
    for place, look in enumerate(looks):
        steps = _plan_zone(look)
        waits = (*done.waits, *steps.waits)
        if steps.stays:
            waits = (*waits, *_wait_behind(look, looks[place + 1 :]))
        done = _Steps(actions=(*done.actions, *steps.actions), waits=waits)
        if steps.stays:
            break
    return done


def _plan_zone(look: Readiness) -> _Steps:
    sts = look.sts
    if is_paused(sts):
        return _Steps(waits=_find_paused([look]))
    if count_outdated(look):
        # In percent of what there is: newcomers give nothing, and lend no room either.
        limit, _ = choose_limit(msgspec.structs.replace(sts, replicas=look.used))
        action, wait = choose_pods(look, limit)
        return _Steps(
            actions=(action,) if action else (), waits=(wait,) if wait else (), stays=True
        )
    if not look.is_whole or look.used < sts.replicas:
        # Newcomers may never become ready: others go on meanwhile (D-67).
        wait = Reason(Code.ZONE_NOT_READY, render_readiness(look), zone=sts.name)
        return _Steps(waits=(wait,), stays=not look.is_whole)
    if sts.current_revision != sts.update_revision:
        return _Steps(actions=(_record(look),))
    return _Steps()


def _plan_paused_short(look: Readiness) -> _Steps:
    """Return why nothing moves: a paused zone that is short blocks the others (W-32)."""
    text = f"paused {render_readiness(look)}"
    wait = Reason(Code.PAUSED_ZONE_NOT_READY, text, Severity.WARN, look.sts.name)
    return _Steps(waits=(wait,), stays=True)


def _record(look: Readiness) -> RecordRevision:
    sts = look.sts
    text = (
        f"{sts.name} has {look.used} of {look.used} pods ready at revision "
        f"{sts.update_revision}, its status still names {sts.current_revision} as current"
    )
    reason = Reason(Code.ROLLED_OUT, text, zone=sts.name)
    return RecordRevision(zone=sts, revision=sts.update_revision, reason=reason)


def _find_paused(looks: Iterable[Readiness]) -> tuple[Reason, ...]:
    """Return a reason for each paused zone that has something to do."""
    return tuple(
        Reason(
            Code.PAUSED,
            f"{look.sts.name} is paused: {count(outdated, 'outdated pod')} "
            f"{verb(outdated, 'waits', 'wait')}",
            zone=look.sts.name,
        )
        for look in looks
        if is_paused(look.sts) and (outdated := count_outdated(look))
    )


def _find_waiting(looks: Iterable[Readiness]) -> list[str]:
    """Return the names of the zones that would have something to do if it were their turn."""
    return [
        look.sts.name
        for look in looks
        if not is_paused(look.sts)
        and (count_outdated(look) or look.sts.current_revision != look.sts.update_revision)
    ]


def _wait_behind(look: Readiness, others: Sequence[Readiness]) -> tuple[Reason, ...]:
    """Return why zones other than the one whose turn it is do not move."""
    paused, names = _find_paused(others), _find_waiting(others)
    if not names:
        return paused
    text = f"{join_names(names)} {verb(len(names), 'waits', 'wait')} for {look.sts.name}"
    return (*paused, Reason(Code.ANOTHER_ZONE_FIRST, text, Severity.DEBUG))


def _up_to_date(looks: Sequence[Readiness]) -> Reason:
    pods = sum(look.used for look in looks)
    zones = count(len(looks), "zone")
    text = f"{count(pods, 'pod')} of {zones}: all ready at the update revision"
    return Reason(Code.UP_TO_DATE, text, Severity.DEBUG)
