"""RolloutSchedules in a simulated cluster: their gates, by the clock and whatever people do.

A world begins on a Friday at 03:04:05.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from rollout_lab.network.faults import OUTCOME, Failure, FaultDecision, Faults, NoFaults, SentCall

from rollout_operator.controllers.schedules import report_schedule
from rollout_operator.kube.api import ROLLOUT_GATES, ROLLOUT_SCHEDULES, ROLLOUTS
from rollout_operator.model.budget import EventKind, EventRecord, Regarding
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.outcome import Severity
from rollout_operator.model.release_plan import ReleaseEvent
from tests.controllers.releases.world import ReleaseSandbox
from tests.planning.releases.builders import gate
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough

NIGHT: Final = {"name": "night", "timeRange": {"start": "22:00", "end": "03:05"}}
LATE: Final = {"name": "late", "timeRange": {"start": "03:08", "end": "03:10"}}
SPEC: Final = {"rolloutSelector": {"matchLabels": {"tier": "web"}}, "rules": [NIGHT, LATE]}
WEB: Final = {"tier": "web"}
GATE: Final = "nights-app"


class FewCalls(NoFaults):
    """Our own limits let no gate be created at the first five attempts."""

    def on_call(self, sent_call: SentCall) -> FaultDecision:
        is_held = (sent_call.verb, sent_call.plural) == ("create", ROLLOUT_GATES.plural)
        is_held = is_held and sent_call.round <= 5
        return FaultDecision(fails=Failure.THROTTLED) if is_held else OUTCOME


@asynccontextmanager
async def nights(
    rollouts: Sequence[str] = ("app",), faults: Faults | None = None, **spec: Any
) -> AsyncIterator[ReleaseSandbox]:
    """Run a cluster with a schedule for these Rollouts, and nothing that keeps it."""
    async with ReleaseSandbox.opened(faults=faults) as world:
        for name in rollouts:
            await world.create_rollout(name, labels=WEB)
        await world.create(ROLLOUT_SCHEDULES, "nights", {**SPEC, **spec})
        yield world


def show_gates(world: ReleaseSandbox) -> dict[str, bool]:
    """Return which gates there are, and whether they pass."""
    gates = world.list_all(ROLLOUT_GATES)
    return {one["metadata"]["name"]: one["spec"]["passing"] for one in gates}


async def show_status(world: ReleaseSandbox) -> dict[str, Any]:
    """Return the status of the schedule, and of its conditions status and reason."""
    status: dict[str, Any] = dict(await world.get_status(ROLLOUT_SCHEDULES, "nights"))
    conditions = status.pop("conditions", ())
    shown = {one["type"]: f"{one['status']} {one['reason']}" for one in conditions}
    return {**status, **shown}


@in_virtual_time
async def test_gates_follow_the_clock() -> None:
    """REL-98, REL-100, RT-113: at the transition, by one write each, and none in between."""
    async with nights() as world:
        await world.create_rollout("other", labels={"tier": "db"})
        await world.start()
        await world.sleep(20)
        assert show_gates(world) == {GATE: False}
        assert await show_status(world) == {
            "observedGeneration": 1,
            "active": True,
            "activeRules": ["night"],
            "nextTransition": "2026-01-02T03:05:00Z",
            "managedGates": [GATE],
            "matchingRollouts": 1,
            "Ready": "True GatesInSync",
        }
        await world.sleep(40)
        assert show_gates(world) == {GATE: True}
        status = await show_status(world)
        assert (status.get("active"), status["nextTransition"]) == (None, "2026-01-02T03:08:00Z")
        await world.sleep(160)
        assert show_gates(world) == {GATE: True}
        await world.sleep(20)
        assert show_gates(world) == {GATE: False}
        assert (await show_status(world))["activeRules"] == ["late"]
        assert world.count_writes(ROLLOUT_GATES) == 3
        assert world.count_writes(ROLLOUT_SCHEDULES) == 3


@in_virtual_time
async def test_gates_come_and_go_with_rollouts() -> None:
    """REL-101: labels decide, and what is deleted has no gate."""
    async with nights([]) as world:
        await world.start()
        await world.create_rollout(labels=WEB)
        await world.create_rollout("b")
        await world.sleep(5)
        assert show_gates(world) == {GATE: False}
        await world.patch(ROLLOUTS, "b", {"metadata": {"labels": WEB}})
        await world.sleep(5)
        assert show_gates(world) == {GATE: False, "nights-b": False}
        await world.patch(ROLLOUTS, "app", {"metadata": {"labels": {"tier": None}}})
        await world.delete(ROLLOUTS, "b")
        await world.sleep(5)
        assert show_gates(world) == {}
        assert (await show_status(world)).get("managedGates") is None


@in_virtual_time
async def test_what_people_change_is_put_right() -> None:
    """RELB-31 (l): but for the versions that they allow."""
    async with nights() as world:
        await world.start()
        await world.sleep(5)
        wanted = (await world.get(ROLLOUT_GATES, GATE))["metadata"]["labels"]
        await world.patch(
            ROLLOUT_GATES,
            GATE,
            {
                "metadata": {"labels": None, "annotations": {"gate.kuberik.com/pretty-name": "x"}},
                "spec": {"passing": True, "allowedVersions": ["1.0.0"]},
            },
        )
        await world.sleep(5)
        gate = await world.get(ROLLOUT_GATES, GATE)
        assert gate["spec"] == {
            "rolloutRef": {"name": "app"},
            "passing": False,
            "allowedVersions": ["1.0.0"],
        }
        assert gate["metadata"]["labels"] == wanted
        assert not gate["metadata"].get("annotations")
        await world.delete(ROLLOUT_GATES, GATE)
        await world.sleep(5)
        assert show_gates(world) == {GATE: False}


@in_virtual_time
async def test_gates_go_with_their_schedule() -> None:
    """REL-99: by their owner reference."""
    async with nights() as world:
        await world.start()
        await world.sleep(5)
        await world.delete(ROLLOUT_SCHEDULES, "nights")
        await world.sleep(60)
        assert show_gates(world) == {}


@in_virtual_time
async def test_an_invalid_schedule_opens_nothing() -> None:
    """RELB-31 (f): its gate stays closed, also past the transition, and a new one is closed."""
    async with nights() as world:
        await world.start()
        await world.sleep(5)
        await world.patch(ROLLOUT_SCHEDULES, "nights", {"spec": {"timezone": "Mars/Olympus"}})
        await world.create_rollout("b", labels=WEB)
        await world.sleep(120)
        assert show_gates(world) == {GATE: False, "nights-b": False}
        status = await show_status(world)
        assert status["Ready"] == "False InvalidSchedule"
        assert (status["managedGates"], "nextTransition" in status) == ([GATE, "nights-b"], False)
        await world.patch(ROLLOUT_SCHEDULES, "nights", {"spec": {"timezone": "UTC"}})
        await world.sleep(5)
        assert show_gates(world) == {GATE: True, "nights-b": True}


@in_virtual_time
async def test_one_gate_that_is_refused_stops_no_other() -> None:
    """REL-98: the status says which, and it is tried again."""
    async with ReleaseSandbox.opened() as world:
        for name in ("app", "b"):
            await world.create_rollout(name, labels=WEB)
        foreign = {"rolloutRef": {"name": "x"}, "passing": True}
        for name in ("nights-app", "nights-b"):
            await world.create(ROLLOUT_GATES, name, foreign)
        await world.delete(ROLLOUT_GATES, "nights-b")
        await world.create(ROLLOUT_SCHEDULES, "nights", SPEC)
        world.sandbox.api.forbidden.add(("operator-1", "delete", "rolloutgates"))
        await world.start()
        await world.sleep(5)
        created = [name for name in show_gates(world) if name.startswith("nights-app-")]
        assert len(created) == 1
        await world.patch(ROLLOUTS, "b", {"metadata": {"labels": None}})
        await world.create_rollout("c", labels=WEB)
        await world.sleep(5)
        assert {"nights-b", "nights-c"} < {*show_gates(world)}
        assert (await show_status(world))["Ready"] == "False GatesNotWritten"
        world.sandbox.api.forbidden.clear()
        await world.sleep(60)
        assert "nights-b" not in show_gates(world)
        assert (await show_status(world))["Ready"] == "True GatesInSync"


@in_virtual_time
async def test_a_crash_at_any_moment_leaves_no_twin() -> None:
    """RELB-31 (h): the name of a gate follows from both names."""
    async with nights("abcd") as world:
        process = world.sandbox.process(args=("-releases.enabled", "-releases.metadata=none"))
        for pause in range(8):
            process.start()
            await process.wait_ready()
            await world.sleep(pause * 0.004)
            process.crash()
        process.start()
        await process.wait_ready()
        await world.sleep(10)
        assert show_gates(world) == {f"nights-{name}": False for name in "abcd"}


@in_virtual_time
async def test_many_gates_are_decided_anew_in_between() -> None:
    """REL-98: by our own limits they take longer than the schedule stays as it is."""
    brief = {"timeRange": {"start": "03:04", "end": "03:05"}}
    rollouts = [f"app-{number}" for number in range(60)]
    async with nights(rollouts, action="Allow", rules=[brief]) as world:
        await world.start("-kubernetes.client-qps=1", "-kubernetes.client-burst=1")
        passing: dict[str, bool] = {}
        while len(passing) < 60:
            await world.sleep(1)
            for one in world.list_all(ROLLOUT_GATES):
                passing.setdefault(one["metadata"]["name"], one["spec"]["passing"])
        # Some were made in the window, and some well after its end.
        assert {*passing.values()} == {True, False}
        await world.sleep(600)
        gates = show_gates(world)
        assert len(gates) == 60
        assert not any(gates.values())
        assert len((await show_status(world))["managedGates"]) == 60


@in_virtual_time
async def test_a_gate_that_our_own_limits_held_up_is_tried_each_second() -> None:
    """REL-98: no event says when they let it through."""
    async with nights(faults=FewCalls()) as world:
        await world.start()
        await world.sleep(4)
        assert show_gates(world) == {}
        await world.sleep(4)
        assert show_gates(world) == {GATE: False}


@in_virtual_time
async def test_gates_do_not_wait_for_the_statuses_of_all_rollouts() -> None:
    """REL-98: of what our own limits let through in half a minute they have a third."""
    async with nights([f"app-{number}" for number in range(200)]) as world:
        await world.start()
        await world.sleep(30)
        assert len(show_gates(world)) > 40
        assert world.count_writes(ROLLOUTS) > 40


@in_virtual_time
async def test_nothing_is_opened_that_our_own_limits_held_up_for_too_long() -> None:
    """REL-98: what was decided before the end of a window is not sent long after it."""
    brief = {"timeRange": {"start": "03:06", "end": "03:07"}}
    rollouts = [f"app-{number}" for number in range(30)]
    async with nights(rollouts, action="Allow", rules=[brief]) as world:
        process = await world.start()
        await world.sleep(60)
        assert len(show_gates(world)) == 30
        process.crash()
        await world.start("-kubernetes.client-qps=0.3", "-kubernetes.client-burst=1")
        opened: dict[str, str] = {}
        while (moment := world.sandbox.api.now().strftime("%H:%M:%S")) < "03:12:00":
            await world.sleep(1)
            for name, is_passing in show_gates(world).items():
                if is_passing:
                    opened.setdefault(name, moment)
        assert 10 < len(opened) < 30
        assert max(opened.values()) < "03:07:03"
        assert not any(show_gates(world).values())


@pytest.mark.parametrize(
    ("namespace", "kind"), [("prod", EventKind.SCHEDULE), ("", EventKind.CLUSTER_SCHEDULE)]
)
def test_events_name_the_schedule(namespace: str, kind: EventKind) -> None:
    """RELB-31: one of the cluster has no namespace."""
    watched = WatchedObject(
        name="nights", namespace=namespace, uid=Uid("1"), resource_version="7", decoded=gate()
    )
    records: list[EventRecord] = []
    event = ReleaseEvent(reason="WindowOpened", note="it is open", severity=Severity.WARN)
    report_schedule(records.append, watched, [event])
    (record,) = records
    assert record.regarding == Regarding(kind, namespace, "nights", Uid("1"))
    assert (record.reason, record.note, record.severity) == (
        "WindowOpened",
        "it is open",
        Severity.WARN,
    )
