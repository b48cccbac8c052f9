"""What the replicas of a zone are, and what they should become if it follows another
(SCALE-04..14).

`scaling` decides for zones that mirror an object, and what holds a change back. Chains need no code
of their own: each zone names the zone that it follows.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    FORCE_REPLICAS,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_KIND,
    MIRROR_NAME,
    PREPARE_DOWNSCALE,
    UPSCALE_WHEN_READY,
    InvalidInput,
)
from rollout_operator.model.objects import StatefulSet, Zone
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.model.units import is_brake_on, is_odd_brake, parse_go_int, quote
from rollout_operator.planning.readiness import is_behind
from rollout_operator.planning.requests import DelayTarget, escape, is_labelled, show

_CIRCLE_SHOWN: Final = 5


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods must be prepared before they go, and where they are called."""

    span: timedelta
    """More than zero."""
    target: DelayTarget


class DesiredReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """What the replicas of a zone should become, before anything holds it back."""

    replicas: int | None = None
    """None to leave them, or where they are unknown."""
    what: str = ""
    """The cause, such as `zone-b follows zone-a`."""
    suffix: str = ""
    """Follows the counts, with its comma."""
    keeps_apart: bool = False
    """Whether a downscale keeps the time between zones even without the label."""
    must_name_time: bool = False
    """Whether the set itself must say how long that is, after a downscale of any zone."""
    delay: Delay | None = None
    """Set where pods must agree to a downscale."""
    may_shrink: bool = True
    """False where a problem forbids every downscale."""
    is_forced: bool = False
    """Whether a person forces it: then pods that do not run hold nothing back."""
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    is_failure: bool = False
    """Whether only a person can decide the replicas."""

    def render(self, replicas_from: int, replicas_to: int) -> str:
        """Return a text such as `zone-b follows zone-a: 5 → 3`."""
        return f"{self.what}: {replicas_from} → {replicas_to}{self.suffix}"


class Leads(msgspec.Struct, frozen=True, kw_only=True):
    by_name: Mapping[str, StatefulSet]
    """All zones that could be decoded."""
    circles: Mapping[str, str]
    """The message for each zone in a circle."""
    followed: Collection[str]
    """The names that zones follow."""


def choose_following(sts: StatefulSet, leads: Leads, scaling: ScalingSnapshot) -> DesiredReplicas:
    problems = _list_oddities(sts)
    leading = leads.by_name.get(sts.annotations[LEADING_ZONE])
    if leading is None:
        problems = (_report_no_lead(sts, scaling), *problems)
        return DesiredReplicas(problems=problems, is_failure=True)
    if circle := leads.circles.get(sts.name):
        found = complain(sts, Code.LEADING_ZONES_CIRCLE, LEADING_ZONE, circle)
        return DesiredReplicas(problems=(found, *problems), is_failure=True)
    what = f"{sts.name} follows {leading.name}"
    force = read_force(sts)
    if isinstance(force, int):
        suffix = f", forced by {FORCE_REPLICAS}"
        return DesiredReplicas(
            replicas=force, what=what, suffix=suffix, is_forced=True, problems=problems
        )
    if force is not None:
        problems = (*problems, force)
    desired = DesiredReplicas(
        replicas=count_replicas(leading, scaling),
        what=what,
        keeps_apart=True,
        must_name_time=True,
        problems=problems,
    )
    wait = _find_unready(sts, leading, desired, scaling)
    return desired if wait is None else DesiredReplicas(what=what, waits=(wait,), problems=problems)


def map_leads(zones: Sequence[Zone]) -> Leads:
    sets = [zone.sts for zone in zones]
    return Leads(
        by_name={sts.name: sts for sts in sets},
        circles=_map_circles(sets),
        followed=frozenset(sts.annotations[LEADING_ZONE] for sts in sets if follows(sts)),
    )


def follows(sts: StatefulSet) -> bool:
    """The annotation may be empty (SCALE-05)."""
    return LEADING_ZONE in sts.annotations


def count_replicas(sts: StatefulSet, scaling: ScalingSnapshot) -> int:
    """Return the wanted replicas, including a count that we wrote and no cache shows yet."""
    return scaling.written[sts.uid].replicas if is_unseen(sts, scaling) else sts.replicas


def is_unseen(sts: StatefulSet, scaling: ScalingSnapshot) -> bool:
    """Return whether the set does not show yet a count that we wrote."""
    written = scaling.written.get(sts.uid)
    return written is not None and written.generation > sts.generation


def read_force(sts: StatefulSet) -> int | Reason | None:
    """Return the forced replicas, or the problem with them: then they are ignored (SCALE-07)."""
    text = sts.annotations.get(FORCE_REPLICAS)
    if text is None:
        return None
    try:
        replicas = parse_go_int(text, bits=32)
        if replicas < 0:
            raise InvalidInput(f"{quote(text)} is negative")
    except InvalidInput as error:
        return complain(sts, Code.BAD_FORCE_REPLICAS, FORCE_REPLICAS, f"{error}; it is ignored")
    return replicas


def keeps_time(sts: StatefulSet, group: Iterable[StatefulSet]) -> bool:
    """Return whether we record the downscales of a set, as no other process does (D-23, SEED-066).

    No review covers it, it follows or is followed, and a zone of the group sets a time between
    zones: the longest counts, so a bare leading zone is waited for too.
    """
    group, key = tuple(group), MIN_TIME_BETWEEN_DOWNSCALES
    is_timed = any(key in other.annotations or key in other.labels for other in group)
    if is_labelled(sts.labels, PREPARE_DOWNSCALE) or not is_timed:
        return False
    return follows(sts) or any(other.annotations.get(LEADING_ZONE) == sts.name for other in group)


def complain(sts: StatefulSet, code: Code, key: str, why: str) -> Reason:
    """Report an annotation of a zone, on one printable line."""
    text = f"StatefulSet {sts.name}: annotation {key}: {escape(why)}"
    return Reason(code, text, Severity.WARN, sts.name)


def _list_oddities(sts: StatefulSet) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if is_odd_brake(sts.annotations.get(UPSCALE_WHEN_READY)):
        why = f'{show(sts.annotations[UPSCALE_WHEN_READY])} is neither "true" nor "false"; '
        why += "true is used"
        reasons.append(complain(sts, Code.BAD_SCALING_SWITCH, UPSCALE_WHEN_READY, why))
    if sts.annotations.get(MIRROR_NAME) and sts.annotations.get(MIRROR_KIND):
        why = f"{sts.name} has annotation {MIRROR_NAME} as well: it follows, and mirrors nothing"
        reasons.append(complain(sts, Code.FOLLOWS_AND_MIRRORS, LEADING_ZONE, why))
    if sts.annotations.get(DOWNSCALE_DELAY):
        why = f"{sts.name} has annotation {DOWNSCALE_DELAY} as well: nothing delays a follower"
        reasons.append(complain(sts, Code.FOLLOWS_AND_MIRRORS, LEADING_ZONE, why))
    return tuple(reasons)


def _report_no_lead(sts: StatefulSet, scaling: ScalingSnapshot) -> Reason:
    name = sts.annotations[LEADING_ZONE]
    why = f"could not find leader for {sts.name} using {LEADING_ZONE}"
    broken = [
        broken
        for broken in scaling.group.unreadable
        if broken.kind == "StatefulSet" and broken.name == name
    ]
    if broken:
        why = f"{why}: StatefulSet {name} cannot be read: {broken[0].error}"
        return complain(sts, Code.OBJECT_UNREADABLE, LEADING_ZONE, why)
    why = f"{why}: the group has no StatefulSet {show(name)}"
    return complain(sts, Code.NO_LEADING_ZONE, LEADING_ZONE, why)


def _find_unready(
    sts: StatefulSet, leading: StatefulSet, desired: DesiredReplicas, scaling: ScalingSnapshot
) -> Reason | None:
    """Return why an upscale waits for the pods of the leading zone (SCALE-08)."""
    replicas, wanted = count_replicas(sts, scaling), count_replicas(leading, scaling)
    if wanted <= replicas or not is_brake_on(sts.annotations.get(UPSCALE_WHEN_READY)):
        return None
    if is_unseen(leading, scaling) or is_behind(leading):
        why = f"the status of {leading.name} does not show its newest spec yet"
    elif leading.ready_replicas != wanted:
        why = f"{leading.name} has {leading.ready_replicas} of {wanted} pods ready"
    else:
        return None
    text = f"{desired.render(replicas, wanted)} waits: {why}"
    return Reason(Code.LEADING_ZONE_NOT_READY, text, zone=sts.name)


def _map_circles(sets: Sequence[StatefulSet]) -> dict[str, str]:
    """Return the message for each zone in a circle; a forced zone follows none."""
    leading = {
        sts.name: sts.annotations[LEADING_ZONE]
        for sts in sets
        if follows(sts) and not isinstance(read_force(sts), int)
    }
    _drop_ends(leading)
    return {name: _render_circle(name, leading) for name in leading}


def _drop_ends(leading: dict[str, str]) -> None:
    """Keep only circles: remove, again and again, zones that no zone follows."""
    followers = dict.fromkeys(leading, 0)
    for name in leading.values():
        if name in followers:
            followers[name] += 1
    ends = [name for name, number in followers.items() if not number]
    while ends:
        behind = leading.pop(ends.pop())
        if behind in leading:
            followers[behind] -= 1
            if not followers[behind]:
                ends.append(behind)

    # The zones left all follow one and are followed: as many as there are, so each by exactly one.


def _render_circle(name: str, leading: Mapping[str, str]) -> str:
    """Return a text such as `zone-a follows zone-b follows zone-a: a circle leads nowhere`."""
    names, at = [name], leading[name]
    while at != name and len(names) < _CIRCLE_SHOWN:
        names.append(at)
        at = leading[at]
    names.append(name if at == name else "...")
    return f"{' follows '.join(names)}: a circle leads nowhere"
