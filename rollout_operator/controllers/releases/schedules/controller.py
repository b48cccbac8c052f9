"""Bring the gates of one schedule to the state that its hours want now.

Gates first, each by itself and many at a time; then one status, which says how that went, and an
Event where it says something new. The plan is decided in `planning.releases.schedules`; a pass that
finds nothing to do writes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from rollout_operator.aio.tasks import gather_all
from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.schedules.gates import OWN_WRITES_LAST, KeptGates
from rollout_operator.controllers.releases.schedules.observe import ScheduleObserver
from rollout_operator.controllers.retries import RECHECK, Attempts, Reconciles
from rollout_operator.controllers.worker import Result
from rollout_operator.kube.api import Resource
from rollout_operator.model.errors import ApiError, Conflict, DecodeError, NotFound, Throttled
from rollout_operator.model.event import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.releases.plan import ReleaseEvent
from rollout_operator.model.releases.schedule import (
    CorrectGate,
    CreateGate,
    DeleteGate,
    GateAction,
    ScheduleObject,
    ScheduleState,
)
from rollout_operator.planning.releases.schedules.gates import plan_schedule
from rollout_operator.planning.releases.schedules.status import (
    choose_schedule_events,
    render_schedule_status,
)
from rollout_operator.telemetry.logs import log

# Every schedule is reconciled this often when nothing happens.
RESYNC: Final = timedelta(minutes=5)
# Many gates take minutes, and their wanted state may have changed by then: it is decided anew.
PASS_LIMIT: Final = timedelta(seconds=5)
# Gates that are written at a time: as many as Rollouts are recorded at a time, which wait for the
# same requests a second, so that these do not leave them a fraction.
_AT_A_TIME: Final = 16
# A gate that another client wrote meanwhile is tried again so often before the status says so.
_MOST_CONFLICTS: Final = 3


class ScheduleContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a ScheduleController works with."""

    resource: Resource
    newest: NewestObjects[WatchedObject]
    """Schedules, with what this process wrote."""
    statuses: StatusWriter[WatchedObject]
    observer: ScheduleObserver
    gates: KeptGates
    attempts: Attempts
    report: Callable[[WatchedObject, Iterable[ReleaseEvent]], None]


class _Written(msgspec.Struct):
    """The outcome of the writes of one pass; errors by namespace and name of a gate."""

    tried: list[GateAction] = []
    failed: dict[str, str] = {}
    conflicts: dict[str, str] = {}


class ScheduleController:
    """Reconciles the schedules of one namespace, or those of the cluster, by name."""

    def __init__(self, context: ScheduleContext) -> None:
        self._context = context
        self._reconciles = Reconciles(
            kind="Schedule",
            attempts=context.attempts,
            once=self._observe_and_act,
            name_keys=lambda name: {"schedule": name},
        )

    async def reconcile(self, name: str) -> Result:
        """Reconcile a schedule once, do what is due, and return when to reconcile again."""
        return await self._reconciles.reconcile(name)

    async def _observe_and_act(self, name: str) -> timedelta | None:
        """Return when to reconcile again. Raises ApiError and DecodeError."""
        context = self._context
        watched = await context.newest.settle(context.resource, name)
        if watched is None:
            self._forget(name)
            return None
        if lack := context.observer.kinds.find_lack():
            log.debug("Schedule waits", schedule=name, why=lack)
            return RECHECK
        if not isinstance(watched, WatchedObject) or not isinstance(
            watched.decoded, ScheduleObject
        ):
            return RESYNC  # what cannot be read is on record in the log
        if watched.decoded.head.is_terminating:
            return None
        return await self._decide(watched, watched.decoded)

    async def _decide(self, watched: WatchedObject, schedule: ScheduleObject) -> timedelta:
        """Plan, carry the plan out on the gates, and write the status."""
        context, attempt = self._context, ("gates", watched.name)
        snapshot = context.observer.observe(schedule)
        plan = plan_schedule(snapshot, ZoneInfo)
        written = await self._carry_out(
            plan.actions, lambda: self._still_holds(schedule, plan.state)
        )
        conflicts, problems = written.conflicts, {**written.conflicts, **written.failed}
        if conflicts and context.attempts.count(attempt) < _MOST_CONFLICTS:
            return context.attempts.record_failure(attempt, next(iter(conflicts.values())))
        is_done = len(written.tried) == len(plan.actions)
        plan = msgspec.structs.replace(plan, actions=tuple(written.tried))
        status = render_schedule_status(snapshot, plan, problems)
        # Many gates share one write of the status; changes that people wait for are written at
        # once.
        if status != schedule.status and (is_done or status.active is not schedule.status.active):
            await context.statuses.write(watched, status)
            context.report(watched, choose_schedule_events(schedule.status, status))
        unfinished = timedelta(0) if written.tried else RECHECK
        again = min(plan.requeue_after or RESYNC, RESYNC) if is_done else unfinished
        if problems:
            again = min(context.attempts.record_failure(attempt, "; ".join(problems)), again)
            return again if is_done else max(again, RECHECK)
        context.attempts.record_success(attempt)
        # Once more when all caches show what was written, or that it is gone.
        return min(again, OWN_WRITES_LAST) if plan.actions else again

    def _still_holds(self, schedule: ScheduleObject, state: ScheduleState | None) -> bool:
        """Return whether the schedule is unchanged, and its next transition has not come."""
        newest, head = self._context.newest.get(schedule.head.name), schedule.head
        if not isinstance(newest, WatchedObject) or not isinstance(newest.decoded, ScheduleObject):
            return False
        now = newest.decoded.head
        is_same = (now.uid, now.generation, now.is_terminating) == (
            head.uid,
            head.generation,
            False,
        )
        end = None if state is None else state.next_transition
        return is_same and (end is None or self._context.observer.now() < end)

    async def _carry_out(
        self, actions: Sequence[GateAction], still_holds: Callable[[], bool]
    ) -> _Written:
        """Write gates for as long as the plan is not too old."""
        written, now = _Written(), self._context.observer.now
        begin, turns = now(), iter(actions)

        async def write_in_turn() -> None:
            for action in turns:
                if now() - begin >= PASS_LIMIT:
                    return
                if not await self._write(action, still_holds, written):
                    return

        await gather_all(write_in_turn() for _ in actions[:_AT_A_TIME])
        return written

    async def _write(
        self, action: GateAction, still_holds: Callable[[], bool], written: _Written
    ) -> bool:
        """Write one gate; return whether that was sent."""
        key = _get_key(action)
        try:
            if not await self._context.gates.carry_out(action, still_holds):
                return False
        except Throttled as error:  # it says nothing of the gate
            log.debug("Gate waits", gate=key, err=error)
            return False
        except (Conflict, NotFound) as error:
            log.debug("Gate has changed meanwhile", gate=key, err=error)
            written.conflicts[key] = str(error)
        except (ApiError, DecodeError) as error:
            log.warn("Gate not written", gate=key, err=error)
            written.failed[key] = str(error)
        written.tried.append(action)
        return True

    def _forget(self, name: str) -> None:
        self._context.newest.forget(name)
        self._context.attempts.record_success(("gates", name))


def _get_key(action: GateAction) -> str:
    match action:
        case CreateGate(wanted=wanted):
            return wanted.key
        case CorrectGate(head=head) | DeleteGate(head=head):
            return head.key


def report_schedule(
    record: Callable[[EventRecord], None], watched: WatchedObject, events: Iterable[ReleaseEvent]
) -> None:
    """Have Events written soon; `record` takes them. A schedule of the cluster has no namespace."""
    kind = EventKind.SCHEDULE if watched.namespace else EventKind.CLUSTER_SCHEDULE
    about = Regarding(kind, watched.namespace, watched.name, watched.uid)
    for event in events:
        record(event.record(about, EventAction.RELEASE))
