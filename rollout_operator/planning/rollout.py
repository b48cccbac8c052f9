"""Plan the rollout of a group: which zone moves, which of its pods are deleted, why the rest waits.

`plan_group` plans a label group: first what stops the whole group, then `walk_zones`, which
policies use as well. At most one zone has pods down: a zone that is short is the only zone that
moves. While all zones are whole they take turns, in the order given. What differs comes as data:
the order, the limit of each StatefulSet, and for policies the batches and pauses (see `policies`).

Pods that somebody else deleted are judged here too: by another operator, or in shadow mode.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import GateState, Group, HealthGate, Pod, StatefulSet, Zone
from rollout_operator.model.outcome import (
    Action,
    Code,
    EqualPods,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
)
from rollout_operator.model.units import format_duration, format_next_second
from rollout_operator.planning.readiness import (
    Down,
    DownCause,
    Readiness,
    Soak,
    choose_limit,
    count_pods,
    explain_left,
    find_group_blocker,
    is_passing,
    is_paused,
    list_podless,
    list_times,
    list_warnings,
    measure_departed,
    measure_readiness,
    order_zones,
    read_soak,
    render_awaited,
    render_readiness,
    render_why,
)
from rollout_operator.planning.wording import count, join_names, verb

Limit: TypeAlias = Callable[[StatefulSet], int]
"""How many pods of its zone may be unavailable while a StatefulSet is updated."""

# Kubelets write whole seconds.
_WHOLE_SECOND: Final = timedelta(seconds=1)
_GATE_CODES: Final = {
    GateState.WARNED: Code.HEALTH_CHECK_WARNING,
    GateState.IGNORED: Code.BAD_HEALTH_CHECK,
    GateState.WAITS: Code.HEALTH_CHECK_WAIT,
    GateState.FAILING: Code.HEALTH_CHECK_FAILED,
    GateState.FAILED: Code.HEALTH_CHECK_FAILED,
    GateState.UNKNOWN: Code.HEALTH_CHECK_UNKNOWN,
    GateState.BROKEN: Code.HEALTH_CHECK_BROKEN,
}
# No clock is trusted to be further ahead: larger times may not fit into a datetime.
_FURTHEST: Final = timedelta(days=365)


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Why no further zone is begun."""

    reason: Reason
    until: datetime | None = None
    """None where only somebody's change ends it."""
    room: int = 0
    """How many more pods may go all the same."""


class RolloutZone(msgspec.Struct, frozen=True, kw_only=True):
    """The StatefulSets that may be down together: one, or several of a policy."""

    name: str
    """The StatefulSet's name in a label group."""
    readinesses: tuple[Readiness, ...]
    """At least one, in update order."""

    @property
    def unavailable(self) -> int:
        return sum(readiness.unavailable for readiness in self.readinesses)

    @property
    def is_whole(self) -> bool:
        return all(readiness.is_whole for readiness in self.readinesses)


Gate: TypeAlias = Callable[[RolloutZone, Sequence[RolloutZone]], Hold | None]
"""What keeps a zone from being begun, given all others. It is asked while those are whole."""


class Walk(msgspec.Struct, kw_only=True):
    """The outcome of a walk over zones."""

    actions: list[Action] = []
    waits: list[Reason] = []
    turn: Readiness | None = None
    """The first StatefulSet whose outdated pods may be replaced now."""
    held_until: datetime | None = None
    """When a zone may be begun, where time alone allows it."""


def plan_group(group: Group) -> Plan:
    """Return the plan for one snapshot of a group, whatever the order of its zones and pods.

    A plan without an action has at least one wait.
    """
    zones = order_zones(group.zones)
    warnings = list_warnings(zones)
    readinesses = tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)
    progress = tuple(map(count_pods, readinesses))
    blocker = find_group_blocker(group)
    ways = [
        RolloutZone(name=readiness.sts.name, readinesses=(readiness,)) for readiness in readinesses
    ]
    if group.driver and all(each.is_whole and _is_rolled_out(each) for each in readinesses):
        return Plan(group=group.name, waits=(explain_up_to_date(ways),), progress=progress)
    if blocker is not None:
        return Plan(
            group=group.name,
            waits=blocker.reasons,
            problems=warnings,
            failed=blocker.is_failure,
            requeue_after=blocker.requeue_after,
            progress=progress,
        )
    departed = measure_departed(group)
    walk = walk_zones(
        ways,
        lambda sts: choose_limit(sts)[0],
        departed,
        lambda zone, others: (
            find_soak(zone, others, read_group_soak(group), group.now)
            or find_gate(zone, group.gates)
        ),
    )
    times = [*list_times((*readinesses, *departed))]
    if walk.held_until is not None:
        times.append(walk.held_until - group.now)
    return Plan(
        group=group.name,
        actions=tuple(walk.actions),
        waits=tuple(walk.waits),
        problems=(*warnings, *list_podless(readinesses), *list_ungated(readinesses, group.gates)),
        requeue_after=min(times, default=None),
        progress=progress,
    )


def walk_zones(
    zones: Sequence[RolloutZone],
    limit: Limit,
    departed: Sequence[Readiness] = (),
    gate: Gate = lambda zone, others: None,
) -> Walk:
    """Return what may be done to the zones now, or at least one reason to wait.

    Zones that left while they were short count as short, and are never acted upon.
    """
    walk = Walk()
    short = [zone for zone in zones if not zone.is_whole]
    left = [readiness for readiness in departed if not readiness.is_whole]
    walk.waits += map(explain_left, left)
    if short and len(short) + len(left) > 1:
        _walk_several(walk, short, left, limit)
    elif left:
        walk.waits += _list_paused(zones)
    elif short:
        _walk_short(walk, short[0], [zone for zone in zones if zone is not short[0]], limit, gate)
    else:
        _walk_whole(walk, zones, limit, gate)
    if not walk.actions and not walk.waits:
        walk.waits.append(explain_up_to_date(zones))
    return walk


def read_group_soak(group: Group) -> Soak:
    """Return the longest pause between zones that a member requests, or what is wrong with one."""
    soaks = {zone.sts.name: read_soak(zone.sts) for zone in order_zones(group.zones)}
    for name, soak in soaks.items():
        if soak.problem:
            return replace(soak, problem=f"StatefulSet {name}: {soak.problem}")
    return max(soaks.values(), key=lambda soak: soak.span, default=Soak())


def find_soak(
    zone: RolloutZone, others: Sequence[RolloutZone], soak: Soak, now: datetime
) -> Hold | None:
    """Return what holds a zone until the others have been whole for long enough.

    The first zone of a rollout waits for nothing: no other zone has an updated pod. Any pod of
    another zone that broke and recovered lets the time begin anew. It is measured by the pods
    alone, so that no restart shortens it.
    """
    readinesses = [readiness for other in others for readiness in other.readinesses]
    if not any(map(_has_updated, readinesses)) or not (soak.span or soak.problem):
        return None
    name = zone.readinesses[0].sts.name
    if soak.problem:
        text = f"{zone.name} is not begun: {soak.problem}"
        return Hold(reason=Reason(Code.ZONE_SOAK, text, Severity.WARN, name))
    end = max(list_available(readinesses, now), default=now) + _WHOLE_SECOND + soak.span
    if end <= now:
        return None
    text = (
        f"{zone.name} waits until {format_next_second(end)}: the other zones must have been whole"
        f" for {format_duration(soak.span)}"
    )
    return Hold(reason=Reason(Code.ZONE_SOAK, text, zone=name), until=end)


def find_gate(zone: RolloutZone, gates: Mapping[Uid, HealthGate]) -> Hold | None:
    """Return what a health check holds of a zone that it has not let begin.

    The members of a zone are begun together: that one has begun counts for all.
    """
    found = [
        (readiness.sts.name, gates[readiness.sts.uid])
        for readiness in zone.readinesses
        if readiness.sts.uid in gates
    ]
    if any(gate.state is GateState.BEGUN for _, gate in found):
        return None
    name, gate = next(((name, gate) for name, gate in found if gate.state.holds), ("", None))
    if gate is None:
        return None
    needs_person = gate.state in (GateState.FAILED, GateState.BROKEN)
    severity = Severity.WARN if needs_person else Severity.INFO
    stable_text = f"{name} {gate.stable_text}" if gate.stable_text else ""
    code, text = _GATE_CODES[gate.state], f"{name} {gate.text}"
    return Hold(reason=Reason(code, text, severity, name, stable_text), room=gate.room)


def list_ungated(
    readinesses: Iterable[Readiness], gates: Mapping[Uid, HealthGate]
) -> Iterator[Reason]:
    """Yield what is wrong with a health check that lets the rollout go on."""
    for sts in [readiness.sts for readiness in readinesses if count_outdated(readiness)]:
        gate = gates.get(sts.uid)
        if gate is not None and gate.state in (GateState.WARNED, GateState.IGNORED):
            text = f"{sts.name} {gate.text}"
            yield Reason(_GATE_CODES[gate.state], text, Severity.WARN, sts.name)


def choose_zone_pods(
    zone: RolloutZone, readiness: Readiness, limit: Limit, *, held_room: int | None = None
) -> tuple[ReplacePods | None, Reason | None]:
    # A percentage of the pods in use: newcomers do not raise it.
    most = limit(replace(readiness.sts, replicas=readiness.used))
    others_down = zone.unavailable - readiness.unavailable
    return choose_pods(readiness, most, others_down=others_down, held_room=held_room)


def choose_pods(
    readiness: Readiness, limit: int, *, others_down: int = 0, held_room: int | None = None
) -> tuple[ReplacePods | None, Reason | None]:
    """Return the outdated pods to delete while at most `limit` are down, and why the others wait.

    Broken pods go first and do not use up the limit: they count as down already. Newcomers hold no
    data and go whatever else is down. Healthy pods go in the given order, at most `held_room` of
    them where something holds the zone. `others_down` pods are unavailable in other StatefulSets of
    the zone.
    """
    revision = readiness.sts.update_revision
    broken, newcomers = _list_broken(readiness), _list_outdated_newcomers(readiness)
    healthy = [pod for pod in readiness.standing if pod.revision != revision]
    unavailable = readiness.unavailable + others_down
    unanswered, spared = _choose_unanswered(readiness, limit - others_down, held_room)
    room = limit - unavailable
    room = room if held_room is None else min(room, held_room - max(spared.room, 0))
    shares = (
        _share(readiness, newcomers, len(newcomers)),
        unanswered,
        spared,
        _choose_unborn(readiness, limit),
        _choose_fallen(readiness, limit),
        # Whatever is in flight or broken counts as unavailable: this bounds disruptions as well.
        EqualPods(
            pods=tuple(_replace_healthy(readiness.sts, pod) for pod in healthy),
            room=min(room, len(healthy)),
        ),
    )
    action = ReplacePods(
        zone=readiness.sts, shares=tuple(share for share in shares if share.pods and share.room > 0)
    )
    going = len(action.going)
    held = len(newcomers) + len(broken) + len(healthy) - going
    if not held:
        return action if going else None, None
    numbers = f"({unavailable} unavailable of {limit} allowed)"
    left = f"{count(held, 'pod')} left to update"
    if going:
        after = "this one" if going == 1 else f"these {going}"
        text = f"{readiness.sts.name}: {left} after {after} {numbers}"
        return action, Reason(Code.BUDGET_USED, text, Severity.DEBUG, readiness.sts.name)
    return None, _explain_held(readiness, f"{left} {numbers}", is_alone=not others_down)


def is_waiting(readiness: Readiness) -> bool:
    """Return whether a StatefulSet has outdated pods and is not paused."""
    return not is_paused(readiness.sts) and bool(count_outdated(readiness))


def count_outdated(readiness: Readiness) -> int:
    """Return how many pods are not on the update revision and not yet being deleted."""
    return count_outdated_used(readiness) + len(_list_outdated_newcomers(readiness))


def count_outdated_used(readiness: Readiness) -> int:
    """Count only those that may hold data: no plan waits for the others (D-67)."""
    revision = readiness.sts.update_revision
    standing = sum(pod.revision != revision for pod in readiness.standing)
    return standing + len(_list_broken(readiness))


def disturbs_nothing(pod: Pod) -> bool:
    """Return whether deleting an outdated pod takes nothing away (D-88).

    The pod has never been ready, or keeps crashing. Any other pod that is down may recover by
    itself, for instance when a network partition between two zones ends.
    """
    return not pod.is_ready and (_is_new(pod) or pod.is_crash_looping)


def render_outdated(pod: Pod, sts: StatefulSet) -> str:
    at = pod.revision or "none"
    return f"{pod.name} is at revision {at}, {sts.name} wants {sts.update_revision}"


def render_short(zone: RolloutZone) -> str:
    """Return what is missing in a zone, such as `zone-b has 2 of 3 pods ready`."""
    text = ", ".join(
        render_readiness(readiness) for readiness in zone.readinesses if not readiness.is_whole
    )
    is_set = [readiness.sts.name for readiness in zone.readinesses] == [zone.name]
    return text if is_set else f"zone {zone.name}: {text}"


def explain_up_to_date(zones: Sequence[RolloutZone]) -> Reason:
    pods = sum(readiness.used for zone in zones for readiness in zone.readinesses)
    text = f"{count(pods, 'pod')} of {count(len(zones), 'zone')}: all ready at the update revision"
    return Reason(Code.UP_TO_DATE, text, Severity.DEBUG)


def is_replaced(sts: StatefulSet, old: Pod, new: Pod) -> bool:
    """Return whether a pod was probably just deleted because it was outdated.

    Its revision is outdated and it turned terminating, not by an eviction, preemption or the loss
    of its node, and its ordinal is still wanted.
    """
    has_gone = new.is_terminating and not old.is_terminating and not new.is_disrupted
    ordinal = sts.ordinal_of(old.name)
    is_outdated = old.revision != sts.update_revision
    return has_gone and is_outdated and ordinal is not None and is_wanted(sts, ordinal)


def is_wanted(sts: StatefulSet, ordinal: int) -> bool:
    return not sts.is_terminating and ordinal in sts.ordinals


def would_replace(group: Group, pod: Pod) -> bool:
    """Return whether a rollout might delete a pod now, were it still there.

    `pod` is the pod as it was before; another pod may have its name in `group` by now. The status
    of its StatefulSet is not read: it may count the pod as gone already.
    """
    zones = tuple(
        _with_pod(zone, pod) if zone.sts.uid == pod.owner_uid else zone for zone in group.zones
    )
    deletions = {uid: how for uid, how in group.deletions.items() if uid != pod.uid}
    plan = plan_group(replace(group, zones=zones, deletions=deletions))
    return any(
        entry.pod.uid == pod.uid
        for action in plan.actions
        if isinstance(action, ReplacePods)
        for entry in action.listed
    )


def _keep_harmless(action: ReplacePods) -> ReplacePods | None:
    """Return the deletes that are safe however many zones are short."""
    shares = (
        replace(share, pods=pods, room=min(share.room, len(pods)))
        for share in action.shares
        if (pods := tuple(entry for entry in share.pods if disturbs_nothing(entry.pod)))
    )
    kept = replace(action, shares=tuple(shares))
    return kept if kept.shares else None


def _list_broken(readiness: Readiness) -> list[Down]:
    """Return the outdated pods that are down, except those settling or with an accepted delete."""
    return [down_pod for down_pod in readiness.down if _is_broken(readiness.sts, down_pod)]


def _list_outdated_newcomers(readiness: Readiness) -> list[Down]:
    revision = readiness.sts.update_revision
    return [
        Down(pod=pod, why=DownCause.UNREADY, gaps_below=0)
        for pod in readiness.newcomers
        if pod.revision != revision and not pod.is_terminating
    ]


def _is_broken(sts: StatefulSet, unready: Down) -> bool:
    may_go = unready.why is DownCause.UNREADY or unready.why is DownCause.UNANSWERED
    return may_go and unready.pod.revision != sts.update_revision


def _choose_unanswered(
    readiness: Readiness, limit: int, held_room: int | None
) -> tuple[EqualPods, EqualPods]:
    """Return the pods whose delete got no answer, to be deleted again by the same UID.

    The second share are those that are still up and may have been spared: they are healthy pods to
    what holds the zone by now. 3 pods, limit 1, another pod has crashed since: wait until the first
    request can no longer be carried out (SI-03).
    """
    pods = [unready for unready in _list_broken(readiness) if unready.why is DownCause.UNANSWERED]
    down = [pod for pod in pods if not pod.pod.is_ready]
    up = [pod for pod in pods if pod.pod.is_ready]
    room = limit - max(readiness.seen_down - len(up), readiness.status_short)
    room = room if held_room is None else min(room, held_room)
    return _share(readiness, down, len(down)), _share(readiness, up, room)


def _choose_unborn(readiness: Readiness, limit: int) -> EqualPods:
    """Return the broken pods that we created and that have not been up since, lowest first.

    Deleting such a pod takes nothing away: a bad revision stops at the lowest pods, and neither a
    gap above them in an ordered set nor an unschedulable pod there may block their fix (LI-10). But
    some may be down because others drained a node: so what is in flight below them counts (SI-04).
    """
    below = len(readiness.unreadable)
    pods: list[Down] = []
    room = 0
    for down_pod in readiness.down:
        if down_pod.why is not DownCause.UNREADY or not _is_broken(readiness.sts, down_pod):
            below += _is_in_flight(readiness.sts, down_pod)
        elif not _is_in_flight(readiness.sts, down_pod):
            if readiness.sts.is_ordered:
                break  # what is deleted above it is not created again before it is ready
        elif below + down_pod.gaps_below < limit:
            pods.append(down_pod)
            room = limit - below - down_pod.gaps_below
    return _share(readiness, pods, room)


def _choose_fallen(readiness: Readiness, limit: int) -> EqualPods:
    """Return the outdated pods that were up and broke by themselves.

    Deleting one disrupts one more pod (SI-04). 5 pods, limit 1, one just replaced and starting: a
    second pod that crashes on its own waits.
    """
    sts = readiness.sts
    pods = [down for down in _list_broken(readiness) if not _is_in_flight(sts, down)]
    in_flight = readiness.missing + len(readiness.unreadable)
    in_flight += sum(_is_in_flight(sts, down_pod) for down_pod in readiness.down)
    if in_flight >= limit and pods and _is_awaited(readiness, pods[0]):
        return _share(readiness, pods[:1], 1)
    return _share(readiness, pods, limit - in_flight)


def _is_awaited(readiness: Readiness, down: Down) -> bool:
    """Return whether the pods in flight can only come back once this pod is ready.

    An ordered set with pod 0 crashing, 1 absent and 2 at a bad revision: the controller creates 1
    only when 0 is ready, and nothing repairs 2 before that. Waiting for them would never end
    (LI-10).
    """
    sts, place = readiness.sts, readiness.down.index(down)
    if not sts.is_ordered or readiness.unreadable or down.gaps_below:
        return False
    is_lowest = not any(_is_in_flight(sts, other) for other in readiness.down[:place])
    return is_lowest and not any(_may_come_up(sts, other) for other in readiness.down[place + 1 :])


def _may_come_up(sts: StatefulSet, down: Down) -> bool:
    """Return whether a pod in flight only needs time, or is still up.

    A pod at the update revision shows whether that revision works: it is waited for.
    """
    is_gone = down.why in (DownCause.TERMINATING, DownCause.DELETED)
    is_broken = down.why is DownCause.UNREADY and down.pod.revision != sts.update_revision
    return _is_in_flight(sts, down) and not is_gone and not is_broken


def _is_in_flight(sts: StatefulSet, down: Down) -> bool:
    """Return whether a pod is down most likely because of us.

    That includes every pod that has not been ready yet, whatever its revision: its predecessor may
    have been evicted. It does not include an outdated pod that has been ready, or may have been at
    the revision before the rollout. After a rollback that revision is the update revision: a pod
    that we have just replaced is at both.
    """
    if down.why is not DownCause.UNREADY:
        return down.why is not DownCause.SETTLING
    if down.pod.revision == sts.update_revision or _is_new(down.pod):
        return True
    return down.pod.revision != sts.current_revision and not down.pod.was_ready


def _is_new(pod: Pod) -> bool:
    """Return whether a pod was surely never ready: a pod that has run has an address."""
    return pod.never_ready or (pod.phase == "Pending" and not pod.ip)


def _share(readiness: Readiness, pods: Sequence[Down], room: int) -> EqualPods:
    replacements: list[Replacement] = []
    for down in pods:
        outdated, why = render_outdated(down.pod, readiness.sts), render_why(readiness, down)
        text = f"{outdated} and it is down ({why})"
        reason = Reason(Code.POD_BROKEN_AND_OUTDATED, text, zone=readiness.sts.name)
        replacements.append(Replacement(pod=down.pod, reason=reason))
    return EqualPods(pods=tuple(replacements), room=min(room, len(pods)))


def _replace_healthy(sts: StatefulSet, pod: Pod) -> Replacement:
    reason = Reason(Code.POD_OUTDATED, render_outdated(pod, sts), zone=sts.name)
    return Replacement(pod=pod, reason=reason)


def _explain_held(readiness: Readiness, left: str, *, is_alone: bool) -> Reason:
    zone, awaited = readiness.sts.name, render_awaited(readiness)
    text = f"{zone} is waiting for {awaited}. {left}" if awaited else f"{zone}: {left}"
    if is_alone and is_passing(readiness):
        return Reason(Code.PODS_STARTING, text, Severity.DEBUG, zone)
    return Reason(Code.BUDGET_USED, text, zone=zone)


def _walk_several(
    walk: Walk, short: Sequence[RolloutZone], left: Sequence[Readiness], limit: Limit
) -> None:
    """Several zones are short: plan only deletes that disturb nothing (D-88)."""
    for zone in short:
        for readiness in filter(is_waiting, zone.readinesses):
            action, _ = choose_zone_pods(zone, readiness, limit)
            if action is not None and (kept := _keep_harmless(action)) is not None:
                walk.actions.append(kept)
                walk.turn = walk.turn or readiness
    text = "; ".join([*map(render_short, short), *map(render_readiness, left)])
    severity = Severity.DEBUG if walk.actions else Severity.WARN
    walk.waits.append(Reason(Code.SEVERAL_ZONES_NOT_READY, text, severity))


def _walk_short(
    walk: Walk, zone: RolloutZone, others: Sequence[RolloutZone], limit: Limit, gate: Gate
) -> None:
    """Plan the only zone that is short, and say why the others wait (ROLL-16)."""
    _plan_zone(walk, zone, limit, _find_hold(zone, others, gate))
    behind = _list_waiting(others)
    if walk.actions or not behind:
        walk.waits += _wait_behind(zone, others)
        return
    first = walk.waits[0]
    tail = f"; {join_names(behind)} {verb(len(behind), 'waits', 'wait')}"
    if first.code in (Code.BUDGET_USED, Code.PODS_STARTING):
        tail = f"; then {join_names(behind)}"
    walk.waits[0] = replace(first, text=f"{first.text}{tail}")
    walk.waits += _list_paused(others)


def _walk_whole(walk: Walk, zones: Sequence[RolloutZone], limit: Limit, gate: Gate) -> None:
    """All zones are whole: plan them in order up to the first with outdated pods."""
    for place, zone in enumerate(zones):
        others = [other for other in zones if other is not zone]
        _plan_zone(walk, zone, limit, _find_hold(zone, others, gate))
        if walk.turn is not None:
            walk.waits += _wait_behind(zone, zones[place + 1 :])
            break


def _find_hold(zone: RolloutZone, others: Sequence[RolloutZone], gate: Gate) -> Hold | None:
    return gate(zone, others) if any(map(is_waiting, zone.readinesses)) else None


def _plan_zone(walk: Walk, zone: RolloutZone, limit: Limit, hold: Hold | None) -> None:
    """Plan the first StatefulSet with outdated pods, and record those that are done.

    A hold keeps the healthy pods: what crashes or holds no data goes all the same.
    """
    for readiness in zone.readinesses:
        if not is_waiting(readiness):
            _plan_done(walk, readiness)
        elif walk.turn is None:
            walk.turn = readiness
            held_room = None if hold is None else hold.room
            action, wait = choose_zone_pods(zone, readiness, limit, held_room=held_room)
            walk.actions += [action] if action else []
            # With a hold the budget explains nothing, but what is down does.
            says_more = hold is None or hold.room or not (action or zone.is_whole)
            walk.waits += [wait] if wait and says_more else []
            if hold is not None and not hold.room:
                walk.waits.append(hold.reason)
                walk.held_until = hold.until


def _plan_done(walk: Walk, readiness: Readiness) -> None:
    sts = readiness.sts
    if is_paused(sts) and readiness.is_whole:
        walk.waits += _list_paused_of([readiness])
    elif is_paused(sts):  # it blocks the others (W-32)
        text = f"paused {render_readiness(readiness)}"
        walk.waits.append(Reason(Code.PAUSED_ZONE_NOT_READY, text, Severity.WARN, sts.name))
    elif not readiness.is_whole or readiness.used < sts.replicas:
        # Newcomers may never become ready: others go on meanwhile (D-67).
        walk.waits.append(Reason(Code.ZONE_NOT_READY, render_readiness(readiness), zone=sts.name))
    elif sts.current_revision != sts.update_revision:
        walk.actions.append(_record(readiness))


def _record(readiness: Readiness) -> RecordRevision:
    sts = readiness.sts
    text = (
        f"{sts.name} has {readiness.used} of {readiness.used} pods ready at revision "
        f"{sts.update_revision}, which becomes its current revision in place of "
        f"{sts.current_revision or 'none'}"
    )
    reason = Reason(Code.ROLLED_OUT, text, zone=sts.name)
    return RecordRevision(zone=sts, revision=sts.update_revision, reason=reason)


def _list_paused(zones: Iterable[RolloutZone]) -> list[Reason]:
    return _list_paused_of(readiness for zone in zones for readiness in zone.readinesses)


def _list_paused_of(readinesses: Iterable[Readiness]) -> list[Reason]:
    return [
        Reason(
            Code.PAUSED,
            f"{readiness.sts.name} is paused: {count(outdated, 'outdated pod')} "
            f"{verb(outdated, 'waits', 'wait')}",
            zone=readiness.sts.name,
        )
        for readiness in readinesses
        if is_paused(readiness.sts) and (outdated := count_outdated(readiness))
    ]


def _list_waiting(zones: Iterable[RolloutZone]) -> list[str]:
    return [
        zone.name
        for zone in zones
        if any(not is_paused(each.sts) and not _is_rolled_out(each) for each in zone.readinesses)
    ]


def _wait_behind(zone: RolloutZone, others: Sequence[RolloutZone]) -> list[Reason]:
    """Return why the zones other than the current one do not move."""
    paused, names = _list_paused(others), _list_waiting(others)
    if not names:
        return paused
    text = f"{join_names(names)} {verb(len(names), 'waits', 'wait')} for {zone.name}"
    return [*paused, Reason(Code.ANOTHER_ZONE_FIRST, text, Severity.DEBUG)]


def list_available(readinesses: Iterable[Readiness], now: datetime) -> Iterator[datetime]:
    """Yield since when pods are available, by the clocks of kubelets; now, where that is unknown.

    With a clock that is ahead the time is later than now, and no pod is ready before it is created.
    """
    for readiness in readinesses:
        patience = timedelta(seconds=readiness.sts.min_ready_seconds)
        for pod in readiness.standing:
            times = [time for time in (pod.created, pod.ready_since) if time is not None]
            yield min(max(times, default=now), now + _FURTHEST) + patience


def _has_updated(readiness: Readiness) -> bool:
    revision = readiness.sts.update_revision
    return any(pod.revision == revision for pod in readiness.standing)


def _is_rolled_out(readiness: Readiness) -> bool:
    is_recorded = readiness.sts.current_revision == readiness.sts.update_revision
    return is_recorded and not count_outdated(readiness)


def _with_pod(zone: Zone, pod: Pod) -> Zone:
    others = tuple(other for other in zone.pods if other.name != pod.name)
    unreadable = tuple(other for other in zone.unreadable_pods if other.name != pod.name)
    replicas = zone.sts.replicas
    whole = replace(zone.sts, ready_replicas=replicas, available_replicas=replicas)
    return replace(zone, sts=whole, pods=(*others, pod), unreadable_pods=unreadable)
