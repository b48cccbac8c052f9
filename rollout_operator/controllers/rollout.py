"""Bring one rollout group nearer to its update revision, unless another operator does.

The actions of a plan are carried out as often as is useful. An action that failed, was refused or
was contradicted is tried again later; deletes without an answer are read back before anything else.

Two operators that act on one group, two of ours without a Lease or one of Grafana's, delete beside
each other, and our live reads do not bind the other. So a group is left alone while there are signs
of another operator (D-73). Replicas are still written: another operator comes to the same counts,
and a downscale waits for pods that are down whatever deleted them.

A sign is a pod that was ready and at an outdated revision and turns terminating, other than

- by a delete of this process;
- by an eviction, a preemption or the end of its node, as the pod itself shows;
- because its ordinal was scaled down, or its StatefulSet is deleted.

That leaves deletes by other operators, and by people: two of those within a minute delay the group
by a minute and do no harm. A pod that is found gone is no sign, as it is unknown how it went. Nor
is a delete of another process that acted before this one, which the API server may carry out late:
signs count from `COMMIT_LIMIT` after this process began to act. `planning.readiness` decides.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import BUGS, CONTRADICTIONS, Backoff
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.executor import Executor, LabelRule, Report
from rollout_operator.controllers.observe import EXPIRED_IN_A_ROW
from rollout_operator.controllers.worker import (
    HELD_RECHECK,
    RESYNC,
    Attempt,
    Attempts,
    Controller,
    Result,
    Waker,
    get_retry_after,
    name_attempt,
)
from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.grants import COMMIT_LIMIT, OwnDeletes
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.names import ApiError, GroupName, Uid
from rollout_operator.model.objects import AnyPod, AnySet, Group, OtherRollout, Pod, StatefulSet
from rollout_operator.model.outcome import Action, Code, Plan, Reason, Severity
from rollout_operator.planning.readiness import LEFT_ALONE
from rollout_operator.planning.rollout import is_replaced, is_wanted, plan_group
from rollout_operator.telemetry.logs import log

# An own delete that the cache has not shown for so long proves that the cache lags.
LAG_LIMIT: Final = CONTRADICTIONS.most
RECHECK_WAIT: Final = CONTRADICTIONS.first
# How often a delete without an answer is read back while it may still be carried out.
_UNKNOWN_WAIT: Final = timedelta(seconds=5)


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    again: timedelta
    reasons: tuple[Reason, ...] = ()
    failed: bool = False


class _InVain(NamedTuple):
    attempt: Attempt
    not_before: timedelta
    step: StepOutcome


class Steps:
    """Tries actions, and remembers by group how often they were contradicted."""

    def __init__(
        self, context: Context, executor: Executor, attempts: Attempts, resync: timedelta
    ) -> None:
        """`resync` is when to reconcile again at the latest."""
        self._deletes, self._refresh = context.deletes, context.refresh
        self._executor, self._attempts, self._resync = executor, attempts, resync
        self._clock = context.clock
        self._rechecks: dict[GroupName, int] = {}
        self._in_vain: dict[GroupName, _InVain] = {}

    def forget(self, name: GroupName) -> None:
        self._rechecks.pop(name, None)
        self._in_vain.pop(name, None)

    async def settle(self, group: Group) -> StepOutcome | None:
        """Read back deletes without an answer; return the outcome where nothing may follow."""
        if self._deletes.list_unknown(group.owners):
            step = await self._read_back(group)
            if step.failed or step.reasons:
                return step
        if self._deletes.longest_unseen(group.owners) > LAG_LIMIT:
            self._refresh("own delete not seen")
        return None

    async def carry_out(self, group: Group, actions: Sequence[Action]) -> StepOutcome:
        """Try actions one after another. An error concerns only its zone (D-18)."""
        steps = [await self._try(group, action) for action in actions]
        again = min((step.again for step in steps), default=self._resync)
        if self._deletes.list_unknown(group.owners):
            again = min(again, _UNKNOWN_WAIT)
        reasons = tuple(reason for step in steps for reason in step.reasons)
        return StepOutcome(again=again, reasons=reasons, failed=any(step.failed for step in steps))

    async def _read_back(self, group: Group) -> StepOutcome:
        attempt = ("read back", group.name)
        wait, failure = self._attempts.wait_before(attempt)
        if wait:
            return StepOutcome(reasons=(_back_off(failure),), again=wait)
        try:
            await self._executor.read_back(group.owners)
        except ApiError as error:
            return self._fail(attempt, error)
        self._attempts.record_success(attempt)
        return StepOutcome(again=self._resync)

    async def _try(self, group: Group, action: Action) -> StepOutcome:
        attempt = name_attempt(action)
        wait, failure = self._attempts.wait_before(attempt)
        if wait:
            return StepOutcome(reasons=(_back_off(failure, action.zone.name),), again=wait)
        last = self._in_vain.get(group.name)
        if last is not None and last.attempt == attempt:
            if (left := last.not_before - self._clock.elapsed()) > timedelta(0):
                return replace(last.step, again=left)
            del self._in_vain[group.name]
        report = await self._executor.carry_out(group, action)
        if report.error is not None:
            step = self._fail(attempt, report.error, action.zone.name)
            return replace(step, reasons=(*step.reasons, *report.reasons))
        refused = [reason.text for reason in report.reasons if reason.code is Code.DELETE_REFUSED]
        if refused and not report.deleted:
            wait = self._attempts.record_failure(attempt, refused[0])
            return StepOutcome(reasons=tuple(report.reasons), again=wait)
        if report.is_cut_short and not report.deleted:
            return self._expire(attempt, report, action.zone.name)
        self._attempts.record_success(attempt)
        again = self._choose_recheck(group.name, report)
        # Each reason of a budget once.
        zone = action.zone.name
        held = {each.reason: replace(each.reason, zone=zone) for each in report.held}.values()
        waits = [refusal.requeue_after or HELD_RECHECK for refusal in report.held]
        step = StepOutcome(reasons=(*held, *report.reasons), again=min([again, *waits]))
        if report.was_in_vain:
            # What was written on the pods, and removed again, wakes the group at once (LI-11).
            not_before = self._clock.elapsed() + again
            self._in_vain[group.name] = _InVain(attempt, not_before, step)
        return step

    def _fail(self, attempt: Attempt, error: ApiError, zone: str = "") -> StepOutcome:
        wanted = get_retry_after(error)
        wait = self._attempts.record_failure(attempt, str(error), at_least=wanted)
        log.debug("Attempt failed", attempt=attempt[0], zone=zone, again_in=wait, err=error)
        return StepOutcome(reasons=(_back_off(str(error), zone),), again=wait, failed=True)

    def _expire(self, attempt: Attempt, report: Report, zone: str) -> StepOutcome:
        wait = self._attempts.record_failure(attempt, report.cut_short)
        has_failed = self._attempts.count(attempt) >= EXPIRED_IN_A_ROW
        reason = Reason(
            code=Code.LIVE_READ_EXPIRED,
            text=f"a live read was too old before a pod was deleted: {report.cut_short}",
            severity=Severity.WARN if has_failed else Severity.DEBUG,
            zone=zone,
        )
        return StepOutcome(reasons=(reason, *report.reasons), again=wait, failed=has_failed)

    def _choose_recheck(self, name: GroupName, report: Report) -> timedelta:
        is_contradicted = report.is_contradicted or report.was_in_vain
        if report.deleted or report.is_cut_short or not is_contradicted:
            self._rechecks.pop(name, None)
        if report.is_cut_short:
            return RECHECK_WAIT
        if not is_contradicted:
            return LAG_LIMIT + RECHECK_WAIT if report.deleted else self._resync
        self._rechecks[name] = self._rechecks.get(name, 0) + 1
        wait = CONTRADICTIONS.bound(self._rechecks[name])
        if wait == LAG_LIMIT:
            self._refresh("the API server contradicts the cache")
        return wait


def _back_off(error: str, zone: str = "") -> Reason:
    text = f"the last attempt failed and will be repeated: {error}"
    return Reason(code=Code.BACKING_OFF, text=text, severity=Severity.WARN, zone=zone)


# Groups that are reconciled at a time. A worker mostly waits for the API server or for a token of
# our rate limits, so that many cost nothing: a worker that records a revision keeps no delete
# waiting.
_WORKERS: Final = 128
# What frees no place is planned together. Pages are as much behind; a delete never is.
_TOGETHER: Final = timedelta(milliseconds=50)
# After a reconcile with such an outcome the time of the last success is not updated.
_BLIND: Final = frozenset({Code.BACKING_OFF, Code.SNAPSHOT_STALE, Code.LIVE_READ_EXPIRED})


class RolloutController(Feature):
    def __init__(self, context: Context, arbiter: Arbiter) -> None:
        self._context = context
        self.others = OtherOperators(
            context.sets,
            context.deletes,
            context.clock,
            lambda group: context.metrics.pods_deleted_by_others.labels(group).inc(),
        )
        context.find_other_rollout = self.others.find
        self.observer = observer = dataclasses.replace(
            context.make_observer(context.open("observing", Priority.READ)),
            find_other_rollout=self.others.find,
        )
        self.executor = Executor(
            context,
            LabelRule(observer),
            arbiter,
            client=context.open("acting", Priority.READ),
            # No delete rests on it: it waits for all live reads.
            recording=context.open("recording", Priority.RECORD),
            on_step=context.events.on_step,
        )
        self._steps = Steps(context, self.executor, context.make_attempts(), RESYNC)
        longest = max(BUGS.first, context.settings.reconcile_interval)
        self.controller = controller = Controller(
            "reconcile rollout",
            self.reconcile,
            workers=_WORKERS,
            backoff=Backoff(first=BUGS.first, most=longest),
            rng=context.rng,
            on_taken=lambda waited: context.metrics.queue_wait_seconds.observe(
                waited.total_seconds()
            ),
        )
        self.controllers = (controller,)
        self.waker = Waker(
            context.sets,
            controller.add_after,
            lambda group: controller.add_within(group, _TOGETHER),
        )
        context.set_informer.on_change(self._on_set)
        # Before the group is woken by the same change.
        context.pod_informer.on_change(self.others.on_pod)
        context.wake_groups(self.waker)
        context.downscales.on_change(self._wake_group)
        context.in_flight.on_change(lambda pod: self.waker.wake_owner(pod.owner_uid))
        context.metrics.queue_depth.set_function(lambda: controller.depth)
        context.metrics.workers_busy.set_function(lambda: controller.busy)

    def start(self, tasks: TaskStack) -> None:
        self.others.begin()
        super().start(tasks)

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        """Wake the group of a StatefulSet, unless only our own marks on it changed."""
        is_ours = (
            isinstance(old, StatefulSet)
            and isinstance(new, StatefulSet)
            and self._context.downscales.intents.concerns_us_only(old, new)
        )
        if not is_ours:
            self.waker.on_set(old, new)

    def _wake_group(self, set_uid: Uid, group: GroupName | None) -> None:
        if group is not None and self._context.sets.list_group(group):
            self.controller.add(group)

    async def reconcile(self, name: GroupName) -> Result:
        group = self.observer.observe(name)
        if not group.zones and not group.unreadable:
            self._steps.forget(name)
            self._context.group_states.forget(name)
            self._context.metrics.forget_group(name)
            return Result()
        self._context.metrics.begin_group(name)
        self._context.metrics.group_reconciles.labels(name).inc()
        has_failed = True  # unless proven otherwise: so that a bug counts, too
        try:
            with self._context.metrics.group_reconcile_duration.labels(name).time():
                plan, again = await self._reconcile_once(group)
            has_failed = plan.failed
        finally:
            if has_failed:
                self._context.metrics.group_reconciles_failed.labels(name).inc()
        log_again = self._context.group_states.post(plan)
        if not has_failed and not _BLIND.intersection(reason.code for reason in plan.waits):
            self._context.metrics.group_last_success.labels(name).set(
                self._context.clock.now().timestamp()
            )
        return Result(again=min(again, plan.requeue_after or RESYNC, log_again or RESYNC))

    async def _reconcile_once(self, group: Group) -> tuple[Plan, timedelta]:
        has_unknown = bool(self._context.deletes.list_unknown(group.owners))
        if step := await self._steps.settle(group):
            return Plan(group=group.name, waits=step.reasons, failed=step.failed), step.again
        if has_unknown:
            group = self.observer.observe(group.name)
        plan = plan_group(group)
        with self._context.group_states.carrying_out(plan):
            step = await self._steps.carry_out(group, plan.actions)
        waits, failed = (*step.reasons, *plan.waits), plan.failed or step.failed
        return dataclasses.replace(plan, waits=waits, failed=failed), step.again


# Of a group. Two decide; the others are kept in case some turn out to be of a downscale, as the
# watch of StatefulSets may lag behind that of pods.
MOST_SIGNS: Final = 64


class _Sign(NamedTuple):
    owner: Uid
    ordinal: int
    pod: str
    at: timedelta


@dataclass(slots=True)
class OtherOperators:
    """The groups that other operators roll out, as far as this process sees."""

    sets: StatefulSetStore
    deletes: OwnDeletes
    clock: Clock
    count: Callable[[GroupName], None]
    _signs: dict[GroupName, deque[_Sign]] = field(default_factory=dict, init=False)
    _counts_from: timedelta | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._signs)

    def begin(self) -> None:
        """Record that this process acts from now on."""
        self._counts_from = self.clock.elapsed() + COMMIT_LIMIT

    def on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        if not (isinstance(old, Pod) and isinstance(new, Pod) and old.is_ready):
            return
        now = self.clock.elapsed()
        if self._counts_from is None or now < self._counts_from or self.deletes.is_ours(old.uid):
            return
        sts = None if old.owner_uid is None else self.sets.get_by_uid(old.owner_uid)
        if not isinstance(sts, StatefulSet) or not is_replaced(sts, old, new):
            return
        group, ordinal = sts.group, sts.ordinal_of(old.name)
        if group is None or ordinal is None:
            return
        signs = self._signs.setdefault(group, deque(maxlen=MOST_SIGNS))
        signs.append(_Sign(sts.uid, ordinal, old.name, now))
        self.count(group)

    def find(self, group: GroupName, sets: Sequence[StatefulSet]) -> OtherRollout | None:
        """Return the rollout of a group by another operator; `sets` are its present members.

        Old signs are forgotten, and those of a group without members.
        """
        now, signs = self.clock.elapsed(), self._signs.get(group)
        if signs is None:
            return None
        if not sets or now - signs[-1].at >= LEFT_ALONE:
            del self._signs[group]
            return None
        by_uid = {sts.uid: sts for sts in sets}
        valid = [
            sign
            for sign in signs
            if (sts := by_uid.get(sign.owner)) is not None and is_wanted(sts, sign.ordinal)
        ]
        if len(valid) < 2:
            return None
        before, last = valid[-2:]
        left = last.at + LEFT_ALONE - now
        if last.at - before.at > LEFT_ALONE or left <= timedelta(0):
            return None
        return OtherRollout(pods=(before.pod, last.pod), left=left)
