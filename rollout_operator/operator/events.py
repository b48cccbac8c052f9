"""Composition of Events: what the parts of an operator do, reported where it can be read.

Takes steps and decisions, and has `planning.events` choose which of them are reported. No
task waits for it, and nothing is decided by it. Start: before all else. Stop: after all else that
calls the API server. The process that acts reports what no single process has done.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.cache.store import AnyBudget, PodStore, StatefulSetStore
from rollout_operator.kube.events import EventSender
from rollout_operator.model.event import EventAction, EventRecord
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Plan, RecordRevision, Replacement, Verdict
from rollout_operator.model.review import Review, Scalable
from rollout_operator.model.scaling import ScaleZone
from rollout_operator.planning.events import (
    Choice,
    ReportedGroup,
    choose_budget_event,
    choose_delete_events,
    choose_finish_events,
    choose_revision_events,
    choose_wait_events,
    is_reported,
    next_wait_report,
    record_waits,
    render_held,
    render_refused_downscale,
    render_scaled,
)
from rollout_operator.telemetry.registry import GroupState, Subject

# The group that was used longest ago is forgotten first.
MOST_GROUPS: Final = 4096
_NOTHING: Final = ReportedGroup()


class Events:
    """The Events of one operator; without a sender it does nothing at all."""

    def __init__(
        self,
        sender: EventSender | None,
        *,
        sets: StatefulSetStore,
        pods: PodStore,
        find_state: Callable[[GroupName], GroupState | None],
        clock: Clock,
        is_acting: Callable[[], bool],
    ) -> None:
        self._sender = sender
        self._sets = sets
        self._pods = pods
        self._find_state = find_state
        self._clock = clock
        self._is_acting = is_acting
        self._groups: OrderedDict[GroupName, ReportedGroup] = OrderedDict()
        self._waiting: WorkQueue[GroupName] = WorkQueue()

    def start(self, tasks: TaskStack) -> None:
        """Begin to write."""
        if self._sender is not None:
            tasks.start("events", self._sender.run())
            tasks.start("events of waits", self._report_waits())

    async def flush(self) -> None:
        """Write the Events that are left, for a moment at most, once the tasks have ended."""
        if self._sender is not None:
            await self._sender.flush()

    def on_step(self, group: Group, step: Replacement | RecordRevision) -> None:
        """Report a step of a rollout."""
        if self._sender is None:
            return
        reported = self._get_reported(group.name)
        match step:
            case Replacement():
                now = self._clock.elapsed()
                choice = choose_delete_events(reported, group, step, now)
            case RecordRevision():
                choice = choose_revision_events(reported, step)
        self._take(group.name, choice)

    def on_scaled(self, action: ScaleZone) -> None:
        """Report that a count was written."""
        self._record(render_scaled(action))

    def on_post(self, subject: Subject, plan: Plan, state: GroupState) -> None:
        """Report the end of a rollout, and in a while what the group waits for if it still does."""
        if self._sender is None:
            return
        reported = record_waits(self._get_reported(plan.group), state.plan)
        choice: Choice = (reported, ())
        if subject is Subject.ROLLOUT:
            choice = choose_finish_events(reported, plan, self._clock.elapsed())
        self._take(plan.group, choice)
        self._report_wait(state)

    def on_refusal(self, review: Review, verdict: Verdict) -> None:
        """Report a refusal at the object under review, where that is in a group or under a budget.

        A client that reaches the port may send a review of any object.
        """
        sender = self._sender
        if sender is None or review.dry_run or not is_reported(verdict):
            return
        if review.subresource == "eviction":
            pod = self._pods.get(review.namespace, review.name)
            if isinstance(pod, Pod) and sender.admit(pod.uid, EventAction.REFUSE_EVICTION):
                sender.enqueue(render_held(pod, verdict))
        elif review.resource == "statefulsets" and isinstance(review.old, Scalable):
            sts = self._sets.get(review.namespace, review.name)
            if not isinstance(sts, StatefulSet) or sts.uid != review.old.uid:
                return
            if sender.admit(sts.uid, EventAction.REFUSE_DOWNSCALE):
                sender.enqueue(render_refused_downscale(sts, verdict, review.user))

    def on_budget(self, old: AnyBudget | None, new: AnyBudget | None) -> None:
        """Report a budget that cannot be obeyed, or can be again."""
        if self._sender is not None and self._is_acting():
            self._record(choose_budget_event(old, new))

    def report_budgets(self, budgets: Iterable[AnyBudget]) -> None:
        """Report which budgets cannot be obeyed, once this process acts."""
        for budget in budgets:
            self._record(choose_budget_event(None, budget))

    def report(self, event: EventRecord) -> None:
        """Report an Event that was chosen elsewhere."""
        self._record(event)

    async def _report_waits(self) -> NoReturn:
        while True:
            group = await self._waiting.take()
            state = self._find_state(group)
            if state is not None and self._is_acting():
                self._report_wait(state)
            self._waiting.done(group)

    def _report_wait(self, state: GroupState) -> None:
        """Report what a group waits for, now or when it has stood long enough."""
        plan = state.plan
        reported = self._get_reported(plan.group)
        wait = next_wait_report(reported, plan, self._clock.now() - state.since)
        if wait is None:
            return
        if wait:
            self._waiting.add_after(plan.group, wait)
            return
        members = self._sets.list_group(plan.group)
        self._take(plan.group, choose_wait_events(reported, plan, members))

    def _get_reported(self, group: GroupName) -> ReportedGroup:
        return self._groups.get(group, _NOTHING)

    def _take(self, group: GroupName, choice: Choice) -> None:
        self._groups[group], events = choice
        self._groups.move_to_end(group)
        if len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)
        for event in events:
            self._record(event)

    def _record(self, event: EventRecord | None) -> None:
        if self._sender is not None and event is not None:
            self._sender.record(event)
