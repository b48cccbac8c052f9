"""Zones that follow and zones that mirror, and what is shown of their group.

Beside rollouts: T-03 from row 20 on, T-04, MIRR-01 to 11, chains, and force.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import pytest

from rollout_operator.model.names import GroupName, Unreachable
from rollout_operator.model.outcome import Code
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import GROUP, HOUR, SECOND, Bench, pass_time
from tests.controllers.scaling_objects import DEMO, REFUSAL, ago, in_group, mirroring, old, zone
from tests.virtual_time import in_virtual_time

STORE = GroupName("store")
FOUR = [zone("a", 4), mirroring("b", 5), mirroring("c", 5, write_back="true"), mirroring("d", 2)]


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


@pytest.mark.parametrize(
    ("zones", "scale", "patched", "published"),
    [
        pytest.param([mirroring("b", 2)], (5, 2), ["zone-b 5"], [5], id="T-04 row 1"),
        pytest.param([mirroring("b", 3)], (2, 3), ["zone-b 2"], [2], id="T-04 row 3"),
        pytest.param([mirroring("b", 3)], (3, 5), [], [3], id="T-04 row 4"),
        pytest.param(FOUR, (5, 2), ["zone-d 5"], [5], id="T-04 row 9: one status, W-19"),
    ],
)
@in_virtual_time
async def test_t04(
    zones: Sequence[Json], scale: tuple[int, int], patched: list[str], published: list[int]
) -> None:
    """All in one reconcile: what was published is what had been written by then."""
    bench = Bench(zones)
    bench.references.show(*scale)
    await bench.reconcile()
    assert bench.references.wanted == {GROUP: (DEMO,)}
    assert bench.client.patched == patched
    assert bench.references.published == published
    bench.follow()
    await bench.reconcile()
    assert (bench.client.patched, bench.references.published) == (patched, published)


@in_virtual_time
async def test_a_status_that_cannot_be_written_is_tried_again_ever_more_rarely() -> None:
    """LI-11, W-43: counts are right all the same; twice a minute after five minutes."""
    bench = Bench([mirroring("b", 2)])
    bench.references.show(5, 2)
    bench.references.error = Unreachable("HTTP status 500")
    async with bench.living():
        await pass_time(330 * SECOND)
        before = bench.references.tries
        await pass_time(600 * SECOND)
        assert 18 <= bench.references.tries - before <= 20
        assert bench.client.patched == ["zone-b 5"]
        assert bench.waits() == [f"{Code.SCALE_REFUSED}"]
        bench.references.error = None
        await pass_time(31 * SECOND)
        assert bench.references.published == [5]
        assert bench.waits() == []


@in_virtual_time
async def test_a_reference_that_no_group_wants_is_not_followed_any_more() -> None:
    """The annotations go, or the group does: what was wanted is released."""
    bench = Bench([mirroring("b", 2)])
    bench.references.show(2, 2)
    await bench.reconcile()
    assert bench.references.wanted == {GROUP: (DEMO,)}
    bench.remove("b")
    await bench.reconcile()
    assert bench.references.wanted == {GROUP: ()}


def shared() -> Bench:
    """Return two groups that mirror one object, of which the other is behind."""
    behind = in_group(mirroring("x", 5, delay="soon", url="http://pod/prepare"), STORE)
    bench = Bench([mirroring("b", 3), behind])
    bench.references.show(3, 5)
    return bench


@in_virtual_time
async def test_w19_two_groups_do_not_publish_against_each_other() -> None:
    """MIRR-10: an object that two groups mirror has both of them reported by either. The group
    that is where it should be leaves the status to the group that is behind.
    """
    bench = shared()
    reconcile = bench.memory.scaling.reconcile
    await reconcile(STORE)
    for _ in range(3):
        await reconcile(GROUP)
        await reconcile(STORE)
    assert bench.references.published == []
    bench.scale("x", 3)
    await reconcile(STORE)
    assert bench.references.published == [3]


@in_virtual_time
async def test_w19_a_group_that_mirrors_no_more_is_left_out() -> None:
    bench = shared()
    await bench.memory.scaling.reconcile(STORE)
    bench.client.objects["statefulsets", "zone-x"] = in_group(zone("x", 5), STORE)
    bench.follow()
    await bench.memory.scaling.reconcile(STORE)
    await bench.reconcile()
    assert bench.references.published == [3]


def waiting() -> Bench:
    """Return zone-b that waits for 12 hours after zone-a."""
    return Bench([zone("a", 2, last=ago(0 * SECOND)), zone("b", 5, follows="a", span="12h")])


@in_virtual_time
async def test_a_group_without_scaling_costs_nothing() -> None:
    """No metric, no line on the page, no reconcile without an event."""
    bench = Bench([zone("a", 2), zone("b", 5)])
    assert (await bench.reconcile()).again is None
    assert bench.memory.group_states.entries() == ()
    assert bench.value("next_downscale_seconds") is None
    assert bench.scalings("up", "accepted") is None
    assert bench.client.calls == []


@in_virtual_time
async def test_all_series_exist_from_the_first_reconcile_on() -> None:
    """An alert sees a zero and no absence."""
    bench = Bench([zone("a", 2), zone("b", 2, follows="a")])
    await bench.reconcile()
    for direction in ("up", "down"):
        for outcome in ("accepted", "conflict", "refused", "unknown", "failed"):
            assert bench.scalings(direction, outcome) == 0
    for code in (Code.NO_LEADING_ZONE, Code.WAIT_TIME_MISSING, Code.SCALE_REFUSED, Code.BAD_DELAY):
        assert bench.failures(code) == 0
    assert bench.value("next_downscale_seconds") == 0


@in_virtual_time
async def test_the_time_until_the_next_downscale_runs() -> None:
    """It is computed at each scrape, without a reconcile; it ends at 0."""
    bench = waiting()
    await bench.reconcile()
    assert bench.value("next_downscale_seconds") == 12 * 3600
    await pass_time(HOUR)
    assert bench.value("next_downscale_seconds") == 11 * 3600
    await pass_time(20 * HOUR)
    assert bench.value("next_downscale_seconds") == 0


@in_virtual_time
async def test_a_reason_is_reported_once_though_its_time_runs() -> None:
    """W-46: in an hour of reconciles one line, and the page shows what is left."""
    bench = waiting()
    with bench.listening() as lines:
        async with bench.living():
            await pass_time(HOUR)
            (reason,) = bench.reasons()
    assert [line for line in lines if "zone-b" in line] == [
        'level=info msg="Group waits" group=ingester zone=zone-b reason=zone_downscaled_lately'
        ' why="zone-b follows zone-a: 5 → 2 in 12h0m0s,'
        ' last downscale zone-a 2026-01-02T03:04:05Z, wait 12h0m0s"\n'
    ]
    assert " in 11h" in reason.text


@in_virtual_time
async def test_a_failure_is_reported_once_though_it_is_repeated() -> None:
    """LI-11: hundreds of attempts, one warning."""
    bench = Bench([zone("a", 5), zone("b", 3, follows="a")])
    bench.client.refuse("zone-b")
    with bench.listening() as lines:
        async with bench.living():
            await pass_time(HOUR)
    warnings = [line for line in lines if "level=warn" in line]
    assert len(warnings) == 1
    assert str(REFUSAL) in warnings[0]


@in_virtual_time
async def test_an_annotation_that_is_removed_takes_all_that_was_shown_with_it() -> None:
    bench = waiting()
    await bench.reconcile()
    assert bench.waits() == [f"{Code.ZONE_DOWNSCALED_LATELY} zone-b"]
    bench.annotate("b", follows=None)
    assert (await bench.reconcile()).again is None
    assert bench.waits() == []
    assert bench.value("next_downscale_seconds") is None
    bench.annotate("b", follows="zone-a")
    await bench.reconcile()
    assert bench.value("next_downscale_seconds") == 12 * 3600


@in_virtual_time
async def test_what_rollouts_show_stays_when_scaling_ends() -> None:
    """A group that vanishes is forgotten."""
    bench = waiting()
    await bench.roll()
    await bench.reconcile()
    bench.annotate("b", follows=None)
    await bench.reconcile()
    (entry,) = bench.memory.group_states.entries()
    assert [reason.code for reason in entry.plan.waits] == [Code.UP_TO_DATE]
    bench = waiting()
    await bench.reconcile()
    bench.remove("a")
    bench.remove("b")
    await bench.reconcile()
    await bench.roll()
    assert bench.memory.group_states.entries() == ()
    assert bench.value("next_downscale_seconds") is None


@pytest.mark.parametrize("rollouts_first", [True, False])
@in_virtual_time
async def test_a_group_that_vanishes_while_it_is_scaled_leaves_no_ghost(
    rollouts_first: bool,
) -> None:
    """The write hangs meanwhile, and is reported after rollouts have forgotten the group."""
    bench = Bench([zone("a", 5), zone("b", 3, follows="a")])

    async def vanish(call: str) -> None:
        if call == "patch statefulsets/zone-b":
            bench.remove("a")
            bench.remove("b")
            if rollouts_first:
                await bench.roll()

    bench.client.pause = vanish
    await bench.reconcile()
    await bench.reconcile()  # the event of its deletion
    if not rollouts_first:
        await bench.roll()
    assert bench.memory.group_states.entries() == ()
    for name in ("next_downscale_seconds", "group_waiting"):
        assert bench.value(name) is None
    assert bench.scalings("up", "conflict") is None


@pytest.mark.parametrize("is_mirrored", [False, True], ids=["a write", "a mirrored count"])
@in_virtual_time
async def test_w06_what_hangs_delays_no_other_group_and_no_rollout(is_mirrored: bool) -> None:
    """W-06, LI-09: the patch of b, or what is read live before it; c of another group goes."""
    others = [in_group(zone("c", 3), "other"), in_group(zone("d", 2, follows="c"), "other")]
    first = [mirroring("b", 3)] if is_mirrored else [zone("a", 2), zone("b", 3, follows="a")]
    bench = Bench([*first, *others])
    bench.references.show(2, 3)
    bench.references.takes = 30 * SECOND * is_mirrored

    async def hang(call: str) -> None:
        if call == "patch statefulsets/zone-b" and not is_mirrored:
            await pass_time(4 * SECOND)

    bench.client.pause = hang
    async with bench.living():
        await pass_time(SECOND)
        assert bench.client.patched == ["zone-d 3"]
        async with asyncio.timeout(1):
            await bench.roll()
        await pass_time(30 * SECOND)
        assert bench.client.patched == ["zone-d 3", "zone-b 2"]
