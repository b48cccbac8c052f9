"""Decide for a whole label group: the one way into planning, and the order of concerns.

First what stops the group, then the walk over its zones: a zone per StatefulSet, by name, without a
pause, each with the limit of its own annotation.

Walk the zones of a rollout: which zone moves, which of its pods go, and why the others wait.

Label groups and policies roll out by this one walk. At most one zone has pods down at any time: a
zone that is short is the only zone that moves. Where several are short, only outdated pods go whose
delete disturbs nothing, in all of these zones: nothing else brings them the corrected template.
While all are whole, they have their turns one after another, and so have the StatefulSets of a
zone: all whose turn is over are recorded as rolled out, the first with outdated pods ends the walk.

What differs is given as data. Zones, StatefulSets and healthy pods have their turns in the order in
which they come; the limit is that of an annotation or of a policy. A zone of a label group is one
StatefulSet, so that the room of the zone is its own. Pauses and batches are no part of the walk: a
policy holds what it comes to, see `policies.plan`.

Choose the pods to delete next in one zone.

Decides only for a zone whose turn it is: whether every other zone is whole is settled in `walk`.
Which of the candidates are refused, and what is tried instead, is up to the executor of the plan.

Pods that go without our doing: which of them a rollout replaces, and what ours would have done.

Another operator is noticed by them, and in shadow mode they are compared with what ours decides.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec
import msgspec.structs
from msgspec.structs import replace

from rollout_operator.model.objects import Group, Pod, StatefulSet, Zone
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
from rollout_operator.planning.readiness import (
    Down,
    DownCause,
    Readiness,
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
    render_awaited,
    render_readiness,
    render_why,
)
from rollout_operator.planning.wording import count, join_names, verb


def count_outdated(readiness: Readiness) -> int:
    """Return how many pods are not on the update revision and not yet on their way out."""
    return count_outdated_used(readiness) + len(_list_outdated_newcomers(readiness))


def count_outdated_used(readiness: Readiness) -> int:
    """Return how many of them hold something: no plan waits for the others (D-67)."""
    revision = readiness.sts.update_revision
    standing = sum(pod.revision != revision for pod in readiness.standing)
    return standing + len(_list_broken(readiness))


def choose_pods(
    readiness: Readiness, limit: int, *, others_down: int = 0
) -> tuple[ReplacePods | None, Reason | None]:
    """Return the outdated pods that may go while at most `limit` are down, and why others do not.

    Broken pods go first and take nothing from healthy pods: they count as down already.
    Newcomers hold nothing: they go whatever else is down. Healthy pods go in the order in which
    they come; `others_down` pods are unavailable in other StatefulSets of the zone.
    """
    revision = readiness.sts.update_revision
    broken, newcomers = _list_broken(readiness), _list_outdated_newcomers(readiness)
    healthy = [pod for pod in readiness.standing if pod.revision != revision]
    unavailable = readiness.unavailable + others_down
    room = limit - unavailable
    shares = (
        _share(readiness, newcomers, len(newcomers)),
        *_choose_unanswered(readiness, limit),
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


def keep_harmless(action: ReplacePods) -> ReplacePods | None:
    """Return the deletes that disturb nothing, however many zones are short; None for none."""
    shares = (
        replace(share, pods=pods, room=min(share.room, len(pods)))
        for share in action.shares
        if (pods := tuple(entry for entry in share.pods if disturbs_nothing(entry.pod)))
    )
    kept = replace(action, shares=tuple(shares))
    return kept if kept.shares else None


def disturbs_nothing(pod: Pod) -> bool:
    """Return whether the delete of an outdated pod takes nothing away (D-88).

    Such a pod has never served since it was created, or crashes again and again. Any other pod that
    is down may come back by itself, as do those of two zones that a network keeps apart.
    """
    return not pod.is_ready and (_is_new(pod) or pod.is_crash_looping)


def _list_broken(readiness: Readiness) -> list[Down]:
    """Return the outdated pods that are down, other than by age or by an answered delete."""
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


def _choose_unanswered(readiness: Readiness, limit: int) -> tuple[EqualPods, EqualPods]:
    """Return the pods to delete once more, by the same UID: it settles what became of them.

    Those that are still up, the second share, may have been spared. 3 pods, limit 1, another pod
    has crashed since: it waits until the first request cannot be carried out any more (SI-03).
    """
    pods = [unready for unready in _list_broken(readiness) if unready.why is DownCause.UNANSWERED]
    down = [pod for pod in pods if not pod.pod.is_ready]
    up = [pod for pod in pods if pod.pod.is_ready]
    others = max(readiness.seen_down - len(up), readiness.status_short)
    return _share(readiness, down, len(down)), _share(readiness, up, limit - others)


def _choose_unborn(readiness: Readiness, limit: int) -> EqualPods:
    """Return the broken pods that were put there by us and have not been up since, in turn.

    Deleting such a pod adds nothing, whatever else is down: a bad revision comes to a stop at the
    lowest pods, and neither a gap that an ordered set leaves above them nor a pod there that finds
    no node may keep its fix away (LI-10). But some may be there because others drained a node: so
    they go from the lowest on, and what is on its way below them counts (SI-04).
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
    """Return the outdated pods that have been up and broke by themselves.

    Deleting such a pod disrupts one more (SI-04). 5 pods, limit 1, one just replaced and starting:
    a second pod that crashes on its own waits.
    """
    sts = readiness.sts
    pods = [down for down in _list_broken(readiness) if not _is_in_flight(sts, down)]
    in_flight = readiness.missing + len(readiness.unreadable)
    in_flight += sum(_is_in_flight(sts, down_pod) for down_pod in readiness.down)
    if in_flight >= limit and pods and _is_awaited(readiness, pods[0]):
        return _share(readiness, pods[:1], 1)
    return _share(readiness, pods, limit - in_flight)


def _is_awaited(readiness: Readiness, down: Down) -> bool:
    """Return whether what is in flight comes back only once this pod is ready, ever so late.

    An ordered set with pod 0 crashing, 1 absent and 2 at a bad revision: the controller creates 1
    only when 0 is ready, and nothing mends 2 before. To wait for them is to wait for ever (LI-10).
    """
    sts, place = readiness.sts, readiness.down.index(down)
    if not sts.is_ordered or readiness.unreadable or down.gaps_below:
        return False
    is_lowest = not any(_is_in_flight(sts, other) for other in readiness.down[:place])
    return is_lowest and not any(_may_come_up(sts, other) for other in readiness.down[place + 1 :])


def _may_come_up(sts: StatefulSet, down: Down) -> bool:
    """Return whether a pod that is in flight needs nothing but time, or is up still.

    A pod at the update revision shows whether that revision is any good: it is waited for.
    """
    is_gone = down.why in (DownCause.TERMINATING, DownCause.DELETED)
    is_broken = down.why is DownCause.UNREADY and down.pod.revision != sts.update_revision
    return _is_in_flight(sts, down) and not is_gone and not is_broken


def _is_in_flight(sts: StatefulSet, down: Down) -> bool:
    """Return whether a pod is down most likely because of us.

    So is a pod that has not come up yet, whatever its revision: it may be there because its
    predecessor was evicted. Surely not, where it is outdated and has been ready, or may have been
    at the revision of before the rollout. After a rollback that is the update revision itself: a
    pod which we have just replaced is at both.
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
    replacements = tuple(_replace_broken(readiness, pod) for pod in pods)
    return EqualPods(pods=replacements, room=min(room, len(pods)))


def _replace_broken(readiness: Readiness, down: Down) -> Replacement:
    text = (
        f"{render_outdated(down.pod, readiness.sts)} and it is down ({render_why(readiness, down)})"
    )
    reason = Reason(Code.POD_BROKEN_AND_OUTDATED, text, zone=readiness.sts.name)
    return Replacement(pod=down.pod, reason=reason)


def _replace_healthy(sts: StatefulSet, pod: Pod) -> Replacement:
    reason = Reason(Code.POD_OUTDATED, render_outdated(pod, sts), zone=sts.name)
    return Replacement(pod=pod, reason=reason)


def render_outdated(pod: Pod, sts: StatefulSet) -> str:
    """Return in a sentence that a pod is to be replaced."""
    at = pod.revision or "none"
    return f"{pod.name} is at revision {at}, {sts.name} wants {sts.update_revision}"


def _explain_held(readiness: Readiness, left: str, *, is_alone: bool) -> Reason:
    zone, awaited = readiness.sts.name, render_awaited(readiness)
    text = f"{zone} is waiting for {awaited}. {left}" if awaited else f"{zone}: {left}"
    if is_alone and is_passing(readiness):
        return Reason(Code.PODS_STARTING, text, Severity.DEBUG, zone)
    return Reason(Code.BUDGET_USED, text, zone=zone)


Limit: TypeAlias = Callable[[StatefulSet], int]
"""How many pods of its zone may be unavailable while a StatefulSet has its turn."""


class RolloutZone(msgspec.Struct, frozen=True, kw_only=True):
    """What may be down together: one StatefulSet, or several of a policy."""

    name: str
    """That of the StatefulSet where it belongs to a label group."""
    readinesses: tuple[Readiness, ...]
    """At least one, in the order of their turns."""

    @property
    def unavailable(self) -> int:
        """Return how many desired pods are not proven available; those not there count."""
        return sum(readiness.unavailable for readiness in self.readinesses)

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is missing."""
        return all(readiness.is_whole for readiness in self.readinesses)


class Walk(msgspec.Struct, kw_only=True):
    """What zones come to."""

    actions: list[Action] = []
    waits: list[Reason] = []
    turn: Readiness | None = None
    """The StatefulSet whose outdated pods have their turn; the first of several that do."""


def walk_zones(
    zones: Sequence[RolloutZone], limit: Limit, departed: Sequence[Readiness] = ()
) -> Walk:
    """Return what may be done to the zones now; where that is nothing, there is a wait.

    Zones that left while they were short are short zones like others, and never have a turn.
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
        _walk_short(walk, short[0], [zone for zone in zones if zone is not short[0]], limit)
    else:
        _walk_whole(walk, zones, limit)
    if not walk.actions and not walk.waits:
        walk.waits.append(explain_up_to_date(zones))
    return walk


def is_waiting(readiness: Readiness) -> bool:
    """Return whether a StatefulSet has outdated pods that may be replaced when it is its turn."""
    return not is_paused(readiness.sts) and bool(count_outdated(readiness))


def choose_zone_pods(
    zone: RolloutZone, readiness: Readiness, limit: Limit
) -> tuple[ReplacePods | None, Reason | None]:
    """Return the pods of one StatefulSet of a zone that may go, and why others do not."""
    # In percent of what there is: newcomers give nothing, and lend no room either.
    most = limit(msgspec.structs.replace(readiness.sts, replicas=readiness.used))
    return choose_pods(readiness, most, others_down=zone.unavailable - readiness.unavailable)


def render_short(zone: RolloutZone) -> str:
    """Return what is missing in a zone, such as `zone-b has 2 of 3 pods ready`."""
    text = ", ".join(
        render_readiness(readiness) for readiness in zone.readinesses if not readiness.is_whole
    )
    is_set = [readiness.sts.name for readiness in zone.readinesses] == [zone.name]
    return text if is_set else f"zone {zone.name}: {text}"


def explain_up_to_date(zones: Sequence[RolloutZone]) -> Reason:
    """Return that nothing is left to do."""
    pods = sum(readiness.used for zone in zones for readiness in zone.readinesses)
    text = f"{count(pods, 'pod')} of {count(len(zones), 'zone')}: all ready at the update revision"
    return Reason(Code.UP_TO_DATE, text, Severity.DEBUG)


def _walk_several(
    walk: Walk, short: Sequence[RolloutZone], left: Sequence[Readiness], limit: Limit
) -> None:
    """Add the pods of several zones that are not whole whose delete disturbs nothing (D-88)."""
    for zone in short:
        for readiness in filter(is_waiting, zone.readinesses):
            action, _ = choose_zone_pods(zone, readiness, limit)
            if action is not None and (kept := keep_harmless(action)) is not None:
                walk.actions.append(kept)
                walk.turn = walk.turn or readiness
    text = "; ".join([*map(render_short, short), *map(render_readiness, left)])
    severity = Severity.DEBUG if walk.actions else Severity.WARN  # they are being mended
    walk.waits.append(Reason(Code.SEVERAL_ZONES_NOT_READY, text, severity))


def _walk_short(walk: Walk, zone: RolloutZone, others: Sequence[RolloutZone], limit: Limit) -> None:
    """Add the steps of the only zone that is not whole, and why the others wait (ROLL-16)."""
    _plan_zone(walk, zone, limit)
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


def _walk_whole(walk: Walk, zones: Sequence[RolloutZone], limit: Limit) -> None:
    """Add the steps of zones that are all whole: in order, until one has outdated pods."""
    for place, zone in enumerate(zones):
        _plan_zone(walk, zone, limit)
        if walk.turn is not None:
            walk.waits += _wait_behind(zone, zones[place + 1 :])
            break


def _plan_zone(walk: Walk, zone: RolloutZone, limit: Limit) -> None:
    """Add the steps of the first StatefulSet with outdated pods, and of all that are done."""
    for readiness in zone.readinesses:
        if not is_waiting(readiness):
            _plan_done(walk, readiness)
        elif walk.turn is None:
            walk.turn = readiness
            action, wait = choose_zone_pods(zone, readiness, limit)
            walk.actions += [action] if action else []
            walk.waits += [wait] if wait else []


def _plan_done(walk: Walk, readiness: Readiness) -> None:
    """Add the steps of a StatefulSet of which no pod may be replaced."""
    sts = readiness.sts
    if is_paused(sts):
        walk.waits += _explain_paused(readiness)
    elif not readiness.is_whole or readiness.used < sts.replicas:
        # Newcomers may never become ready: others go on meanwhile (D-67).
        walk.waits.append(Reason(Code.ZONE_NOT_READY, render_readiness(readiness), zone=sts.name))
    elif sts.current_revision != sts.update_revision:
        walk.actions.append(_record(readiness))


def _explain_paused(readiness: Readiness) -> list[Reason]:
    """Return why nothing moves: a paused zone that is short blocks the others (W-32)."""
    if readiness.is_whole:
        return _list_paused_of([readiness])
    text = f"paused {render_readiness(readiness)}"
    return [Reason(Code.PAUSED_ZONE_NOT_READY, text, Severity.WARN, readiness.sts.name)]


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
    """Return a reason for each paused StatefulSet that has something to do."""
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
    """Return the names of the zones that would have something to do if it were their turn."""
    return [zone.name for zone in zones if any(map(_has_work, zone.readinesses))]


def _has_work(readiness: Readiness) -> bool:
    sts = readiness.sts
    is_recorded = sts.current_revision == sts.update_revision
    return not is_paused(sts) and (not is_recorded or bool(count_outdated(readiness)))


def _wait_behind(zone: RolloutZone, others: Sequence[RolloutZone]) -> list[Reason]:
    """Return why zones other than the zone whose turn it is do not move."""
    paused, names = _list_paused(others), _list_waiting(others)
    if not names:
        return paused
    text = f"{join_names(names)} {verb(len(names), 'waits', 'wait')} for {zone.name}"
    return [*paused, Reason(Code.ANOTHER_ZONE_FIRST, text, Severity.DEBUG)]


def plan_group(group: Group) -> Plan:
    """Return all that one snapshot of a group leads to.

    The same group gives an equal plan, in whatever order its zones and pods come. A plan without an
    action has at least one wait.
    """
    zones = order_zones(group.zones)
    warnings = list_warnings(zones)
    readinesses = tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)
    progress = tuple(map(count_pods, readinesses))
    blocker = find_group_blocker(group)
    ways = [
        RolloutZone(name=readiness.sts.name, readinesses=(readiness,)) for readiness in readinesses
    ]
    if group.driver and _is_rolled_out(readinesses):
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
    walk = walk_zones(ways, _read_limit, departed)
    times = list_times((*readinesses, *departed))
    return Plan(
        group=group.name,
        actions=tuple(walk.actions),
        waits=tuple(walk.waits),
        problems=(*warnings, *list_podless(readinesses)),
        requeue_after=min(times, default=None),
        progress=progress,
    )


def _is_rolled_out(readinesses: Iterable[Readiness]) -> bool:
    """Return whether a group that another engine rolls out has nothing left to do."""
    return all(
        readiness.is_whole
        and not count_outdated(readiness)
        and readiness.sts.current_revision == readiness.sts.update_revision
        for readiness in readinesses
    )


def _read_limit(sts: StatefulSet) -> int:
    return choose_limit(sts)[0]


def is_replaced(sts: StatefulSet, old: Pod, new: Pod) -> bool:
    """Return whether a pod of a set has just been deleted because it was outdated, for all we see.

    That is a pod at an outdated revision that turns terminating, other than by an eviction, a
    preemption or the end of its node, and not because it is wanted no more.
    """
    has_gone = new.is_terminating and not old.is_terminating and not new.is_disrupted
    ordinal = sts.ordinal_of(old.name)
    is_outdated = old.revision != sts.update_revision
    return has_gone and is_outdated and ordinal is not None and is_wanted(sts, ordinal)


def is_wanted(sts: StatefulSet, ordinal: int) -> bool:
    """Return whether there is to be a pod of this ordinal."""
    return not sts.is_terminating and ordinal in sts.ordinals


def would_replace(group: Group, pod: Pod) -> bool:
    """Return whether a rollout might delete a pod now, were it still there as it was.

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


def _with_pod(zone: Zone, pod: Pod) -> Zone:
    others = tuple(other for other in zone.pods if other.name != pod.name)
    unreadable = tuple(other for other in zone.unreadable_pods if other.name != pod.name)
    whole = msgspec.structs.replace(
        zone.sts, ready_replicas=zone.sts.replicas, available_replicas=zone.sts.replicas
    )
    return replace(zone, sts=whole, pods=(*others, pod), unreadable_pods=unreadable)
