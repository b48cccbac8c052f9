"""When a schedule of releases is active, which gates it keeps, and what its status says.

Rules speak of the wall clock of a time zone. An hour that is left out counts as passed, an hour
that comes twice counts twice: an instant is active where its minute is in the set of its date.

A schedule keeps a gate for each Rollout that it selects. A gate is its own by owner reference, or
by labels where nothing else controls it: so the gates of kuberik's controller are taken over. Edits
of a gate are reverted, except the versions that it allows. An invalid schedule changes no gate, and
closes those that it makes.

A gate is written a moment after its schedule changes, and may be refused. So a Rollout obeys the
schedules themselves as well (`list_holds`): a version waits for whichever is closed.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from rollout_operator.model import names
from rollout_operator.model.names import SCHEDULE_NAME, InvalidInput
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import quote
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions
from rollout_operator.planning.wording import count, join_names
from rollout_operator.releases.model.plan import ReleaseEvent
from rollout_operator.releases.model.releases import (
    CLUSTER_SCHEDULE,
    MINUTES_OF_DAY,
    OURS,
    CorrectGate,
    CreateGate,
    DeleteGate,
    GateAction,
    GatedRollout,
    GateOrigin,
    MinuteRange,
    OwnerReference,
    ReleaseCompat,
    ReleaseGate,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleObject,
    SchedulePlan,
    ScheduleRule,
    ScheduleSnapshot,
    ScheduleState,
    ScheduleStatus,
    WantedGate,
)
from rollout_operator.releases.planning.bake import keep_first

# More than a year, so that a date of next year is seen, and no more: what lies beyond is looked for
# again, since a schedule is looked at more often.
HORIZON: Final = timedelta(days=400)

_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_INSTANT: Final = timedelta(microseconds=1)
# Minutes of a day as bits, the first minute lowest.
_WHOLE_DAY: Final = (1 << MINUTES_OF_DAY) - 1

LoadZone = Callable[[str], tzinfo]
"""Returns the zone of a name, such as `zoneinfo.ZoneInfo`; raises OSError or ValueError."""

# The longest has 32 characters and three parts, and one more in the copies below `posix/`.
_LONGEST: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
_OF_A_MACHINE: Final = frozenset({"local", "localtime", "posixrules"})
# So long after a transition a schedule is looked at: clocks differ a little (REL-100).
AFTER_TRANSITION: Final = timedelta(milliseconds=100)

_MANAGER: Final = "rollout-schedule"
_API: Final = "kuberik.com/v1alpha1"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_HASH: Final = 8

# That may select one Rollout. Each pass looks at all of them, and an account that may create
# schedules could have thousands.
MOST_SCHEDULES: Final = 100

READY: Final = "Ready"
IN_SYNC: Final = "GatesInSync"
INVALID: Final = "InvalidSchedule"
NOT_WRITTEN: Final = "GatesNotWritten"
_ACTIVATED: Final = "ScheduleActivated"
_DEACTIVATED: Final = "ScheduleDeactivated"

# An object has room for some ten thousand names; `matchingRollouts` still has the number.
MOST_LISTED: Final = 1000
# Bytes for the names of rules, of which there may be any number, and of any length.
_MOST_OF_RULES: Final = 64 * 1024
_LONGEST_RULE: Final = 1024
_MOST_ERRORS: Final = 3


class _Pattern(msgspec.Struct, frozen=True):
    """The minutes that a rule has on a day of its own, and those that reach into the day after."""

    rule: ScheduleRule
    own: int
    carried: int

    def minutes_of(self, day: date) -> int:
        """Return the minutes of a local day in which the rule matches."""
        minutes = self.own if _owns(self.rule, day) else 0
        if self.carried and _owns(self.rule, day - _DAY):
            minutes |= self.carried
        return minutes


def evaluate_schedule(
    schedule: ReleaseSchedule, zone: tzinfo, now: datetime, compat: ReleaseCompat = OURS
) -> ScheduleState:
    """Return what a schedule says now (REL-91 to 95, RELB-31)."""
    patterns = tuple(_make_pattern(rule, compat) for rule in schedule.rules)
    matching = [pattern.rule.name for pattern in _list_matching(patterns, zone, now)]
    return ScheduleState(
        is_active=bool(matching),
        active_rules=tuple(name for name in matching if name),
        next_transition=_next_transition(patterns, zone, now, is_active=bool(matching)),
    )


def is_open(
    schedule: ReleaseSchedule, zone: tzinfo, now: datetime, compat: ReleaseCompat = OURS
) -> bool:
    """Return whether a schedule lets versions through now, without what comes after (REL-97)."""
    patterns = (_make_pattern(rule, compat) for rule in schedule.rules)
    is_active = any(_list_matching(patterns, zone, now))
    return is_gate_passing(schedule.action, ScheduleState(is_active=is_active))


def is_gate_passing(action: ScheduleAction, state: ScheduleState) -> bool:
    """Return whether the gates of a schedule let versions through (REL-97)."""
    return state.is_active is (action is ScheduleAction.ALLOW)


def _list_matching(patterns: Iterable[_Pattern], zone: tzinfo, now: datetime) -> Iterator[_Pattern]:
    wall = now.astimezone(zone)
    bit = 1 << (wall.hour * 60 + wall.minute)
    return (pattern for pattern in patterns if pattern.minutes_of(wall.date()) & bit)


def _make_pattern(rule: ScheduleRule, compat: ReleaseCompat) -> _Pattern:
    times = rule.times
    if times is None or times.start == times.end:
        return _Pattern(rule, _WHOLE_DAY, 0)
    if times.start < times.end:
        return _Pattern(rule, _minutes(times), 0)
    evening = _minutes(MinuteRange(times.start, MINUTES_OF_DAY))
    morning = _minutes(MinuteRange(0, times.end))
    if compat.windows_keep_their_day:
        return _Pattern(rule, evening, morning)
    return _Pattern(rule, evening | morning, 0)


def _minutes(times: MinuteRange) -> int:
    return (1 << times.end) - (1 << times.start)


def _owns(rule: ScheduleRule, day: date) -> bool:
    if rule.weekdays and day.weekday() not in rule.weekdays:
        return False
    return rule.dates is None or rule.dates.first <= day <= rule.dates.last


def _next_transition(
    patterns: Sequence[_Pattern], zone: tzinfo, now: datetime, *, is_active: bool
) -> datetime | None:
    """Return the first instant at which the rules together say otherwise (RELB-31 (c) and (d)).

    Each step goes to the end of a local day, or to the moment at which clocks are changed in it:
    between these, wall clock and time run alike.
    """
    instant = now.astimezone(UTC)
    end = instant + HORIZON
    while instant <= end:
        wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        midnight = datetime.combine(wall.date(), time())
        step_end = _next_clock_change(zone, instant, instant + (midnight + _DAY - wall))
        others = _union(patterns, wall.date()) ^ (_WHOLE_DAY if is_active else 0)
        minute = _find_bit(others, (wall - midnight) // _MINUTE)
        if minute is not None:
            change = instant + max(midnight + minute * _MINUTE - wall, timedelta(0))
            if change < step_end:
                return change if change <= end else None
        instant = step_end
    return None


def _union(patterns: Iterable[_Pattern], day: date) -> int:
    minutes = 0
    for pattern in patterns:
        minutes |= pattern.minutes_of(day)
    return minutes


def _find_bit(bits: int, first: int) -> int | None:
    bits = bits >> first << first
    return (bits & -bits).bit_length() - 1 if bits else None


def _next_clock_change(zone: tzinfo, begin: datetime, end: datetime) -> datetime:
    """Return the instant after `begin` at which clocks are changed, `end` where they are not.

    No zone changes its clocks forth and back within a day, which would be missed.
    """
    before = begin.astimezone(zone).utcoffset()
    if end.astimezone(zone).utcoffset() == before:
        return end
    while end - begin > _INSTANT:
        middle = begin + (end - begin) // 2
        if middle.astimezone(zone).utcoffset() == before:
            begin = middle
        else:
            end = middle
    return end


def get_time_zone(name: str, load: LoadZone) -> tzinfo:
    """Return the zone that a schedule names. Raises InvalidInput, which names field and value."""
    if name.lower() in _OF_A_MACHINE:
        raise InvalidInput(f"spec.timezone: {quote(name)} is another time on each machine")
    problem = f"spec.timezone: no time zone is {quote(name)}"
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise InvalidInput(problem)
    try:
        return load(name)
    # `ZoneInfoNotFoundError` is a KeyError.
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(problem) from error


def plan_schedule(snapshot: ScheduleSnapshot, load: LoadZone) -> SchedulePlan:
    """Return what is to be done for a schedule now (REL-98 to 100, RELB-31).

    `load` reads the time zone of a name.
    """
    schedule = snapshot.schedule
    if schedule.head.is_terminating:
        return SchedulePlan()
    zone, problem = _find_zone(schedule, load)
    rules, state = schedule.schedule, None
    if zone is not None and rules is not None:
        state = evaluate_schedule(rules, zone, snapshot.now, snapshot.compat)
    own = [gate for gate in snapshot.gates if _is_own(schedule, gate)]
    selected = _list_selected(snapshot)
    if selected is None:
        return SchedulePlan(problem=problem, kept=tuple(sorted(gate.head.key for gate in own)))
    is_passing = state is not None and rules is not None and is_gate_passing(rules.action, state)
    actions, kept = _plan_gates(snapshot, selected, own, is_passing=is_passing)
    if state is None:
        kept = sorted(gate.head.key for gate in own)
        actions = [action for action in actions if isinstance(action, CreateGate)]
    return SchedulePlan(
        state=state,
        problem=problem,
        actions=tuple(actions),
        kept=tuple(kept),
        matching=len(selected),
        requeue_after=_next_pass(snapshot, state),
    )


def _is_own(schedule: ScheduleObject, gate: ReleaseGate) -> bool:
    head, controller = schedule.head, gate.origin.controller
    if head.namespace and gate.head.namespace != head.namespace:
        return False
    if controller is not None and controller.uid == head.uid:
        return True
    is_foreign = controller is not None and not _is_predecessor(schedule, controller)
    # Gates of kuberik's controller do not say what manages them.
    labels = {names.MANAGED_BY: _MANAGER, **gate.origin.labels}
    return not is_foreign and _map_labels(schedule).items() <= labels.items()


def selects(
    schedule: ScheduleObject,
    rollout: GatedRollout,
    namespaces: Mapping[str, Mapping[str, str]],
    compat: ReleaseCompat,
) -> bool:
    """Return whether a schedule concerns a Rollout; with an unreadable selector it concerns none.

    `namespaces` has the labels of those that are known.
    """
    own, spaces = schedule.head.namespace, schedule.namespaces
    if own and rollout.namespace != own:
        return False
    if schedule.rollouts is None or not schedule.rollouts.takes(rollout.labels):
        return False
    if own:
        return True
    if spaces is None:
        return compat.gates_all_namespaces
    return _takes(spaces, namespaces.get(rollout.namespace))


def _find_zone(schedule: ScheduleObject, load: LoadZone) -> tuple[tzinfo | None, str]:
    """Return the zone of a schedule, or why it is invalid."""
    if schedule.problem or schedule.schedule is None:
        return None, schedule.problem
    try:
        return get_time_zone(schedule.schedule.time_zone, load), ""
    except InvalidInput as error:
        return None, f"{schedule.kind} {schedule.head.key}: {error}"


def _list_selected(snapshot: ScheduleSnapshot) -> Sequence[GatedRollout] | None:
    if snapshot.schedule.rollouts is None:
        return None
    return [
        rollout
        for rollout in snapshot.rollouts
        if selects(snapshot.schedule, rollout, snapshot.namespaces, snapshot.compat)
    ]


def _takes(spaces: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Return whether a namespace is selected; an unknown one only by a selector of all."""
    return spaces == LabelSelector() if labels is None else spaces.takes(labels)


def _plan_gates(
    snapshot: ScheduleSnapshot,
    selected: Iterable[GatedRollout],
    own: Sequence[ReleaseGate],
    *,
    is_passing: bool,
) -> tuple[list[GateAction], list[str]]:
    schedule = snapshot.schedule
    taken = {gate.head.key for gate in snapshot.gates}
    actions: list[GateAction] = []
    kept: dict[str, None] = {}
    for rollout, gate in _match(schedule, selected, own):
        name = _choose_name(schedule, rollout, taken) if gate is None else gate.head.name
        wanted = _want(schedule, rollout, name, gate, is_passing=is_passing)
        if gate is None:
            actions += [] if rollout.is_terminating else [CreateGate(wanted=wanted)]
            continue
        kept[gate.head.key] = None
        if not gate.head.is_terminating and not _is_as_wanted(gate, wanted):
            actions.append(CorrectGate(head=gate.head, wanted=wanted))
    surplus = (
        gate.head for gate in own if gate.head.key not in kept and not gate.head.is_terminating
    )
    actions += [DeleteGate(head=head) for head in surplus]
    return actions, [*kept]


def _match(
    schedule: ScheduleObject, selected: Iterable[GatedRollout], own: Sequence[ReleaseGate]
) -> Iterator[tuple[GatedRollout, ReleaseGate | None]]:
    """Yield each Rollout with its gate: the gate of its name, else a gate labelled for it."""
    rollouts = sorted(
        selected, key=lambda gated_rollout: (gated_rollout.namespace, gated_rollout.name)
    )
    by_name = {gate.head.key: gate for gate in own}
    own_names = {
        f"{rollout.namespace}/{name}" for rollout in rollouts for name in _names(schedule, rollout)
    }
    by_label: dict[tuple[str, str], ReleaseGate] = {}
    for gate in sorted(own, key=lambda gate: gate.head.key):
        # A label may have been edited, a name cannot be.
        if gate.head.key not in own_names:
            labelled = gate.origin.labels.get(names.GATED_ROLLOUT, "")
            by_label.setdefault((gate.head.namespace, labelled), gate)
    for rollout in rollouts:
        keys = [f"{rollout.namespace}/{name}" for name in _names(schedule, rollout)]
        named = next((by_name[key] for key in keys if key in by_name), None)
        yield rollout, named or by_label.get((rollout.namespace, _label_name(rollout.name)))


def _want(
    schedule: ScheduleObject,
    rollout: GatedRollout,
    name: str,
    gate: ReleaseGate | None,
    *,
    is_passing: bool,
) -> WantedGate:
    others = () if gate is None else _list_other_owners(schedule, gate)
    origin = GateOrigin(
        labels={**_map_labels(schedule), names.GATED_ROLLOUT: _label_name(rollout.name)},
        pretty_name=schedule.pretty_name,
        description=schedule.description,
        owners=(*others, _make_owner(schedule)),
    )
    return WantedGate(
        namespace=rollout.namespace,
        name=name,
        rollout=rollout.name,
        is_passing=is_passing,
        origin=origin,
    )


def _is_as_wanted(gate: ReleaseGate, wanted: WantedGate) -> bool:
    return (gate.rollout, gate.is_passing, gate.origin) == (
        wanted.rollout,
        wanted.is_passing,
        wanted.origin,
    )


def _choose_name(schedule: ScheduleObject, rollout: GatedRollout, taken: set[str]) -> str:
    """Return the name of a new gate, where the first belongs to another gate the second."""
    first, second = _names(schedule, rollout)
    return second if f"{rollout.namespace}/{first}" in taken else first


def _names(schedule: ScheduleObject, rollout: GatedRollout) -> tuple[str, str]:
    """Return the names that a gate may have; they follow from both names alone.

    `a-b` and `c` make the same as `a` and `b-c`: the second has a hash, as has what is too long.
    """
    prefix = "cluster-" if schedule.kind == CLUSTER_SCHEDULE else ""
    plain = f"{prefix}{schedule.head.name}-{rollout.name}"
    identity = "/".join((schedule.kind, schedule.head.name, rollout.name))
    hashed = _cut(plain, identity, _LONGEST_NAME)
    return plain if len(plain) <= _LONGEST_NAME else hashed, hashed


def _label_name(name: str) -> str:
    return name if len(name) <= _LONGEST_LABEL else _cut(name, name, _LONGEST_LABEL)


def _cut(text: str, identity: str, most: int) -> str:
    kept = text[: most - _HASH - 1].rstrip(".-")
    return f"{kept}-{sha256(identity.encode()).hexdigest()[:_HASH]}"


def _map_labels(schedule: ScheduleObject) -> Mapping[str, str]:
    head = schedule.head
    own = {
        names.SCHEDULE_NAME: _label_name(head.name),
        names.SCHEDULE_KIND: schedule.kind,
        names.MANAGED_BY: _MANAGER,
    }
    return {**own, names.SCHEDULE_NAMESPACE: head.namespace} if head.namespace else own


def _make_owner(schedule: ScheduleObject) -> OwnerReference:
    return OwnerReference(
        api_version=_API,
        kind=schedule.kind,
        name=schedule.head.name,
        uid=schedule.head.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _list_other_owners(schedule: ScheduleObject, gate: ReleaseGate) -> Iterator[OwnerReference]:
    for owner in gate.origin.owners:
        if owner.uid != schedule.head.uid and not _is_predecessor(schedule, owner):
            yield owner


def _is_predecessor(schedule: ScheduleObject, owner: OwnerReference) -> bool:
    """Return whether an owner is a schedule of the same name, which is gone by now."""
    group = owner.api_version.partition("/")[0]
    return (group, owner.kind, owner.name) == ("kuberik.com", schedule.kind, schedule.head.name)


def _next_pass(snapshot: ScheduleSnapshot, state: ScheduleState | None) -> timedelta | None:
    if state is None or state.next_transition is None:
        return None
    return max(state.next_transition - snapshot.now, timedelta(0)) + AFTER_TRANSITION


def list_by_gate(kind: str, gate: ReleaseGate) -> Iterator[str]:
    """Yield the schedules of a kind that keep a gate, or did, by its own words (REL-101)."""
    owners = (owner.name for owner in gate.origin.owners if owner.kind == kind)
    labels = gate.origin.labels
    labelled = labels.get(names.SCHEDULE_NAME) if labels.get(names.SCHEDULE_KIND) == kind else None
    yield from dict.fromkeys([*owners, *([labelled] if labelled else [])])


def list_by_rollout(
    schedules: Iterable[ScheduleObject], rollouts: Iterable[GatedRollout]
) -> Iterator[str]:
    """Yield the schedules that select a Rollout by its labels, or cannot say what they select."""
    candidates = tuple(rollouts)
    for schedule in schedules:
        selector = schedule.rollouts
        if selector is None or any(selector.takes(rollout.labels) for rollout in candidates):
            yield schedule.head.name


class ScheduleReading(NamedTuple):
    is_open: bool
    problem: str = ""
    """Why it is invalid: then it opens nothing."""


_ReadSchedule = Callable[[ScheduleObject], ScheduleReading]
"""Reads a schedule at the moment of a pass. It may remember what it has read."""


class KnownSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that may concern a Rollout, at one moment."""

    schedules: tuple[ScheduleObject, ...] = ()
    """All of its namespace and of the cluster, whatever they select."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces, of those that are known."""
    namespaces_lack: str = ""
    """Why others may be unknown."""
    lacks: tuple[str, ...] = ()
    """Why there may be schedules that are not known."""
    compat: ReleaseCompat = OURS


def list_holds(
    known: KnownSchedules, rollout: GatedRollout, gates: Iterable[ReleaseGate], read: _ReadSchedule
) -> tuple[str, ...]:
    """Return why versions of a Rollout wait beyond what gates say, a sentence each (RELB-42).

    `gates` are those that name it.
    """
    kept = _group_gates(gate for gate in gates if gate.rollout == rollout.name)
    selecting = list(_list_selecting(known, rollout))
    holds = (
        _explain(schedule, unknown, _list_own(schedule, kept), read)
        for schedule, unknown in selecting[:MOST_SCHEDULES]
    )
    more = len(selecting) - MOST_SCHEDULES
    beyond = (f"{count(more, 'schedule')} beyond the {MOST_SCHEDULES} that are read",)
    return (*known.lacks, *filter(None, holds), *(beyond if more > 0 else ()))


def _list_selecting(
    known: KnownSchedules, rollout: GatedRollout
) -> Iterator[tuple[ScheduleObject, str]]:
    """Yield the schedules that may select a Rollout, with why that is not known."""
    for schedule in known.schedules:
        unknown = _explain_unknown(schedule, known, rollout)
        is_selected = bool(unknown) or selects(schedule, rollout, known.namespaces, known.compat)
        if is_selected and not schedule.head.is_terminating:
            yield schedule, unknown


def _group_gates(gates: Iterable[ReleaseGate]) -> Mapping[str, list[ReleaseGate]]:
    """Return gates by the UID of their controller and by the name of the schedule that they say.

    Thousands of gates may name one Rollout: each schedule looks at few of them.
    """
    groups: dict[str, list[ReleaseGate]] = defaultdict(list)
    for gate in gates:
        origin = gate.origin
        keys = {origin.labels.get(SCHEDULE_NAME, "")}
        if origin.controller is not None:
            keys.add(origin.controller.uid)
        for key in keys:
            groups[key].append(gate)
    return groups


def _list_own(
    schedule: ScheduleObject, kept: Mapping[str, list[ReleaseGate]]
) -> Iterator[ReleaseGate]:
    for key in (schedule.head.uid, _label_name(schedule.head.name)):
        yield from (gate for gate in kept.get(key, ()) if _is_own(schedule, gate))


def _explain(
    schedule: ScheduleObject, unknown: str, gates: Iterable[ReleaseGate], read: _ReadSchedule
) -> str:
    own = list(gates)
    if any(not gate.is_passing for gate in own):
        return ""  # the gate says it
    reading = read(schedule)
    if reading.is_open or (reading.problem and own):
        return ""  # where it cannot be read, the gate stays as it was
    name = f"{schedule.kind} {schedule.head.key}"
    if not own and (problem := unknown or reading.problem):
        return f"{name}: {problem.removeprefix(f'{name}: ')}; it has no gate here"
    return f"{name} is closed, and its gate does not say so yet"


def _explain_unknown(schedule: ScheduleObject, known: KnownSchedules, rollout: GatedRollout) -> str:
    """Return why it is not known whether a schedule concerns a Rollout; empty where it is."""
    own, spaces, selector = schedule.head.namespace, schedule.namespaces, schedule.rollouts
    if own and own != rollout.namespace:
        return ""
    if selector is None:
        return schedule.problem
    has_selected = (
        not own and spaces not in (None, LabelSelector()) and selector.takes(rollout.labels)
    )
    is_known = rollout.namespace in known.namespaces
    return known.namespaces_lack if has_selected and not is_known else ""


def read_schedule(
    schedule: ScheduleObject, now: datetime, load: LoadZone, compat: ReleaseCompat = OURS
) -> ScheduleReading:
    zone, problem = _find_zone(schedule, load)
    if zone is None or schedule.schedule is None:
        return ScheduleReading(is_open=not problem, problem=problem)
    return ScheduleReading(is_open=is_open(schedule.schedule, zone, now, compat))


def render_schedule_status(
    snapshot: ScheduleSnapshot, plan: SchedulePlan, failed: Mapping[str, str]
) -> ScheduleStatus:
    """Return the status of a schedule whose plan was carried out (REL-100).

    `failed` are errors by namespace and name of a gate. An invalid schedule keeps what it said.
    """
    schedule = snapshot.schedule
    before, state = schedule.status, plan.state
    return ScheduleStatus(
        observed_generation=schedule.head.generation,
        active=before.active if state is None else state.is_active,
        active_rules=before.active_rules if state is None else _list_rules(state),
        next_transition=None if state is None else state.next_transition,
        managed_gates=tuple(_list_gates(snapshot, plan, failed)),
        matching_rollouts=plan.matching,
        conditions=stamp_conditions(
            [_assess_ready(plan, failed)],
            before.conditions,
            types={READY},
            generation=schedule.head.generation,
            now=snapshot.now,
        ),
    )


def choose_schedule_events(
    before: ScheduleStatus, after: ScheduleStatus
) -> tuple[ReleaseEvent, ...]:
    events: list[ReleaseEvent] = []
    if before.active is not after.active:
        rules = f": {join_names(after.active_rules)}" if after.active_rules else ""
        reason = _ACTIVATED if after.active else _DEACTIVATED
        note = f"the schedule is active{rules}" if after.active else "the schedule is not active"
        events.append(ReleaseEvent(reason=reason, note=note))
    problem = _find_problem(after)
    if problem is not None and problem != _find_problem(before):
        reason, note = problem
        events.append(ReleaseEvent(reason=reason, note=note, severity=Severity.WARN))
    return tuple(events)


def describe_refusal(status: ScheduleStatus) -> str:
    """Return why the operator cannot obey a schedule; empty where it can."""
    reason, text = _find_problem(status) or ("", "")
    return text if reason == INVALID else ""


def _find_problem(status: ScheduleStatus) -> tuple[str, str] | None:
    ready = next((condition for condition in status.conditions if condition.type == READY), None)
    if ready is None or ready.status == "True":
        return None
    return ready.reason, ready.message


def _assess_ready(plan: SchedulePlan, failed: Mapping[str, str]) -> ConditionFinding:
    if plan.problem:
        text = f"{plan.problem}; gates stay as they are, and new gates do not pass"
        return ConditionFinding(READY, False, INVALID, text)
    if failed:
        texts = [f"{key}: {error}" for key, error in sorted(failed.items())[:_MOST_ERRORS]]
        text = f"{len(failed)} not written: {join_names(texts)}"
        return ConditionFinding(READY, False, NOT_WRITTEN, text)
    return ConditionFinding(READY, True, IN_SYNC, "the gates are as they should be")


def _list_rules(state: ScheduleState) -> tuple[str, ...]:
    return keep_first([name[:_LONGEST_RULE] for name in state.active_rules], _MOST_OF_RULES)


def _list_gates(
    snapshot: ScheduleSnapshot, plan: SchedulePlan, failed: Mapping[str, str]
) -> list[str]:
    """Return the gates that are there now; in one namespace by their names alone."""
    made = {action.wanted.key for action in plan.actions if isinstance(action, CreateGate)}
    gone = {action.head.key for action in plan.actions if isinstance(action, DeleteGate)}
    keys = sorted({*plan.kept, *(made - failed.keys()), *(gone & failed.keys())})[:MOST_LISTED]
    is_cluster = snapshot.schedule.kind == CLUSTER_SCHEDULE
    return keys if is_cluster else [key.partition("/")[2] for key in keys]
