"""What becomes of a record in the zone tracker: raised, restored, or found by the next process.

D-23, SI-11, LI-05, FP-06, FP-15, FP-22 with `-use-zone-tracker`.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from rollout_operator.model.errors import Denied, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.model.tracker import format_entry
from tests.controllers.downscales.granted import granted, write
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import WAIT, come_to_rest
from tests.web.reviews.test_prepare_tracker import ANSWERED, MAP, OLD, data_of, tracked

PATCH: Final = f"patch configmaps/{MAP}"
FORMER: Final = [
    pytest.param({}, id="there was no entry"),
    pytest.param({"zone-a": OLD, "zone-b": OLD}, id="there was one"),
]


@pytest.mark.parametrize("data", FORMER)
@in_virtual_time
async def test_refused_by_another_client_afterwards(data: Mapping[str, str]) -> None:
    """LI-05, FP-22: the former entry comes back, and the other zone may go."""
    async with granted(tracked(data, a=WAIT, b=WAIT)) as world:
        assert data_of(world) == {**data, "zone-a": ANSWERED}
        await world.pass_time(35)
        assert data_of(world) == {**data, "zone-a": ANSWERED}, "it may still happen"
        await world.pass_time(10)
        assert data_of(world) == data
        assert (await world.send_request("zone-b", 3)).is_allowed
        await write(world, 3, "zone-b")
        for ordinal in (3, 4):
            world.remove_pod(f"zone-b-{ordinal}")
        await come_to_rest(world)


@in_virtual_time
async def test_a_downscale_that_happens_at_once_is_written_once() -> None:
    """D-23: no annotation either."""
    world = tracked()
    async with world.controlling():
        assert (await world.send_request("zone-a", 3, whole=True)).is_allowed
        await write(world, 3)
        for ordinal in (3, 4):
            world.remove_pod(f"zone-a-{ordinal}")
        await come_to_rest(world)
    assert data_of(world) == {"zone-a": ANSWERED}
    assert world.client.calls.count(PATCH) == 1
    assert world.annotation("zone-a") is None
    assert "patch statefulsets/zone-a" not in world.client.calls


@in_virtual_time
async def test_si11_a_downscale_that_happens_late_is_recorded_as_of_then() -> None:
    """SI-11: granted at 03:04:05, written 20 s later: from then on the others wait."""
    async with granted(tracked()) as world:
        await world.pass_time(20)
        await write(world, 3)
        await world.pass_time(60)
    assert data_of(world) == {"zone-a": format_entry("2026-01-02T03:04:26Z")}
    assert world.client.calls.count(PATCH) == 2


@in_virtual_time
async def test_si11_what_cannot_be_recorded_yet_is_remembered() -> None:
    """SI-11: the other zone waits by what this process knows."""
    async with granted(tracked({}, a=WAIT, b=WAIT)) as world:
        world.fail(Unreachable("down"), PATCH)
        await world.pass_time(20)
        await write(world, 3)
        await world.pass_time(60)
        verdict = await world.send_request("zone-b", 3)
        assert "2026-01-02 03:04:25" in verdict.reason.text
        world.client.before = lambda call: None
        await world.pass_time(20)
    assert data_of(world) == {"zone-a": format_entry("2026-01-02T03:04:26Z")}


@in_virtual_time
async def test_a_record_that_cannot_be_restored_delays_no_pod() -> None:
    """LI-05, D-18: pods are un-prepared; the record is tried until it works."""
    async with granted(tracked({"zone-a": OLD})) as world:
        world.fail(Denied("no", status=403), f"get configmaps/{MAP}")
        await world.pass_time(60)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        assert data_of(world) == {"zone-a": ANSWERED}
        world.client.before = lambda call: None
        await world.pass_time(20)
        assert data_of(world) == {"zone-a": OLD}
        await come_to_rest(world)


@pytest.mark.parametrize("happens", [True, False])
@in_virtual_time
async def test_fp06_a_crash_between_record_and_write(happens: bool) -> None:
    """FP-06, SI-11, LI-05: the entry stands, pods are un-prepared; the own zone may go at once."""
    world = tracked({}, a=WAIT, b=WAIT)
    assert (await world.send_request("zone-a", 3)).is_allowed
    await world.pass_time(10)
    if happens:
        world.commit("zone-a", 3)
    world.restart()
    async with world.controlling():
        await world.pass_time(60)
        verdict = await world.send_request("zone-b", 3)
        assert verdict.reason.code is Code.ZONE_DOWNSCALED_LATELY
        if happens:
            assert f"{data_of(world)['zone-a']}" >= format_entry("2026-01-02T03:04:15Z")
            return
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        assert data_of(world) == {"zone-a": ANSWERED}
        assert (await world.send_request("zone-a", 3)).is_allowed
