"""Bring the StatefulSets of a MultiAZRollout nearer to its update revision, batch by batch.

A batch is recorded in the status of its policy before a pod of it is deleted, so that no process
repeats a batch or shortens the pause that follows. `planning.policies` decides which pods may go;
the executor deletes them after a live read, under the budgets and locks of all others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.policy_zones import Owners, Placements, PolicyRecord, PolicyRule
from rollout_operator.controllers.rollout import RECHECK_WAIT, StepOutcome, Steps
from rollout_operator.controllers.worker import (
    Attempts,
    NewestObjects,
    Reconciles,
    Result,
    StatusWriter,
    get_retry_after,
    name_attempt,
)
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, STATEFULSETS, JsonObject, Patcher, Reader
from rollout_operator.kube.store import PolicyStore
from rollout_operator.model.budget import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.names import ON_DELETE, ApiError, Conflict, GroupName
from rollout_operator.model.objects import Group, StatefulSet
from rollout_operator.model.outcome import (
    Action,
    Code,
    Reason,
    RecordRevision,
    Replacement,
    Severity,
)
from rollout_operator.model.policy import (
    Policy,
    PolicyEvent,
    PolicyPlan,
    PolicyScope,
    PolicyStatus,
    RefusedPolicy,
    WatchedPolicy,
)
from rollout_operator.planning.conditions import list_blocking, parse_time
from rollout_operator.planning.events import (
    Choice,
    ReportedGroup,
    choose_delete_events,
    choose_revision_events,
    choose_zone_events,
)
from rollout_operator.planning.policies import list_switchable, plan_policy
from rollout_operator.planning.policy_status import (
    choose_policy_events,
    find_batch,
    find_begun,
    find_ended,
    find_initial,
    is_urgent,
    list_dropped,
    list_overridden,
    render_policy_status,
    render_refused_status,
)
from rollout_operator.planning.wording import join_names
from rollout_operator.telemetry.extra import PolicyMetrics
from rollout_operator.telemetry.logs import log

# Every policy is reconciled this often when nothing happens.
RESYNC: Final = timedelta(seconds=60)
# Between two writes of a status that may wait: a replaced pod brings several events at once.
WRITE_PAUSE: Final = timedelta(seconds=1)


@dataclass(slots=True)
class PolicyReports:
    """Writes Events and metrics about the policies of one namespace, their sets and pods."""

    record: Callable[[EventRecord], None]
    metrics: PolicyMetrics
    clock: Clock
    _zones: dict[str, str] = field(default_factory=dict, init=False)
    """By policy, the zone of its last batch."""
    _groups: dict[GroupName, ReportedGroup] = field(default_factory=dict, init=False)
    _overridden: dict[str, tuple[PolicyEvent, ...]] = field(default_factory=dict, init=False)

    def on_status(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        for event in choose_policy_events(watched.status, status):
            self._report(watched, event)
        self._count(watched, status)

    def on_plan(
        self, watched: WatchedPolicy, policy: Policy, group: Group, plan: PolicyPlan
    ) -> None:
        """Report once what a policy in service overrides, and what is rolled out."""
        reported, events = choose_zone_events(self._get_reported(group.name), plan.progress)
        for zone in events:
            names = {"policy": policy.head.key, "statefulset": zone.regarding.name}
            log.info("Zone is rolled out", **names, reason=Code.ROLLED_OUT, why=zone.note)
        self._take(group.name, (reported, events))
        overridden = list_overridden(policy, group)
        for event in overridden:
            if event not in self._overridden.get(watched.name, ()):
                self._report(watched, event)
        self._overridden[watched.name] = overridden

    def on_step(self, group: Group, step: Replacement | RecordRevision) -> None:
        if isinstance(step, Replacement):
            self.metrics.count_delete(group.name, self._zones.get(group.name, ""))
        reported = self._get_reported(group.name)
        match step:
            case Replacement():
                now = self.clock.elapsed()
                self._take(group.name, choose_delete_events(reported, group, step, now))
            case RecordRevision():
                self._take(group.name, choose_revision_events(reported, step))

    def forget(self, name: str) -> None:
        self._groups.pop(GroupName(name), None)
        self._overridden.pop(name, None)
        self._zones.pop(name, None)
        self.metrics.forget(name)

    def _get_reported(self, group: GroupName) -> ReportedGroup:
        return self._groups.get(group, ReportedGroup())

    def _take(self, group: GroupName, choice: Choice) -> None:
        self._groups[group], events = choice
        for event in events:
            self.record(event)

    def _count(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        name, metrics = watched.name, self.metrics
        metrics.show(name, status, list_blocking(status))
        if (completion := parse_time(status.completion_time)) is not None:
            metrics.show_completion(name, completion)
        last = status.last_batch
        if not isinstance(last, UnsetType):
            self._zones[name] = last.zone
        if begun := find_begun(watched.status, status):
            metrics.count_batch(name, begun.zone)
        if ended := find_ended(watched.status, status):
            begin, end = parse_time(ended.start_time), parse_time(ended.completion_time)
            if begin is not None and end is not None:
                metrics.record_duration(name, end - begin)

    def _report(self, watched: WatchedPolicy, event: PolicyEvent) -> None:
        about = Regarding(EventKind.POLICY, watched.namespace, watched.name, watched.uid)
        self.record(event.record(about, EventAction.ROLL_OUT))


class _PolicyClient(Reader, Patcher, Protocol): ...


class PolicyStatuses:
    """The newest known state of each policy of one namespace, and the writes of their statuses."""

    def __init__(
        self, client: _PolicyClient, namespace: str, cached: PolicyStore, clock: Clock
    ) -> None:
        self._namespace, self._cached, self._clock = namespace, cached, clock
        self._newest = NewestObjects(cached.get, namespace, client, decode_watched_policy)
        self._writer = StatusWriter(client, MULTI_AZ_ROLLOUTS, self._newest)
        self._written_at: dict[str, timedelta] = {}
        self._dropped: dict[str, set[str]] = {}

    def get(self, name: str) -> WatchedPolicy | None:
        """Return a policy with its newest status and its cached spec, which ownership rests on."""
        cached = self._cached.get(self._namespace, name)
        if not isinstance(cached, WatchedPolicy):
            return None
        newest = self._newest.choose(cached)
        if isinstance(newest, WatchedPolicy) and newest.policy == cached.policy:
            return newest
        return cached

    def is_behind(self, name: str) -> bool:
        """Return whether the API server has shown a newer spec than the cache."""
        cached = self._cached.get(self._namespace, name)
        return isinstance(cached, WatchedPolicy) and self.get(name) is not self._newest.get(name)

    async def settle(self, name: str) -> WatchedPolicy | None:
        """Return a policy, read back first where a write has no answer.

        Raises what `Reader.fetch` raises, and DecodeError.
        """
        await self._newest.settle(MULTI_AZ_ROLLOUTS, name)
        return self.get(name)

    def wait_before(self, name: str) -> timedelta:
        """Return how long to put off a write that may wait."""
        written_at = self._written_at.get(name)
        if written_at is None:
            return timedelta(0)
        return max(written_at + WRITE_PAUSE - self._clock.elapsed(), timedelta(0))

    async def write(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        """Write a status over the known state. Raises as `StatusWriter.write`."""
        written = await self._writer.write(watched, status)
        self._written_at[watched.name] = self._clock.elapsed()
        self._log_dropped(watched, list_dropped(status, written.status))

    def forget(self, name: str) -> None:
        self._newest.forget(name)
        self._written_at.pop(name, None)
        self._dropped.pop(name, None)

    def _log_dropped(self, watched: WatchedPolicy, dropped: list[str]) -> None:
        logged = self._dropped.setdefault(watched.name, set())
        if not logged.issuperset(dropped):
            logged.update(dropped)
            names = join_names(dropped, shown=len(dropped))
            why = f"the CustomResourceDefinition lacks {names}: apply manifests/crds"
            log.warn("Status of policy is not kept", policy=watched.policy.head.key, why=why)


class Switches:
    """Switches StatefulSets of a policy to OnDelete, where its spec requests it (MAZ-27)."""

    def __init__(self, client: Patcher, attempts: Attempts) -> None:
        self._client, self._attempts = client, attempts

    async def switch(self, policy: Policy, group: Group) -> None:
        """Switch the sets that may be switched, unless that failed lately."""
        if not policy.may_switch_strategy:
            return
        for sts in list_switchable(group):
            attempt = ("switch", sts.uid)
            wait, _ = self._attempts.wait_before(attempt)
            if not wait:
                await self._try(policy, sts, attempt)

    async def _try(self, policy: Policy, sts: StatefulSet, attempt: tuple[str, ...]) -> None:
        key = policy.head.key
        log.info("Switching update strategy", policy=key, statefulset=sts.name, to=ON_DELETE)
        head: JsonObject = {"uid": sts.uid, "resourceVersion": sts.resource_version}
        strategy: JsonObject = {"type": ON_DELETE, "rollingUpdate": None}
        patch: JsonObject = {"metadata": head, "spec": {"updateStrategy": strategy}}
        try:
            await self._client.patch(STATEFULSETS, sts.namespace, sts.name, patch)
        except ApiError as error:
            self._attempts.record_failure(attempt, str(error), at_least=get_retry_after(error))
            write_log = log.debug if isinstance(error, Conflict) else log.warn
            write_log("Update strategy not switched", statefulset=sts.name, err=error)
        else:
            self._attempts.record_success(attempt)


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    watched: WatchedPolicy
    scope: PolicyScope
    before: PolicyRecord


class _Beginning:
    """Records the batch that begins, and keeps the result."""

    def __init__(self, write: Callable[[Group], Awaitable[timedelta]]) -> None:
        self._write = write
        self.again: timedelta | None = None
        """When to reconcile again, once it was recorded."""
        self.error: ApiError | None = None

    async def record(self, live: Group) -> None:
        """Record it by a live read. Raises ApiError, and DecodeError."""
        try:
            self.again = await self._write(live)
        except ApiError as error:
            self.error = error
            raise


@dataclass(slots=True, kw_only=True)
class PolicyController:
    owners: Owners
    statuses: PolicyStatuses
    placements: Placements
    rule: PolicyRule
    steps: Steps
    switches: Switches
    attempts: Attempts
    reports: PolicyReports
    record_left: Callable[[PolicyScope, str], None]
    """Called with the StatefulSet of an open batch that a policy does not own when taken up."""
    now: Callable[[], datetime]
    """The API server's time."""
    _reconciles: Reconciles = field(init=False)
    _waits: dict[str, tuple[Reason, ...]] = field(default_factory=dict, init=False)
    """The reasons of the last plan of each policy."""
    _held: dict[str, list[Reason]] = field(default_factory=dict, init=False)
    """Why the last plan of each policy was not carried out as a whole."""
    _problems: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    _stalled: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._reconciles = Reconciles(
            kind="Policy",
            attempts=self.attempts,
            once=self._observe_and_act,
            name_keys=self._name,
            on_failure=self._back_off,
            recheck=RECHECK_WAIT,
        )

    def get(self, name: str) -> tuple[WatchedPolicy | None, tuple[Reason, ...]]:
        """Return a policy as it was last read or written, and the reasons for which it waits."""
        return self.statuses.get(name), self._waits.get(name, ())

    async def reconcile(self, name: str) -> Result:
        # A refused policy awaits nothing, and a tenant may write hundreds of them.
        await asyncio.sleep(0)
        return await self._reconciles.reconcile(name)

    def _back_off(self, name: str, error: Exception) -> None:
        self._waits[name] = (Reason(Code.BACKING_OFF, f"{error}", Severity.WARN),)

    async def _observe_and_act(self, name: str) -> timedelta | None:
        scope = self.owners.find(name)
        if self.statuses.get(name) is None or scope is None:
            self._forget(name)
            return None
        watched = await self.statuses.settle(name)
        if watched is None or self.statuses.is_behind(name) or self.owners.is_behind(scope):
            return RECHECK_WAIT
        self._log_problems(watched)
        if isinstance(scope, RefusedPolicy):
            self.rule.forget(GroupName(name))
            self._waits.pop(name, None)
            self._held.pop(name, None)
            status = render_refused_status(scope, before=watched.status, now=self.now())
            return await self._write(watched, status)
        return await self._drive(watched, scope)

    async def _drive(self, watched: WatchedPolicy, scope: PolicyScope) -> timedelta:
        name = GroupName(watched.name)
        batch = find_batch(watched.status)
        if batch is not None and batch.completion is None and watched.name not in self._waits:
            self.record_left(scope, batch.set_name)
        group = self.rule.observe(name)
        if step := await self.steps.settle(group):
            self._log_wait(name, step.reasons)
            return step.again
        resolution = await self.placements.resolve(watched, scope.policy, group)
        group = self.rule.observe(name)
        before = PolicyRecord(
            resolution=resolution,
            batch=find_batch(watched.status),
            initial=find_initial(watched.status, group),
        )
        case = _Case(watched=watched, scope=scope, before=before)
        plan = plan_policy(self.rule.snapshot(scope, group, before))
        if plan.action is not None and plan.batch != before.batch:
            return await self._begin(case, group, plan)
        unwritten = await self._record(case, group, plan)
        if plan.leading is not None and plan.leading.code is Code.WRONG_STRATEGY:
            await self.switches.switch(scope.policy, group)
        step = await self._carry_out(group, plan)
        return min(step.again, unwritten)

    async def _begin(self, case: _Case, group: Group, plan: PolicyPlan) -> timedelta:
        """Begin a batch: it is recorded after a live read, and its pods go by that read.

        Two reads in a row would be slow: an API server that answers lists from its cache finds out
        only ten times a second how new that must be.
        """
        beginning = _Beginning(partial(self._record_live, case))
        name = GroupName(case.watched.name)
        with self.rule.beginning(name, case.before, beginning.record):
            step = await self._carry_out(group, plan)
        if beginning.error is not None:
            # No delete was tried: the whole reconcile has failed, and backs off as such.
            self._held.pop(name, None)
            if plan.action is not None:
                self.attempts.record_success(name_attempt(plan.action))
            raise beginning.error
        if beginning.again is None:
            # A budget holds it, or the caches lag. A recorded batch is carried out in any case, so
            # it is chosen by a live read.
            await beginning.record(await self.rule.observe_live(group))
        return min(step.again, beginning.again or RESYNC)

    async def _carry_out(self, group: Group, plan: PolicyPlan) -> StepOutcome:
        actions: list[Action] = [] if plan.action is None else [plan.action]
        step = await self.steps.carry_out(group, [*actions, *plan.records])
        # A reason that the next reconcile settles is not worth a log line or a write.
        held = (reason for reason in step.reasons if reason.severity is not Severity.DEBUG)
        self._held[group.name] = [*held]
        return step

    async def _record_live(self, case: _Case, live: Group) -> timedelta:
        plan = plan_policy(self.rule.snapshot(case.scope, live, case.before))
        return await self._record(case, live, plan)

    async def _record(self, case: _Case, group: Group, plan: PolicyPlan) -> timedelta:
        watched = case.watched
        plan = self._add_held(watched.name, plan)
        self._log_wait(watched.name, plan.waits)
        self._log_stall(watched.name, plan)
        snapshot = self.rule.snapshot(case.scope, group, case.before)
        status = render_policy_status(snapshot, plan, before=watched.status)
        unwritten = await self._write(watched, status)
        self.rule.note(GroupName(watched.name), replace(case.before, batch=plan.batch))
        self.reports.on_plan(watched, case.scope.policy, group, plan)
        return min(plan.requeue_after or RESYNC, unwritten)

    async def _write(self, watched: WatchedPolicy, status: PolicyStatus) -> timedelta:
        """Write a status with news (MAZ-54); return when to do so again. Numbers alone wait."""
        statuses = self.statuses
        if status != watched.status:
            wait = statuses.wait_before(watched.name)
            if wait and not is_urgent(watched.status, status):
                return wait
            await statuses.write(watched, status)
        self.reports.on_status(watched, status)
        return RESYNC

    def _log_problems(self, watched: WatchedPolicy) -> None:
        before = self._problems.pop(watched.name, ())
        if watched.problems:
            self._problems[watched.name] = watched.problems
        if watched.problems and watched.problems != before:
            why = "; ".join(watched.problems)
            log.warn("Status of policy counts as lost", **self._name(watched.name), why=why)

    def _add_held(self, name: str, plan: PolicyPlan) -> PolicyPlan:
        held = self._held.get(name, [])
        if plan.action is not None:
            return replace(plan, waits=(*held, *plan.waits))
        # No pod waits for the record of a finished plan.
        return replace(plan, waits=(*plan.waits, *held)) if plan.records else plan

    def _log_wait(self, name: str, waits: tuple[Reason, ...]) -> None:
        """Log why no pod goes, but not each change of the numbers."""
        before, leading = self._waits.get(name), waits[0] if waits else None
        code = leading.code if leading else None
        is_news = not before or before[0].code is not code
        self._waits[name] = waits
        if leading is not None and is_news:
            why = "; ".join(wait.text for wait in waits)
            write = log.at(leading.severity)
            write("Policy waits", **self._name(name), reason=code, why=why)

    def _log_stall(self, name: str, plan: PolicyPlan) -> None:
        if not plan.is_stalled:
            self._stalled.discard(name)
        elif name not in self._stalled:
            self._stalled.add(name)
            why = "; ".join(wait.text for wait in plan.waits)
            log.warn("Policy has stalled", **self._name(name), why=why)

    def _forget(self, name: str) -> None:
        self._waits.pop(name, None)
        self._held.pop(name, None)
        self._problems.pop(name, None)
        self._stalled.discard(name)
        self.steps.forget(GroupName(name))
        self.rule.forget(GroupName(name))
        self.statuses.forget(name)
        self.reports.forget(name)

    def _name(self, name: str) -> dict[str, object]:
        return {**self.rule.name_keys(GroupName(name))}
