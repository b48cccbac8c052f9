"""Bring one Rollout nearer to its wanted release, and report what happens to it.

A pass writes one status, and before anything else: a deployment is on record before an object of
Flux has its tag, so that no process ever deploys twice or forgets what it began. Only a
trial, which stores nothing, comes before that. What is due, and what is worth an Event, a log line
and a count, is decided in `planning.releases`; a pass that finds nothing to do writes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.flux import FluxObjects
from rollout_operator.controllers.releases.observe import ReleaseObserver
from rollout_operator.controllers.retries import RECHECK, Attempts, Reconciles
from rollout_operator.controllers.worker import Result
from rollout_operator.kube.api import JsonObject, TimedPatcher
from rollout_operator.kube.release_kinds import ROLLOUTS
from rollout_operator.model.errors import (
    ApiError,
    DecodeError,
    Denied,
    Refused,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.event import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.flux import FluxWrite, FluxWriteCode
from rollout_operator.model.releases.plan import (
    ApplyTag,
    Correction,
    FluxTarget,
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
    RequestReconcile,
)
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.planning.releases.contests import list_drifted, remember
from rollout_operator.planning.releases.flux import plan_due_writes
from rollout_operator.planning.releases.plan import plan_release
from rollout_operator.planning.wording import camel_case, join_names
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.releases import ReleaseCounters

BAD_ANNOTATION = "InvalidAnnotation"
DRIFT_CORRECTED: Final = "DriftCorrected"
_VALUES: Final = frozenset(
    {FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN}
)
_OVER_OTHERS: Final = frozenset({FluxWriteCode.VALUE_TAKEN, FluxWriteCode.CHOICE_CLEARED})

# Every Rollout is reconciled this often when nothing happens.
RESYNC: Final = timedelta(minutes=1)


class ReleaseReports:
    """Reports what happens to the Rollouts of one namespace."""

    def __init__(self, record: Callable[[EventRecord], None], counters: ReleaseCounters) -> None:
        """`record` has an Event written soon."""
        self._record = record
        self._counters = counters
        self._problems: dict[str, frozenset[str]] = {}

    def on_plan(self, watched: WatchedObject, events: Iterable[ReleaseEvent]) -> None:
        """Report a plan that was recorded in the status."""
        for event in events:
            self._report(watched, event)

    def on_status(self, name: str, before: ReleaseStatus, after: ReleaseStatus) -> None:
        """Count what is new in a status that replaces the known one."""
        self._counters.record(name, before, after)

    def on_write(self, watched: WatchedObject, write: FluxWrite, *, is_drift: bool) -> None:
        """Report a write that put drift right, or went over what another writer had chosen."""
        if is_drift and write.code in _VALUES:
            event = ReleaseEvent(reason=DRIFT_CORRECTED, note=write.text, is_routine=True)
            self._report(watched, event)
        elif write.code in _OVER_OTHERS:
            event = ReleaseEvent(reason=camel_case(write.code), note=write.text, is_routine=True)
            self._record_event(watched, event)

    def on_problems(self, watched: WatchedObject, problems: Iterable[str]) -> None:
        """Report annotations of Flux's objects that cannot be obeyed, each once."""
        before, now = self._problems.get(watched.name, frozenset()), frozenset(problems)
        for text in sorted(now - before):
            event = ReleaseEvent(reason=BAD_ANNOTATION, note=text, severity=Severity.WARN)
            self._report(watched, event)
        self._problems[watched.name] = now

    def forget(self, name: str) -> None:
        """Forget a Rollout that is gone."""
        self._problems.pop(name, None)
        self._counters.forget(name)

    def _report(self, watched: WatchedObject, event: ReleaseEvent) -> None:
        emit = log.at(event.severity)
        emit("Rollout reports", rollout=watched.name, reason=event.reason, why=event.note)
        self._record_event(watched, event)

    def _record_event(self, watched: WatchedObject, event: ReleaseEvent) -> None:
        about = Regarding(EventKind.RELEASE, watched.namespace, watched.name, watched.uid)
        self._record(event.record(about, EventAction.RELEASE))


class ReleaseContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a ReleaseController works with."""

    newest: NewestObjects[WatchedObject]
    """Rollouts, with what this process wrote."""
    statuses: StatusWriter[WatchedObject]
    observer: ReleaseObserver
    flux: FluxObjects
    patcher: TimedPatcher
    attempts: Attempts
    reports: ReleaseReports


class ReleaseController:
    """Reconciles the Rollouts of one namespace by name."""

    def __init__(self, context: ReleaseContext) -> None:
        self._context = context
        self._reconciles = Reconciles(
            kind="Rollout",
            attempts=context.attempts,
            once=self._observe_and_act,
            name_keys=lambda name: {"rollout": name},
        )
        self._write_problems: dict[str, str] = {}
        self._corrections: dict[str, tuple[Correction, ...]] = {}

    async def reconcile(self, name: str) -> Result:
        """Reconcile a Rollout once, do what is due, and return when to reconcile again."""
        return await self._reconciles.reconcile(name)

    def get_error(self, name: str) -> str:
        """Return why a Rollout could not be reconciled last; empty where it could."""
        return self._reconciles.get_error(name)

    async def _observe_and_act(self, name: str) -> timedelta | None:
        """Return when to reconcile again. Raises ApiError and DecodeError."""
        context = self._context
        watched = await context.newest.settle(ROLLOUTS, name)
        if watched is None:
            self._forget(name)
            return None
        if lack := context.observer.find_lack():
            log.debug("Rollout waits", rollout=name, why=lack)
            return RECHECK
        if not isinstance(watched, WatchedObject):
            return RESYNC  # what cannot be read is on record in the log
        rollout = watched.decoded
        if not isinstance(rollout, ReleaseRollout | RefusedRelease) or rollout.head.is_terminating:
            return None
        return await self._decide(watched, rollout)

    async def _decide(
        self, watched: WatchedObject, rollout: ReleaseRollout | RefusedRelease
    ) -> timedelta:
        """Plan, record the plan, and carry it out."""
        context, name = self._context, watched.name
        snapshot, plan = await self._plan(rollout)
        refused: Mapping[str, str] = {}
        has_turn = bool(plan.tag)
        if plan.tag and isinstance(rollout, ReleaseRollout):
            # A trial and the turn of a write take seconds, in which gates and schedules close: what
            # is recorded is decided after both.
            refused = {plan.tag: await self._try_writes(rollout, plan)}
            await context.patcher.wait_turn_to_patch(ROLLOUTS, watched.namespace, name)
            snapshot, plan = await self._plan(rollout, refused)
            if plan.tag not in {"", *refused}:
                return timedelta(0)
        if context.newest.get(name) is not watched:
            return timedelta(0)  # it has changed while something was waited for
        if plan.status != rollout.status:
            watched = await context.statuses.write(watched, plan.status, has_turn=has_turn)
        context.reports.on_status(name, rollout.status, plan.status)
        context.reports.on_plan(watched, plan.events)
        failed: Collection[tuple[str, str]] = ()
        if isinstance(rollout, ReleaseRollout):
            failed = await self._carry_out(watched, rollout, plan)
        self._remember(name, remember(snapshot.corrections, plan, snapshot.now, failed))
        again = min(plan.requeue_after or RESYNC, RESYNC)
        if isinstance(rollout, ReleaseRollout):
            # An image policy of another namespace is not followed: it is read each time.
            again = min(again, rollout.spec.update_interval)
        # An object that the plan lacks wakes this Rollout as it comes; a refused write is repeated.
        if problem := "".join(refused.values()) or self._write_problems.get(name):
            return min(context.attempts.record_failure(("tags", name), problem), again)
        context.attempts.record_success(("tags", name))
        return again

    async def _plan(
        self,
        rollout: ReleaseRollout | RefusedRelease,
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[ReleaseSnapshot, ReleasePlan]:
        """Return the plan of now, and what it rests on; `refused`: why Flux takes no such tag."""
        name = rollout.head.name
        snapshot = await self._context.observer.observe(rollout, self._write_problems.get(name, ""))
        corrections = self._corrections.get(name, ())
        snapshot = msgspec.structs.replace(snapshot, corrections=corrections, refused=refused)
        return snapshot, plan_release(snapshot)

    async def _carry_out(
        self, watched: WatchedObject, rollout: ReleaseRollout, plan: ReleasePlan
    ) -> Collection[tuple[str, str]]:
        """Return kind and name of the objects that could not be written."""
        context = self._context
        due = plan_due_writes(rollout, plan, context.flux.get_flux(watched.name))
        context.reports.on_problems(watched, due.problems)
        failed = await self._write_tags(watched, due.writes, frozenset(list_drifted(plan)))
        for action in plan.actions:
            match action:
                case RemoveIntents():
                    await self._remove(watched, action)
                case RequestReconcile(target=target):
                    await self._request(watched.name, target)
                case ApplyTag():
                    pass  # it is among the writes
        return failed

    async def _try_writes(self, rollout: ReleaseRollout, plan: ReleasePlan) -> str:
        """Return why an object would not take a new tag; empty where all of them would.

        Raises ApiError where nothing was sent, or an object has changed meanwhile.
        """
        flux = self._context.flux
        for write in plan_due_writes(rollout, plan, flux.get_flux(rollout.head.name)).writes:
            try:
                await flux.try_write(write)
            except (Refused, Denied, UnknownOutcome, Unreachable) as error:
                log.warn(
                    "Object of Flux would not be written", rollout=rollout.head.name, err=error
                )
                return str(error)
        return ""

    async def _write_tags(
        self,
        watched: WatchedObject,
        writes: Iterable[FluxWrite],
        drifted: frozenset[tuple[str, str]],
    ) -> Collection[tuple[str, str]]:
        """Carry out due writes, and return kind and name of the objects that could not be written.

        `drifted` are kinds and names of objects that had another tag than they should. One of these
        that cannot be written holds no other up, but a deployment stops there.
        """
        problems: dict[tuple[str, str], str] = {}
        for write in writes:
            place = (write.kind, write.head.name)
            # A later write to the same object rests on the earlier write.
            if place in problems:
                continue
            if not drifted.issuperset(problems):
                break
            try:
                await self._context.flux.write(write)
            except (ApiError, DecodeError) as error:
                problems[place] = str(error)
                log.warn("Object of Flux not written", rollout=watched.name, err=error)
            else:
                self._context.reports.on_write(watched, write, is_drift=place in drifted)
        if problems:
            self._write_problems[watched.name] = join_names([*problems.values()])
        else:
            self._write_problems.pop(watched.name, None)
        return problems

    async def _request(self, name: str, target: FluxTarget) -> None:
        """Have Flux reconcile now; where that fails, it does so at its own interval."""
        try:
            await self._context.flux.request(target, self._context.observer.now())
        except ApiError as error:
            log.warn("Flux does not hurry", rollout=name, target=target.name, err=error)

    async def _remove(self, watched: WatchedObject, action: RemoveIntents) -> None:
        """Remove annotations that had their effect, in this very version of the Rollout.

        A JSON patch that tests their values would fail for many texts that people write: the API
        server compares them as they are written, and its JSON escapes other characters than ours.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        gone: JsonObject = {intent.annotation: None for intent in action.intents}
        patch: JsonObject = {"metadata": {**head, "annotations": gone}}
        try:
            body = await self._context.patcher.patch(
                ROLLOUTS, watched.namespace, watched.name, patch
            )
        except ApiError:
            self._context.newest.doubt(watched.name)
            raise
        self._context.newest.record(body)

    def _remember(self, name: str, corrections: tuple[Correction, ...]) -> None:
        if corrections:
            self._corrections[name] = corrections
        else:
            self._corrections.pop(name, None)

    def _forget(self, name: str) -> None:
        context = self._context
        self._corrections.pop(name, None)
        self._write_problems.pop(name, None)
        context.newest.forget(name)
        context.reports.forget(name)
        context.attempts.record_success(("tags", name))
        if context.observer.look_ups is not None:
            context.observer.look_ups.forget(name)
