"""What of an operator's doings comes to be reported, and what does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.events import BURST, EventSender
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import EventRecord, FlawedBudget
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, Severity, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.operator import context
from rollout_operator.operator.context import MOST_GROUPS, Events
from rollout_operator.planning.events import WAIT_STAYS, render_refused_downscale
from rollout_operator.telemetry.metrics import GroupStates, Metrics, Subject
from tests.builders import pod, sts
from tests.kube.test_events import StoredEvents
from tests.virtual_time import VirtualClock, in_virtual_time

GROUP = GroupName("ingester")
REFUSED = Verdict(is_allowed=False, reason=Reason(Code.NO_DOWNSCALE, "not allowed", Severity.WARN))


class Desk:
    """The Events of an operator that has two sets and a pod."""

    def __init__(self, *, is_writing: bool = True) -> None:
        self.api, self.is_acting = StoredEvents(), True
        clock, metrics = VirtualClock(), Metrics()
        self._registry = metrics.registry
        sender = EventSender(self.api, instance="one", now=clock.now, clock=clock, metrics=metrics)
        sets, pods = StatefulSetStore(), PodStore()
        sets.replace_all([sts("a"), sts("b")])
        pods.replace_all([pod("a", 0)])
        self.states = GroupStates(metrics, clock)
        self.events = Events(
            sender if is_writing else None,
            sets=sets,
            pods=pods,
            find_state=self.states.find,
            clock=clock,
            is_acting=lambda: self.is_acting,
        )
        self.states.on_post(self.events.on_post)

    @property
    def reported(self) -> list[str]:
        """Return each event as its object and its reason."""
        return [f"{one['regarding']['name']} {one['reason']}" for one in self.api.events.values()]

    def count(self, outcome: str) -> float | None:
        """Return how many events had this outcome."""
        name = "rollout_operator_events_total"
        return self._registry.get_sample_value(name, {"outcome": outcome})


@asynccontextmanager
async def working(*, is_writing: bool = True) -> AsyncIterator[Desk]:
    desk = Desk(is_writing=is_writing)
    async with TaskStack() as tasks:
        desk.events.start(tasks)
        yield desk


def waiting(code: Code = Code.PAUSED, zone: str = "zone-a", group: str = GROUP) -> Plan:
    return Plan(group=GroupName(group), waits=(Reason(code, f"{zone} waits", zone=zone),))


async def pass_time(span: timedelta) -> None:
    await asyncio.sleep(span.total_seconds())


def review(name: str, subresource: str = "", **changes: object) -> Review:
    plural = "pods" if subresource == "eviction" else "statefulsets"
    fields: dict[str, object] = {
        "version": Version.V1,
        "uid": "u",
        "resource": plural,
        "subresource": subresource,
        "namespace": "test",
        "name": name,
        "user": "alice",
        "old": Scalable(kind="StatefulSet", uid=Uid("uid-a"), replicas=3),
        "new": Unusable("it does not matter"),
    }
    return Review(**{**fields, **changes})  # type: ignore[arg-type]


@in_virtual_time
async def test_a_wait_is_reported_once_it_has_stayed() -> None:
    """Without another read of the group; what passes is not."""
    async with working() as desk:
        desk.states.post(waiting())
        await pass_time(WAIT_STAYS / 2)
        desk.states.post(waiting(Code.BUDGET_USED))
        await pass_time(WAIT_STAYS * 0.9)
        assert desk.reported == []
        await pass_time(WAIT_STAYS)
        assert desk.reported == ["zone-a BudgetUsed"]
        desk.states.post(waiting(Code.BUDGET_USED))
        await pass_time(WAIT_STAYS * 2)
        assert desk.reported == ["zone-a BudgetUsed"]


@in_virtual_time
async def test_what_scaling_waits_for_does_not_keep_a_rollout_from_its_end() -> None:
    async with working() as desk:
        desk.states.post(waiting(Code.LEADING_ZONE_NOT_READY, "zone-b"), Subject.SCALING)
        desk.states.post(waiting(Code.UP_TO_DATE, ""))
        await pass_time(WAIT_STAYS * 2)
        assert desk.reported == ["zone-b LeadingZoneNotReady"]


@in_virtual_time
async def test_one_that_does_not_act_any_more_reports_no_wait() -> None:
    async with working() as desk:
        desk.states.post(waiting())
        desk.is_acting = False
        await pass_time(WAIT_STAYS * 2)
        assert desk.reported == []


@in_virtual_time
async def test_refusals_are_reported_at_objects_that_are_known() -> None:
    """SI-15, D-68: a client that reaches the port may send any name; a dry run is no news."""
    async with working() as desk:
        for one in (
            review("zone-a", dry_run=True),
            review("zone-unknown"),
            review("zone-b"),  # another UID
            review("zone-a", old=Unusable("broken")),
            review("zone-a", resource="deployments"),
            review("zone-a-9", "eviction"),
            review("zpdb", resource="zoneawarepoddisruptionbudgets"),
        ):
            desk.events.on_refusal(one, REFUSED)
        await pass_time(timedelta(seconds=1))
        assert desk.reported == []
        desk.events.on_refusal(review("zone-a", "scale"), REFUSED)
        desk.events.on_refusal(review("zone-a-0", "eviction"), REFUSED)
        await pass_time(timedelta(seconds=1))
        assert desk.reported == ["zone-a NoDownscale", "zone-a-0 NoDownscale"]
        notes = [one["note"] for one in desk.api.events.values()]
        assert notes == ["not allowed; requested by alice", "not allowed"]


@in_virtual_time
async def test_a_refusal_that_has_no_room_is_not_put_into_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that tries again and again: each refusal but the first few only counts."""
    worded = 0

    def render(sts: StatefulSet, verdict: Verdict, user: str) -> EventRecord:
        nonlocal worded
        worded += 1
        return render_refused_downscale(sts, verdict, user)

    monkeypatch.setattr(context, "render_refused_downscale", render)
    async with working() as desk:
        for _ in range(BURST * 3):
            desk.events.on_refusal(review("zone-a"), REFUSED)
        await pass_time(timedelta(seconds=1))
        assert worded == BURST
        assert desk.count("limited") == BURST * 2


@in_virtual_time
async def test_budgets_are_reported_by_the_process_that_acts() -> None:
    """Those that were invalid before, as soon as it does."""
    bad = FlawedBudget(
        namespace="test", name="zpdb", uid=Uid("z"), resource_version="1", problem="no"
    )
    async with working() as desk:
        desk.is_acting = False
        desk.events.on_budget(None, bad)
        await pass_time(timedelta(seconds=1))
        assert desk.reported == []
        desk.events.report_budgets([bad])
        await pass_time(timedelta(seconds=1))
        assert desk.reported == ["zpdb BudgetInvalid"]


@in_virtual_time
async def test_what_is_said_of_groups_is_bounded() -> None:
    async with working() as desk:
        for number in range(MOST_GROUPS + 5):
            desk.states.post(waiting(group=f"group-{number}"))
        assert len(desk.events._groups) == MOST_GROUPS


@in_virtual_time
async def test_without_a_sender_nothing_is_done() -> None:
    """As in shadow mode and on a simulated cluster: not even a timer is set."""
    async with working(is_writing=False) as desk:
        desk.states.post(waiting())
        desk.events.on_refusal(review("zone-a"), REFUSED)
        await desk.events.flush()
        await pass_time(WAIT_STAYS * 2)
        assert desk.reported == []
        assert len(desk.events._groups) == 0
