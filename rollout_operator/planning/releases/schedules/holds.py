"""What schedules say against a new version that no gate of theirs says.

A gate is written a moment after its schedule is made, is changed, or closes by the clock. With many
gates that takes minutes, and where the API server refuses them they never come. So a Rollout obeys
the schedules themselves, and their gates as well: a version waits for whichever is closed.

An invalid schedule opens nothing, as everywhere: where it has a gate, that decides, and where it
has none, versions wait. So does a schedule of which nothing known says that it selects no Rollout.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import SCHEDULE_NAME
from rollout_operator.model.releases.rollout import OURS, ReleaseCompat, ReleaseGate
from rollout_operator.model.releases.schedule import GatedRollout, ScheduleObject
from rollout_operator.planning.releases.schedules.gates import is_own, label_name, selects
from rollout_operator.planning.releases.schedules.hours import LoadZone, get_time_zone, is_open
from rollout_operator.planning.wording import count

# That may select one Rollout. Each pass looks at all of them, and an account that may create
# schedules could have thousands.
MOST_SCHEDULES: Final = 100


class ScheduleReading(NamedTuple):
    """What a schedule says of a moment."""

    is_open: bool
    problem: str = ""
    """Why it is invalid: then it opens nothing."""


ReadSchedule = Callable[[ScheduleObject], ScheduleReading]
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
    known: KnownSchedules, rollout: GatedRollout, gates: Iterable[ReleaseGate], read: ReadSchedule
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
    for key in (schedule.head.uid, label_name(schedule.head.name)):
        yield from (gate for gate in kept.get(key, ()) if is_own(schedule, gate))


def _explain(
    schedule: ScheduleObject, unknown: str, gates: Iterable[ReleaseGate], read: ReadSchedule
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
    """Return what a schedule says now. `load` reads the time zone of a name."""
    if schedule.problem or schedule.schedule is None:
        return ScheduleReading(is_open=not schedule.problem, problem=schedule.problem)
    try:
        zone = get_time_zone(schedule.schedule.time_zone, load)
    except InvalidInput as error:
        return ScheduleReading(is_open=False, problem=str(error))
    return ScheduleReading(is_open=is_open(schedule.schedule, zone, now, compat))
