"""What makes /ready and /livez red."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.states import BEAT, STALL, WINDOW, Health, Heartbeat
from tests.fakes_clock import FakeClock

SECOND = timedelta(seconds=1)


class Switch:
    """A part that complains while a text is set."""

    def __init__(self, complaint: str | None = None) -> None:
        self.complaint = complaint

    def answer(self) -> str | None:
        return self.complaint


def test_not_ready_before_any_part_is_there() -> None:
    """DEP-08: the admin server answers first, and must not say ready then."""
    assert Health(FakeClock()).list_missing() == ("operator: starting",)


def test_ready_when_no_part_complains() -> None:
    """SEED-062: not ready before the caches are filled, ready afterwards."""
    health = Health(FakeClock())
    pods, sets = Switch("first list not in: cannot list pods in namespace x"), Switch("no answer")
    health.part("pods", is_ready=pods.answer)
    health.part("statefulsets", is_ready=sets.answer)

    assert health.list_missing() == (
        "pods: first list not in: cannot list pods in namespace x",
        "statefulsets: no answer",
    )
    pods.complaint = sets.complaint = None
    assert health.list_missing() == ()


def test_readiness_and_liveness_are_apart() -> None:
    health = Health(FakeClock())
    health.part("a", is_ready=lambda: "not yet")
    health.part("b", is_alive=lambda: "task died")

    assert health.list_missing() == ("a: not yet",)
    assert health.list_faults() == ("b: task died",)


def test_maz60_what_a_namespace_lacks_is_reported_and_holds_no_other(lines: list[str]) -> None:
    health, namespace = Health(FakeClock()), Health(FakeClock(), is_whole=False)
    namespace.part("pods watch", is_alive=lambda: "forbidden")
    health.part("namespace a", find_partial_lack=lambda: "pods watch: forbidden")

    assert namespace.list_faults() == ("pods watch: forbidden",)
    assert (health.list_missing(), health.list_faults()) == ((), ())
    assert health.list_partial_lacks() == ("namespace a: pods watch: forbidden",)
    assert [line for line in lines if "Liveness lost" in line] == [], "nothing is restarted"


def test_stopping_is_not_ready_and_not_dead() -> None:
    health = Health(FakeClock())
    health.part("tasks", is_alive=lambda: "ended: pod informer")
    health.stopping()
    health.stopping()

    assert health.list_missing() == ("operator: stopping",)
    assert health.list_faults() == ()


def test_turns_are_logged_once(lines: list[str]) -> None:
    """W-22: the log says what was missing, not each probe."""
    clock = FakeClock()
    health = Health(clock)
    pods = Switch()
    health.part("pods", is_ready=pods.answer)
    for complaint in (None, None, "relisting", "relisting", None):
        pods.complaint = complaint
        health.list_missing()
        clock.jump(SECOND)

    texts = [line.split("msg=")[1].rstrip() for line in lines]
    assert texts == [
        '"Readiness gained" after=0s',
        '"Readiness lost" after=2s why="pods: relisting"',
        '"Readiness gained" after=2s',
    ]


def test_the_cause_of_a_restart_is_logged_once(lines: list[str]) -> None:
    """LI-14: the kubelet reports only a status code."""
    health = Health(FakeClock())
    task = Switch("ended: workers")
    health.part("tasks", is_alive=task.answer)
    health.list_faults()
    health.list_faults()

    assert [line.split("msg=")[1].rstrip() for line in lines] == [
        '"Liveness lost" why="tasks: ended: workers"'
    ]


class Loop:
    """A heartbeat on a clock that a test stops and moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.heart = Heartbeat(self.clock, self.metrics)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.heart.run())
            await self.clock.advance(SECOND)
            yield
            task.cancel()

    async def stall(self, span: timedelta) -> None:
        """Let time pass in which no task runs; the next beat comes late by about `span`."""
        self.clock.jump(span)
        await self.clock.advance(BEAT)

    def lag(self) -> float:
        body = b"".join(self.metrics.render())
        prefix = "rollout_operator_event_loop_lag_seconds "
        (line,) = [text for text in body.decode().splitlines() if text.startswith(prefix)]
        return float(line.removeprefix(prefix))


async def test_the_longest_lag_is_shown_for_the_window() -> None:
    loop = Loop()
    async with loop.beating():
        await loop.clock.advance(WINDOW)
        assert loop.lag() == 0
        await loop.stall(0.4 * SECOND)
        await loop.stall(0.1 * SECOND)
        assert 0.1 < loop.lag() == pytest.approx(0.4, abs=BEAT.total_seconds())

        await loop.clock.advance(WINDOW + SECOND)
        assert loop.lag() == 0


@pytest.mark.parametrize(
    ("stalls", "is_fault"),
    [
        pytest.param([], False, id="a loop that runs"),
        pytest.param([2 * STALL], False, id="a frozen node: it is over when we can say so"),
        pytest.param([STALL + SECOND] * 2, True, id="LI-14 one that keeps getting stuck"),
        pytest.param([STALL - SECOND] * 5, False, id="short ones"),
    ],
)
async def test_the_second_long_stall_is_a_fault(stalls: list[timedelta], is_fault: bool) -> None:
    """Until the first is old."""
    loop = Loop()
    async with loop.beating():
        for span in stalls:
            await loop.stall(span)
        found = loop.heart.find_stall() or ""
        assert found.startswith("the event loop stood still 2 times in 30s: ") == is_fault
        assert bool(found) == is_fault

        await loop.clock.advance(WINDOW)
        assert loop.heart.find_stall() is None


async def test_a_stall_that_goes_on_counts() -> None:
    """A probe may be answered before the late beat is."""
    loop = Loop()
    async with loop.beating():
        await loop.stall(STALL + SECOND)
        loop.clock.jump(STALL + SECOND)

        assert loop.heart.find_stall() is not None


async def test_a_heart_that_no_longer_beats_is_a_fault() -> None:
    loop = Loop()
    async with loop.beating():
        pass
    loop.clock.jump(WINDOW + SECOND)

    assert loop.heart.find_stall() == "no beat for 30.8s"


def test_a_heart_that_has_not_begun_is_no_fault() -> None:
    loop = Loop()
    loop.clock.jump(WINDOW)

    assert loop.heart.find_stall() is None
