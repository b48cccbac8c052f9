"""Downscales on the real API server that are granted: prepared once, recorded, in two rounds."""

import asyncio
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.guarded import (
    LAST_DOWNSCALE,
    NO_DOWNSCALE,
    PATH,
    guard,
    is_of_now,
    prepared_zone,
)
from tests.world.clients import Route, Workload
from tests.world.scene import World
from tests.world.sets import annotate, wait_ready
from tests.world.webpods import NO_CONTENT, Respond

pytestmark = pytest.mark.controlplane

# LI-06 promises two rounds for prepare times of up to 40 % of the webhook's 10 s.
TIMES: Final = {
    "zone-5ms": timedelta(milliseconds=5),
    "zone-700ms": timedelta(seconds=0.7),
    "zone-1200ms": timedelta(seconds=1.2),
    "zone-3s": timedelta(seconds=3),
}
CO_WRITER_PAUSE: Final = timedelta(milliseconds=100)


async def test_a_labelled_set_keeps_its_replicas(world: World) -> None:
    """SEED-082, NODOWN-07"""
    guarded = await guard(world, ZoneSpec(name="a", replicas=2, labels={NO_DOWNSCALE: "true"}))

    answer = await guarded.workload("a").scale(1, Route.MERGE)

    assert answer.message == (
        f'admission webhook "no-downscale-{world.namespace}.grafana.com" denied the request:'
        f" downscale of statefulsets/a in {world.namespace} from 2 to 1 replicas is not allowed"
        " because it has the label 'grafana.com/no-downscale=true'"
    )
    assert await guarded.workload("a").replicas() == 2


@pytest.mark.parametrize(
    "route",
    [Route.MERGE, Route.APPLY, Route.PUT_FRESH, Route.SCALE_MERGE, Route.SCALE_PUT_FRESH],
)
async def test_li06_prepared_once_and_recorded(world: World, route: Route) -> None:
    """LI-06, W-14, SEED-089, SEED-092, SEED-093, SEED-116, T-07 row 2: at most two rounds each.

    Four groups side by side, by how long a pod takes; default flags. A version that a client has
    read is still good at the end: nothing was written meanwhile.
    """
    pods = await world.serve_pods()
    for name, time in TIMES.items():
        pods.behave(f"{name}-2", Respond(after=time))
        pods.behave(f"{name}-1", NO_CONTENT)
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name)) for name in TIMES]
    guarded = await guard(world, *zones, pods=pods)

    answers = await asyncio.gather(*(guarded.workload(name).scale(1, route) for name in TIMES))

    assert [each.status for each in answers] == [200] * len(TIMES), answers
    for name in TIMES:
        for pod in (f"{name}-1", f"{name}-2"):
            (call,) = pods.calls_to(pod)
            assert (call.method, call.path) == ("POST", f"/{PATH}")
            host = f"{pod}.{name}.{world.namespace}.svc.cluster.local.:{pods.port}"
            assert call.host == host, "SEED-116"
        assert not pods.calls_to(f"{name}-0")
    assert len(TIMES) <= await guarded.count_rounds() <= 2 * len(TIMES)
    if not route.is_scale:
        annotations = [answer.body["metadata"]["annotations"] for answer in answers]
        assert all(is_of_now(each[LAST_DOWNSCALE]) for each in annotations), "SEED-093"
    await guarded.wait_recorded(*TIMES)
    await wait_ready(world.api, world.namespace, list(TIMES))
    # All but one go with their pods; that one goes a minute later, when the downscale is over.
    assert set(await guarded.list_noted()) <= {f"{name}-0" for name in TIMES}
    await guarded.assert_judged()


@pytest.mark.parametrize(
    "route", [Route.MERGE, Route.APPLY, Route.PUT, Route.SCALE_MERGE, Route.SCALE_PUT]
)
async def test_fp24_a_busy_co_writer_forces_new_rounds(world: World, route: Route) -> None:
    """FP-24, FP-23, SI-16, LI-06: the API server asks again and again; prepared once."""
    pods = await world.serve_pods()
    pods.behave("a-2", Respond(after=timedelta(seconds=0.7)))
    guarded = await guard(world, prepared_zone(pods, ZoneSpec(name="a")), pods=pods)

    async with asyncio.TaskGroup() as tasks:
        writer = tasks.create_task(_write_on(world, "a"), name="co-writer")
        answer = await guarded.workload("a").scale(1, route)
        writer.cancel()

    assert answer.status == 200, answer
    assert [len(pods.calls_to(pod)) for pod in ("a-1", "a-2")] == [1, 1]
    assert await guarded.count_rounds() >= 2, "the co-writer came between"
    await guarded.wait_recorded("a")
    await wait_ready(world.api, world.namespace, ["a"])
    await guarded.assert_judged()


async def test_the_next_downscale_of_a_zone_is_prepared_for_itself(world: World) -> None:
    """SEED-092, FP-19: one after another, and one while the pods of the last still terminate."""
    pods = await world.serve_pods()
    guarded = await guard(world, prepared_zone(pods, ZoneSpec(name="a", replicas=4)), pods=pods)
    workload = guarded.workload("a")

    for left in (3, 2, 1):
        answer = await workload.scale(left, Route.SCALE_MERGE)
        assert answer.status == 200, answer
    assert (await workload.scale(3, Route.SCALE_MERGE)).status == 200, "SEED-089: upscale"
    await wait_ready(world.api, world.namespace, ["a"])
    calls = len(pods.calls)
    assert (await workload.scale(3, Route.MERGE)).status == 200, "SEED-089: the same count"

    assert len(pods.calls) == calls
    assert [call.pod for call in pods.calls if call.method == "POST"] == ["a-3", "a-2", "a-1"]
    assert not pods.is_prepared("a-1"), "a pod that takes the name later starts clean"
    await guarded.assert_judged()


async def test_si12_two_downscales_of_one_set_at_once(world: World) -> None:
    """SI-12, FP-19: of overlapping ranges one wins, and the loser takes nothing back of it."""
    pods = await world.serve_pods()
    pods.behave("", Respond(after=timedelta(seconds=0.5)))
    guarded = await guard(world, prepared_zone(pods, ZoneSpec(name="a", replicas=4)), pods=pods)
    workload: Workload = guarded.workload("a")

    answers = await workload.scale_at_once((2, Route.MERGE), (1, Route.SCALE_MERGE))

    won = [answer for answer in answers if answer.status == 200]
    (lost,) = [answer for answer in answers if answer.status != 200]
    assert len(won) == 1
    assert lost.message.endswith("because statefulset a is already in process of updating replicas")
    assert not [call for call in pods.calls if call.method == "DELETE"]
    await guarded.wait_recorded("a")
    await guarded.assert_judged()


async def _write_on(world: World, name: str) -> None:
    """Change an annotation of a set for ever, as a controller that nobody slows down."""
    turn = 0
    while True:
        turn += 1
        await annotate(world.api, world.namespace, name, **{"test/co-writer": f"{turn}"})
        await asyncio.sleep(CO_WRITER_PAUSE.total_seconds())
