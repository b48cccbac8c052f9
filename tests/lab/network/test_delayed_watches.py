"""What comes through of a watch: in order, late, lost, twice, frozen or broken off.

Section 3.2: stale views, and events that are dropped, delayed or duplicated.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest
from rollout_lab.network.faults import EventOutcome, Failure

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import SECRETS
from rollout_operator.model.names import ApiError
from tests.lab.client_world import ACTOR, NAMESPACE, ClientWorld, fails, loop_time
from tests.simulation.planned_faults import EventPlan
from tests.virtual_time import in_virtual_time

LASTS = timedelta(seconds=40)


def plan(number: int, outcome: EventOutcome) -> EventPlan:
    return EventPlan(actor=ACTOR, plural="secrets", number=number, outcome=outcome)


@dataclass
class Follower:
    """Watches like an informer that never lists: it goes on from the newest version it saw."""

    world: ClientWorld
    version: int
    seen: list[str] = field(default_factory=list)
    """Type and name of each event, with the second in which it came."""
    ends: list[str] = field(default_factory=list)

    async def run(self, streams: int = 1, lasts: timedelta = LASTS) -> None:
        for _ in range(streams):
            try:
                await self._follow(lasts)
            except ApiError as error:
                self.ends.append(f"{type(error).__name__} at {loop_time():.0f}: {error}")
            else:
                self.ends.append(f"end at {loop_time():.0f}")

    async def _follow(self, lasts: timedelta) -> None:
        async with self.world.following.watch(
            SECRETS, NAMESPACE, resource_version=f"{self.version}", lasts=lasts
        ) as events:
            async for event in events:
                metadata = msgspec.json.decode(event.object)["metadata"]
                self.version = int(metadata["resourceVersion"])
                name = metadata.get("name", "")
                self.seen.append(f"{event.type} {name} at {loop_time():.0f}".replace("  ", " "))


def follow(world: ClientWorld) -> Follower:
    return Follower(world, world.api.revision)


async def put_each_second(world: ClientWorld, *names: str) -> None:
    """Put the first at once, the next one a second later, and so on."""
    for number, name in enumerate(names):
        await asyncio.sleep(1)
        world.put(name, **{f"key-{number}": "MQ=="})


async def follow_while(
    world: ClientWorld, *names: str, streams: int = 1, lasts: timedelta = LASTS
) -> Follower:
    follower = follow(world)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.run(streams, lasts))
        tasks.create_task(put_each_second(world, *names))
    return follower


@in_virtual_time
async def test_events_come_as_they_happen_until_the_end() -> None:
    world = ClientWorld()
    world.put("a")
    follower = await follow_while(world, "b", "a")

    assert follower.seen == ["ADDED b at 1", "MODIFIED a at 2"]
    assert follower.ends == ["end at 40"]


@in_virtual_time
async def test_a_late_event_holds_up_those_behind_it() -> None:
    """Never out of order within one stream."""
    world = ClientWorld(plan(1, EventOutcome(delay=timedelta(seconds=10))))
    follower = await follow_while(world, "a", "b")
    assert follower.seen == ["ADDED a at 11", "ADDED b at 11"]


@in_virtual_time
async def test_what_lags_beyond_the_end_comes_on_a_later_stream_at_its_time() -> None:
    """A lagging API server ends the stream in time, and knows no more afterwards."""
    world = ClientWorld(plan(1, EventOutcome(delay=timedelta(seconds=100))))
    follower = await follow_while(world, "a", "b", streams=3)

    assert follower.ends[:2] == ["end at 40", "end at 80"]
    assert follower.seen == ["ADDED a at 101", "ADDED b at 101"]


@in_virtual_time
async def test_a_lost_event_stays_lost_until_a_list() -> None:
    """Also where it was the last, so that the next stream begins before it."""
    world = ClientWorld(plan(2, EventOutcome(drop=True)))
    follower = await follow_while(world, "a", "b", streams=2)
    assert follower.seen == ["ADDED a at 1"]

    await world.following.fetch_page(SECRETS, NAMESPACE)
    await follower.run()
    assert follower.seen == ["ADDED a at 1", "ADDED b at 80"]


@in_virtual_time
async def test_an_event_may_come_twice() -> None:
    world = ClientWorld(plan(1, EventOutcome(duplicate=True)))
    follower = await follow_while(world, "a", "b")
    assert follower.seen == ["ADDED a at 1", "ADDED a at 1", "ADDED b at 2"]


@in_virtual_time
async def test_a_frozen_watch_brings_nothing_until_it_thaws() -> None:
    world = ClientWorld(plan(2, EventOutcome(freeze=timedelta(seconds=20))))
    follower = await follow_while(world, "a", "b", "c")
    assert follower.seen == ["ADDED a at 1", "ADDED b at 22", "ADDED c at 22"]
    assert follower.ends == ["end at 40"]


@in_virtual_time
async def test_not_even_the_end_comes_from_a_frozen_watch() -> None:
    """The client gives up after its silence; what is opened anew is as frozen."""
    world = ClientWorld(plan(2, EventOutcome(freeze=timedelta(seconds=120))))
    follower = await follow_while(world, "a", "b", streams=3)

    assert follower.ends[0].startswith("Unreachable at 46: cannot watch secrets in namespace")
    assert follower.ends[0].endswith("silent for 45s")
    assert follower.ends[1].startswith("Unreachable at 91")
    assert follower.seen == ["ADDED a at 1", "ADDED b at 122"]


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (
            EventOutcome(cut=True),
            "Unreachable at 2: cannot watch secrets in namespace default: no ",
        ),
        (
            EventOutcome(gone=True),
            "Gone at 2: cannot watch secrets in namespace default: 410 Expired",
        ),
    ],
)
@in_virtual_time
async def test_a_stream_that_breaks_loses_nothing(outcome: EventOutcome, error: str) -> None:
    world = ClientWorld(plan(2, outcome))
    follower = await follow_while(world, "a", "b", streams=2)

    assert follower.ends[0].startswith(error)
    assert follower.seen == ["ADDED a at 1", "ADDED b at 2"]
    assert [fault.kind for fault in world.reported] == [
        "cut_stream" if outcome.cut else "gone_event"
    ]


@in_virtual_time
async def test_a_process_dies_before_an_event() -> None:
    """Section 3.2, Sieve plans: freeze and restart."""
    world = ClientWorld(plan(2, EventOutcome(crash=True)))
    crashed: list[float] = []
    world.link.on_crash = lambda: crashed.append(loop_time())
    follower = follow(world)
    async with TaskStack() as tasks:
        tasks.start("follower", follower.run())
        await put_each_second(world, "a", "b", "c")
        await asyncio.sleep(100)

    assert follower.seen == ["ADDED a at 1"]
    assert follower.ends == []
    assert [round(when) for when in crashed] == [2]


@in_virtual_time
async def test_no_word_comes_over_a_cut_link_and_all_of_them_when_it_heals() -> None:
    world = ClientWorld()
    loop = asyncio.get_running_loop()
    loop.call_later(1.5, setattr, world.link, "is_cut", True)
    loop.call_later(20, world.link.heal)
    follower = await follow_while(world, "a", "b", "c")
    assert follower.seen == ["ADDED a at 1", "ADDED b at 20", "ADDED c at 20"]
    assert follower.ends == ["end at 40"]


@in_virtual_time
async def test_healing_brings_what_was_held_back() -> None:
    world = ClientWorld(
        plan(1, EventOutcome(delay=timedelta(seconds=30))),
        plan(2, EventOutcome(freeze=timedelta(seconds=300))),
    )
    asyncio.get_running_loop().call_later(10, world.link.heal)
    follower = await follow_while(world, "a", "b")
    assert follower.seen == ["ADDED a at 10", "ADDED b at 10"]
    assert follower.ends == ["end at 40"]


@pytest.mark.parametrize(
    "how", [Failure.TIMEOUT, Failure.LATE, Failure.CUT_BODY, Failure.RESET_AFTER]
)
@in_virtual_time
async def test_a_watch_that_no_client_got_is_not_left_open(how: Failure) -> None:
    world = ClientWorld(fails(how))
    follower = follow(world)
    await follower.run(lasts=timedelta(minutes=5))
    assert follower.ends[0].startswith("Unreachable at ")

    await asyncio.sleep(60)
    assert count_open(world) == 0


def count_open(world: ClientWorld) -> int:
    """Return how many watches the API server believes to be open."""
    return sum(
        not stream.is_closed
        for streams in world.api._streams._open.values()
        for _, stream in streams
    )


@pytest.mark.parametrize("number", [1, 2, 3])
@in_virtual_time
async def test_events_are_numbered_over_all_streams_of_a_life(number: int) -> None:
    world = ClientWorld(plan(number, EventOutcome(duplicate=True)))
    await follow_while(world, "a", "b", "c", streams=4, lasts=timedelta(seconds=2))
    assert [fault.text for fault in world.reported] == [
        f"event {number} of secrets: ADDED {'abc'[number - 1]}: duplicate_event"
    ]
