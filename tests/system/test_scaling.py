"""Counts that zones take from others, whole: mirrored, delayed, prepared, and followed in turn.

Both webhooks are registered and fail closed: what the operator writes comes back to it as a review.
Each rule by itself is told in `tests/planning/scaling` and `tests/controllers/scaling`.
"""

from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.scaled import (
    Template,
    delay,
    follow,
    gaps,
    grant_mirroring,
    mirror,
    steps,
    stored_at,
    wait_counts,
    wait_wanted,
)
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

A, B, C = ZONES = ("live-a", "live-b", "live-c")
# Without the right to watch what is mirrored it is read again and again.
POLLING: Final = ("-reconcile.interval=1s",)
WAIT: Final = timedelta(seconds=3)
# Recorded times have whole seconds and are never early; the rest is for a busy machine.
LATE: Final = timedelta(seconds=3)
# Pods answer whole seconds, rounded down.
ROUNDING: Final = timedelta(seconds=1)


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="", marks=pytest.mark.prove), pytest.param(True, id="kill-9")],
)
async def test_w40_an_autoscaler_and_zones_that_wait_for_one_another(
    world: World, is_killed: bool
) -> None:
    """W-40, W-18, W-19, SEED-066, 068, 069, 071, 072, SI-11: one mirrors, two follow in time.

    SEC-17: under the shipped Role no call is refused. FP-06, LI-11: killed between two zones, it
    ends right.
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
    upscale = timedelta(seconds=stored_at(world, C, 6) - stored_at(world, A, 6))
    assert upscale < WAIT, "a zone waited for the time between zones"
    assert [each.code for each in await template.publications()] == [200] * 3, "W-19"
    await _assert_verbs(guarded, may_watch=True)
    await guarded.assert_judged()


async def test_seed080_all_of_it_together(world: World) -> None:
    """SEED-073, SEED-080, DELAY-08, W-40, D-22: with a delay, prepared, and followed in time.

    SEC-17, MIRR-11: under a Role that lets it not watch what is mirrored.
    """
    world.may_be_forbidden = True
    pods = await world.serve_pods()
    template = Template(world=world)
    await template.create(4)
    await grant_mirroring(world, may_watch=False)
    leading, following = (ZoneSpec(name=name, group="live", replicas=4) for name in (A, B))
    zones = [delay(pods, mirror(leading), "3s"), follow(following, A)]
    guarded = await guard(
        world,
        *(prepared_zone(pods, zone, wait="3s") for zone in zones),
        pods=pods,
        flags=POLLING,
    )
    await template.wait_status(4)
    await template.scale(2)
    await wait_counts(world, {A: 2, B: 2})
    await template.wait_status(2)

    await world.judge.settle()
    assert steps(world, A, B) == [(A, 4, 2), (B, 4, 2)]
    for pod in (f"{A}-{ordinal}" for ordinal in (2, 3)):
        delayed = [call for call in pods.calls_to(pod) if call.is_delayed]
        first = next(call.at for call in delayed if call.method == "POST")
        waited = timedelta(seconds=stored_at(world, A, 2) - first)
        assert WAIT - ROUNDING <= waited < WAIT + LATE, pods.describe()
        # At the write the webhook prepares the same pods, after their delay is over.
        prepares = [call for call in pods.calls_to(pod) if not call.is_delayed]
        assert [call.method for call in prepares] == ["POST"], pods.describe()
        assert prepares[0].at > first
    assert [each.code for each in await template.publications()] == [200] * 2
    await _assert_verbs(guarded, may_watch=False)
    await guarded.assert_judged()


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
