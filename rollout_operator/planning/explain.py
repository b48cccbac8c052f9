"""Whether one pod or zone may move now, and what has to happen first.

Conditions are those of `plan_group`, but all of them, where a plan names the first one only.
Reasons that only the acting process knows, such as a budget that refused, come with its plan. Which
pods of a MultiAZRollout go is decided in `planning.policies`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import msgspec.structs
from msgspec.structs import replace

from rollout_operator.model.description import Explanation
from rollout_operator.model.objects import Group, Pod, StatefulSet, Unreadable, Zone
from rollout_operator.model.outcome import HOLDING_ZONE, Code, Plan, Reason, ReplacePods, Severity
from rollout_operator.model.policy import PolicyPlan
from rollout_operator.planning.describe_groups import MOST_REASONS, SCALING, describe_reason
from rollout_operator.planning.readiness import (
    Down,
    Readiness,
    choose_limit,
    find_group_blocker,
    find_why,
    is_paused,
    measure_readiness,
    order_zones,
    render_readiness,
    render_why,
)
from rollout_operator.planning.rollout import choose_pods, count_outdated, render_outdated
from rollout_operator.planning.wording import count, cut, join_names, verb

# What the snapshot itself shows, in these words or in others: a plan says no more of it.
_SHOWN: Final = frozenset(
    {
        Code.UP_TO_DATE,
        Code.ANOTHER_ZONE_FIRST,
        Code.BUDGET_USED,
        Code.PODS_STARTING,
        Code.ZONE_NOT_READY,
        Code.SEVERAL_ZONES_NOT_READY,
        Code.PAUSED,
        Code.PAUSED_ZONE_NOT_READY,
    }
)


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    group: Group
    plan: Plan
    zone: Zone
    readiness: Readiness
    others: tuple[Readiness, ...]
    """In the order of zones."""

    @property
    def sts(self) -> StatefulSet:
        return self.zone.sts


def explain_pod(group: Group, plan: Plan, name: str) -> Explanation | None:
    """Return whether a pod goes now; None where the group has no such pod and wants none."""
    for zone in order_zones(group.zones):
        ordinal = zone.sts.ordinal_of(name)
        if ordinal is None:
            continue
        names = [pod.name for pod in zone.own_pods] + [
            broken.name for broken in zone.own_unreadable
        ]
        if ordinal in zone.sts.ordinals:
            held = zone.by_ordinal(range(ordinal, ordinal + 1)).get(ordinal)
            return _explain_desired(_place(group, plan, zone), name, held)
        if name in names:
            text = f"{name} is wanted no more: {zone.sts.name} deletes it"
            return _answer(name, Code.SCALE_DOWN, text)
    return None


def explain_set(group: Group, plan: Plan, name: str) -> Explanation | None:
    """Return whether pods of a StatefulSet go now; None where it is no member of the group."""
    lost = next((broken for broken in group.unreadable if broken.name == name), None)
    if lost is not None:
        return _answer(name, Code.OBJECT_UNREADABLE, f"{name} cannot be read: {lost.error}")
    zone = next((zone for zone in order_zones(group.zones) if zone.sts.name == name), None)
    if zone is None:
        return None
    place = _place(group, plan, zone)
    going = [pod.name for pod in _list_going(plan) if pod.owner_uid == zone.sts.uid]
    if going:
        text = f"it is the turn of {name}: {join_names(going)} {verb(len(going), 'goes', 'go')} now"
        return Explanation(name=name, answer=text, code=Code.POD_OUTDATED, may_go=True)
    outdated = count_outdated(place.readiness)
    if outdated:
        text = f"{name} has {count(outdated, 'outdated pod')}, which cannot go yet"
        return _answer(name, Code.POD_OUTDATED, text, _list_conditions(place))
    if place.readiness.is_whole:
        text = f"{render_readiness(place.readiness)}, none of them outdated: no pod goes"
        return _answer(name, Code.UP_TO_DATE, text, _list_reported(place))
    text = f"{render_readiness(place.readiness)}, none of them outdated"
    return _answer(name, Code.ZONE_NOT_READY, text, _list_reported(place))


def explain_driven_pod(
    group: Group, plan: PolicyPlan, policy: str, name: str
) -> Explanation | None:
    """Return whether a pod goes now; None where the policy has no such pod and wants none.

    `group` has all StatefulSets of the policy, `policy` is its namespace and name.
    """
    owners = (zone.sts.name for zone in group.zones if zone.sts.ordinal_of(name) is not None)
    owner = next(owners, None)
    if owner is None:
        return None
    return explain_pod(replace(group, driver=policy), _convert_plan(group, plan, owner), name)


def explain_driven_set(
    group: Group, plan: PolicyPlan, policy: str, name: str
) -> Explanation | None:
    """Return whether pods of a StatefulSet go now; None where the policy does not own it."""
    return explain_set(replace(group, driver=policy), _convert_plan(group, plan, name), name)


def _explain_desired(place: _Place, name: str, held: Pod | Unreadable | None) -> Explanation:
    sts = place.sts
    if held is None:
        text = f"{name} does not exist; {sts.name} wants it, and its controller creates it"
        return _answer(name, Code.ZONE_NOT_READY, text)
    if isinstance(held, Unreadable):
        text = f"{name} cannot be read and counts as down: {held.error}"
        return _answer(name, Code.OBJECT_UNREADABLE, text)
    # A delete without an answer is sent once more.
    is_going = any(pod.uid == held.uid for pod in _list_going(place.plan))
    if not is_going and (held.is_terminating or held.uid in place.group.deletions):
        text = f"{name} is on its way out{_render_state(place, held)}"
        return _answer(name, Code.ZONE_NOT_READY, text)
    if not sts.update_revision:
        text = f"which revision {name} is to have is not known"
        return _answer(name, Code.REVISION_EMPTY, text, _list_conditions(place))
    if not _is_outdated(place, held):
        text = f"{name} is at revision {held.revision}, as {sts.name} wants"
        text = f"{text}{_render_state(place, held)}: no rollout deletes it"
        return _answer(name, Code.UP_TO_DATE, text)
    return _explain_outdated(place, held)


def _explain_outdated(place: _Place, pod: Pod) -> Explanation:
    text = f"{render_outdated(pod, place.sts)}{_render_state(place, pod)}"
    if any(other.uid == pod.uid for other in _list_going(place.plan)):
        answer = cut(f"{text}: it goes now")
        return Explanation(name=pod.name, answer=answer, code=Code.POD_OUTDATED, may_go=True)
    conditions = [*_list_conditions(place), *_list_ahead(place, pod)]
    return _answer(pod.name, Code.POD_OUTDATED, f"{text}: it cannot go yet", conditions)


def _answer(name: str, code: Code, text: str, conditions: Iterable[Reason] = ()) -> Explanation:
    distinct = list(
        {(condition.code, condition.text): condition for condition in conditions}.values()
    )
    return Explanation(
        name=name,
        answer=cut(text),
        code=code,
        conditions=tuple(map(describe_reason, distinct[:MOST_REASONS])),
    )


def _place(group: Group, plan: Plan, zone: Zone) -> _Place:
    readinesses = {
        zone.sts.uid: measure_readiness(zone, group.deletions, group.now)
        for zone in order_zones(group.zones)
    }
    others = tuple(readiness for uid, readiness in readinesses.items() if uid != zone.sts.uid)
    return _Place(
        group=group, plan=plan, zone=zone, readiness=readinesses[zone.sts.uid], others=others
    )


def _list_going(plan: Plan) -> Sequence[Pod]:
    actions = (action for action in plan.actions if isinstance(action, ReplacePods))
    return [replacement.pod for action in actions for replacement in action.going]


def _convert_plan(group: Group, plan: PolicyPlan, set_name: str) -> Plan:
    """Return the plan of a policy as that of a group, with the zones before a StatefulSet's."""
    waits = [wait for wait in plan.waits if wait.code is not Code.UP_TO_DATE]
    home = next((zone for zone in plan.zones if any(s.name == set_name for s in zone.sets)), None)
    if home is not None:
        before = [
            zone.name
            for zone in plan.zones[: plan.zones.index(home)]
            if any(counts.outdated and not counts.is_paused for counts in zone.sets)
        ]
        if before:
            text = f"{join_names(before)} {verb(len(before), 'has', 'have')} outdated pods"
            waits.append(Reason(Code.ANOTHER_ZONE_FIRST, f"{text}, which go first"))
    actions = () if plan.action is None else (plan.action,)
    return Plan(group=group.name, actions=actions, waits=tuple(waits))


def _list_conditions(place: _Place) -> Iterator[Reason]:
    """Yield what has to happen before a pod of a zone goes, from the group to the zone."""
    blocker = find_group_blocker(place.group)
    if blocker is not None:
        yield from blocker.reasons
    if place.group.driver:
        # The policy has an order and a budget of its own.
        yield from (_with_query(place, wait) for wait in place.plan.waits)
        return
    sts, readiness = place.sts, place.readiness
    if is_paused(sts):
        yield Reason(Code.PAUSED, f"{sts.name} is paused", zone=sts.name)
    for other in place.others:
        if not other.is_whole:
            code = Code.PAUSED_ZONE_NOT_READY if is_paused(other.sts) else Code.ZONE_NOT_READY
            yield Reason(code, render_readiness(other), zone=other.sts.name)
    yield from _list_zones_ahead(place)
    limit, _ = choose_limit(msgspec.structs.replace(sts, replicas=readiness.used))
    action, wait = choose_pods(readiness, limit)
    if action is None and wait is not None:
        yield wait
    # What holds only counts of replicas keeps no outdated pod.
    counts = SCALING | HOLDING_ZONE
    yield from (wait for wait in _list_reported(place) if wait.code not in counts)


def _list_zones_ahead(place: _Place) -> Iterator[Reason]:
    """Yield the zones whose turn comes before: a zone that is short is before all others."""
    if not place.readiness.is_whole:
        return
    before = [
        other.sts.name
        for other in place.others
        if other.sts.name < place.sts.name and count_outdated(other) and not is_paused(other.sts)
    ]
    if before:
        text = f"{join_names(before)} {verb(len(before), 'has', 'have')} outdated pods"
        yield Reason(Code.ANOTHER_ZONE_FIRST, f"{text}, which go first")


def _list_ahead(place: _Place, pod: Pod) -> Iterator[Reason]:
    """Yield which pods of its zone go before an outdated pod."""
    if place.group.driver:
        return
    standing = [pod for pod in place.readiness.standing if _is_outdated(place, pod)]
    uids = [pod.uid for pod in standing]
    before = standing[: uids.index(pod.uid)] if pod.uid in uids else []
    going = [pod for pod in _list_going(place.plan) if pod.owner_uid == place.sts.uid]
    ahead = list(dict.fromkeys(replacement.name for replacement in (*going, *before)))
    if ahead:
        text = f"{join_names(ahead)} {verb(len(ahead), 'goes', 'go')} first"
        yield Reason(Code.BUDGET_USED, text, Severity.DEBUG, place.sts.name)


def _list_reported(place: _Place) -> Iterator[Reason]:
    """Yield what the plan says of a zone, or of all zones, beyond its snapshot."""
    for wait in place.plan.waits:
        is_for_all = not wait.zone or wait.code is Code.ZONE_LEFT_SHORT
        if (is_for_all or wait.zone == place.sts.name) and wait.code not in _SHOWN:
            yield _with_query(place, wait)


def _with_query(place: _Place, wait: Reason) -> Reason:
    """Add what a health check asks."""
    gate = place.group.gates.get(place.sts.uid)
    if gate is None or not gate.query or gate.text not in wait.text:
        return wait
    query = " ".join(gate.query.split())
    return replace(wait, text=f"{wait.text}; it asks {query}")


def _is_outdated(place: _Place, pod: Pod) -> bool:
    return pod.revision != place.sts.update_revision


def _render_state(place: _Place, pod: Pod) -> str:
    """Return in brackets why a pod is not up, empty where it is."""
    patience = timedelta(seconds=place.sts.min_ready_seconds)
    why = find_why(pod, patience, place.group.deletions, place.group.now)
    if why is None:
        return ""
    return f" ({render_why(place.readiness, Down(pod=pod, why=why, gaps_below=0))})"
