"""A count that something else puts back: LI-11, W-42, and who that is."""

import asyncio

import pytest

from rollout_operator.model.errors import Denied
from rollout_operator.model.outcome import Code
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import SECOND, Bench, pass_time
from tests.controllers.scaling_objects import zone
from tests.virtual_time import elapsed, in_virtual_time
from tests.web.downscale_world import part

MINUTE = 60 * SECOND
BACK_AFTER = 0.2  # seconds


def fight(bench: Bench, letter: str) -> list[float]:
    """Put the count of a zone back soon after each write; return when the operator wrote."""
    name, writes = f"zone-{letter}", list[float]()
    held = bench.client.count(name)
    former = bench.client.after

    def put_back() -> None:
        bench.client.change(name, lambda one: _hold(one, held, "keda"))
        bench.follow()

    def answer(call: str) -> None:
        former(call)
        if call == f"patch statefulsets/{name}":
            writes.append(elapsed().total_seconds())
            asyncio.get_running_loop().call_later(BACK_AFTER, put_back)

    bench.client.after = answer
    return writes


def contested(replicas: int = 5, *others: Json) -> Bench:
    """Return zone-b that follows zone-a, and whose count does not stay."""
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a"), *others])
    fight(bench, "b")
    return bench


def _hold(one: Json, replicas: object, manager: str) -> None:
    part(one, "spec")["replicas"] = replicas
    part(one, "metadata")["managedFields"] = [
        {"manager": "rollout-operator", "fieldsV1": {"f:metadata": {}}},
        {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]


@pytest.mark.parametrize("replicas", [5, 2], ids=["up", "down"])
@in_virtual_time
async def test_li11_a_count_that_is_put_back_is_written_ever_more_seldom(replicas: int) -> None:
    """LI-11: at most 12 a minute as upstream, and after 5 minutes one in 30 s."""
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a")])
    writes = fight(bench, "b")
    async with bench.living():
        await pass_time(30 * MINUTE)
    assert len([one for one in writes if one < 60]) == 5
    late = [one for one in writes if one >= 300]
    assert len(late) <= 25 * 60 / 300 + 1
    assert late, "it is never given up"


@in_virtual_time
async def test_the_reason_names_its_other_writers() -> None:
    bench = contested()
    async with bench.living():
        await pass_time(2 * SECOND)
        assert bench.waits() == [f"{Code.COUNT_CONTESTED} zone-b"]
        (reason,) = bench.reasons()
        assert reason.text == (
            "zone-b follows zone-a: 3 → 5 waits: spec.replicas was set to 5 and did not stay,"
            " keda writes it too; set 3 times, again in 10s"
        )
        assert bench.failures(Code.COUNT_CONTESTED)
        reads = bench.client.calls.count("get statefulsets/zone-b")
        for _ in range(50):
            bench.follow()
            await pass_time(SECOND / 10)
        assert bench.client.calls.count("get statefulsets/zone-b") == reads, "read once for a write"


@in_virtual_time
async def test_a_name_that_cannot_be_read_is_something_else() -> None:
    bench = contested()

    def deny(call: str) -> None:
        if call == "get statefulsets/zone-b":
            raise Denied("get statefulsets is forbidden", status=403)

    bench.client.before = deny
    async with bench.living():
        await pass_time(2 * SECOND)
        assert "something else writes it too" in bench.reasons()[0].text


@in_virtual_time
async def test_a_new_count_is_followed_at_once() -> None:
    bench = contested()
    async with bench.living():
        await pass_time(10 * MINUTE)
        seen = len(bench.client.patched)
        bench.scale("a", 7)
        await pass_time(SECOND / 10)
        assert bench.client.patched[seen:] == ["zone-b 7"]


@in_virtual_time
async def test_a_leading_zone_that_changes_all_the_time_is_followed_all_the_time() -> None:
    """What we set back ourselves, because it is wanted otherwise, is no contest."""
    bench = Bench([zone("a", 3), zone("b", 3, follows="a")])
    async with bench.living():
        for _ in range(20):
            for replicas in (5, 3):
                bench.scale("a", replicas)
                await pass_time(SECOND)
    assert bench.client.patched == ["zone-b 5", "zone-b 3"] * 20
