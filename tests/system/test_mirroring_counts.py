"""Zones that mirror what an autoscaler writes, on the real API server."""

from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.delayed import DELAY, delay
from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.mirrored import Template, grant_mirroring, mirror
from tests.system.scaled import (
    assert_judged,
    follow,
    gaps,
    steps,
    stored_at,
    wait_counts,
    wait_wanted,
)
from tests.system.waits import read_metric, wait_reason
from tests.world.world import World

pytestmark = pytest.mark.controlplane

A, B, C = ZONES = ("live-a", "live-b", "live-c")
POLLING: Final = ("-reconcile.interval=1s",)
WAIT: Final = timedelta(seconds=3)
LATE: Final = timedelta(seconds=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="", marks=pytest.mark.prove), pytest.param(True, id="kill-9")],
)
async def test_w40_an_autoscaler_and_zones_that_wait_for_one_another(
    world: World, is_killed: bool
) -> None:
    """W-40, W-19, SEED-068, 069, 071, 072, SI-11: one mirrors, two follow, with time between.

    SEC-17: under the shipped Role no call is refused. FP-06: killed between two zones, it ends
    right.
    """
    pods = await world.serve_pods()
    template = Template(world=world)
    await template.create(5)
    await grant_mirroring(world)
    leading, *others = (ZoneSpec(name=name, group="live", replicas=5) for name in ZONES)
    zones = [mirror(leading), *(follow(zone, A) for zone in others)]
    guarded = await guard(
        world, *(prepared_zone(pods, zone, wait="3s") for zone in zones), pods=pods
    )
    await template.wait_status(5)

    await template.scale(3)
    out_for = timedelta(0)
    if is_killed:
        await wait_wanted(world, {A: 3})
        guarded.operator.kill()
        guarded.operator.start()
        out_for = await guarded.operator.wait_ready()
    await wait_counts(world, dict.fromkeys(ZONES, 3))
    await template.wait_status(3)
    await template.scale(6)
    await wait_counts(world, dict.fromkeys(ZONES, 6))
    await template.wait_status(6)

    await world.judge.settle()
    down, up = [(name, 5, 3) for name in ZONES], [(name, 3, 6) for name in ZONES]
    assert steps(world, *ZONES) == [*down, *up]
    latest = WAIT + LATE + out_for
    assert all(WAIT <= gap <= latest for gap in gaps(world, *ZONES)), gaps(world, *ZONES)
    assert [each.code for each in await template.publications()] == [200] * 3, "W-19"
    await assert_judged(guarded)


async def test_seed071_an_autoscaler_that_changes_its_mind(world: World) -> None:
    """SEED-071, W-40, LI-09: 5 -> 3 -> 6 while zones wait; those never go down that still wait."""
    pods = await world.serve_pods()
    template = Template(world=world)
    await template.create(5)
    await grant_mirroring(world)
    zones = [mirror(ZoneSpec(name=A, group="live", replicas=5))]
    zones += [follow(ZoneSpec(name=B, group="live", replicas=5), A)]
    guarded = await guard(
        world, *(prepared_zone(pods, zone, wait="1h") for zone in zones), pods=pods
    )
    await template.scale(3)
    await wait_reason(guarded.operator, "live", f"{B} follows {A}: 5 → 3 in ")
    left = await read_metric(
        guarded.operator, "rollout_operator_next_downscale_seconds", rollout_group="live"
    )

    await template.scale(6)
    await wait_counts(world, {A: 6, B: 6})
    await template.wait_status(6)

    assert left is not None
    assert 3500 < left < 3605
    await world.judge.settle()
    assert steps(world, A, B) == [(A, 5, 3), (A, 3, 6), (B, 5, 6)]
    await assert_judged(guarded)


@pytest.mark.parametrize("may_watch", [True, False], ids=["watched", "polled"])
async def test_seed070_three_mirrors_without_time_between(world: World, may_watch: bool) -> None:
    """SEED-070, 072, MIRR-08, 11, W-19: all mirror one object, none waits twelve hours.

    Its status is written once per change, when the last zone has come to it.
    """
    world.may_be_forbidden = not may_watch
    pods = await world.serve_pods()
    template = Template(world=world)
    await template.create(5)
    await grant_mirroring(world, may_watch=may_watch)
    twelve = {"grafana.com/min-time-between-zones-downscale": "12h"}
    zones = [mirror(ZoneSpec(name=name, group="live", replicas=5, labels=twelve)) for name in ZONES]
    guarded = await guard(world, *zones, pods=pods, flags=() if may_watch else POLLING)
    await template.wait_status(5)

    await template.scale(3)
    await wait_counts(world, dict.fromkeys(ZONES, 3))
    await template.wait_status(3)
    await template.scale(4)
    await wait_counts(world, dict.fromkeys(ZONES, 4))
    await template.wait_status(4)

    await world.judge.settle()
    down, up = [(name, 5, 3) for name in ZONES], [(name, 3, 4) for name in ZONES]
    assert steps(world, *ZONES) == [*down, *up]
    assert stored_at(world, C, 4) - stored_at(world, A, 4) < 60, "not twelve hours"
    assert [each.code for each in await template.publications()] == [200] * 3, "W-19"
    await _assert_verbs(guarded, may_watch=may_watch)
    assert not pods.calls
    await assert_judged(guarded)


async def test_w19_two_groups_that_mirror_one_object(world: World) -> None:
    """W-19, SEED-069: its status is that of the zone that is furthest behind, in any group."""
    pods = await world.serve_pods()
    template = Template(world=world)
    await template.create(3)
    await grant_mirroring(world)
    quick, held = (mirror(ZoneSpec(name=name, group=name)) for name in ("quick", "held"))
    guarded = await guard(world, quick, delay(pods, held, "1h"), pods=pods)
    await template.wait_status(3)
    await wait_reason(guarded.operator, "held", "up_to_date")
    before = len(await template.publications())

    await template.scale(2)
    await wait_counts(world, {"quick": 2, "held": 3})
    await wait_reason(guarded.operator, "held", "delayed_by_pods")
    assert await template.read_status() == 3
    await world.annotate("held", **{DELAY: None})
    await wait_counts(world, {"quick": 2, "held": 2})
    await template.wait_status(2)

    assert len(await template.publications()) == before + 1, "the groups do not argue"
    await assert_judged(guarded)


async def _assert_verbs(guarded: Guarded, *, may_watch: bool) -> None:
    """Raise AssertionError where other verbs were used than the Role grants, or were refused."""
    calls = await guarded.world.judge.calls()
    mine = [each for each in calls if each.resource.startswith("replicatemplates")]
    done = {(each.verb, each.resource) for each in mine if each.code == 200}
    needed = {("get", "replicatemplates/scale"), ("patch", "replicatemplates/status")}
    reported = {("list", "replicatemplates"), ("watch", "replicatemplates")}
    refused = [each for each in calls if each.code == 403]
    if may_watch:
        assert {*needed, ("list", "replicatemplates")} <= done <= needed | reported
        assert refused == []
    else:
        assert done == needed
        assert {(each.verb, each.resource) for each in refused} == {("list", "replicatemplates")}
        assert len(refused) == 1, "requested once, and not again for minutes"
