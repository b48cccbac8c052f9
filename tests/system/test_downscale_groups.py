"""Downscales on the real API server within a group: one zone at a time, no rollout meanwhile."""

import asyncio
import time
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.judge.objects import Set
from tests.system.guarded import LAST_DOWNSCALE, MIN_TIME, Guarded, guard, prepared_zone
from tests.system.waits import wait_reason
from tests.world.api import STATEFULSETS, Answer
from tests.world.clients import Route
from tests.world.kubelet import Behaviour, by_image
from tests.world.webpods import Respond
from tests.world.world import World

pytestmark = pytest.mark.controlplane

MIN: Final = timedelta(seconds=5)
# Recorded times have whole seconds and are never early: so much later it may be allowed, at most.
ROUNDING: Final = timedelta(seconds=2)
POLL: Final = timedelta(milliseconds=500)
UNDERWAY: Final = "is already in process of updating replicas"


async def test_si11_two_zones_at_once_and_again_after_the_time(world: World) -> None:
    """SI-11, W-15, D-22, SEED-091, SEED-111, SEED-115, T-07 row 3: the longest wait counts.

    Zone a requests 2 s by label, zone b for 5 s by annotation.
    """
    pods = await world.serve_pods()
    pods.behave("", Respond(after=timedelta(seconds=0.7)))
    zones = [
        prepared_zone(pods, ZoneSpec(name="a"), wait="2s"),
        prepared_zone(pods, ZoneSpec(name="b", annotations={MIN_TIME: "5s"})),
    ]
    guarded = await guard(world, *zones, pods=pods)

    answers = await asyncio.gather(
        *(guarded.workload(name).scale(2, Route.SCALE_MERGE) for name in "ab")
    )

    codes = dict(zip("ab", [answer.status for answer in answers], strict=True))
    (first,) = [name for name in "ab" if codes[name] == 200]
    (second,) = [name for name in "ab" if codes[name] != 200]
    lost = answers["ab".index(second)]
    assert lost.message == guarded.refusal(second, (3, 2), f"statefulset {first} {UNDERWAY}")
    assert not pods.calls_to(f"{second}-2"), "the loser's pods were left alone"

    refusals, granted = await _insist(guarded, second)

    assert granted.status == 200
    recent = guarded.refusal(second, (3, 2), f"statefulset {first} was downscaled at ")
    refused_for_now = [each for each in refusals if each.message.startswith(recent)]
    assert refused_for_now, refusals
    end = " +0000 UTC and is labelled to wait 5s between zone downscales"
    assert all(each.message.endswith(end) for each in refused_for_now), refused_for_now
    earlier, later = _list_downscales(guarded)
    assert timedelta(seconds=later - earlier) < MIN + ROUNDING + POLL + timedelta(seconds=2)
    await guarded.wait_recorded("a", "b")
    await guarded.assert_judged()


def _list_downscales(guarded: Guarded) -> list[float]:
    """Return when sets were scaled down, on the judge's clock."""
    return [
        change.at.total_seconds()
        for change in guarded.world.judge.changes
        if isinstance(change.before, Set)
        and isinstance(change.now, Set)
        and change.now.replicas < change.before.replicas
    ]


async def _insist(guarded: Guarded, name: str) -> tuple[list[Answer], Answer]:
    """Try until the answer is yes; return what came before it, and it."""
    refusals: list[Answer] = []
    async with asyncio.timeout(30):
        while True:
            answer = await guarded.workload(name).scale(2, Route.MERGE)
            if answer.status == 200:
                await guarded.world.judge.settle()
                return refusals, answer
            refusals.append(answer)
            await asyncio.sleep(POLL.total_seconds())


async def test_seed091_a_time_that_others_have_written(world: World) -> None:
    """SEED-091, PREP-12, PREP-16, W-50: an hour ago with a wait of twelve, and no time at all."""
    pods = await world.serve_pods()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    zones = [
        prepared_zone(pods, ZoneSpec(name="a"), wait="12h"),
        ZoneSpec(name="b", annotations={LAST_DOWNSCALE: stamp}),
    ]
    guarded = await guard(world, *zones, pods=pods)

    answer = await guarded.workload("a").scale(2, Route.MERGE)

    said = stamp.replace("T", " ").replace("Z", " +0000 UTC")
    wait = "and is labelled to wait 12h0m0s between zone downscales"
    assert answer.message == guarded.refusal(
        "a", (3, 2), f"statefulset b was downscaled at {said} {wait}"
    )
    await world.annotate("b", **{LAST_DOWNSCALE: "yesterday"})
    answer = await guarded.workload("a").scale(2, Route.MERGE)
    start = "parsing downscale annotations failed. statefulset b: "
    assert answer.message.startswith(guarded.refusal("a", (3, 2), start))
    await world.annotate("b", **{LAST_DOWNSCALE: None})
    assert (await guarded.workload("a").scale(2, Route.MERGE)).status == 200
    assert len(pods.calls) == 1
    await guarded.assert_judged()


async def test_d25_a_rollout_refuses_a_downscale(world: World) -> None:
    """D-25, SEED-110, T-07 rows 7 and 8: of another zone; of the zone that rolls it is allowed."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(seconds=1.5))})
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name)) for name in "ab"]
    guarded = await guard(world, *zones, pods=pods)
    await world.set_image(["a"], "v2")
    await world.wait_pod("a-1", "replaced", _is_v2)

    answer = await guarded.workload("b").scale(2, Route.SCALE_MERGE)

    start = guarded.refusal("b", (3, 2), "statefulset a has ")
    assert answer.message.startswith(start), answer
    assert answer.message.endswith(" non-updated replicas and 1 non-ready replicas")
    assert not pods.calls
    own = await guarded.workload("a").scale(2, Route.SCALE_MERGE)
    assert own.status == 200, own
    await world.wait_adopted(["a"])
    answer = await guarded.workload("b").scale(2, Route.SCALE_MERGE)
    assert answer.status == 200, answer
    await world.wait_ready(["a", "b"])
    await guarded.assert_judged()


def _is_v2(pod: dict[str, object]) -> bool:
    return "'v2'" in str(pod["spec"])


async def test_d25_a_downscale_holds_a_rollout(world: World) -> None:
    """D-25, SEED-110, SEED-111: no pod is deleted until the downscale has happened; both end."""
    pods = await world.serve_pods()
    pods.behave("b-2", Respond(after=timedelta(seconds=3)))
    zones = [prepared_zone(pods, ZoneSpec(name=name)) for name in "ab"]
    guarded = await guard(world, *zones, pods=pods)

    async with asyncio.TaskGroup() as tasks:
        request = tasks.create_task(guarded.workload("b").scale(2, Route.MERGE))
        await pods.wait_until("b-2 called", lambda: bool(pods.calls))
        await world.set_image(["a"], "v2")
        await wait_reason(guarded.operator, "ingester", "downscale_underway")
        assert await world.judge.deletes() == []

    assert request.result().status == 200
    await world.wait_adopted(["a"])
    await world.wait_ready(["b"])
    assert len(await world.judge.deletes()) == 3
    await guarded.assert_judged()


async def test_prep17_a_zone_without_labels_counts_too(world: World) -> None:
    """PREP-17, PREP-19: a zone that requests no preparation must be whole as well."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name="a")), ZoneSpec(name="b")]
    guarded = await guard(world, *zones, pods=pods)
    await world.kubelet.make_unready("a-0")
    await world.kubelet.make_unready("b-1")

    answer = await guarded.workload("a").scale(2, Route.PUT_FRESH)

    assert answer.message == guarded.refusal(
        "a", (3, 2), "statefulset b has 0 non-updated replicas and 1 non-ready replicas"
    )
    assert (await guarded.workload("b").scale(2, Route.PUT_FRESH)).status == 200
    assert not pods.calls, "b is free to go without preparation"
    await world.kubelet.make_ready("b-1")
    await world.wait_ready(["b"])
    answer = await guarded.workload("a").scale(2, Route.PUT_FRESH)
    assert answer.status == 200, answer
    found = await world.get(STATEFULSETS, "b")
    assert LAST_DOWNSCALE not in found["metadata"].get("annotations", {})
    await guarded.assert_judged()
