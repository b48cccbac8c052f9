"""`wait`: each end and its exit code (D-76), on a simulated cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from rollout_lab.nodes.behaviour import Behaviour, StartKind, image_of
from rollout_lab.zones import three_zones

from rollout_operator.cli.access import NOTHING, Named
from rollout_operator.cli.wait import HELD_FOR, Awaited, Goal, RolloutWait, WaitProgress
from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.model.names import ApiError, Denied, ExitCode, InvalidInput, Unreachable
from rollout_operator.operator.inspect import Inspection
from tests.operator.diagnosis.inspected import ObservedCluster, observed_cluster
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time

ZONES = three_zones(replicas=2)
NAMES = [zone.name for zone in ZONES]
LONG = timedelta(minutes=10)
BAD = "bad"
PAUSE: JsonObject = {"metadata": {"annotations": {"grafana.com/rollout-paused": "true"}}}
RESUME: JsonObject = {"metadata": {"annotations": {"grafana.com/rollout-paused": None}}}


def choose_crash(pod: Any) -> Behaviour:
    """Let pods of one image crash."""
    return Behaviour(kind=StartKind.CRASH_LOOP if image_of(pod) == BAD else StartKind.NORMAL)


class Wait:
    """A wait, with all that it prints."""

    def __init__(
        self,
        world: ObservedCluster,
        goal: Goal = Goal.ROLLED_OUT,
        timeout: timedelta = LONG,
        named: Named = NOTHING,
        stalled_after: timedelta = timedelta(minutes=10),
    ) -> None:
        self.reported: list[str] = []
        self.fails: Callable[[], ApiError | None] = lambda: None
        self.remarks: tuple[str, ...] = ()
        self._inspector = world.inspector()
        self._waiter = RolloutWait(
            inspect=self._inspect,
            goal=goal,
            timeout=timeout,
            clock=VirtualClock(),
            write_line=self.reported.append,
            named=named,
            stalled_after=stalled_after,
        )

    async def _inspect(self) -> Inspection:
        error = self.fails()
        if error is not None:
            raise error
        return replace(await self._inspector.inspect(), remarks=self.remarks)

    async def end(self) -> ExitCode:
        return await self._waiter.run()


@in_virtual_time
async def test_d_76_it_ends_with_0_when_all_is_rolled_out_and_not_before() -> None:
    """Also where the first read comes before the controller has seen the new spec."""
    async with observed_cluster(*ZONES) as world:
        process = world.sandbox.process()
        process.start()
        await process.wait_ready()
        world.sandbox.cluster.lag_controller(timedelta(seconds=3))
        await world.set_image(*NAMES)
        wait = Wait(world)

        assert await wait.end() is ExitCode.DONE

        [group] = (await world.inspect()).description.groups
        assert group.updated == group.desired
        assert "the status of" in wait.reported[0]
        assert "rolled out, 6/6 ready, 6/6 updated" in wait.reported[-1]
        assert len(wait.reported) == len(set(wait.reported)), "only what changes is printed"


@in_virtual_time
async def test_d_76_it_ends_with_3_when_the_time_is_over() -> None:
    async with observed_cluster(*ZONES) as world:
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        begin = elapsed()
        wait = Wait(world, timeout=timedelta(minutes=1))
        wait.remarks = ("operator not reached: no endpoints", "no process holds the Lease ro")

        assert await wait.end() is ExitCode.TIMED_OUT

        assert timedelta(minutes=1) <= elapsed() - begin < timedelta(seconds=62)
        end = "not rolled-out within 1m0s"
        assert wait.reported[1:] == [*wait.remarks, end], "the time may be over for that"


@in_virtual_time
async def test_d_76_a_time_of_0_inspects_once() -> None:
    async with observed_cluster(*ZONES) as world:
        assert await Wait(world, timeout=timedelta(0)).end() is ExitCode.DONE
        await world.set_image(*NAMES)
        assert await Wait(world, timeout=timedelta(0)).end() is ExitCode.TIMED_OUT


@in_virtual_time
async def test_d_76_it_ends_with_4_when_only_a_person_can_help() -> None:
    async with observed_cluster(*ZONES) as world:
        for name in NAMES:
            await world.change(name, PAUSE)
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        begin = elapsed()
        wait = Wait(world)

        assert await wait.end() is ExitCode.NEEDS_A_PERSON

        assert elapsed() - begin >= HELD_FOR, "what passes by ends no wait"
        assert "held" in wait.reported[0]
        assert wait.reported[-1] == "a person has to change something for group ingester"


@asynccontextmanager
async def crashing() -> AsyncIterator[ObservedCluster]:
    """Roll out an image under which each pod crashes."""
    async with observed_cluster(*ZONES, choose=choose_crash) as world:
        process = world.sandbox.process()
        process.start()
        await process.wait_ready()
        await world.set_image(*NAMES, image=BAD)
        yield world


@in_virtual_time
async def test_d_76_an_image_that_crashes_ends_it_with_4_after_a_time() -> None:
    """As the deadline of a MultiAZRollout does."""
    async with crashing() as world:
        begin = elapsed()
        wait = Wait(world, timeout=timedelta(hours=1))

        assert await wait.end() is ExitCode.NEEDS_A_PERSON

        assert timedelta(minutes=10) <= elapsed() - begin < timedelta(minutes=11)
        *_, why, last = wait.reported
        assert why.startswith("group ingester makes no progress for 10m")
        assert "ingester-zone-a-0: " in why
        assert last == "a person has to change something for group ingester"


@pytest.mark.slow
@in_virtual_time
async def test_a_good_image_begins_the_time_anew_and_zero_waits_on() -> None:
    async with crashing() as world:
        wait = Wait(world, stalled_after=timedelta(0), timeout=timedelta(minutes=12))
        assert await wait.end() is ExitCode.TIMED_OUT

        task = asyncio.ensure_future(Wait(world, timeout=timedelta(hours=1)).end())
        await VirtualClock().sleep(timedelta(minutes=9))
        await world.set_image(*NAMES, image="v3")

        assert await task is ExitCode.DONE


UP = (0, "")
DOWN = (-1, "a-0: CrashLoopBackOff")


@pytest.mark.parametrize(
    ("states", "ends_at"),
    [
        pytest.param([DOWN] * 20, 10, id="stuck all the time"),
        pytest.param([UP, DOWN] * 20, 11, id="ready for a moment after each restart"),
        pytest.param([UP] * 5 + [DOWN] * 20, 15, id="stuck later"),
        pytest.param(([DOWN] * 5 + [UP] * 3) * 7, None, id="up for minutes again and again"),
        pytest.param([(minute, "a-0: x") for minute in range(20)], None, id="others move"),
        pytest.param([(0, "")] * 20, None, id="it waits for something else"),
    ],
)
@in_virtual_time
async def test_d_76_what_counts_as_no_progress(
    states: list[tuple[int, str]], ends_at: int | None
) -> None:
    """Each state lasts a minute: how many pods are ready and updated, and which are stuck."""
    clock, begin = VirtualClock(), elapsed()

    async def inspect() -> Inspection:
        raise AssertionError("unused")

    waiter = RolloutWait(
        inspect=inspect, goal=Goal.WHOLE, timeout=timedelta(hours=1), clock=clock,
        write_line=lambda line: None, stalled_after=timedelta(minutes=10),
    )  # fmt: skip
    ended = None
    for minute, (pods, stuck) in enumerate(states):
        state = Awaited(title="group a", line="", progress=WaitProgress((), pods), stuck=stuck)
        if waiter.judge([state], begin + timedelta(hours=1)) is not None:
            ended = minute
            break
        await clock.sleep(timedelta(minutes=1))
    assert ended == ends_at


@in_virtual_time
async def test_what_a_person_mends_in_time_ends_no_wait() -> None:
    async with observed_cluster(*ZONES) as world:
        process = world.sandbox.process()
        process.start()
        await process.wait_ready()
        for name in NAMES:
            await world.change(name, PAUSE)
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        task = asyncio.ensure_future(Wait(world).end())
        await VirtualClock().sleep(HELD_FOR / 2)
        for name in NAMES:
            await world.change(name, RESUME)

        assert await task is ExitCode.DONE


@in_virtual_time
async def test_d_76_two_groups_held_one_after_the_other_end_no_wait() -> None:
    groups = {name: three_zones(name, replicas=1) for name in ("a", "b")}
    names = {name: [zone.name for zone in zones] for name, zones in groups.items()}
    async with observed_cluster(*groups["a"], *groups["b"]) as world:

        async def hold(group: str, annotation: JsonObject) -> None:
            for name in names[group]:
                await world.change(name, annotation)

        await world.set_image(*names["a"], *names["b"])
        await hold("a", PAUSE)
        await VirtualClock().sleep(world.patience)
        wait = Wait(world, timeout=2 * HELD_FOR)
        task = asyncio.ensure_future(wait.end())
        await VirtualClock().sleep(0.7 * HELD_FOR)
        await hold("b", PAUSE)
        await hold("a", RESUME)
        await VirtualClock().sleep(0.7 * HELD_FOR)
        await hold("b", RESUME)

        assert await task is ExitCode.TIMED_OUT
        assert {"group a: held", "group b: held"} <= {line.split(",")[0] for line in wait.reported}


@in_virtual_time
async def test_whole_waits_for_pods_and_not_for_their_revision() -> None:
    async with observed_cluster(*ZONES) as world:
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        assert await Wait(world, Goal.WHOLE).end() is ExitCode.DONE

        world.sandbox.cluster.fail_pod(f"{NAMES[1]}-0")
        await VirtualClock().sleep(world.patience)
        short = timedelta(seconds=20)
        assert await Wait(world, Goal.WHOLE, short).end() is ExitCode.TIMED_OUT


@in_virtual_time
async def test_an_api_server_that_is_away_for_a_while_ends_no_wait() -> None:
    async with observed_cluster(*ZONES) as world:
        await world.set_image(*NAMES)
        wait = Wait(world, timeout=timedelta(seconds=20))
        begin = elapsed()
        wait.fails = lambda: Unreachable("refused") if elapsed() > begin else None

        assert await wait.end() is ExitCode.TIMED_OUT
        assert "not read: refused" in wait.reported

        with pytest.raises(Unreachable):
            await wait.end()


@in_virtual_time
async def test_what_cannot_be_read_at_all_is_an_error() -> None:
    async with observed_cluster(*ZONES) as world:
        wait = Wait(world)
        wait.fails = lambda: Denied("no rights")
        with pytest.raises(Denied):
            await wait.end()


@in_virtual_time
async def test_nothing_to_wait_for_is_an_error() -> None:
    async with observed_cluster() as world:
        with pytest.raises(InvalidInput, match="no rollout group found in namespace default"):
            await Wait(world).end()
        assert await world.client.fetch_page(STATEFULSETS, "default")


@in_virtual_time
async def test_groups_that_go_meanwhile_are_an_error_and_not_done() -> None:
    async with observed_cluster(*ZONES) as world:
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        task = asyncio.ensure_future(Wait(world).end())
        await VirtualClock().sleep(timedelta(seconds=2))
        for name in NAMES:
            await world.change(name, {"metadata": {"labels": {"rollout-group": None}}})

        with pytest.raises(InvalidInput, match="no rollout group found in namespace default"):
            await task


@in_virtual_time
async def test_of_many_groups_only_what_changes_is_reported_the_worst_first() -> None:
    others = [group_zone for name in ("a", "b") for group_zone in three_zones(name, replicas=1)]
    async with observed_cluster(*ZONES, *others) as world:
        for name in NAMES:
            await world.change(name, PAUSE)
        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)
        wait = Wait(world, timeout=timedelta(seconds=8))
        task = asyncio.ensure_future(wait.end())
        await VirtualClock().sleep(timedelta(seconds=3))
        world.sandbox.cluster.fail_pod("b-zone-a-0")

        assert await task is ExitCode.TIMED_OUT
        assert [line.split(",")[0] for line in wait.reported] == [
            "group ingester: held",
            "group a: rolled out",
            "group b: rolled out",
            "group b: waiting",
            "not rolled-out within 8s",
        ]
