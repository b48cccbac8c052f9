"""Bring the replica counts of one rollout group to what they should be.

Beside rollouts, with workers of its own: pods that are slow to answer and references that cannot be
read delay no rollout. `planning.scaling` decides what is due, `controllers.replicas` writes counts,
and `kube.scales` reads references.

An autoscaler, an owner or GitOps may write the count of a zone that follows or mirrors. The
operator rewrites it, ever more seldom, and names the other writer by `managedFields`, which are not
cached: they are read once for each write that did not stay.

Pods are called about delayed downscales in one round per StatefulSet at a time: a slow pod delays
only the downscale of its own set. The answers wake the controller. They are not kept beyond this
process: pods know.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import AT_ONCE, POD_CALLS, Rewrites
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.observe import choose_most_live_reads
from rollout_operator.controllers.replicas import (
    CATCH_UP,
    ReconcileOutcome,
    Replicas,
    ScalingWrites,
    Write,
    render_failure,
)
from rollout_operator.controllers.worker import Attempt, Controller, Result, Waker
from rollout_operator.kube.api import STATEFULSETS, Reader
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.model.decode.objects import decode_replica_writers
from rollout_operator.model.names import DOWNSCALE_INTENT, FIELD_MANAGER, ApiError, GroupName, Uid
from rollout_operator.model.objects import AnySet, Endpoint, Group, StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, Severity
from rollout_operator.model.scaling import (
    CallPods,
    PodAnswer,
    PodCalls,
    PublishReplicas,
    Reference,
    ScaleZone,
    ScalingPlan,
    ScalingSnapshot,
)
from rollout_operator.planning.downscales import format_left
from rollout_operator.planning.replicas import keeps_time
from rollout_operator.planning.scaling import is_scaled, list_references, plan_scaling
from rollout_operator.pods import PodError
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Subject

# Groups whose counts are reconciled at a time; each mostly waits for the API server.
_WORKERS: Final = 32
# A name is worth a short wait, and no more: without it the text says "something else".
_NAMED_WITHIN: Final = timedelta(seconds=2)
# Own writes are known at once, so that a chain is done in one reconcile; a bound for the rest.
_ROUNDS: Final = 8


class _Named(msgspec.Struct, frozen=True):
    """The clients that reverted a count, by a read after so many writes of it."""

    times: int
    writers: tuple[str, ...]


class Contests:
    """The replicas that were written last, by UID of the set, and which clients revert them."""

    def __init__(self, client: Reader, clock: Clock, name: str = FIELD_MANAGER) -> None:
        """`name` is the field manager of our own writes."""
        self._client, self._name = client, name
        self._rewrites: Rewrites[Uid, int] = Rewrites(clock)
        self._named: dict[Uid, _Named] = {}

    def record(self, action: ScaleZone) -> None:
        self._rewrites.record(action.zone.uid, action.replicas)

    def wait_before(self, action: ScaleZone) -> timedelta:
        """Return how long a count that did not stay must wait.

        Another count never waits: the followed zone, or the mirrored object, has it now.
        """
        return self._rewrites.wait_before(action.zone.uid, action.replicas)

    def forget(self, set_uid: Uid) -> None:
        self._rewrites.forget(set_uid)
        self._named.pop(set_uid, None)

    async def describe(self, action: ScaleZone, wait: timedelta) -> Reason:
        """Return why replicas are not written now, with the clients that revert them."""
        zone, replicas = action.zone, action.replicas
        times = self._rewrites.count(zone.uid, replicas)
        named = self._named.get(zone.uid)
        if named is None or named.times != times:
            named = self._named[zone.uid] = _Named(times, await self._fetch_writers(zone))
        writers = " and ".join(named.writers) or "something else"
        stable_text = (
            f"{action.reason.text} waits: spec.replicas was set to {replicas} and did not stay,"
            f" {writers} writes it too"
        )
        return Reason(
            code=Code.COUNT_CONTESTED,
            text=f"{stable_text}; set {times} times, again in {format_left(wait)}",
            stable_text=stable_text,
            severity=Severity.WARN,
            zone=zone.name,
        )

    async def _fetch_writers(self, zone: StatefulSet) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(_NAMED_WITHIN.total_seconds()):
                body = await self._client.fetch(STATEFULSETS, zone.namespace, zone.name)
        except (ApiError, TimeoutError):
            return ()
        return decode_replica_writers(body, but=self._name)


class _DelayCalls(Protocol):  # of `pods.PodClient`
    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]: ...

    async def fetch_answers(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodAnswer]: ...


# Sets whose pods are called at a time: a pod that is slow to answer holds one of these.
_CALLERS: Final = 64


@dataclass(slots=True)
class PodCaller:
    """All calls, by UID of the set, and their answers, by UID of the pod."""

    calls: _DelayCalls
    _: KW_ONLY
    now: Callable[[], datetime]
    """The API server's time."""
    on_answers: Callable[[Uid], None]
    late_calls: timedelta
    """For how long a call may reach a pod after its caller has given up."""
    rng: Callable[[], float] = lambda: 1.0
    controller: Controller[Uid] = field(init=False)
    _due: dict[Uid, CallPods] = field(default_factory=dict, init=False)
    _pod_calls: dict[Uid, dict[Uid, PodCalls]] = field(default_factory=dict, init=False)
    _unready: dict[Uid, frozenset[Uid]] = field(default_factory=dict, init=False)
    """The pods of sets with calls that were not ready at the last reconcile."""

    def __post_init__(self) -> None:
        self.controller = Controller("call pods", self.reconcile, workers=_CALLERS, rng=self.rng)

    def known(self, sets: Iterable[Uid]) -> Mapping[Uid, PodCalls]:
        known: dict[Uid, PodCalls] = {}
        for sts in sets:
            known |= self._pod_calls.get(sts, {})
            # Under way, it may revert what the pod said before (SI-10).
            for pod in self._due[sts].cancel if sts in self._due else ():
                known[pod.uid] = replace(known.get(pod.uid, PodCalls()), unanswered_at=self.now())
        return known

    def keep(self, set_uid: Uid, pods: Mapping[Uid, bool]) -> None:
        """Take the present pods of a set, and whether each is ready; forget all others.

        A pod that has become ready may answer better than before.
        """
        pod_calls = self._pod_calls.get(set_uid)
        if pod_calls is None:
            return
        before = self._unready.get(set_uid, frozenset())
        self._unready[set_uid] = frozenset(uid for uid, is_ready in pods.items() if not is_ready)
        recovered = before.intersection(pod_calls) - self._unready[set_uid]
        self._pod_calls[set_uid] = {
            uid: _reopen(calls) if uid in recovered else calls
            for uid, calls in pod_calls.items()
            if uid in pods
        }

    def forget(self, set_uid: Uid) -> None:
        self._pod_calls.pop(set_uid, None)
        self._unready.pop(set_uid, None)

    def begin(self, due: CallPods) -> None:
        """Call the pods of a set, unless a round is under way: a later plan has the rest."""
        if self._take(due):
            self.controller.add(due.zone.uid)

    async def call(self, due: CallPods) -> None:
        """Do the same, and wait for the round."""
        if self._take(due):
            await self.reconcile(due.zone.uid)

    def _take(self, due: CallPods) -> bool:
        is_free = due.zone.uid not in self._due
        if is_free:
            self._due[due.zone.uid] = due
            self._pod_calls.setdefault(due.zone.uid, {})
        return is_free

    async def reconcile(self, set_uid: Uid) -> Result:
        due = self._due.get(set_uid)
        if due is None:
            return Result()
        try:
            await self._cancel(due)
            await self._call_pods(due)
        finally:
            del self._due[set_uid]
        self.on_answers(set_uid)
        return Result()

    async def _cancel(self, due: CallPods) -> None:
        failed = await self.calls.cancel_all(due.cancel) if due.cancel else {}
        # The set may have been forgotten meanwhile.
        now, pod_calls = self.now(), self._pod_calls.get(due.zone.uid, {})
        for pod in due.cancel:
            error, calls = failed.get(pod.uid), pod_calls.get(pod.uid, PodCalls())
            if error is None:
                pod_calls[pod.uid] = PodCalls(
                    answer=self._find_late(calls, now),
                    cancelled_at=now,
                    unanswered_at=calls.unanswered_at,
                )
                continue
            log.debug("Pod did not confirm that it stays", zone=due.zone.name, err=error)
            unanswered_at = now if error.may_arrive else calls.unanswered_at
            pod_calls[pod.uid] = replace(
                calls, tried_at=now, tries=calls.tries + 1, unanswered_at=unanswered_at
            )

    def _find_late(self, calls: PodCalls, now: datetime) -> PodAnswer | None:
        """Return the answer to a POST that may arrive after the DELETE that follows it (LI-05)."""
        answer = calls.answer
        if answer is None or not answer.is_lost or abs(now - answer.called_at) > self.late_calls:
            return None
        return answer

    async def _call_pods(self, due: CallPods) -> None:
        answers = await self.calls.fetch_answers(due.post) if due.post else {}
        # All answers of a round are as old as its end: the next plan takes them together.
        now, pod_calls = self.now(), self._pod_calls.get(due.zone.uid, {})
        for pod in due.post:
            failures, wait, calls = 0, None, pod_calls.get(pod.uid, PodCalls())
            if answers[pod.uid].since is None:
                failures = calls.failures + 1
                wait = POD_CALLS.bound(failures)
            answer = replace(answers[pod.uid], called_at=now, lasts=wait)
            pod_calls[pod.uid] = PodCalls(
                answer=answer, failures=failures, unanswered_at=calls.unanswered_at
            )
            if answer.problem:
                log.debug("Pod gave no time", zone=due.zone.name, pod=pod.pod, why=answer.problem)


def _reopen(calls: PodCalls) -> PodCalls:
    """Have a pod called at once whose last answer had no time."""
    if calls.answer is None or calls.answer.since is not None:
        return calls
    return replace(calls, answer=replace(calls.answer, lasts=timedelta(0)), failures=0)


class ScalingController(Feature):
    def __init__(self, context: Context, process: str) -> None:
        """`process` is a name that no other process of the namespace has."""
        self._context = context
        client = context.open("scaling", Priority.READ)
        self._observer = context.make_observer(client)
        self.references = context.make_references(client)
        self.counts = Replicas(context, client, self._observer, process)
        self._writes = ScalingWrites(context.make_attempts())
        self._contests = Contests(client, context.clock, context.settings.operator_name)
        waker = Waker(context.sets, self._wake)
        # A client of its own: pods that hang never delay the pods of a review.
        self._calls = context.make_pod_client()
        self.pod_calls = PodCaller(
            self._calls,
            now=partial(context.get_time, client),
            on_answers=waker.wake_owner,
            late_calls=context.late_calls,
            rng=context.rng,
        )
        self._known = set[GroupName]()
        """The groups that this process scaled at the last reconcile."""
        self._mirrored: dict[GroupName, Collection[Reference]] = {}
        self._waker = waker
        self.controller = Controller(
            "reconcile scaling",
            self.reconcile,
            # Answers of pods and live reads must still count when the count is written.
            workers=min(_WORKERS, choose_most_live_reads(context.settings.client_qps)),
            rng=context.rng,
        )
        self.controllers = (self.controller, self.pod_calls.controller)
        self.references.on_change(self.controller.add)
        # By the group that it held: the set may have left that, or be gone.
        context.downscales.on_change(
            lambda uid, group: None if group is None else self._wake(group, AT_ONCE)
        )
        context.set_informer.on_change(self._on_set)
        context.wake_groups(waker)

    def start(self, tasks: TaskStack) -> None:
        tasks.start("references", self.references.run())
        super().start(tasks)

    async def finish(self) -> None:
        """Wait for reconciles; calls to pods are cut off."""
        await self.controller.wait_idle()
        await self._calls.close()

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        if old is not None and new is None:
            self.pod_calls.forget(old.uid)
            self.counts.forget(old.uid)
            self._contests.forget(old.uid)
        if isinstance(old, StatefulSet) and isinstance(new, StatefulSet):
            self._record_downscale(old, new)
            self.counts.take_record(new)
        self._waker.on_set(old, new)

    def _wake(self, group: GroupName, after: timedelta) -> None:
        """Reconcile a group if we manage one of its counts: most events are of other groups."""
        if group in self._known or is_scaled(self._context.sets.list_group(group)):
            self.controller.add_after(group, after)

    def _record_downscale(self, old: StatefulSet, new: StatefulSet) -> None:
        """Record the time of a downscale that nothing else records (SEED-066)."""
        if old.uid != new.uid or new.replicas >= old.replicas or new.group is None:
            return
        group = self._context.sets.list_group(new.group)
        is_kept = keeps_time(new, [sts for sts in group if isinstance(sts, StatefulSet)])
        if is_kept and not self.counts.has_written(new):
            self.counts.record_downscale(new.uid)

    async def reconcile(self, name: GroupName) -> Result:
        counts, group = self.counts, self._observer.observe(name)
        if not is_scaled(zone.sts for zone in group.zones):
            self._forget(name, group)
            return Result(again=_catch_up(counts.settle([zone.sts for zone in group.zones])))
        if name not in self._known:
            self._known.add(name)
            self._context.metrics.begin_scaling(name)
        outcome = ReconcileOutcome()
        plan = await self._work(group, outcome)
        log_again = self._report(plan, outcome)
        times = (outcome.again, plan.requeue_after, log_again, _catch_up(counts.settle(())))
        return Result(again=min(time for time in times if time is not None))

    async def _work(self, group: Group, outcome: ReconcileOutcome) -> ScalingPlan:
        """Do what is due until nothing is left; return the last plan."""
        for _ in range(_ROUNDS):
            outcome.clear()
            marked = self.counts.list_marked(zone.sts for zone in group.zones)
            group = await self._revoke(group, marked, outcome)
            scaling, plan = await self._plan(self._take_snapshot(group), outcome)
            if await self._has_new_times(plan, outcome):
                continue
            unused = self.counts.list_unused((zone.sts for zone in group.zones), plan.scale)
            await self._revoke(group, unused, outcome)
            for calls in plan.pod_calls:
                self.pod_calls.begin(calls)
            done = [await self._scale(scaling, action, outcome) for action in plan.scale]
            if not any(done):
                break
            group = self._observer.observe(group.name)
        for publication in plan.publish:
            await self._publish(publication, outcome)
        for zone in group.zones:
            if self.counts.has_unrecorded(zone.sts):
                await self._record(zone.sts, outcome)
        return plan

    async def _revoke(
        self, group: Group, marked: Iterable[StatefulSet], outcome: ReconcileOutcome
    ) -> Group:
        """Revoke the downscales that marks announce, and return the group after that (SI-02)."""
        counts, done = self.counts, False
        for sts in marked:
            wait = self.counts.removals.wait_before(sts)
            if wait:
                text = (
                    f"annotation {DOWNSCALE_INTENT} of {sts.name} was removed and did not stay so,"
                    " something else writes it too; remove it there"
                )
                reason = Reason(Code.COUNT_CONTESTED, text, Severity.WARN, sts.name)
                outcome.fail(reason, wait)
                continue
            wait = self.counts.removals.wait_in_line(sts)
            if wait:
                outcome.again = min(outcome.again, wait + CATCH_UP)
                continue
            write = Write(
                attempt=("revoke", sts.uid),
                what=f"revoked downscale of {sts.name}",
                zone=sts.name,
                send=partial(counts.revoke, sts),
                waited_for=partial(self._context.downscales.intents.time_left, sts),
            )
            done |= await self._writes.send(write, outcome)
        return self._observer.observe(group.name) if done else group

    async def _has_new_times(self, plan: ScalingPlan, outcome: ReconcileOutcome) -> bool:
        """Read again the times that a zone waits for; return whether they have changed.

        A person may have set a time back, to let the next zone go at once (D-66).
        """
        lasts = self.counts.times_last
        if plan.next_downscale is None or lasts is None:
            return False
        outcome.again = min(outcome.again, lasts + CATCH_UP)
        return await self.counts.refresh_times()

    async def _plan(
        self, scaling: ScalingSnapshot, outcome: ReconcileOutcome
    ) -> tuple[ScalingSnapshot, ScalingPlan]:
        """Plan past the downscales that failed lately: other zones do not wait for them (W-42)."""
        while True:
            plan = plan_scaling(scaling)
            downscales = [change for change in plan.scale if change.is_downscale]
            held = [change for change in downscales if await self._is_held(change, outcome)]
            if not held:
                return scaling, plan
            scaling = replace(scaling, held=scaling.held | {refused.zone.uid for refused in held})

    async def _is_held(self, action: ScaleZone, outcome: ReconcileOutcome) -> bool:
        wait, failure = self._writes.attempts.wait_before(_name(action))
        if wait:
            outcome.fail(render_failure(_render_change(action), failure, action.zone.name), wait)
        return bool(wait) or await self._is_contested(action, outcome)

    async def _is_contested(self, action: ScaleZone, outcome: ReconcileOutcome) -> bool:
        wait = self._contests.wait_before(action)
        if wait:
            outcome.fail(await self._contests.describe(action, wait), wait)
        return bool(wait)

    def _take_snapshot(self, group: Group) -> ScalingSnapshot:
        sets = [zone.sts for zone in group.zones]
        for zone in group.zones:
            self.pod_calls.keep(zone.sts.uid, {pod.uid: pod.is_ready for pod in zone.pods})
        self._want(group.name, list_references(sets))
        return replace(
            self.counts.take_snapshot(group),
            scales=self.references.readings,
            pod_calls=self.pod_calls.known(group.owners),
            elsewhere=tuple(self._list_elsewhere(group.name)),
            cluster_domain=self._context.settings.cluster_domain,
            late_calls=self._context.late_calls,
        )

    def _want(self, name: GroupName, references: Collection[Reference]) -> None:
        self.references.want(name, references)
        self._mirrored.pop(name, None)
        if references:
            self._mirrored[name] = references

    def _list_elsewhere(self, name: GroupName) -> Iterator[StatefulSet]:
        """Yield the zones of other groups that mirror an object of this group, too."""
        mine = self._mirrored.get(name, ())
        for other in sorted(self._mirrored) if mine else ():
            if other != name and any(reference in mine for reference in self._mirrored[other]):
                yield from (zone.sts for zone in self._observer.observe(other).zones)

    async def _scale(
        self, scaling: ScalingSnapshot, action: ScaleZone, outcome: ReconcileOutcome
    ) -> bool:
        counts, zone = self.counts, action.zone
        if await self._is_contested(action, outcome):
            return False

        def is_current() -> bool:
            now, then = self.references.readings, scaling.scales
            return all(now.get(one) == then.get(one) for one in list_references([zone]))

        async def ask(calls: CallPods) -> Mapping[Uid, PodCalls]:
            await self.pod_calls.call(calls)
            return self.pod_calls.known(scaling.group.owners)

        async def write() -> None:
            if action.is_downscale:
                live = await self._read_again(scaling, zone)
                await counts.scale_down(live, action, is_current, ask)
            else:
                await counts.scale_up(scaling.group.name, action)

        change = Write(
            attempt=_name(action),
            what=_render_change(action),
            zone=zone.name,
            send=write,
            is_blocked=lambda: counts.is_blocked(zone),
        )
        is_written = await self._writes.send(change, outcome)
        if is_written:
            self._contests.record(action)
        return is_written

    async def _read_again(self, scaling: ScalingSnapshot, zone: StatefulSet) -> ScalingSnapshot:
        """Read live what a zone mirrors: a reading may be minutes old on a dead connection.

        Not under the lock of the group, as a read may hang.
        """
        refresh, references = self.references.refresh, list_references([zone])
        readings = {reference: await refresh(reference) for reference in references}
        return replace(scaling, scales={**scaling.scales, **readings})

    async def _publish(self, publication: PublishReplicas, outcome: ReconcileOutcome) -> None:
        reference, replicas = publication.reference, publication.replicas

        async def write() -> None:
            await self.references.publish(reference, replicas)
            log.info("Published replicas", reference=f"{reference}", replicas=replicas)

        attempt, what = ("publish", f"{reference}"), f"status of {reference}"
        await self._writes.send(Write(attempt=attempt, what=what, send=write), outcome)

    async def _record(self, sts: StatefulSet, outcome: ReconcileOutcome) -> None:
        write = Write(
            attempt=("record", sts.uid),
            what=f"time of the downscale of {sts.name}",
            zone=sts.name,
            send=partial(self.counts.record, sts),
        )
        await self._writes.send(write, outcome)

    def _report(self, plan: ScalingPlan, outcome: ReconcileOutcome) -> timedelta | None:
        metrics = self._context.metrics
        failing = [problem for problem in plan.problems if problem.zone in plan.failed]
        for reason in (*outcome.reasons, *failing):
            if reason.severity is not Severity.DEBUG:
                metrics.scaling_failures.labels(plan.group, reason.code).inc()
        self._record_next(plan)
        waits = (*outcome.reasons, *plan.waits, *failing)
        odd = tuple(problem for problem in plan.problems if problem not in failing)
        shown = Plan(group=plan.group, waits=waits, problems=odd)
        return self._context.group_states.post(shown, Subject.SCALING)

    def _record_next(self, plan: ScalingPlan) -> None:
        clock = self._context.clock
        due = clock.elapsed() + (plan.next_downscale or timedelta(0))

        def read() -> float:
            return max((due - clock.elapsed()).total_seconds(), 0.0)

        self._context.metrics.next_downscale.labels(plan.group).set_function(read)

    def _forget(self, name: GroupName, group: Group) -> None:
        if name not in self._known:
            return
        self._known.discard(name)
        self._want(name, ())
        for zone in group.zones:
            self.pod_calls.forget(zone.sts.uid)
        self._context.metrics.forget_scaling(name)
        if group.zones or group.unreadable:
            self._context.group_states.post(Plan(group=name), Subject.SCALING)
            return
        # Again: the last reconcile may have reported it after it was forgotten.
        self._context.group_states.forget(name)
        self._context.metrics.forget_group(name)


def _name(action: ScaleZone) -> Attempt:
    zone = action.zone
    return ("scale", zone.uid, f"{zone.replicas}", f"{action.replicas}")


def _render_change(action: ScaleZone) -> str:
    return f"{action.zone.name}: {action.zone.replicas} → {action.replicas}"


def _catch_up(wait: timedelta | None) -> timedelta | None:
    return None if wait is None else wait + CATCH_UP
