"""What is shown of a group that is scaled together, from its first reconcile to its last."""

import asyncio

import pytest

from rollout_operator.model.outcome import Code
from tests.controllers.scaling_bench import HOUR, SECOND, Bench, pass_time
from tests.controllers.scaling_clients import REFUSAL
from tests.controllers.scaling_objects import ago, in_group, mirroring, zone
from tests.virtual_time import in_virtual_time


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
