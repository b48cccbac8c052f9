"""MIRR-03, MIRR-04, MIRR-10, W-42, W-44: counts of references, followed by watch or by polls."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from rollout_lab.model.request import ApiRequest
from rollout_lab.network.faults import Failure

from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.model.names import Conflict, NotFound, Throttled
from rollout_operator.model.scaling import NoScale, Scale
from tests.contract.bodies import statefulset
from tests.kube.reference_rig import NAMESPACE, following, listed, reference, shown
from tests.virtual_time import elapsed, in_virtual_time

READ = "get replicatemplates/demo/scale"
WATCH = "watch replicatemplates"


@in_virtual_time
async def test_mirr_04_a_wanted_count_is_read_at_once_and_reported_once() -> None:
    async with following() as rig:
        rig.put("demo", 3)
        rig.put("other", 4)
        rig.want("store", "demo")
        assert rig.reading() is None
        await rig.until(lambda: rig.reading() is not None)
        assert rig.references.readings == {reference("demo"): shown(3)}
        await asyncio.sleep(10)
        assert [group for _, group in rig.reported] == ["store"]


@in_virtual_time
async def test_mirr_03_any_kind_with_a_scale() -> None:
    async with following() as rig:
        body = statefulset("a", 2)
        rig.api.call_now(
            ApiRequest(verb="create", resource=STATEFULSETS, namespace=NAMESPACE, body=body)
        )
        one = reference("a", "StatefulSet", "apps")
        rig.want("store", one)
        await rig.until(lambda: rig.reading(one) == shown(2))


@in_virtual_time
async def test_w_44_a_change_is_shown_within_half_a_second() -> None:
    async with following() as rig:
        await rig.settle()
        rig.put("demo", 5)
        await rig.until_shown(5, within=0.5)
        rig.patch("demo", {"spec": {"replicas": 0}}, "scale")
        await asyncio.sleep(2)
        assert rig.reading() == shown(0)
        assert len(rig.reported) == 3


@in_virtual_time
async def test_a_change_that_comes_while_it_is_read_is_read_too() -> None:
    async with following() as rig:
        rig.put("demo", 3)
        rig.want("store", "demo")
        for replicas in range(4, 40):
            await asyncio.sleep(0.003)
            rig.put("demo", replicas)
        await rig.until_shown(39)


@in_virtual_time
async def test_w_44_many_changes_at_once_are_few_reads() -> None:
    async with following() as rig:
        await rig.settle()
        begin = elapsed().total_seconds()
        for replicas in range(100):
            rig.put("demo", replicas)
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        assert rig.reading() == shown(99)
        assert 4 <= rig.requested(begin)[READ] <= 7, "five seconds of changes: one a second"


@in_virtual_time
async def test_what_a_read_has_shown_is_not_read_again() -> None:
    async with following() as rig:
        await rig.settle()
        assert rig.requested()[READ] == 1, "the list and its versions show nothing new"


@in_virtual_time
async def test_li_11_idle_groups_cost_little() -> None:
    """Ten groups: fewer than one request a minute, and one watch for all of them."""
    async with following() as rig:
        for number in range(10):
            rig.put(f"demo-{number}", number)
            rig.want(f"group-{number}", f"demo-{number}")
        await asyncio.sleep(60)
        begin = elapsed().total_seconds()
        await asyncio.sleep(3600)
        requested = rig.requested(begin)
        assert requested.total() <= 60
        assert set(requested) == {listed(), WATCH}
        assert len(rig.references.readings) == 10


@in_virtual_time
async def test_li_02_what_is_mirrored_is_listed_anew_within_five_minutes() -> None:
    """LI-02: whatever a stream has not brought; and no more often than streams end."""
    async with following() as rig:
        await rig.settle()
        await asyncio.sleep(3600)
        lists = [at for at, call in rig.trouble.requested if call == listed()]
        assert max(after - before for before, after in pairwise(lists)) <= timedelta(minutes=4)
        assert len(lists) <= rig.requested()[WATCH] <= 22


@in_virtual_time
async def test_several_groups_share_what_they_mirror() -> None:
    async with following() as rig:
        rig.put("demo", 3)
        rig.put("more", 1)
        rig.want("a", "demo")
        rig.want("b", "demo", "more")
        await rig.until(lambda: len(rig.references.readings) == 2)
        await asyncio.sleep(2)
        rig.reported.clear()
        rig.put("demo", 4)
        await rig.until_shown(4)
        assert [group for _, group in rig.reported] == ["a", "b"]
        rig.want("b", "more")
        assert rig.reading() == shown(4), "one group wants it still"
        rig.want("a")
        assert rig.references.readings == {reference("more"): shown(1)}


@in_virtual_time
async def test_an_unwanted_reference_costs_nothing() -> None:
    async with following() as rig:
        await rig.settle()
        rig.want("store")
        assert rig.references.readings == {}
        begin = elapsed().total_seconds()
        rig.put("demo", 9)
        await asyncio.sleep(1800)
        assert rig.requested(begin).total() == 0
        rig.want("store", "demo")
        await rig.until_shown(9)


@in_virtual_time
async def test_a_watch_that_is_cut_loses_nothing() -> None:
    async with following() as rig:
        await rig.settle()
        rig.trouble.fails["watch"] = Failure.UNAVAILABLE
        await asyncio.sleep(200)
        rig.put("demo", 5)
        await rig.until_shown(5, within=12)
        rig.trouble.fails.clear()
        await asyncio.sleep(60)
        begin = elapsed().total_seconds()
        await asyncio.sleep(120)
        assert rig.requested(begin)[READ] == 0, "polls are over"
        rig.put("demo", 6)
        await rig.until_shown(6, within=0.5)


@in_virtual_time
async def test_mirr_10_a_status_is_published_on_its_subresource() -> None:
    async with following() as rig:
        await rig.settle()
        await rig.references.publish(reference("demo"), 3)
        assert rig.reading() == shown(3, 3)
        await asyncio.sleep(5)
        assert rig.reading() == shown(3, 3)
        assert rig.requested()["patch replicatemplates/demo/status"] == 1
        assert len(rig.reported) == 1, "who wrote it knows"
        rig.patch("demo", {"status": {"replicas": 1}}, "status")
        await rig.until(lambda: rig.reading() == shown(3, 1))


@in_virtual_time
async def test_mirr_10_a_status_that_cannot_be_published() -> None:
    async with following() as rig:
        with pytest.raises(Conflict, match=r"ReplicaTemplate.* demo has not been read"):
            await rig.references.publish(reference("demo"), 3)
        await rig.settle()
        rig.delete("demo")
        with pytest.raises(NotFound, match="patch replicatemplates/demo/status"):
            await rig.references.publish(reference("demo"), 3)


@in_virtual_time
async def test_li_11_a_status_that_others_write_too_is_not_fought_for() -> None:
    async with following() as rig:
        await rig.settle()
        refusals = []
        for _ in range(600):
            rig.patch("demo", {"status": {"replicas": 1}}, "status")
            try:
                await rig.references.publish(reference("demo"), 3)
            except Throttled as error:
                refusals.append(str(error))
            await asyncio.sleep(1)
        written = rig.requested()["patch replicatemplates/demo/status"]
        assert written == 600 - len(refusals)
        assert 6 <= written <= 10
        assert "demo was set to 3 3 times and did not stay, something else" in refusals[0]
        await rig.references.publish(reference("demo"), 4)


@in_virtual_time
async def test_a_reading_is_of_one_moment() -> None:
    async with following() as rig:
        await rig.settle()
        before = rig.references.readings
        rig.put("demo", 8)
        await rig.until_shown(8)
        assert before == {reference("demo"): shown(3)}


@in_virtual_time
async def test_a_status_that_changes_is_not_taken_for_a_new_count() -> None:
    async with following(timedelta(seconds=30)) as rig:
        await rig.settle()
        rig.patch("demo", {"status": {"replicas": 2}}, "status")
        await rig.until(lambda: isinstance(rig.reading(), Scale) and rig.reading() != shown(3))
        assert rig.reading() == shown(3, 2)
        assert rig.requested()["discover"] == 2, "versions, and the kinds of one"


@in_virtual_time
async def test_what_cannot_be_undone_rests_on_a_read_of_this_moment() -> None:
    """SI-09: a watch may have died unseen, so that the reading is minutes old."""
    async with following() as rig:
        assert await rig.references.refresh(reference("demo")) == NoScale(
            why=f"{reference('demo')} has not been read yet", is_lasting=False
        )
        await rig.settle()
        rig.put("demo", 5)
        assert await rig.references.refresh(reference("demo")) == shown(5)
        await rig.until_shown(5, within=2)
        rig.delete("demo")
        found = await rig.references.refresh(reference("demo"))
        assert isinstance(found, NoScale)
        assert found.is_lasting
