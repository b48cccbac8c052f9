"""What goes wrong with one zone, or one write: W-42, W-43, SI-18, LI-11, stale caches."""

import pytest

from rollout_operator.model.names import ApiError, Denied, Refused, TooManyRequests, Unreachable
from rollout_operator.model.outcome import Code
from tests.controllers.scaling_bench import GROUP, SECOND, Bench, pass_time
from tests.controllers.scaling_objects import (
    NO_ANSWER,
    REFUSAL,
    ago,
    guarded,
    record_time,
    set_count,
    zone,
)
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough

FOREVER = [
    pytest.param(REFUSAL, id="refused by a webhook"),
    pytest.param(Denied("patch statefulsets is forbidden", status=403), id="forbidden"),
    pytest.param(Unreachable("HTTP status 500", status=500), id="out of order"),
    pytest.param(NO_ANSWER, id="never answered"),
    pytest.param(TooManyRequests("slow down"), id="too many requests"),
]


@in_virtual_time
async def test_w42_one_zone_that_cannot_be_decided_stops_no_other() -> None:
    """W-42, W-43: counted with its reason, named with zone, key and value; others go on."""
    followers = [zone(letter, 3, follows=leading) for letter, leading in ("bx", "ca", "dd")]
    bench = Bench([zone("a", 5), *followers])
    await bench.reconcile()
    assert bench.client.patched == ["zone-c 5"]
    assert bench.waits() == [
        f"{Code.NO_LEADING_ZONE} zone-b",
        f"{Code.LEADING_ZONES_CIRCLE} zone-d",
    ]
    assert bench.failures(Code.NO_LEADING_ZONE) == 1
    assert bench.failures(Code.LEADING_ZONES_CIRCLE) == 1
    assert bench.failures(Code.SCALE_REFUSED) == 0
    assert "could not find leader for zone-b" in bench.reasons()[0].text


@pytest.mark.parametrize("error", FOREVER)
@in_virtual_time
async def test_w42_one_zone_that_cannot_be_scaled_up_stops_no_other(error: ApiError) -> None:
    bench = Bench([zone("a", 5), zone("b", 3, follows="a"), zone("c", 3, follows="a")])
    bench.client.refuse("zone-b", error)
    async with bench.living():
        await pass_time(SECOND)
    assert bench.client.patched == ["zone-c 5"]
    assert bench.waits() == [f"{Code.SCALE_REFUSED} zone-b"]
    assert str(error) in bench.reasons()[0].text
    assert (bench.failures(Code.SCALE_REFUSED) or 0) >= 1


@pytest.mark.parametrize(
    "error", [Refused("downscale is not allowed", status=403), Denied("forbidden", status=403)]
)
@in_virtual_time
async def test_w42_one_zone_that_cannot_be_scaled_down_stops_no_other(error: ApiError) -> None:
    """W-42, D-18: another client holds zone-b for ever; c follows a all the same, and soon."""
    bench = Bench([zone("a", 2), zone("b", 5, follows="a"), zone("c", 5, follows="a")])
    bench.client.refuse("zone-b", error)
    async with bench.living():
        await pass_time(2 * SECOND)
        assert bench.client.patched == ["zone-c 2"]
        await pass_time(600 * SECOND)
        assert bench.waits() == [f"{Code.SCALE_REFUSED} zone-b"]
        bench.client.before = lambda call: None
        await pass_time(31 * SECOND)
        assert bench.client.patched == ["zone-c 2", "zone-b 2"]


@pytest.mark.parametrize("replicas", [2, 5], ids=["down", "up"])
@pytest.mark.parametrize("error", FOREVER)
@in_virtual_time
async def test_li11_what_fails_for_ever_is_tried_twice_a_minute(
    error: ApiError, replicas: int
) -> None:
    """LI-11: after five minutes, and more rarely where the group is held back meanwhile (D-25)."""
    is_held = replicas < 3 and error is NO_ANSWER
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a")])
    bench.client.refuse("zone-b", error)
    async with bench.living():
        await pass_time(5 * SECOND)
        assert bench.client.tries("zone-b") >= 4, "at first it is tried soon again"
        await pass_time(330 * SECOND)
        bench.client.calls.clear()
        await pass_time(600 * SECOND)
        assert bench.client.tries("zone-b") in (range(4, 6) if is_held else range(18, 21))
        # Two lists, and two of a mark that comes and goes, before and after the count itself.
        assert len(bench.client.calls) <= 5 * 20, "reads before a downscale are bounded with it"
        bench.client.before = lambda call: None
        await pass_time(121 * SECOND if is_held else 31 * SECOND)
    assert bench.client.patched == [f"zone-b {replicas}"]
    assert bench.waits() == []


@in_virtual_time
async def test_an_api_server_that_says_when_to_retry_is_obeyed() -> None:
    """The wait is that of the answer, and at most a minute."""
    bench = Bench([zone("a", 5), zone("b", 3, follows="a")])
    bench.client.refuse("zone-b", TooManyRequests("slow down", retry_after=20 * SECOND))
    async with bench.living():
        await pass_time(19 * SECOND)
        assert bench.client.tries("zone-b") == 1
        bench.client.before = lambda call: None
        await pass_time(1.1 * SECOND)
    assert bench.client.patched == ["zone-b 5"]


@pytest.mark.parametrize("replicas", [2, 5], ids=["down", "up"])
@in_virtual_time
async def test_si18_a_write_without_an_answer_is_not_repeated_as_if_it_had_failed(
    replicas: int,
) -> None:
    """SI-18, FP-14: it was stored, and another client set other replicas since: these stay."""
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a")])
    bench.client.lose_answer("zone-b")
    await bench.reconcile()
    assert bench.client.patched == [f"zone-b {replicas}"]
    assert bench.waits() == [f"{Code.SCALE_REFUSED} zone-b"]
    bench.client.change("zone-b", set_count(4))
    for _ in range(5):
        await pass_time(SECOND)
        await bench.reconcile()  # the cache has not moved
    assert bench.client.count("zone-b") == 4
    assert bench.client.patched == [f"zone-b {replicas}"]


@pytest.mark.parametrize("replicas", [2, 5], ids=["down", "up"])
@in_virtual_time
async def test_si18_a_write_without_an_answer_is_done_when_the_cache_shows_it(
    replicas: int,
) -> None:
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a")])
    bench.client.lose_answer("zone-b")
    async with bench.living():
        await pass_time(10 * SECOND)
    assert bench.client.patched == [f"zone-b {replicas}"]
    assert bench.waits() == []
    direction = "up" if replicas > 3 else "down"
    assert bench.scalings(direction, "unknown") == 1
    assert bench.scalings(direction, "accepted") == 0


@in_virtual_time
async def test_d25_a_downscale_that_is_never_answered_holds_its_group_for_a_third_of_the_time() -> (
    None
):
    """SI-18, D-25: the others of the group have their turns between its attempts."""
    bench = Bench([zone("a", 2), guarded("b", 3, follows="a")])
    bench.client.refuse("zone-b", NO_ANSWER)
    held = 0
    async with bench.living():
        await pass_time(120 * SECOND)
        for _ in range(600):
            await pass_time(SECOND)
            held += bench.memory.downscales.find_underway(GROUP) is not None
    assert 0 < held <= 600 * 36 / 120 + 36


@pytest.mark.parametrize("replicas", [2, 5], ids=["down", "up"])
@in_virtual_time
async def test_a_stale_cache_is_no_failure(replicas: int) -> None:
    """A client has set b already, and the cache does not show it: no warning comes of that."""
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a")])
    bench.client.change("zone-b", set_count(replicas))
    with bench.listening() as lines:
        for _ in range(20):
            await bench.reconcile()
            await pass_time(0.02 * SECOND)
        bench.follow()
        await bench.reconcile()
    assert bench.client.patched == []
    assert bench.waits() == []
    assert [line for line in lines if "level=warn" in line] == []
    assert bench.failures(Code.SCALE_REFUSED) == 0


@in_virtual_time
async def test_a_downscale_is_decided_anew_on_what_the_api_server_holds() -> None:
    """The leading zone is back at 5, and the cache still shows 2: no pod goes."""
    bench = Bench([zone("a", 2), zone("b", 5, follows="a")])
    bench.client.change("zone-a", set_count(5))
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 0
    assert bench.waits() == [f"{Code.SNAPSHOT_CHANGED} zone-b"]
    bench.follow()
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 0
    assert bench.waits() == []


@in_virtual_time
async def test_a_downscale_of_another_operator_is_seen_in_the_live_read() -> None:
    """SI-11: the time that another one wrote since counts, though the cache does not show it."""
    bench = Bench([zone("a", 2), zone("b", 5, follows="a", span="1h"), zone("c", 2)])
    bench.client.change("zone-c", record_time(ago(0 * SECOND)))
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 0
    bench.follow()
    await bench.reconcile()
    assert bench.waits() == [f"{Code.ZONE_DOWNSCALED_LATELY} zone-b"]
