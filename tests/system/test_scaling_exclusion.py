"""One downscale of a group at a time, for any client."""

import asyncio
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.scaled import TRACKED, follow, gaps, track, wait_counts
from tests.world.api import Answer
from tests.world.clients import Route
from tests.world.webpods import Respond
from tests.world.world import World

pytestmark = pytest.mark.controlplane

A, B, C = ZONES = ("live-a", "live-b", "live-c")
WAIT: Final = timedelta(seconds=2)
BETWEEN: Final = timedelta(milliseconds=50)
POLL: Final = timedelta(milliseconds=200)
INSIST_LIMIT: Final = timedelta(seconds=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="annotations", marks=pytest.mark.prove),
        pytest.param(TRACKED, id="tracker"),
    ],
)
async def test_w15_people_in_two_zones_while_a_third_follows(
    world: World, flags: tuple[str, ...]
) -> None:
    """W-15, SI-11, T-08, SEED-111: of two requests within 50 ms one passes; so do all, in turn.

    The operator wants zone b down at the same time, because it follows zone a.
    """
    pods = await world.serve_pods()
    pods.behave("", Respond(after=timedelta(seconds=0.3)))
    if flags:
        await track(world, ZONES)
    zones = [ZoneSpec(name=name, group="live") for name in ZONES]
    zones[1] = follow(zones[1], A)
    guarded = await guard(
        world, *(prepared_zone(pods, zone, wait="2s") for zone in zones), pods=pods, flags=flags
    )
    waiting = [A, C]

    async with asyncio.timeout(INSIST_LIMIT.total_seconds()):
        while waiting:
            answers = await asyncio.gather(
                *(_request(guarded, name, place * BETWEEN) for place, name in enumerate(waiting))
            )
            passed = [each.status == 200 for each in answers]
            assert sum(passed) <= 1, answers
            waiting = [name for name, has in zip(waiting, passed, strict=True) if not has]
            await asyncio.sleep(POLL.total_seconds())
    await wait_counts(world, dict.fromkeys(ZONES, 2))

    await world.judge.settle()
    found = gaps(world, *ZONES)
    assert len(found) == 2
    assert all(gap >= WAIT for gap in found), found
    await guarded.assert_judged()


async def _request(guarded: Guarded, name: str, after: timedelta) -> Answer:
    await asyncio.sleep(after.total_seconds())
    return await guarded.workload(name).scale(2, Route.SCALE_MERGE)
