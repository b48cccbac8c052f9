"""One downscale and no rollout of a group at a time, for any client."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.judge.objects import Pod, Set
from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.scaled import TRACKED, follow, gaps, scale, stored_at, track, wait_counts
from tests.system.waits import wait_reason
from tests.world.api import Answer
from tests.world.clients import Route
from tests.world.kubelet import Behaviour, by_image
from tests.world.observed import Change
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


@pytest.mark.parametrize(
    ("is_prepared", "code"),
    [
        pytest.param(True, "other_zone_not_ready", id="prepared"),
        pytest.param(False, "rollout_underway", id="plain"),
    ],
)
async def test_d25_a_rollout_holds_the_following_zone(
    world: World, is_prepared: bool, code: str
) -> None:
    """D-25, SEED-110, LI-09: zone b is scaled down only while no pod of zone a is away."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(seconds=2))})
    pods = await world.serve_pods()
    zones = [ZoneSpec(name=A, group="live"), follow(ZoneSpec(name=B, group="live"), A)]
    if is_prepared:
        zones = [prepared_zone(pods, zone, wait="1s") for zone in zones]
    guarded = await guard(world, *zones, pods=pods)
    await world.set_image([A], "v2")
    await world.wait_pod(f"{A}-0", "replaced", _is_v2)

    await scale(guarded, A, 2)

    await wait_reason(guarded.operator, "live", code)
    await world.wait_adopted([A])
    await wait_counts(world, {A: 2, B: 2})
    await world.judge.settle()
    assert list(_list_overlaps(world.judge.changes, B, A)) == []
    await guarded.assert_judged()


async def test_d25_the_following_zone_holds_a_rollout(world: World) -> None:
    """D-25, SEED-110, SEED-111: no pod is deleted until the operator's downscale is stored."""
    pods = await world.serve_pods()
    pods.behave(f"{B}-2", Respond(after=timedelta(seconds=2)), method="POST")
    zones = [ZoneSpec(name=A, group="live"), follow(ZoneSpec(name=B, group="live"), A)]
    guarded = await guard(
        world, *(prepared_zone(pods, zone, wait="1s") for zone in zones), pods=pods
    )
    await scale(guarded, A, 2)
    await pods.wait_until("b prepares", lambda: bool(pods.calls_to(f"{B}-2")))

    await world.set_image([A], "v2")
    await wait_reason(guarded.operator, "live", "downscale_underway")

    await world.wait_adopted([A])
    await wait_counts(world, {A: 2, B: 2})
    deletes = await world.judge.deletes()
    assert len(deletes) == 2
    ended = {each.uid for each in deletes}
    first = next(
        change.at
        for change in world.judge.changes
        if isinstance(change.now, Pod) and change.now.uid in ended and change.now.is_terminating
    )
    assert first > stored_at(world, B, 2)
    await guarded.assert_judged()


def _is_v2(pod: dict[str, object]) -> bool:
    return "'v2'" in str(pod["spec"])


def _list_overlaps(changes: Sequence[Change], scaled: str, other: str) -> Iterator[str]:
    """Yield, in words, each pod of the other zone that was away in a downscale of this one."""
    sets: dict[str, Set] = {}
    pods: dict[str, Pod] = {}
    for change in changes:
        match change.before, change.now:
            case Set() as before, Set() as now if (
                now.name == scaled and now.replicas < before.replicas
            ):
                there = {name for name, pod in pods.items() if _is_whole(pod)}
                away = [name for name in sets[other].pod_names if name not in there]
                yield from (f"{name} was away at {change.at}" for name in away)
            case _, Set() as now:
                sets[now.name] = now
            case _, Pod() as pod:
                pods[pod.name] = pod
            case Pod() as gone, None:
                pods.pop(gone.name, None)


def _is_whole(pod: Pod) -> bool:
    return pod.is_ready and not pod.is_terminating
