"""Following zones beside rollouts: T-03 from row 20 on, chains, and force."""

from collections import deque

import pytest

from rollout_operator.model.errors import ApiError
from rollout_operator.model.outcome import Code
from rollout_operator.planning.downscales.spacing import format_downscale_time
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import HOUR, SECOND, Bench, pass_time
from tests.controllers.scaling_clients import REFUSAL
from tests.controllers.scaling_objects import ago, old, zone
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import part


@in_virtual_time
async def test_t03_20_the_time_between_zones_holds_the_count_and_not_the_rollout() -> None:
    """SCALE-11, T-03 row 20: a went to 2 an hour ago, b waits for twelve, and is rolled out."""
    a, b = zone("a", 2, last=ago(HOUR)), old("b", 3, follows="a", span="12h")
    bench = Bench([a, b])
    result = await bench.look()
    await bench.roll()
    assert bench.client.tries("zone-b") == 0
    assert bench.client.deleted == ["zone-b-0", "zone-b-1"]
    assert f"{Code.ZONE_DOWNSCALED_LATELY} zone-b" in bench.waits()
    assert bench.value("next_downscale_seconds") == 11 * 3600
    assert result.again is not None
    assert result.again <= 4 * 60 * SECOND


@in_virtual_time
async def test_t03_21_a_zone_that_is_scaled_down_is_not_rolled_out_meanwhile() -> None:
    """T-03 row 21: b goes to 2, and no pod is deleted while that is written."""
    bench = Bench([zone("a", 2), old("b", 3, follows="a")])

    async def roll_meanwhile(call: str) -> None:
        if call == "patch statefulsets/zone-b":
            await bench.roll()

    bench.client.pause = roll_meanwhile
    await bench.look()
    assert bench.client.patched == ["zone-b 2"]
    assert bench.client.deleted == []


@in_virtual_time
async def test_t03_22_a_patch_that_fails_holds_no_rollout() -> None:
    """T-03 row 22: b-0 and b-1 are replaced all the same."""
    bench = Bench([zone("a", 2), old("b", 3, follows="a")])
    bench.client.refuse("zone-b")
    await bench.look()
    await bench.roll()
    assert bench.client.deleted == ["zone-b-0", "zone-b-1"]
    assert bench.failures(Code.SCALE_REFUSED) == 1
    assert bench.scalings("down", "refused") == 1


@in_virtual_time
async def test_t03_23_a_pod_that_may_not_go_hides_no_other() -> None:
    """T-03 row 23: the patch fails, and of both pods the API server lets one go."""
    bench = Bench([zone("a", 1), old("b", 3, follows="a")])
    bench.client.refuse("zone-b")
    bench.client.fail_delete["zone-b-1"] = _refusals()
    bench.client.fail_delete["zone-b-2"] = _refusals()
    await bench.look()
    await bench.roll()
    assert bench.client.deleted == ["zone-b-0"]


@in_virtual_time
async def test_t03_24_an_upscale_that_fails_holds_no_rollout() -> None:
    bench = Bench([zone("a", 3), old("b", 2, follows="a")])
    bench.client.refuse("zone-b")
    await bench.look()
    await bench.roll()
    assert bench.client.patched == []
    assert bench.client.deleted == ["zone-b-0", "zone-b-1"]
    assert bench.scalings("up", "refused") == 1


@in_virtual_time
async def test_t03_25_the_failure_of_one_zone_holds_no_rollout_of_another() -> None:
    """T-03 row 25: b cannot be scaled, a is rolled out; of its pods one may go."""
    bench = Bench([old("a", 3), zone("b", 1, follows="a")])
    bench.client.refuse("zone-b")
    bench.client.fail_delete["zone-a-1"] = _refusals()
    bench.client.fail_delete["zone-a-2"] = _refusals()
    await bench.look()
    await bench.roll()
    assert bench.client.deleted == ["zone-a-0"]


@pytest.mark.parametrize(
    "zones",
    [
        pytest.param([zone("a", 5), zone("b", 5, follows="a", force="0")], id="T-03 row 26"),
        pytest.param(
            [
                zone("a", 5, last=ago(0 * HOUR)),
                zone("b", 5, follows="a", force="0", span="12h"),
                zone("c", 5, follows="a"),
            ],
            id="T-03 row 27, whatever the time between zones",
        ),
    ],
)
@in_virtual_time
async def test_a_forced_count_goes_at_once(zones: list[Json]) -> None:
    """SCALE-06."""
    bench = Bench(zones)
    await bench.look()
    assert bench.client.patched == ["zone-b 0"]


@in_virtual_time
async def test_a_chain_goes_up_in_one_look() -> None:
    """SCALE-12: d follows c follows b follows a; the cache need not show what was written."""
    chain = [zone(letter, 3, follows=before) for letter, before in ("ba", "cb", "dc")]
    bench = Bench([zone("a", 7), *chain])
    await bench.look()
    assert bench.client.patched == ["zone-b 7", "zone-c 7", "zone-d 7"]
    await bench.look()
    assert len(bench.client.patched) == 3, "nothing is written twice while the cache lags"
    bench.follow()
    await bench.look()
    assert len(bench.client.patched) == 3
    assert bench.waits() == []


@in_virtual_time
async def test_a_chain_goes_down_zone_by_zone() -> None:
    """SEED-066, SCALE-09: all the way in one step each, and five minutes apart."""
    bench = Bench(
        [
            zone("a", 5, span="5m"),
            zone("b", 5, follows="a", span="5m"),
            zone("c", 5, follows="b", span="5m"),
        ]
    )

    def record(call: str) -> None:
        bench.annotate(call[-1], last=format_downscale_time(bench.clock.now()))

    bench.client.after = record  # as the answer to a review does
    async with bench.living():
        bench.annotate("a", last=ago(0 * HOUR))
        bench.scale("a", 2)
        await pass_time(299 * SECOND)
        assert bench.client.patched == []
        await pass_time(2 * SECOND)
        assert bench.client.patched == ["zone-b 2"]
        await pass_time(298 * SECOND)
        assert bench.client.patched == ["zone-b 2"]
        await pass_time(2 * SECOND)
        assert bench.client.patched == ["zone-b 2", "zone-c 2"]
        assert bench.value("next_downscale_seconds") == 0


@in_virtual_time
async def test_the_leading_zone_must_be_whole_first_where_that_is_wanted() -> None:
    """SCALE-08, T-03 row 3: with numbers while it waits, and at once when it is."""
    bench = Bench([zone("a", 4), zone("b", 2, follows="a", gate="true")], has_settled=False)
    bench.client.change("zone-a", lambda one: _count_ready(one, 3))
    async with bench.living():
        await pass_time(SECOND)
        assert bench.client.patched == []
        (reason,) = bench.reasons()
        assert reason.text == "zone-b follows zone-a: 2 → 4 waits: zone-a has 3 of 4 pods ready"
        bench.client.change("zone-a", lambda one: _count_ready(one, 4))
        bench.follow()
        await pass_time(0.01 * SECOND)
        assert bench.client.patched == ["zone-b 4"]


@in_virtual_time
async def test_two_zones_go_down_one_after_the_other() -> None:
    """D-25: where no time is kept apart, the second goes as soon as the first is seen."""
    bench = Bench([zone("a", 2), zone("b", 5, follows="a"), zone("c", 5, follows="a")])
    async with bench.living():
        await pass_time(5 * SECOND)
        assert bench.client.patched == ["zone-b 2", "zone-c 2"]
        assert bench.waits() == []


def _refusals() -> deque[ApiError]:
    return deque([REFUSAL] * 9)


def _count_ready(one: Json, ready: int) -> None:
    part(one, "status").update(readyReplicas=ready, availableReplicas=ready)
