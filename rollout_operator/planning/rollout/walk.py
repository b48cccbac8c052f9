"""Walk the zones of a rollout: which zone moves, which of its pods go, and why the others wait.

Label groups and policies roll out by this one walk. At most one zone has pods down at any time: a
zone that is short is the only zone that moves. Where several are short, only outdated pods go whose
delete disturbs nothing, in all of these zones: nothing else brings them the corrected template.
While all are whole, they have their turns one after another, and so have the StatefulSets of a
zone: all whose turn is over are recorded as rolled out, the first with outdated pods ends the walk.

What differs is given as data. Zones, StatefulSets and healthy pods have their turns in the order in
which they come; the limit is that of an annotation or of a policy. A zone of a label group is one
StatefulSet, so that the room of the zone is its own. Pauses and batches are no part of the walk: a
policy holds what it comes to, see `policies.plan`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec
import msgspec.structs
from msgspec.structs import replace

from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import (
    Action,
    Code,
    Reason,
    RecordRevision,
    ReplacePods,
    Severity,
)
from rollout_operator.planning.rollout.pods import choose_pods, count_outdated, keep_harmless
from rollout_operator.planning.rollout.readiness import Readiness, render_readiness
from rollout_operator.planning.rollout.zones import explain_left, is_paused
from rollout_operator.planning.wording import count, join_names, verb

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
