"""Gates and schedules of releases as every outlet shows them: open or closed, and until when."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from rollout_operator.model import names
from rollout_operator.model.described.releases import GateDescription, ScheduleDescription
from rollout_operator.model.releases.rollout import ReleaseGate, ReleaseHead
from rollout_operator.model.releases.schedule import SCHEDULE, ScheduleAction, ScheduleObject
from rollout_operator.model.releases.status import GateSummary
from rollout_operator.planning.conditions import describe_conditions
from rollout_operator.planning.description.times import choose_fit, render_time
from rollout_operator.planning.releases.conditions import READY
from rollout_operator.planning.releases.gates import list_gates
from rollout_operator.planning.releases.schedules.hours import HORIZON
from rollout_operator.planning.releases.schedules.status import IN_SYNC, INVALID, NOT_WRITTEN
from rollout_operator.planning.wording import cut, join_names

MOST_TAGS: Final = 20
MOST_GATES: Final = 50


def describe_gates(
    head: ReleaseHead,
    summaries: Iterable[GateSummary],
    gates: Iterable[ReleaseGate],
    schedules: Iterable[ScheduleObject],
) -> Iterator[GateDescription]:
    """Yield what the status of a Rollout says of its gates, with the schedules behind them."""
    by_name = {gate.head.name: gate for gate in list_gates(head, gates)}
    by_title = {name_schedule(each): each for each in schedules}
    for summary in summaries:
        schedule = name_owner(by_name[summary.name]) if summary.name in by_name else ""
        owner = describe_schedule(by_title[schedule]) if schedule in by_title else None
        is_closed = owner is not None and summary.passing is False
        allowed = summary.allowed_versions
        yield GateDescription(
            name=summary.name,
            is_passing=summary.passing is not False,
            text=cut(summary.message or ""),
            allowed=None if allowed is None else tuple(map(cut, allowed[:MOST_TAGS])),
            schedule=cut(schedule),
            schedule_problem=_explain_fault(owner) if owner is not None and is_closed else "",
            opens=_find_opening(owner) if owner is not None and is_closed else None,
        )


def name_owner(gate: ReleaseGate) -> str:
    """Return the schedule that keeps a gate, as it says itself; empty where none does."""
    labels, controller = gate.origin.labels, gate.origin.controller
    kind, name = labels.get(names.SCHEDULE_KIND, ""), labels.get(names.SCHEDULE_NAME, "")
    if controller is not None:
        kind, name = controller.kind, controller.name
    if not kind or not name:
        return ""
    return _name(kind, gate.head.namespace if kind == SCHEDULE else "", name)


def name_schedule(schedule: ScheduleObject) -> str:
    """Return its kind, its namespace where it has one, and its name."""
    return _name(schedule.kind, schedule.head.namespace, schedule.head.name)


def order_schedules(schedules: Iterable[ScheduleObject]) -> tuple[ScheduleObject, ...]:
    """Return schedules by name, those of the cluster last."""
    return tuple(sorted(schedules, key=lambda each: (each.head.namespace == "", each.head.name)))


def describe_schedule(schedule: ScheduleObject) -> ScheduleDescription:
    """Return one schedule, by what its status says."""
    status, ready = (
        schedule.status,
        next((c for c in schedule.status.conditions if c.type == READY), None),
    )
    is_refused = ready is not None and ready.status != "True"
    action = None if schedule.schedule is None else schedule.schedule.action
    is_open = action is not None and status.active == (action is ScheduleAction.ALLOW)
    changes = choose_fit(status.next_transition)
    text = _render_state(schedule, is_open=is_open, changes=changes)
    if schedule.problem or ready is None:
        text = schedule.problem or "no operator has decided on it yet"
    elif is_refused:
        # It holds releases all the same where its gates cannot be written (RELB-42).
        text = f"{text}; {ready.message}" if ready.reason == NOT_WRITTEN else ready.message
    return ScheduleDescription(
        kind=schedule.kind,
        name=schedule.head.name,
        namespace=schedule.head.namespace,
        is_open=is_open,
        text=cut(text),
        reason="" if ready is None else ready.reason,
        is_active=status.active,
        action="" if action is None else action,
        active_rules=tuple(map(cut, status.active_rules[:MOST_TAGS])),
        changes=changes,
        time_zone="" if schedule.schedule is None else cut(schedule.schedule.time_zone),
        rollouts=status.matching_rollouts,
        gates=status.managed_gates[:MOST_GATES],
        conditions=tuple(describe_conditions(status.conditions)),
    )


def _name(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {f'{namespace}/' if namespace else ''}{name}"


def _render_state(schedule: ScheduleObject, *, is_open: bool, changes: datetime | None) -> str:
    state = "open" if is_open else "closed"
    rules = (
        f" by {join_names(schedule.status.active_rules)}" if schedule.status.active_rules else ""
    )
    until = "" if changes is None else f", until {render_time(changes)}"
    return f"{state}{rules}{until}"


def _find_opening(schedule: ScheduleDescription) -> datetime | None:
    """Return when the gates of a schedule open that are closed now."""
    return None if schedule.is_open or _is_refused(schedule) else schedule.changes


def _explain_fault(schedule: ScheduleDescription) -> str:
    """Return why a schedule opens its gates at no time that is known; empty where it does."""
    if _is_refused(schedule):
        return schedule.text
    is_shut = not schedule.is_open and schedule.reason == IN_SYNC and schedule.changes is None
    return f"its rules do not change that within {HORIZON.days} days" if is_shut else ""


def _is_refused(schedule: ScheduleDescription) -> bool:
    return schedule.reason == INVALID
