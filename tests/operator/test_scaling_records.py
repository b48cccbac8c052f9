"""What a person writes of the last downscale wins over what the operator remembers: D-66."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from rollout_lab.model.fields import child
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import LAST_DOWNSCALE
from tests.scaling_world import ScalingWorld, follower, run_world
from tests.simulation.scenarios_people import Route
from tests.virtual_time import elapsed, in_virtual_time

TRACKED = ("-use-zone-tracker=true",)
WAIT = "1h"
CHAIN = (follower("a", wait=WAIT), follower("b", "a", wait=WAIT))
LONG_AGO = "2020-01-01T00:00:00Z"
# To learn of a change of the ConfigMap, which is not watched.
NEWS = {(): timedelta(seconds=1), TRACKED: timedelta(seconds=31)}


def unguarded(zone: ZoneSpec) -> ZoneSpec:
    """Return a zone that no review is about."""
    return replace(zone, labels={})


async def begin(world: ScalingWorld, args: tuple[str, ...]) -> None:
    """Have zone-a scaled down, with a record of it."""
    if args:  # one that the operator makes lets all zones wait first
        await world.people.create_tracker()
    await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
    await asyncio.sleep(120)
    assert world.count("b") == 3


@pytest.mark.parametrize("args", [(), TRACKED], ids=["annotations", "tracker"])
@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "not guarded"])
@pytest.mark.parametrize("time", [None, LONG_AGO], ids=["removed", "set back"])
def test_d66_the_next_zone_goes_at_once_where_a_person_clears_the_record(
    time: str | None, is_guarded: bool, args: tuple[str, ...]
) -> None:
    """D-66, D-22: memory of a downscale ends where its record begins."""

    @in_virtual_time
    async def run() -> None:
        zones = CHAIN if is_guarded else [unguarded(zone) for zone in CHAIN]
        async with run_world(zones, args=args) as world:
            await begin(world, args)
            await world.people.rewrite_record("zone-a", time, is_tracked=bool(args))
            began = elapsed()
            assert await world.until(("b", 2)) - began <= NEWS[args]

    run()


@pytest.mark.parametrize("args", [(), TRACKED], ids=["annotations", "tracker"])
def test_d66_a_review_is_answered_by_the_record(args: tuple[str, ...]) -> None:
    @in_virtual_time
    async def run() -> None:
        zones = (follower("a", wait=WAIT), follower("b", wait=WAIT))
        async with run_world(zones, args=args) as world:
            await begin(world, args)
            request = world.people.attempt
            assert not await request(lambda: world.people.scale("zone-b", 2, Route.SCALE_MERGE))
            await world.people.rewrite_record("zone-a", None, is_tracked=bool(args))
            assert await request(lambda: world.people.scale("zone-b", 2, Route.SCALE_MERGE))

    run()


@pytest.mark.parametrize("args", [(), TRACKED], ids=["annotations", "tracker"])
def test_d66_a_person_may_also_let_the_next_zone_wait_longer(args: tuple[str, ...]) -> None:
    @in_virtual_time
    async def run() -> None:
        async with run_world(CHAIN, args=args) as world:
            await begin(world, args)
            later = (world.sandbox.api.now() + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
            await world.people.rewrite_record("zone-a", later, is_tracked=bool(args))
            await asyncio.sleep(3600)
            assert world.count("b") == 3

    run()


@in_virtual_time
async def test_d66_what_a_person_removed_is_not_written_again() -> None:
    async with run_world(CHAIN) as world:
        await begin(world, ())
        await world.people.annotate("zone-a", LAST_DOWNSCALE, None)
        await asyncio.sleep(600)
        found = world.people.find("zone-a")
        assert found is not None
        assert LAST_DOWNSCALE not in child(found, "metadata", "annotations")


@in_virtual_time
async def test_li11_a_tracker_that_holds_a_zone_is_read_twice_a_minute() -> None:
    """LI-11: however many groups and events there are meanwhile."""
    async with run_world(CHAIN, args=TRACKED) as world:
        await begin(world, TRACKED)
        began = elapsed()
        await asyncio.sleep(600)
        reads = world.requests(began, "get")
        assert {one.request.resource.plural for one in reads} == {"configmaps"}
        assert 18 <= len(reads) <= 20
