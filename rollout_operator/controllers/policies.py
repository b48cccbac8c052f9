"""Bring the StatefulSets of a MultiAZRollout nearer to its update revision, batch by batch.

A batch is recorded in the status of its policy before a pod of it is deleted, so that no process
repeats a batch or shortens the pause that follows. `planning.policies` decides which pods may go;
the executor deletes them after a live read, under the budgets and locks of all others.

Imported only where policies are switched on.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import AT_ONCE
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature, ReportedGroups
from rollout_operator.controllers.executor import Executor
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.policy_zones import (
    Owners,
    Placements,
    PolicyRecord,
    PolicyRule,
    name_of_policy,
)
from rollout_operator.controllers.rollout import RECHECK_WAIT, StepOutcome, Steps
from rollout_operator.controllers.worker import (
    Attempts,
    Controller,
    NewestObjects,
    Reconciles,
    Result,
    StatusWriter,
    get_retry_after,
    name_attempt,
)
from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.departed import POLICY
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    STATEFULSETS,
    ApiClient,
    JsonObject,
    Patcher,
    Reader,
)
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.kinds import FollowedKind
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import PolicyStore
from rollout_operator.model.budget import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.description import PolicyDescription
from rollout_operator.model.names import (
    ON_DELETE,
    ApiError,
    Conflict,
    Denied,
    GroupName,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import (
    AnyPod,
    AnySet,
    Group,
    LabelSelector,
    OtherRollout,
    StatefulSet,
    Unreadable,
)
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
from rollout_operator.planning.conditions import REASONS, list_blocking, parse_time
from rollout_operator.planning.describe_policies import describe_policy, describe_unreadable_policy
from rollout_operator.planning.events import choose_zone_events
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
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.policies import PolicyMetrics

# Every policy is reconciled this often when nothing happens.
RESYNC: Final = timedelta(seconds=60)
# Between two writes of a status that may wait: a replaced pod brings several events at once.
WRITE_PAUSE: Final = timedelta(seconds=1)


class PolicyReports:
    """Writes Events and metrics about the policies of one namespace, their sets and pods."""

    def __init__(
        self, record: Callable[[EventRecord], None], metrics: PolicyMetrics, clock: Clock
    ) -> None:
        self._record, self._metrics = record, metrics
        self._reported = ReportedGroups(record, clock)
        self._zones: dict[str, str] = {}
        """By policy, the zone of its last batch."""
        self._overridden: dict[str, tuple[PolicyEvent, ...]] = {}

    def on_status(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        for event in choose_policy_events(watched.status, status):
            self._report(watched, event)
        self._count(watched, status)

    def on_plan(
        self, watched: WatchedPolicy, policy: Policy, group: Group, plan: PolicyPlan
    ) -> None:
        """Report once what a policy in service overrides, and what is rolled out."""
        reported, events = choose_zone_events(self._reported.get(group.name), plan.progress)
        for zone in events:
            names = {"policy": policy.head.key, "statefulset": zone.regarding.name}
            log.info("Zone is rolled out", **names, reason=Code.ROLLED_OUT, why=zone.note)
        self._reported.take(group.name, (reported, events))
        overridden = list_overridden(policy, group)
        for event in overridden:
            if event not in self._overridden.get(watched.name, ()):
                self._report(watched, event)
        self._overridden[watched.name] = overridden

    def on_step(self, group: Group, step: Replacement | RecordRevision) -> None:
        if isinstance(step, Replacement):
            self._metrics.count_delete(group.name, self._zones.get(group.name, ""))
        self._reported.on_step(group, step)

    def forget(self, name: str) -> None:
        self._reported.forget(GroupName(name))
        self._overridden.pop(name, None)
        self._zones.pop(name, None)
        self._metrics.forget(name)

    def _count(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        name, metrics = watched.name, self._metrics
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
        self._record(event.record(about, EventAction.ROLL_OUT))


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

    async def read_live(self, name: str) -> WatchedPolicy | None:
        """Return a policy by a live read, None if it is gone.

        Raises what `Reader.fetch` raises, and DecodeError.
        """
        try:
            return await self._newest.read_back(MULTI_AZ_ROLLOUTS, name)
        except NotFound:
            return None  # as an error it would be worth a status, which has no policy any more

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


# Policies that are reconciled at a time; each mostly waits for the API server.
_WORKERS: Final = 16


class PolicyController(Feature):
    """Replaces the pods of the policies of one namespace; without the kind there are none.

    Until it is known whether the kind is installed, and the Role shows it, no group is replaced by
    its label, because a policy may own it.
    """

    def __init__(self, context: Context, arbiter: Arbiter) -> None:
        self._context, namespace = context, context.namespace
        client = context.open("following policies", Priority.LIST)
        self.store = PolicyStore()
        collection: Collection[WatchedPolicy | Unreadable] = Collection(
            resource=MULTI_AZ_ROLLOUTS,
            namespace=namespace,
            decode=decode_watched_policy,
            store=self.store,
        )
        self._kind = FollowedKind(client, collection, context.make_informer)
        self.owners = Owners(self.store, context.sets, context.clock)
        observing = context.open("observing policies", Priority.READ)
        recording = context.open("recording policies", Priority.ANSWER)
        self._now = partial(context.get_time, recording)
        self._placements = Placements(observing, namespace, context.pods, context.process.nodes)
        self._statuses = PolicyStatuses(recording, namespace, self.store, context.clock)
        self._rule = PolicyRule(
            namespace, self._make_observer(observing), self.owners, self._statuses.read_live
        )
        self._attempts = context.make_attempts()
        self._switches = Switches(recording, self._attempts)
        metrics = PolicyMetrics(context.metrics.registry, namespace, REASONS)
        self._reports = PolicyReports(context.events.report, metrics, context.clock)
        executor = Executor(
            context,
            self._rule,
            arbiter,
            client=context.open("acting for policies", Priority.READ),
            recording=context.open("recording revisions of policies", Priority.RECORD),
            on_step=self._reports.on_step,
        )
        self._steps = Steps(context, executor, self._attempts, RESYNC)
        self._reconciles = Reconciles(
            kind="Policy",
            attempts=self._attempts,
            once=self._observe_and_act,
            name_keys=self._name,
            on_failure=self._back_off,
            recheck=RECHECK_WAIT,
        )
        self._waits: dict[str, tuple[Reason, ...]] = {}
        """The reasons of the last plan of each policy."""
        self._held: dict[str, list[Reason]] = {}
        """Why the last plan of each policy was not carried out as a whole."""
        self._problems: dict[str, tuple[str, ...]] = {}
        self._on_order: list[Callable[[], None]] = []
        self._stalled: set[str] = set()
        self.controller = Controller(
            "reconcile policy", self.reconcile, workers=_WORKERS, rng=context.rng
        )
        self.controllers = (self.controller,)
        self._connect()

    def _make_observer(self, client: ApiClient) -> Observer:
        """Return an observer of StatefulSets, whatever groups they form."""
        observer, departed = self._context.make_observer(client), self._context.departed
        downscales = self._context.downscales
        return dataclasses.replace(
            observer,
            watches=(*observer.watches, self._kind),
            # Of any label group that the policy drives (MAZ-35).
            find_downscale=lambda group, sets: downscales.find_among(sets),
            find_other_rollout=lambda group, sets: self._find_other_rollout(sets),
            find_driver=lambda group: None,
            find_gates=lambda group: self._context.find_gates(name_of_policy(group)),
            find_departed=lambda name, live: departed.list_zones((POLICY, name), live),
        )

    def _find_other_rollout(self, sets: Sequence[StatefulSet]) -> OtherRollout | None:
        """Return the rollout of a label group of some StatefulSets by another operator (D-73)."""
        groups: dict[GroupName, list[StatefulSet]] = {}
        for sts in sets:
            if sts.group is not None:
                groups.setdefault(sts.group, []).append(sts)
        found = (self._context.find_other_rollout(*group) for group in groups.items())
        return next((other for other in found if other is not None), None)

    def _connect(self) -> None:
        context = self._context
        context.find_driver = self.find_driver
        # Owners first: keys that the same change wakes read them.
        context.set_informer.on_change(self.owners.on_set)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)
        self._kind.on_change(self._record_left)
        self._kind.on_change(self.owners.on_policy)
        self._kind.on_change(self._on_policy)
        self.owners.on_change(self._wake_all)
        context.process.nodes.on_change(self._wake_all)
        context.downscales.on_change(lambda uid, group: self._wake_owner(uid))
        context.in_flight.on_change(lambda pod: self._wake_owner(pod.owner_uid))
        context.on_stale(self._wake_all)
        context.departed.add_kind(POLICY, self._list_names, self._selects)
        context.departed.on_change(POLICY, self.controller.add)

    def follow(self, tasks: TaskStack) -> None:
        tasks.start("policy informer", self._kind.run(self._context.clock))

    def start(self, tasks: TaskStack) -> None:
        self._kind.doubt_denial()
        self._wake_all()
        super().start(tasks)

    def on_change(self, callback: Callable[[timedelta], None]) -> None:
        """Call back when another policy, or none, may drive a group, with the time until then."""
        self.owners.on_change(callback)

    def find_driver(self, group: GroupName) -> str | None:
        """Return the policy that drives a group; empty where that is not known yet."""
        if self._kind.lack is None:
            return self.owners.find_driver(group)
        # The base Role grants list alone, so that an informer may be refused at its first watch.
        error = self._kind.watch_error
        is_denied = isinstance(error, Denied) and error.is_by_role
        return None if self._kind.is_forbidden or is_denied else ""

    def observe(self, sets: Iterable[Uid]) -> Iterator[Group]:
        """Yield the groups of the policies of StatefulSets, in update order.

        They are named apart from label groups.
        """
        for policy in sorted({*filter(None, map(self.owners.find_name, sets))}):
            group = self._rule.observe_in_order(GroupName(policy))
            if group is not None:
                yield name_of_policy(group)

    def on_order(self, callback: Callable[[], None]) -> None:
        """Call back when the update order that `observe` goes by is known, or another one."""
        self._on_order.append(callback)

    def wake(self, sets: Iterable[Uid]) -> None:
        """Have the policies of StatefulSets planned anew."""
        for uid in sets:
            self._wake_owner(uid)

    def describe(self) -> Iterator[PolicyDescription]:
        for policy in sorted(self.store.list_all(), key=lambda each: each.name):
            if isinstance(policy, Unreadable):
                yield describe_unreadable_policy(policy)
            else:
                newest, waits = self._statuses.get(policy.name), self._waits.get(policy.name, ())
                scope = self.owners.find(policy.name)
                yield describe_policy(newest or policy, scope, waits, now=self._context.clock.now())

    def _list_names(self) -> Iterator[str]:
        return (policy.name for policy in self.store.list_all())

    def _selects(self, name: str, sts: AnySet) -> bool:
        """Return whether a policy selects a StatefulSet that is not being deleted."""
        if isinstance(sts, StatefulSet) and sts.is_terminating:
            return False
        selector = _get_selector(self.store.get(self._context.namespace, name))
        return selector is not None and selector.may_take(sts.labels)

    def _record_left(
        self, old: WatchedPolicy | Unreadable | None, new: WatchedPolicy | Unreadable | None
    ) -> None:
        """Record StatefulSets no longer selected: an open batch may have pods down (MAZ-46)."""
        version = new or old
        before, after = _get_selector(old), _get_selector(new)
        if version is not None and before != after:
            was, stays = (None if of is None else of.may_take for of in (before, after))
            at = self.store.find_deletion(version.uid) if new is None else new.resource_version
            self._context.departed.on_selector((POLICY, version.name), was, stays, at)

    def _on_policy(
        self, old: WatchedPolicy | Unreadable | None, new: WatchedPolicy | Unreadable | None
    ) -> None:
        for version in (old, new):
            if version is not None:
                self.controller.add(version.name)

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        for version in (old, new):
            if version is not None:
                self._wake_owner(version.uid)
        if old is not None and new is None:
            self._placements.forget_set(old.name)

    def _on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        for version in (old, new):
            if version is not None:
                self._wake_owner(version.owner_uid)

    def _wake_owner(self, owner: Uid | None) -> None:
        name = None if owner is None else self.owners.find_name(owner)
        if name is not None:
            self.controller.add(name)

    def _wake_all(self, after: timedelta = AT_ONCE) -> None:
        for policy in self.store.list_all():
            self.controller.add_after(policy.name, after)

    async def reconcile(self, name: str) -> Result:
        # A refused policy awaits nothing, and a tenant may write hundreds of them.
        await asyncio.sleep(0)
        return await self._reconciles.reconcile(name)

    def _back_off(self, name: str, error: Exception) -> None:
        self._waits[name] = (Reason(Code.BACKING_OFF, f"{error}", Severity.WARN),)

    async def _observe_and_act(self, name: str) -> timedelta | None:
        scope = self.owners.find(name)
        if self._statuses.get(name) is None or scope is None:
            self._forget(name)
            return None
        watched = await self._statuses.settle(name)
        if watched is None or self._statuses.is_behind(name) or self.owners.is_behind(scope):
            return RECHECK_WAIT
        self._log_problems(watched)
        if isinstance(scope, RefusedPolicy):
            self._rule.forget(GroupName(name))
            self._waits.pop(name, None)
            self._held.pop(name, None)
            status = render_refused_status(scope, before=watched.status, now=self._now())
            return await self._write(watched, status)
        return await self._drive(watched, scope)

    async def _drive(self, watched: WatchedPolicy, scope: PolicyScope) -> timedelta:
        name = GroupName(watched.name)
        batch = find_batch(watched.status)
        if batch is not None and batch.completion is None and watched.name not in self._waits:
            self._record_left_before(scope, batch.set_name)
        group = self._rule.observe(name)
        if step := await self._steps.settle(group):
            self._log_wait(name, step.reasons)
            return step.again
        resolution = await self._placements.resolve(watched, scope.policy, group)
        group = self._rule.observe(name)
        before = PolicyRecord(
            resolution=resolution,
            batch=find_batch(watched.status),
            initial=find_initial(watched.status, group),
        )
        case = _Case(watched=watched, scope=scope, before=before)
        plan = plan_policy(self._rule.snapshot(scope, group, before))
        if plan.action is not None and plan.batch != before.batch:
            return await self._begin(case, group, plan)
        unwritten = await self._record(case, group, plan)
        if plan.leading is not None and plan.leading.code is Code.WRONG_STRATEGY:
            await self._switches.switch(scope.policy, group)
        step = await self._carry_out(group, plan)
        return min(step.again, unwritten)

    async def _begin(self, case: _Case, group: Group, plan: PolicyPlan) -> timedelta:
        """Begin a batch: it is recorded after a live read, and its pods go by that read.

        Two reads in a row would be slow: an API server that answers lists from its cache finds out
        only ten times a second how new that must be.
        """
        beginning = _Beginning(partial(self._record_live, case))
        name = GroupName(case.watched.name)
        with self._rule.beginning(name, case.before, beginning.record):
            step = await self._carry_out(group, plan)
            if beginning.again is None and beginning.error is None:
                # A budget holds it, or the caches lag. A recorded batch is carried out in any case,
                # so it is chosen by a live read.
                await beginning.record(await self._rule.observe_live(group))
        if beginning.error is not None:
            # No delete was tried: the whole reconcile has failed, and backs off as such.
            self._held.pop(name, None)
            if plan.action is not None:
                self._attempts.record_success(name_attempt(plan.action))
            raise beginning.error
        return min(step.again, beginning.again or RESYNC)

    async def _carry_out(self, group: Group, plan: PolicyPlan) -> StepOutcome:
        actions: list[Action] = [] if plan.action is None else [plan.action]
        step = await self._steps.carry_out(group, [*actions, *plan.records])
        # A reason that the next reconcile settles is not worth a log line or a write.
        held = (reason for reason in step.reasons if reason.severity is not Severity.DEBUG)
        self._held[group.name] = [*held]
        return step

    async def _record_live(self, case: _Case, live: Group) -> timedelta:
        plan = plan_policy(self._rule.snapshot(case.scope, live, case.before))
        return await self._record(case, live, plan)

    async def _record(self, case: _Case, group: Group, plan: PolicyPlan) -> timedelta:
        watched = case.watched
        plan = self._add_held(watched.name, plan)
        self._log_wait(watched.name, plan.waits)
        self._log_stall(watched.name, plan)
        snapshot = self._rule.snapshot(case.scope, group, case.before)
        status = render_policy_status(snapshot, plan, before=watched.status)
        unwritten = await self._write(watched, status)
        if self._rule.note(GroupName(watched.name), replace(case.before, batch=plan.batch)):
            for callback in self._on_order:
                callback()
        self._reports.on_plan(watched, case.scope.policy, group, plan)
        return min(plan.requeue_after or RESYNC, unwritten)

    async def _write(self, watched: WatchedPolicy, status: PolicyStatus) -> timedelta:
        """Write a status with news (MAZ-54); return when to do so again. Numbers alone wait."""
        statuses = self._statuses
        if status != watched.status:
            wait = statuses.wait_before(watched.name)
            if wait and not is_urgent(watched.status, status):
                return wait
            await statuses.write(watched, status)
        self._reports.on_status(watched, status)
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
        self._steps.forget(GroupName(name))
        self._rule.forget(GroupName(name))
        self._statuses.forget(name)
        self._reports.forget(name)

    def _name(self, name: str) -> dict[str, object]:
        return {**self._rule.name_keys(GroupName(name))}

    def _record_left_before(self, scope: PolicyScope, name: str) -> None:
        """Record a StatefulSet of an open batch that left before this process knew of it."""
        sts = self._context.sets.get(self._context.namespace, name)
        if sts is not None and all(own.name != name for own in scope.sets):
            self._context.departed.on_left([(POLICY, scope.policy.head.name)], sts, sts)


def _get_selector(policy: WatchedPolicy | Unreadable | None) -> LabelSelector | None:
    spec = policy.policy if isinstance(policy, WatchedPolicy) else None
    return spec.selector if isinstance(spec, Policy) else None
