"""Downscales on the real API server that are granted: prepared once, recorded, in two rounds."""

import asyncio
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import LAST_DOWNSCALE, PATH, guard, is_of_now, prepared_zone
from tests.world.clients import Route
from tests.world.webpods import NO_CONTENT, Respond
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# LI-06 promises two rounds for prepare times of up to 40 % of the webhook's 10 s.
TIMES: Final = {
    "zone-5ms": timedelta(milliseconds=5),
    "zone-700ms": timedelta(seconds=0.7),
    "zone-1200ms": timedelta(seconds=1.2),
    "zone-3s": timedelta(seconds=3),
}
CO_WRITER_PAUSE: Final = timedelta(milliseconds=100)


async def test_li06_prepared_once_and_recorded(world: World) -> None:
    """LI-06, W-14, SEED-089, SEED-092, SEED-093, SEED-116, T-07 row 2: at most two rounds each.

    Four groups side by side, by how long a pod takes; default flags; one route after the other. A
    version that a client has read is still good at the end: nothing was written meanwhile.
    """
    pods = await world.serve_pods()
    for name, time in TIMES.items():
        pods.behave(f"{name}-2", Respond(after=time))
        pods.behave(f"{name}-1", NO_CONTENT)
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name)) for name in TIMES]
    guarded = await guard(world, *zones, pods=pods)
    routes = (Route.MERGE, Route.APPLY, Route.PUT_FRESH, Route.SCALE_MERGE, Route.SCALE_PUT_FRESH)
    for turn, route in enumerate(routes, start=1):
        rounds = await guarded.count_rounds()
        called = len(pods.calls)

        answers = await asyncio.gather(*(guarded.workload(name).scale(1, route) for name in TIMES))

        assert [each.status for each in answers] == [200] * len(TIMES), answers
        calls = {call.pod: call for call in pods.calls[called:]}
        assert sorted(calls) == sorted(f"{name}-{n}" for name in TIMES for n in (1, 2))
        assert len(pods.calls) == 2 * len(TIMES) * turn
        for pod, call in calls.items():
            assert (call.method, call.path) == ("POST", f"/{PATH}")
            service = f"{pod.rpartition('-')[0]}.{world.namespace}.svc.cluster.local."
            assert call.host == f"{pod}.{service}:{pods.port}", "SEED-116"
        assert len(TIMES) <= await guarded.count_rounds() - rounds <= 2 * len(TIMES)
        if not route.is_scale:
            annotations = [answer.body["metadata"]["annotations"] for answer in answers]
            assert all(is_of_now(each[LAST_DOWNSCALE]) for each in annotations), "SEED-093"
        await guarded.wait_recorded(*TIMES)
        await world.wait_ready(list(TIMES))
        # All but one go with their pods; that one goes a minute later, when the downscale is over.
        assert set(await guarded.list_recorded()) <= {f"{name}-0" for name in TIMES}
        for name in TIMES:
            await world.annotate(name, **{LAST_DOWNSCALE: None})
            await world.set_replicas(name, 3)
        await world.wait_ready(list(TIMES))
    await guarded.assert_judged()


async def test_fp24_a_busy_co_writer_forces_new_rounds(world: World) -> None:
    """FP-24, FP-23, SI-16, LI-06: the API server tries again and again; prepared once."""
    pods = await world.serve_pods()
    pods.behave("a-2", Respond(after=timedelta(seconds=0.7)))
    guarded = await guard(world, prepared_zone(pods, ZoneSpec(name="a")), pods=pods)
    routes = (Route.MERGE, Route.APPLY, Route.PUT, Route.SCALE_MERGE, Route.SCALE_PUT)
    for turn, route in enumerate(routes, start=1):
        rounds = await guarded.count_rounds()

        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(_write_on(world, "a"), name="co-writer")
            answer = await guarded.workload("a").scale(1, route)
            writer.cancel()

        assert answer.status == 200, answer
        assert [len(pods.calls_to(pod)) for pod in ("a-1", "a-2")] == [turn, turn], route
        assert await guarded.count_rounds() - rounds >= 2, "the co-writer came between"
        await guarded.wait_recorded("a")
        await world.wait_ready(["a"])
        await world.annotate("a", **{LAST_DOWNSCALE: None})
        await world.set_replicas("a", 3)
        await world.wait_ready(["a"])
    await guarded.assert_judged()


async def test_si12_downscales_of_one_set_after_another_and_at_once(world: World) -> None:
    """SEED-092, FP-19, SI-12: also while the pods of the last one still terminate.

    Of overlapping ranges one wins, and the loser reverts nothing of it.
    """
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name, replicas=4)) for name in "ab"]
    guarded = await guard(world, *zones, pods=pods)
    workload = guarded.workload("a")
    for left in (3, 2, 1):
        answer = await workload.scale(left, Route.SCALE_MERGE)
        assert answer.status == 200, answer
    assert (await workload.scale(3, Route.SCALE_MERGE)).status == 200, "SEED-089: upscale"
    await world.wait_ready(["a"])
    calls = len(pods.calls)
    assert (await workload.scale(3, Route.MERGE)).status == 200, "SEED-089: the same count"
    assert len(pods.calls) == calls
    assert [call.pod for call in pods.calls if call.method == "POST"] == ["a-3", "a-2", "a-1"]
    assert not pods.is_prepared("a-1"), "a pod that takes the name later starts clean"

    # So long that both are under way at the same time, however late the second one is sent.
    pods.behave("", Respond(after=timedelta(seconds=3)))
    answers = await guarded.workload("b").scale_at_once((2, Route.MERGE), (1, Route.SCALE_MERGE))
    (lost,) = [answer for answer in answers if answer.status != 200]
    assert lost.message.endswith("because statefulset b is already in process of updating replicas")
    assert not [call for call in pods.calls if call.method == "DELETE"]
    await guarded.wait_recorded("b")
    await guarded.assert_judged()


async def _write_on(world: World, name: str) -> None:
    """Change an annotation of a set for ever, as a controller without limits."""
    turn = 0
    while True:
        turn += 1
        await world.annotate(name, **{"test/co-writer": f"{turn}"})
        await asyncio.sleep(CO_WRITER_PAUSE.total_seconds())
