"""The commands of stories of policies: what their status says."""

from collections import defaultdict

import msgspec
import yaml
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.model.outcome import Severity
from rollout_operator.model.policy import (
    PolicyEvent,
    PolicyPlan,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicySnapshot,
    PolicyStatus,
    PolicyZoneStatus,
    RefusedPolicy,
    ZonesCode,
)
from rollout_operator.planning.conditions import parse_time
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.policy_status import (
    choose_policy_events,
    find_batch,
    find_initial,
    is_urgent,
    read_resolution,
    render_policy_status,
    render_refused_status,
)
from tests.builders import NOW
from tests.model.cases import lengthen, show
from tests.planning.policies.snapshots import policy, read_policy
from tests.stories import Stage

NEVER = PolicyStatus()
SIGNS = {"True": "+", "False": "-"}
PLAIN = {"Accepted": "+Accepted", "ZonesResolved": "+AllResolved"}


class StatusStage(Stage):
    """The status of a policy, which each line replaces."""

    def __init__(self) -> None:
        self.status = NEVER

    async def act(self, line: str) -> str:
        """Return what the status says after a line, such as those of `read_policy`."""
        before = self.status
        case, *wants = line.removesuffix("; whole").removesuffix("; say"), line.split("; ")[-1]
        word, _, rest = case.partition(" ")
        if word == "hand":
            edited = lengthen(yaml.safe_load(rest))
            document = msgspec.to_builtins(before) | edited
            self.status = msgspec.convert(document, PolicyStatus)
            return show_events(before, self.status) or "nothing"
        if word == "refuse":
            self.status = render_refused_status(_read_refused(rest), before=before, now=NOW)
        else:
            self.status = self._plan(case)
        shown = show_status(self.status)
        if before != NEVER:
            urgent = "urgent" if is_urgent(before, self.status) else "may wait"
            shown = f"{shown}; {urgent}" if before != self.status else "the same"
        if events := show_events(before, self.status):
            shown = f"{shown}; reports {events}"
        if "say" in wants:
            kinds: defaultdict[str, list[str]] = defaultdict(list)
            for one in self.status.conditions:
                kinds[one.message].append(one.type)
            shown += "".join(f"\n{' '.join(names)}: {text}" for text, names in kinds.items())
        return f"{shown}\n{show(self.status.zones)}" if "whole" in wants else shown

    def _plan(self, text: str) -> PolicyStatus:
        """Plan with what the status says, and check that it is read back as it was written."""
        case = read_policy(text)
        batch = case.batch or find_batch(self.status)
        case = replace(case, batch=batch, initial=find_initial(self.status, case.group))
        plan = plan_policy(case)
        status = render_policy_status(case, plan, before=self.status)
        stored = msgspec.json.decode(msgspec.json.encode(status), type=PolicyStatus)
        assert stored == status
        _check_read(stored, case, plan)
        return status


def _check_read(status: PolicyStatus, case: PolicySnapshot, plan: PolicyPlan) -> None:
    """MAZ-43: a restart changes no pause, and no zone."""
    assert find_batch(status) == plan.batch
    found, known = read_resolution(status), case.resolution
    assert found.code == known.code
    assert [one.text for one in found.findings] == [one.text for one in known.findings]
    if plan.zones and known.code is ZonesCode.ALL_RESOLVED:
        assert [one.name for one in found.zones] == [one.name for one in known.zones]
        assert found.sets == known.sets


def _read_refused(text: str) -> RefusedPolicy:
    pairs = [word.split("=", 1) for word in text.split()]
    reasons = [
        PolicyRefusal(code=PolicyRefusalCode(code), field="spec", text=said.replace("\\e", "\x1b"))
        for code, said in pairs
    ]
    return RefusedPolicy(head=policy().head, refusals=tuple(reasons))


def show_status(status: PolicyStatus) -> str:
    """Return phase, conditions, numbers and zones as statuses.txt has them."""
    told = {one.type: f"{SIGNS[one.status]}{one.reason}" for one in status.conditions}
    signs = "".join(told.pop(kind)[0] for kind in ("Reconciling", "Stalled"))
    first = [status.phase, told.pop("Progressing"), told.pop("Ready"), signs]
    first += [f"{kind} {one}" for kind, one in told.items() if one != PLAIN.get(kind)]
    counts = [status.updated_pods, status.total_pods, status.ready_pods]
    shown = [" ".join(first)]
    shown.append("no numbers" if UNSET in counts else "{}/{} ready {}".format(*counts))
    shown += [_show_zone(zone, status) for zone in status.zones]
    ready = status.find_condition("Ready")
    assert ready is not None
    times = {
        "began": status.start_time,
        "ended": status.completion_time,
        "next": status.next_batch_time,
        "Ready since": ready.last_transition_time,
    }
    told_times = [f"{word} {_seconds(time)}" for word, time in times.items() if time is not UNSET]
    return "; ".join([*shown, *(one for one in told_times if one != "Ready since 0")])


def _show_zone(zone: PolicyZoneStatus, status: PolicyStatus) -> str:
    star = f" *{status.current_stateful_set}" * (zone.name == status.current_zone)
    counts = [
        f" {sign}{number}"
        for one in zone.stateful_sets
        for sign, number in (("-", one.unavailable_pods), ("from ", one.initial_replicas))
        if number
    ]
    return f"{zone.name} {zone.state}{star}{''.join(counts)}"


def _seconds(time: str | UnsetType) -> str:
    at = parse_time(time)
    assert at is not None
    return f"{(at - NOW).total_seconds():g}"


def show_events(before: PolicyStatus, after: PolicyStatus) -> str:
    """Return the Events of a change, routine ones in parentheses, warnings with their note."""
    return " ".join(map(_show_event, choose_policy_events(before, after)))


def _show_event(event: PolicyEvent) -> str:
    if event.severity is Severity.WARN:
        return f"{event.reason}! {event.note}"
    return f"({event.reason})" if event.is_routine else event.reason
