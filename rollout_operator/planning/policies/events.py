"""Which news of a policy are worth a Kubernetes Event: what its status says now and did not before.

So a process that starts anew repeats nothing. Events of the pods and StatefulSets that it replaces
are those of a label group, and are left to `planning.events`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import UnsetType
from msgspec.structs import replace

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.group import Group
from rollout_operator.model.names import MAX_UNAVAILABLE
from rollout_operator.model.outcome import Severity
from rollout_operator.model.placement import ZoneSource
from rollout_operator.model.policy.policy import Policy, PolicyRefusalCode
from rollout_operator.model.policy.status import (
    PolicyEvent,
    PolicyStatus,
    PolicyZoneState,
    PolicyZoneStatus,
    RecordedBatch,
)
from rollout_operator.model.units import parse_max_unavailable, quote
from rollout_operator.planning.policies.conditions import (
    ACCEPTED,
    DEADLINE_EXCEEDED,
    NOT_ON_DELETE,
    PROGRESSING,
    READY,
    SEVERAL_ZONES,
    SPANS_ZONES,
)
from rollout_operator.planning.wording import count, join_names, one_line

_SPLIT: Final = (PolicyRefusalCode.CONFLICT, PolicyRefusalCode.ROLLOUT_GROUP_SPLIT)
# Reasons of `Ready` that an Event reports, by its own reason.
_STOPS: Final[Mapping[str, str]] = {
    NOT_ON_DELETE: NOT_ON_DELETE,
    SPANS_ZONES: SPANS_ZONES,
    SEVERAL_ZONES: "RolloutBlocked",
}


def choose_policy_events(before: PolicyStatus, after: PolicyStatus) -> tuple[PolicyEvent, ...]:
    """Return what to report of a policy whose status changes, in the order in which it happened."""
    return (
        *_report_refusal(before, after),
        *_report_ends(before, after),
        *_report_unknown(before, after),
        *_report_begins(before, after),
        *_report_stops(before, after),
    )


def find_begun(before: PolicyStatus, after: PolicyStatus) -> RecordedBatch | None:
    """Return the batch that is recorded now and was not before."""
    old, new = before.last_batch, after.last_batch
    if isinstance(new, UnsetType):
        return None
    is_known = not isinstance(old, UnsetType) and old.number == new.number
    return None if is_known else new


def find_ended(before: PolicyStatus, after: PolicyStatus) -> RecordedBatch | None:
    """Return the batch that has become complete."""
    old, new = before.last_batch, after.last_batch
    if isinstance(old, UnsetType) or isinstance(new, UnsetType):
        return None
    was_open = isinstance(old.completion_time, UnsetType)
    has_ended = was_open and not isinstance(new.completion_time, UnsetType)
    return new if has_ended and old.number == new.number else None


def list_overridden(policy: Policy, group: Group) -> tuple[PolicyEvent, ...]:
    """Return which annotations do not count, because the policy says otherwise (MAZ-26)."""
    texts = {zone.sts.name: zone.sts.annotations.get(MAX_UNAVAILABLE) for zone in group.zones}
    return tuple(
        _inform(
            "MaxUnavailableOverridden",
            f"StatefulSet {name}: annotation {MAX_UNAVAILABLE}: {quote(text)} does not count; "
            f"spec.rollingUpdate.maxUnavailable is {policy.max_unavailable}",
            Severity.WARN,
        )
        for name, text in sorted(texts.items())
        if text is not None and not _is_equal(policy, text)
    )


def _is_equal(policy: Policy, text: str) -> bool:
    try:
        return parse_max_unavailable(text) == policy.max_unavailable
    except InvalidInput:
        return False


def _report_refusal(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    condition = after.find_condition(ACCEPTED)
    if condition is None or condition.status == "True":
        return
    if condition.reason != before.get_reason(ACCEPTED):
        reason = condition.reason if condition.reason in _SPLIT else PolicyRefusalCode.INVALID_SPEC
        yield _inform(reason, condition.message, Severity.WARN)


def _report_ends(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    last = find_ended(before, after)
    if last is not None:
        note = f"batch {last.number} of {last.stateful_set} in zone {last.zone} is complete"
        yield _inform_of_many("BatchCompleted", note)
    states = {zone.name: zone.state for zone in before.zones}
    old = before.last_batch
    for zone in after.zones:
        is_done = zone.state == PolicyZoneState.UPDATED != states.get(zone.name, zone.state)
        # Others become whole again by themselves.
        if is_done and not isinstance(old, UnsetType) and zone.name == old.zone:
            yield _inform_of_many(
                "ZoneCompleted", f"zone {zone.name} is updated: {_render_pods(zone)}"
            )
    is_running = isinstance(before.completion_time, UnsetType)
    if is_running and not isinstance(after.completion_time, UnsetType):
        pods = count(after.total_pods or 0, "pod")
        yield _inform("RolloutCompleted", f"{pods}: all are updated")


def _report_begins(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    has_begun = after.start_time != before.start_time
    if has_begun and not isinstance(after.start_time, UnsetType):
        outdated = sum(sts.outdated_pods for zone in after.zones for sts in zone.stateful_sets)
        zones = count(len(after.zones), "zone")
        yield _inform("RolloutStarted", f"{count(outdated, 'outdated pod')} in {zones}")
    old, new = before.last_batch, find_begun(before, after)
    if new is None:
        return
    if isinstance(old, UnsetType) or old.zone != new.zone or has_begun:
        yield _inform_of_many("ZoneStarted", f"zone {new.zone} has its turn")
    pods = join_names([pod.name for pod in new.pods])
    yield _inform_of_many("BatchStarted", f"batch {new.number} of {new.stateful_set}: {pods}")


def _report_unknown(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    reported = {*_list_unknown(before)}
    for name in _list_unknown(after):
        if name not in reported:
            note = f"nothing says the zone of StatefulSet {name}; it is a zone of its own"
            yield _inform("ZoneUnknown", note, Severity.WARN)


def _list_unknown(status: PolicyStatus) -> Iterator[str]:
    for zone in status.zones:
        for sts in zone.stateful_sets:
            if sts.source == ZoneSource.SET_NAME:
                yield sts.name


def _report_stops(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    ready, progress = after.find_condition(READY), after.find_condition(PROGRESSING)
    if ready is not None and ready.reason != before.get_reason(READY) and ready.reason in _STOPS:
        yield _inform(_STOPS[ready.reason], ready.message, Severity.WARN)
    is_stalled = progress is not None and progress.reason == DEADLINE_EXCEEDED
    if progress is not None and is_stalled and before.get_reason(PROGRESSING) != DEADLINE_EXCEEDED:
        yield _inform("RolloutStalled", progress.message, Severity.WARN)


def _render_pods(zone: PolicyZoneStatus) -> str:
    return count(sum(sts.replicas for sts in zone.stateful_sets), "pod")


def _inform(reason: str, note: str, severity: Severity = Severity.INFO) -> PolicyEvent:
    return PolicyEvent(reason=reason, note=one_line(note), severity=severity)


def _inform_of_many(reason: str, note: str) -> PolicyEvent:
    return replace(_inform(reason, note), is_routine=True)
