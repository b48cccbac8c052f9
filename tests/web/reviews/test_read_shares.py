"""What reviews that the cache does not confirm may cost, and that honest ones are answered."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.guards.turns import group_lock
from rollout_operator.kube.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Page, Resource
from rollout_operator.model.names import Throttled, Uid
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review, Scalable
from rollout_operator.web.no_downscale import LATELY, RepeatedReads, Standing, UnconfirmedReads
from tests.controllers.fake_client import Json
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time
from tests.web.budgets.stage import BudgetStage
from tests.web.downscale_world import GROUP, LIMIT, World, pods_of, three_zones, zone

QPS = 5.0
SECOND = timedelta(seconds=1)


def limited(*extra: Json) -> World:
    """Return three zones at rest before reviews that are limited as by default."""
    names = [f"zone-{letter}" for letter in "abc"]
    pods = [one for name in names for one in pods_of(name)]
    return World([zone(name) for name in names], [*pods, *extra], qps=QPS)


def made_up(world: World, number: int, *, whole: bool, group: str | None) -> Review:
    """Return a review of a set that never was."""
    true = world.review("zone-a", 3, whole=whole)
    assert isinstance(true.old, Scalable)
    labels = {key: value for key, value in true.old.labels.items() if key != "rollout-group"}
    labels |= {} if group is None or not whole else {"rollout-group": group}
    old = msgspec.structs.replace(true.old, uid=Uid(f"made-up-{number}"), labels=labels)
    new = msgspec.structs.replace(old, replicas=3)
    return msgspec.structs.replace(true, name=f"made-up-{number}", old=old, new=new)


async def review_all(world: World, reviews: Sequence[Review]) -> list[Verdict]:
    until = world.clock.elapsed() + LIMIT
    hook = world.memory.hook
    return await asyncio.gather(*(hook.review(one, until) for one in reviews))


@pytest.mark.parametrize(
    ("whole", "group"),
    [
        pytest.param(True, None, id="without a group"),
        pytest.param(True, "other", id="of a made-up group"),
        pytest.param(True, GROUP, id="of a real group"),
        pytest.param(False, None, id="their Scales"),
    ],
)
@in_virtual_time
async def test_li06_sets_that_never_were_cost_a_share_of_the_rate_limit(
    whole: bool, group: str | None
) -> None:
    """LI-06, SEC-09: they are refused, to be tried again; a real downscale is none of them."""
    world = limited()
    requested = [made_up(world, number, whole=whole, group=group) for number in range(200)]
    begin = elapsed()
    async with asyncio.TaskGroup() as tasks:
        flood = tasks.create_task(review_all(world, requested))
        await world.clock.sleep(SECOND / 1000)
        assert (await world.send_request("zone-a", 3, whole=whole)).is_allowed
        assert elapsed() - begin < SECOND
    span = (elapsed() - begin).total_seconds()
    reads = [call for call in world.client.calls if "made-up" in call]
    assert len(reads) <= 5 + 0.5 * span + 1
    assert {(one.is_allowed, one.code) for one in flood.result()} == {(False, 429)}


@in_virtual_time
async def test_sec09_no_set_that_never_was_waits_for_the_lock_of_a_group() -> None:
    """SEC-09, LI-06: it is refused while a rollout holds the group."""
    world = limited()
    review = made_up(world, 1, whole=True, group=GROUP)
    async with world.memory.locks.hold(group_lock(GROUP)):
        (verdict,) = await review_all(world, [review])
    assert verdict.reason.code is Code.CHANGED_MEANWHILE
    assert world.client.calls == ["get statefulsets/made-up-1"]


@pytest.mark.parametrize("whole", [True, False])
@in_virtual_time
async def test_li06_a_set_that_the_cache_does_not_show_yet_is_answered(whole: bool) -> None:
    """LI-06: created a moment ago, it is read once more."""
    world = limited()
    world.client.put("statefulsets", zone("zone-n", group=None))
    for one in pods_of("zone-n"):
        world.client.put("pods", one)
    assert (await world.send_request("zone-n", 3, whole=whole)).is_allowed


@pytest.mark.parametrize("whole", [True, False])
@in_virtual_time
async def test_li06_a_cache_behind_the_last_downscale_does_not_refuse_the_next(whole: bool) -> None:
    """LI-06, SI-13: what a review says is newer than the cache, so that the store is read."""
    world = limited()
    world.client.objects["statefulsets", "zone-a"]["spec"]["replicas"] = 4
    world.client.objects["statefulsets", "zone-a"]["metadata"]["resourceVersion"] = "2"
    verdict = await world.send_request("zone-a", 3, whole=whole)
    assert verdict.is_allowed, verdict.reason.text
    assert "get statefulsets/zone-a" in world.client.calls


@in_virtual_time
async def test_si13_a_count_that_a_fresh_cache_denies_costs_no_read() -> None:
    """SI-13, SEC-09: the version is as old as the cache, so that no such write can follow."""
    world = three_zones()
    true = world.review("zone-a", 3, whole=True)
    assert isinstance(true.old, Scalable)
    old = msgspec.structs.replace(true.old, replicas=7)
    (verdict,) = await review_all(world, [msgspec.structs.replace(true, old=old)])
    assert verdict.reason.code is Code.CHANGED_MEANWHILE
    assert world.client.calls == []


@in_virtual_time
async def test_li06_one_set_requested_again_and_again_holds_up_no_other() -> None:
    """LI-06: who knows a name, a UID and a count has a share of the reads, and no more."""
    world = limited()
    until = world.clock.elapsed() + LIMIT
    true = world.review("zone-a", 3)
    begin = elapsed()
    flood = await asyncio.gather(*(world.memory.hook.review(true, until) for _ in range(300)))
    reads = [call for call in world.client.calls if call.startswith("list statefulsets")]
    span = (elapsed() - begin).total_seconds()
    assert len(reads) <= 1 + 10 + span + 1
    assert {one.code for one in flood if not one.is_allowed} <= {429}
    assert any(one.is_allowed for one in flood)


@in_virtual_time
async def test_li06_the_first_read_of_a_set_waits_for_no_repetition_of_another() -> None:
    """LI-06: with as many sets as there may be, each is reviewed freely once in a minute."""
    reads = RepeatedReads(QPS, VirtualClock())
    for _ in range(11):
        await reads.wait_turn(Uid("often"), LIMIT)
    assert elapsed() == timedelta(0)
    with pytest.raises(Throttled):
        await reads.wait_turn(Uid("often"), timedelta(0))
    await reads.wait_turn(Uid("first"), timedelta(0))
    await asyncio.sleep(LATELY.total_seconds())
    await reads.wait_turn(Uid("first"), timedelta(0))


@in_virtual_time
async def test_li09_a_pod_that_the_cache_shows_waits_behind_no_name_that_never_was() -> None:
    """LI-09, LI-07: a drain gets rid of a pod that is pending, however many are made up."""
    stage = BudgetStage([], qps=QPS)
    await stage.act("change a-0 phase=Pending; see")
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(stage.do_evict("a-1", f"name=none-{number}"))
        await asyncio.sleep(0.001)
        begin = elapsed()
        assert (await stage.do_evict("a-0")).startswith("allowed pod_not_running")
        assert elapsed() - begin < SECOND


@in_virtual_time
async def test_li09_pods_that_never_were_cost_a_share_of_the_rate_limit() -> None:
    """LI-09: a client that requests more of them is refused for now; known pods are no part."""
    stage = BudgetStage([], qps=QPS)
    answers = await asyncio.gather(*(stage.do_evict("a-0", f"name=none-{n}") for n in range(200)))
    allowed = [one for one in answers if one.startswith("allowed")]
    calls = len(stage.client.calls)
    assert len(allowed) == calls <= 5 + 0.5 * elapsed().total_seconds() + 1
    assert {one[:4] for one in answers if one not in allowed} == {"429 "}
    assert await stage.do_evict("a-1") == "allowed"


@in_virtual_time
async def test_li09_reviews_of_one_pod_share_a_read() -> None:
    """LI-09: beyond the burst, who waits for the next read gets its answer with all others."""
    stage = BudgetStage([], qps=QPS)
    answers = await asyncio.gather(*(stage.do_evict("a-0", "name=none") for _ in range(100)))
    assert all(one.startswith("allowed") for one in answers)
    assert len(stage.client.calls) < 10


class FetchNames:
    """Answers every read with the name that was requested."""

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *_: object, **__: object
    ) -> bytes:
        return name.encode()

    async def fetch_page(self, *_: object, **__: object) -> Page:
        raise AssertionError("nothing is listed")


@in_virtual_time
async def test_twenty_deployments_that_are_scaled_at_once_are_all_read() -> None:
    """SEED-086: kinds without a cache have nothing else to be judged by."""
    reads = UnconfirmedReads(QPS)
    requested = [
        reads.fetch(
            FetchNames(),
            DEPLOYMENTS if number % 2 else REPLICASETS,
            "test",
            f"app-{number}",
            standing=Standing.UNCACHED,
            within=LIMIT,
        )
        for number in range(20)
    ]

    assert len(await asyncio.gather(*requested)) == 20
    assert elapsed() < LIMIT


@in_virtual_time
async def test_kinds_without_a_cache_take_nothing_from_sets() -> None:
    """LI-06: a flood of made-up Deployments holds up no StatefulSet."""
    reads = UnconfirmedReads(QPS)

    async def fetch(resource: Resource, standing: Standing) -> bytes:
        return await reads.fetch(
            FetchNames(), resource, "test", "x", standing=standing, within=LIMIT
        )

    flood = [fetch(DEPLOYMENTS, Standing.UNCACHED) for _ in range(200)]
    refused = await asyncio.gather(*flood, return_exceptions=True)
    begin = elapsed()
    await fetch(STATEFULSETS, Standing.UNKNOWN)

    assert any(isinstance(one, Throttled) for one in refused)
    assert elapsed() == begin
