"""A chain of zones on the real API server: one count, written once, becomes that of each zone.

Both webhooks are registered and fail closed: what the operator writes comes back to it as a review.
"""

from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.judge.objects import Pod
from tests.system.guarded import MIN_TIME, Guarded, guard, prepared_zone
from tests.system.scaled import (
    FORCE,
    TRACKED,
    WHEN_READY,
    annotated,
    assert_judged,
    chain,
    follow,
    gaps,
    scale,
    steps,
    stored_at,
    track,
    wait_counts,
    wait_wanted,
)
from tests.system.waits import read_metric, wait_reason
from tests.world.kubelet import Behaviour, Choose
from tests.world.webpods import Respond, WebPods
from tests.world.world import World

pytestmark = pytest.mark.controlplane

A, B, C = ZONES = ("live-a", "live-b", "live-c")
WAIT: Final = timedelta(seconds=3)
# Recorded times have whole seconds and are never early; the rest is for a busy machine.
LATE: Final = timedelta(seconds=3)


async def _guard(world: World, pods: WebPods, flags: tuple[str, ...]) -> Guarded:
    """Start a group whose zones were downscaled long ago, or never."""
    if flags:
        await track(world, ZONES)
    zones = chain(pods, "live", replicas=5, wait="3s")
    return await guard(world, *zones, pods=pods, flags=flags)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="annotations"),
        pytest.param(TRACKED, id="tracker", marks=pytest.mark.prove),
    ],
)
async def test_scale12_down_one_by_one_and_up_at_once(world: World, flags: tuple[str, ...]) -> None:
    """SCALE-09, 11, 12, 13, W-18, D-22, SEED-066, LI-09: 5 -> 3 -> 6, each written once.

    The operator tries no downscale that its own webhook would refuse.
    """
    pods = await world.serve_pods()
    pods.behave("", Respond(after=timedelta(seconds=0.2)))
    guarded = await _guard(world, pods, flags)

    await scale(guarded, A, 3)
    await wait_counts(world, dict.fromkeys(ZONES, 3))
    await scale(guarded, A, 6)
    await wait_counts(world, dict.fromkeys(ZONES, 6))

    await world.judge.settle()
    down, up = [(name, 5, 3) for name in ZONES], [(name, 3, 6) for name in ZONES]
    assert steps(world, *ZONES) == [*down, *up]
    assert all(WAIT <= gap <= WAIT + LATE for gap in gaps(world, *ZONES)), gaps(world, *ZONES)
    upscale = timedelta(seconds=stored_at(world, C, 6) - stored_at(world, A, 6))
    assert upscale < WAIT, "a zone waited for the time between zones"
    called = [(call.pod, call.method) for call in pods.calls]
    assert sorted(called) == sorted((f"{zone}-{each}", "POST") for zone in ZONES for each in (3, 4))
    await _assert_none_denied(guarded)
    name = "rollout_operator_scalings_total"
    assert await read_metric(guarded.operator, name, direction="down", outcome="accepted") == 2
    assert await read_metric(guarded.operator, name, direction="up", outcome="accepted") == 2
    await guarded.assert_judged()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "moment"),
    [
        pytest.param((), "pods-prepare", id="pods-prepare-annotations"),
        pytest.param(TRACKED, "stored", id="stored-tracker"),
        pytest.param((), "stored", id="stored-annotations", marks=pytest.mark.prove),
        pytest.param(TRACKED, "pods-prepare", id="pods-prepare-tracker", marks=pytest.mark.prove),
    ],
)
async def test_fp06_kill_9_in_the_midst(world: World, flags: tuple[str, ...], moment: str) -> None:
    """FP-06, FP-35, LI-09, LI-11: killed in the downscale of the second zone, it ends right."""
    pods = await world.serve_pods()
    pods.behave(f"{B}-4", Respond(after=timedelta(seconds=2)), method="POST", times=1)
    guarded = await _guard(world, pods, flags)
    await scale(guarded, A, 3)
    if moment == "stored":
        await wait_wanted(world, {B: 3})
    else:
        await pods.wait_until("b prepares", lambda: bool(pods.calls_to(f"{B}-4")))

    guarded.operator.kill()
    guarded.operator.start()

    await wait_counts(world, dict.fromkeys(ZONES, 3))
    await world.judge.settle()
    assert steps(world, *ZONES) == [(name, 5, 3) for name in ZONES]
    assert all(gap >= WAIT for gap in gaps(world, *ZONES)), gaps(world, *ZONES)
    await guarded.assert_judged()


async def test_scale09_a_zone_without_preparation_keeps_the_time_too(world: World) -> None:
    """SCALE-09, SEED-066, SEED-115: no review requests that; the annotation of b itself does."""
    pods = await world.serve_pods()
    leading = prepared_zone(pods, ZoneSpec(name=A, group="live"))
    following = annotated(follow(ZoneSpec(name=B, group="live"), A), {MIN_TIME: "3s"})
    guarded = await guard(world, leading, following, pods=pods)

    await scale(guarded, A, 2)
    await wait_counts(world, {A: 2, B: 2})

    await world.judge.settle()
    (gap,) = gaps(world, A, B)
    assert WAIT <= gap <= WAIT + LATE
    assert not pods.calls_to(f"{B}-2")
    await guarded.assert_judged()


async def test_scale08_an_upscale_waits_for_the_leading_zone_where_that_is_requested(
    world: World,
) -> None:
    """SCALE-06, 08, SEED-066: b waits for the pods of a, c does not; forced, b does not wait."""
    world.kubelet.choose = _slow_pod(f"{A}-1")
    leading, *others = (ZoneSpec(name=name, group="live", replicas=1) for name in ZONES)
    waiting, going = (follow(zone, A) for zone in others)
    guarded = await guard(world, leading, annotated(waiting, {WHEN_READY: "true"}), going)

    await scale(guarded, A, 2)
    await wait_wanted(world, {C: 2})
    await wait_reason(guarded.operator, "live", f"{B} follows {A}: 1 → 2 waits: ")
    await wait_counts(world, dict.fromkeys(ZONES, 2))
    await world.annotate(B, **{FORCE: "0"})
    await wait_counts(world, {B: 0})

    await world.judge.settle()
    ready = next(
        change.at.total_seconds()
        for change in world.judge.changes
        if isinstance(change.now, Pod) and change.now.name == f"{A}-1" and change.now.is_ready
    )
    assert stored_at(world, C, 2) < ready < stored_at(world, B, 2)
    await assert_judged(guarded)


def _slow_pod(name: str) -> Choose:
    slow = Behaviour(ready_after=timedelta(seconds=1.5))
    return lambda pod: slow if pod["metadata"]["name"] == name else Behaviour()


async def _assert_none_denied(guarded: Guarded) -> None:
    """Raise AssertionError where a count of the operator was refused by a review.

    409 is the answer where a time is to be recorded and the set has changed meanwhile.
    """
    calls = [each for each in await guarded.world.judge.calls() if each.code not in (200, 409)]
    assert [each for each in calls if each.resource.startswith("statefulsets")] == []
