"""Which doings are worth an Event, and what it says: texts of commands in `events.txt`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rollout_operator.model.budget import Budget, EventRecord, FlawedBudget
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Group, StatefulSet, Unreadable
from rollout_operator.model.outcome import (
    Code,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    Severity,
    Verdict,
)
from rollout_operator.planning.events import (
    Choice,
    ReportedGroup,
    choose_budget_event,
    choose_delete_events,
    choose_finish_events,
    choose_revision_events,
    choose_wait_events,
    choose_zone_events,
    is_reported,
    next_wait_report,
    record_waits,
    render_held,
    render_refused_downscale,
    render_scaled,
)
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.scaling import plan_scaling
from rollout_operator.planning.wording import camel_case
from tests.builders import group, pod, sts, unreadable
from tests.planning.scalings import read_snapshot
from tests.planning.tables import read_group
from tests.stories import Steps, check_stories

REST: Final = Plan(group=GroupName("g"), waits=(Reason(Code.UP_TO_DATE, "9 pods: all ready"),))
PLANS: Final = {"rest": REST, "nothing": Plan(group=GroupName("g"))}
GOOD: Final = Budget(namespace="test", name="zpdb", uid=Uid("u"), resource_version="1")
BUDGETS: Final[dict[str, Budget | FlawedBudget | Unreadable | None]] = {
    "none": None,
    "good": GOOD,
    "bad": FlawedBudget(
        namespace="test", name="zpdb", uid=Uid("u"), resource_version="2", problem="no"
    ),
    "broken": unreadable("ZoneAwarePodDisruptionBudget", "zpdb"),
}


def _seconds(number: str) -> timedelta:
    return timedelta(seconds=float(number))


def _refuse(code: str) -> Verdict:
    return Verdict(
        is_allowed=False, reason=Reason(Code[code.upper()], "not allowed", Severity.WARN)
    )


def _wait(code: str, zone: str = "zone-a", severity: str = "info", text: str = "") -> Plan:
    said = text or f"{zone if zone != 'all' else 'all'} waits"
    reason = Reason(Code[code.upper()], said, Severity(severity), "" if zone == "all" else zone)
    return Plan(group=GroupName("g"), waits=(reason,))


class EventStage(Steps):
    """A group, and what Events have said of it: nothing yet."""

    def __init__(self) -> None:
        self.reported = ReportedGroup()
        self.seen: Group = group()
        self.notes: list[str] = []
        self.members: list[StatefulSet | Unreadable] = [sts("a"), sts("b")]

    def _take(self, choice: Choice) -> str:
        self.reported, events = choice
        return self._show(events)

    def _show(self, events: Sequence[EventRecord]) -> str:
        """Show to whom what is said, and keep the notes for `notes`."""
        self.notes = [*dict.fromkeys(one.note for one in events)]
        said = [
            f"{one.regarding.name.removeprefix('zone-')}{' of old' * (one.regarding.uid == 'old')}"
            f" {one.reason}"
            for one in events
        ]
        return f"{said[0]} to {said[-1]} x{len(said)}" if len(said) > 4 else ", ".join(said)

    async def do_notes(self) -> str:
        return ", ".join(self.notes)

    async def do_rested(self) -> None:
        """Have this process have seen the group rolled out."""
        self.reported = ReportedGroup(was_rolled_out=True)

    async def do_group(self, *words: str) -> None:
        """Have the group be like this; ` + ` is between its zones."""
        self.seen = read_group(" ".join(words).replace(" + ", "; "))

    async def do_went(self, name: str, second: str = "0") -> str:
        """Report that a pod of the group was deleted, so many seconds after the start."""
        letter, _, ordinal = name.partition("-")
        reason = Reason(Code.POD_OUTDATED, f"{name} is outdated", zone=f"zone-{letter}")
        one = Replacement(pod=pod(letter, int(ordinal)), reason=reason)
        return self._take(choose_delete_events(self.reported, self.seen, one, _seconds(second)))

    async def do_record(self) -> str:
        """Report the revision that the plan of the group records."""
        actions = plan_group(self.seen).actions
        [action] = [one for one in actions if isinstance(one, RecordRevision)]
        return self._take(choose_revision_events(self.reported, action))

    async def do_zones(self) -> str:
        progress = plan_group(self.seen).progress or ()
        return self._take(choose_zone_events(self.reported, progress))

    async def do_finish(self, second: str, plan: str = "") -> str:
        """Report the end of the rollout, by the plan of the group or another one."""
        chosen = PLANS[plan] if plan in PLANS else _wait(plan) if plan else plan_group(self.seen)
        return self._take(choose_finish_events(self.reported, chosen, _seconds(second)))

    async def do_after(self, *words: str) -> str:
        """Show what is said once a pod of zone a was replaced and its group is like this."""
        await self.do_rested()
        await self.do_group("zone a pp current=prev")
        await self.do_went("a-0")
        await self.do_group(*words)
        said, notes = await self.do_zones(), self.notes
        assert not await self.do_zones(), "once"
        self.notes = notes
        return said or "nothing"

    async def do_stays(self, seconds: str, code: str, *more: str) -> str:
        """Show when a wait that stood for so long is worth an Event."""
        plan = PLANS[code] if code in PLANS else _wait(code, *more)
        wait = next_wait_report(self.reported, plan, _seconds(seconds))
        return "never" if wait is None else f"in {wait.total_seconds():g}s" if wait else "now"

    async def do_waits(self, code: str, *more: str) -> str:
        return self._take(choose_wait_events(self.reported, _wait(code, *more), self.members))

    async def do_sees(self, code: str, *more: str) -> None:
        """Have another wait be seen, which is not reported yet."""
        self.reported = record_waits(self.reported, _wait(code, *more))

    async def do_many(self) -> None:
        """Have the group have many members, of which one cannot be read."""
        self.members = [unreadable("StatefulSet", "zone-z"), sts("a")]
        self.members += [sts(f"m{number}") for number in range(20)]

    async def do_scaled(self, *words: str) -> str:
        (action,) = plan_scaling(read_snapshot(" ".join(words).replace(" + ", "; "))).scale
        return self._show([render_scaled(action)])

    async def do_refused(self, code: str, user: str = "") -> str:
        """Show what is said of a refused downscale, if it is."""
        verdict = _refuse(code)
        event = render_refused_downscale(sts("a"), verdict, user)
        return self._show([event]) + f" ({event.severity})" if is_reported(verdict) else "nothing"

    async def do_held(self, code: str) -> str:
        event = render_held(pod("a", 0), _refuse(code))
        return f"{event.regarding.kind} {event.action}: {self._show([event])}"

    async def do_budget(self, old: str, new: str) -> str:
        event = choose_budget_event(BUDGETS[old], BUDGETS[new])
        return "nothing" if event is None else self._show([event])


test_story = check_stories(__file__, events=EventStage)


def test_the_reason_is_the_code_in_camel_case() -> None:
    assert camel_case(Code.SEVERAL_ZONES_NOT_READY) == "SeveralZonesNotReady"
    assert len({camel_case(code) for code in Code}) == len(Code)
