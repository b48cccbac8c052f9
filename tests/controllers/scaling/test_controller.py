"""Following zones beside rollouts: T-03 from row 20 on, chains, and force."""

from collections import deque

import pytest

from rollout_operator.model.outcome import Code
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import HOUR, SECOND, Bench
from tests.controllers.scaling_clients import REFUSAL
from tests.controllers.scaling_objects import ago, old, zone
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_t03_20_the_time_between_zones_holds_the_count_and_not_the_rollout() -> None:
    """SCALE-11, T-03 row 20: a went to 2 an hour ago, b waits for twelve, and is rolled out."""
    bench = Bench([zone("a", 2, last=ago(HOUR)), old("b", 3, follows="a", span="12h")])
    result = await bench.reconcile()
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
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 2"]
    assert bench.client.deleted == []


@pytest.mark.parametrize(
    ("zones", "held", "deleted", "direction"),
    [
        pytest.param(
            [zone("a", 2), old("b", 3, follows="a")], "", "b-0 b-1", "down", id="row 22: down"
        ),
        pytest.param(
            [zone("a", 1), old("b", 3, follows="a")], "b-1 b-2", "b-0", "down",
            id="row 23: a pod that may not go hides no other",
        ),
        pytest.param(
            [zone("a", 3), old("b", 2, follows="a")], "", "b-0 b-1", "up", id="row 24: an upscale"
        ),
        pytest.param(
            [old("a", 3), zone("b", 1, follows="a")], "a-1 a-2", "a-0", "up",
            id="row 25: no rollout of another zone",
        ),
    ],
)  # fmt: skip
@in_virtual_time
async def test_t03_a_patch_that_fails_holds_no_rollout(
    zones: list[Json], held: str, deleted: str, direction: str
) -> None:
    """T-03 rows 22 to 25: pods that the API server lets go are replaced all the same."""
    bench = Bench(zones)
    bench.client.refuse("zone-b")
    for pod in held.split():
        bench.client.fail_delete[f"zone-{pod}"] = deque([REFUSAL] * 9)
    await bench.reconcile()
    await bench.roll()
    assert bench.client.patched == []
    assert bench.client.deleted == [f"zone-{pod}" for pod in deleted.split()]
    assert bench.failures(Code.SCALE_REFUSED) == 1
    assert bench.scalings(direction, "refused") == 1


@in_virtual_time
async def test_t03_27_a_forced_count_goes_at_once() -> None:
    """SCALE-06, T-03 row 27: whatever the time between zones."""
    forced = zone("b", 5, follows="a", force="0", span="12h")
    bench = Bench([zone("a", 5, last=ago(0 * HOUR)), forced, zone("c", 5, follows="a")])
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 0"]


@in_virtual_time
async def test_a_chain_goes_up_in_one_reconcile() -> None:
    """SCALE-12: d follows c follows b follows a; the cache need not show what was written."""
    chain = [zone(letter, 3, follows=before) for letter, before in ("ba", "cb", "dc")]
    bench = Bench([zone("a", 7), *chain])
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 7", "zone-c 7", "zone-d 7"]
    await bench.reconcile()
    assert len(bench.client.patched) == 3, "nothing is written twice while the cache lags"
    bench.follow()
    await bench.reconcile()
    assert len(bench.client.patched) == 3
    assert bench.waits() == []
