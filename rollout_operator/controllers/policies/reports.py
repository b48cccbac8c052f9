"""Events and metrics about policies, and about the StatefulSets and pods that they replace.

What is worth an Event is decided in `planning.policies.events` and, of pods, in `planning.events`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import UnsetType

from rollout_operator.aio.clock import Clock
from rollout_operator.model.event import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import RecordRevision, Replacement
from rollout_operator.model.policy.policy import Policy
from rollout_operator.model.policy.status import PolicyEvent, PolicyStatus
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.planning.conditions import parse_time
from rollout_operator.planning.events import (
    ReportedGroup,
    choose_delete_events,
    choose_revision_events,
)
from rollout_operator.planning.policies.conditions import list_blocking
from rollout_operator.planning.policies.events import (
    choose_policy_events,
    find_begun,
    find_ended,
    list_overridden,
)
from rollout_operator.telemetry.policies import PolicyMetrics


@dataclass(slots=True)
class PolicyReports:
    """Reports what happens to the policies of one namespace."""

    record: Callable[[EventRecord], None]
    """Has an Event written soon."""
    metrics: PolicyMetrics
    clock: Clock
    _zones: dict[str, str] = field(default_factory=dict, init=False)
    """By policy, the zone of its last batch."""
    _groups: dict[GroupName, ReportedGroup] = field(default_factory=dict, init=False)
    _overridden: dict[str, tuple[PolicyEvent, ...]] = field(default_factory=dict, init=False)

    def on_status(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        """Report a new status in place of the known one; it may be the same."""
        for event in choose_policy_events(watched.status, status):
            self._report(watched, event)
        self._count(watched, status)

    def on_plan(self, watched: WatchedPolicy, policy: Policy, group: Group) -> None:
        """Report once what a policy in service overrides."""
        overridden = list_overridden(policy, group)
        for event in overridden:
            if event not in self._overridden.get(watched.name, ()):
                self._report(watched, event)
        self._overridden[watched.name] = overridden

    def on_step(self, group: Group, step: Replacement | RecordRevision) -> None:
        """Report that a pod was deleted, or a revision recorded."""
        if isinstance(step, Replacement):
            self.metrics.count_delete(group.name, self._zones.get(group.name, ""))
        reported = self._groups.get(group.name, ReportedGroup())
        match step:
            case Replacement():
                now = self.clock.elapsed()
                reported, events = choose_delete_events(reported, group, step, now)
            case RecordRevision():
                reported, events = choose_revision_events(reported, step)
        self._groups[group.name] = reported
        for event in events:
            self.record(event)

    def forget(self, name: str) -> None:
        """Forget a policy that is gone."""
        self._groups.pop(GroupName(name), None)
        self._overridden.pop(name, None)
        self._zones.pop(name, None)
        self.metrics.forget(name)

    def _count(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        """Show a policy in metrics, and count what is new of it."""
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
