"""What a schedule says of itself once its gates were written, and what of that is an event."""

from collections.abc import Iterator, Mapping
from typing import Final

from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.plan import ReleaseEvent
from rollout_operator.model.releases.schedule import (
    CLUSTER_SCHEDULE,
    CreateGate,
    DeleteGate,
    SchedulePlan,
    ScheduleSnapshot,
    ScheduleState,
    ScheduleStatus,
)
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions
from rollout_operator.planning.releases.bounds import keep_first
from rollout_operator.planning.wording import join_names

READY: Final = "Ready"
IN_SYNC: Final = "GatesInSync"
INVALID: Final = "InvalidSchedule"
NOT_WRITTEN: Final = "GatesNotWritten"
ACTIVATED: Final = "ScheduleActivated"
DEACTIVATED: Final = "ScheduleDeactivated"

# An object has room for some ten thousand names; `matchingRollouts` still has the number.
MOST_LISTED: Final = 1000
# Bytes for the names of rules, of which there may be any number, and of any length.
_MOST_OF_RULES: Final = 64 * 1024
_LONGEST_RULE: Final = 1024
_MOST_ERRORS: Final = 3


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
    """Return what has changed (RELB-31 (f) and (m))."""
    events: list[ReleaseEvent] = []
    if before.active is not after.active:
        rules = f": {join_names(after.active_rules)}" if after.active_rules else ""
        reason = ACTIVATED if after.active else DEACTIVATED
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
    """Return the rules that match now, the first of very many."""
    return keep_first([name[:_LONGEST_RULE] for name in state.active_rules], _MOST_OF_RULES)


def _list_gates(
    snapshot: ScheduleSnapshot, plan: SchedulePlan, failed: Mapping[str, str]
) -> list[str]:
    """Return the gates that are there now; in one namespace by their names alone."""
    made = {action.wanted.key for action in plan.actions if isinstance(action, CreateGate)}
    gone = {action.head.key for action in plan.actions if isinstance(action, DeleteGate)}
    keys = sorted({*plan.kept, *(made - failed.keys()), *(gone & failed.keys())})[:MOST_LISTED]
    is_cluster = snapshot.schedule.kind == CLUSTER_SCHEDULE
    return keys if is_cluster else [*_cut_namespaces(keys)]


def _cut_namespaces(keys: list[str]) -> Iterator[str]:
    return (key.partition("/")[2] for key in keys)
