"""RBAC-06: references that cannot be read or watched: what is shown, who waits, what it costs."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from rollout_lab.network.faults import Failure

from rollout_operator.model.names import UnknownOutcome
from rollout_operator.model.scaling import NoScale, Reference
from tests.kube.reference_rig import ACTOR, GROUP, following, listed, reference, shown
from tests.virtual_time import elapsed, in_virtual_time

pytestmark = pytest.mark.thorough

READ = "get replicatemplates/demo/scale"
WATCH = "watch replicatemplates"
CONFIG_MAP = reference("x", "ConfigMap", "")
NODE = reference("x", "Node", "")
UNKNOWN = reference("x", "ReplicaTemplates")
NO_GROUP = reference("x", "Thing", "things.example.org")


def now() -> float:
    """Return the seconds since the world began."""
    return elapsed().total_seconds()


@in_virtual_time
async def test_rbac_06_without_watch_every_scale_is_read_each_interval() -> None:
    async with following(timedelta(seconds=20)) as rig:
        rig.forbid("watch")
        await rig.follow(3)
        await asyncio.sleep(10)
        begin = now()
        rig.put("demo", 5)
        await rig.until_shown(5, within=23)
        await asyncio.sleep(begin + 1200 - now())
        requested = rig.requested(begin)
        assert 54 <= requested[READ] <= 67
        assert (requested[listed()], requested[WATCH]) == (2, 2), "every ten minutes"


@in_virtual_time
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_rbac_06_a_watch_that_is_granted_later_is_used(verb: str) -> None:
    async with following() as rig:
        rig.forbid(verb)
        await rig.follow(3)
        await asyncio.sleep(60)
        rig.api.forbidden.clear()
        await asyncio.sleep(600)
        begin = now()
        rig.put("demo", 5)
        await rig.until_shown(5, within=0.5)
        await asyncio.sleep(60)
        assert rig.requested(begin)[READ] == 1


@in_virtual_time
@pytest.mark.parametrize("count", [3, 30, pytest.param(100, marks=pytest.mark.prove)])
async def test_seed072_what_may_not_be_watched_is_read_every_interval(count: int) -> None:
    """SEED-072, LI-11: however many there are, and spread over the interval, not in a burst."""
    async with following() as rig:
        rig.forbid("list")
        names = [f"demo-{number}" for number in range(count)]
        for name in names:
            rig.put(name, 1)
        rig.want("store", *names)
        await rig.until(lambda: len(rig.references.readings) == count)
        await asyncio.sleep(10)
        begin = now()
        await asyncio.sleep(600)
        reads = [
            (at.total_seconds(), call)
            for at, call in rig.trouble.requested
            if call.startswith("get") and at.total_seconds() > begin
        ]
        times = Counter(call for _, call in reads)
        assert len(times) == count
        assert all(600 / 5.5 - 1 <= one <= 600 / 4.5 + 1 for one in times.values())
        busiest = max(Counter(int(at) for at, _ in reads).values())
        assert busiest <= max(3 * count / 5, 3)


@in_virtual_time
async def test_a_watch_that_ends_makes_no_burst_of_reads() -> None:
    """LI-11: a hundred that are reported no more are read within the interval, one by one."""
    async with following() as rig:
        names = [f"demo-{number}" for number in range(100)]
        for name in names:
            rig.put(name, 1)
        rig.want("store", *names)
        await rig.until(lambda: len(rig.references.readings) == 100)
        await asyncio.sleep(60)
        begin = now()
        rig.forbid("list")
        rig.forbid("watch")
        rig.api.end_watches()
        await asyncio.sleep(20)
        seconds = Counter(
            int(at.total_seconds())
            for at, call in rig.trouble.requested
            if call.startswith("get") and at.total_seconds() > begin
        )
        assert sum(seconds.values()) >= 300
        assert max(seconds.values()) <= 40


@in_virtual_time
async def test_w_06_a_read_that_hangs_delays_no_other() -> None:
    async with following() as rig:
        hanging = [f"hang-{number}" for number in range(7)]
        for name in (*hanging, "demo"):
            rig.put(name, 1)
            rig.trouble.fails[f"get replicatemplates/{name}/scale"] = Failure.TIMEOUT
        rig.trouble.fails.pop(READ)
        rig.want("store", *hanging, "demo")
        await rig.until_shown(1, within=0.5)
        await asyncio.sleep(2)
        rig.put("demo", 2)
        await rig.until_shown(2, within=0.5)
        assert set(rig.references.readings) == {reference("demo")}
        await asyncio.sleep(31)
        found = rig.refusal(hanging[0])
        assert not found.is_lasting
        assert "timed out after 30s" in found.why


@in_virtual_time
async def test_at_most_eight_read_at_a_time() -> None:
    async with following() as rig:
        names = [f"hang-{number}" for number in range(20)]
        for name in names:
            rig.trouble.fails[f"get replicatemplates/{name}/scale"] = Failure.TIMEOUT
        rig.want("store", *names)
        await asyncio.sleep(20)
        assert sum(call.startswith("get") for call in rig.requested().elements()) == 8


@in_virtual_time
async def test_what_passes_leaves_the_reading_for_half_a_minute() -> None:
    async with following() as rig:
        await rig.settle()
        rig.reported.clear()
        rig.trouble.fails[READ] = Failure.UNAVAILABLE
        begin = now()
        rig.put("demo", 4)
        await asyncio.sleep(29)
        assert rig.reading() == shown(3)
        assert not rig.reported
        await rig.until(lambda: isinstance(rig.reading(), NoScale), within=3.0)
        found = rig.refusal()
        assert not found.is_lasting
        assert found.why.startswith(f"ReplicaTemplate.{GROUP} demo: cannot get replicatemplates/")
        assert "503" in found.why
        await asyncio.sleep(570)
        assert rig.requested(begin)[READ] <= 32, "twice a minute at the end, but for jitter"
        rig.trouble.fails.clear()
        await rig.until_shown(4, within=33)


@in_virtual_time
async def test_too_many_requests_are_obeyed() -> None:
    async with following() as rig:
        rig.trouble.fails[READ] = Failure.TOO_MANY_RETRY
        rig.put("demo", 3)
        rig.want("store", "demo")
        await asyncio.sleep(1.9)
        assert rig.requested()[READ] == 1
        assert not rig.refusal().is_lasting


@in_virtual_time
async def test_mirr_04_an_object_that_is_missing_is_seen_when_it_comes() -> None:
    async with following() as rig:
        rig.want("store", "demo")
        await rig.until(lambda: rig.reading() is not None)
        found = rig.refusal()
        assert found.is_lasting
        assert 'replicatemplates.rollout-operator.grafana.com "demo" not found' in found.why
        await asyncio.sleep(600)
        assert rig.requested()[READ] <= 11, "about once a minute"
        assert len(rig.reported) == 1
        rig.put("demo", 3)
        await rig.until_shown(3, within=0.5)
        rig.delete("demo")
        await rig.until(lambda: isinstance(rig.reading(), NoScale))
        rig.put("demo", 4)
        await rig.until_shown(4)


@in_virtual_time
async def test_mirr_04_an_object_that_goes_before_it_is_listed() -> None:
    async with following(timedelta(hours=5)) as rig:
        rig.forbid("list")
        await rig.follow(3)
        rig.delete("demo")
        rig.api.forbidden.clear()
        await rig.until(lambda: isinstance(rig.reading(), NoScale), within=601)
        assert rig.requested()[listed()] == 2


@in_virtual_time
async def test_rbac_06_a_right_that_is_missing_is_named() -> None:
    async with following() as rig:
        rig.forbid("get", "replicatemplates/scale")
        rig.put("demo", 3)
        rig.want("store", "demo")
        await rig.until(lambda: rig.reading() is not None)
        found = rig.refusal()
        assert found.is_lasting
        assert "not allowed in namespace default: cannot get replicatemplates/demo/" in found.why
        assert f'grant verb get on "replicatemplates/scale" in API group "{GROUP}"' in found.why
        for number in range(600):
            rig.put("demo", number)
            await asyncio.sleep(1)
        assert rig.requested()[READ] <= 13, "changes of the object do not help"
        rig.api.forbidden.clear()
        await rig.until_shown(599, within=70)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        pytest.param(CONFIG_MAP, "configmaps in v1 have no scale subresource", id="MIRR-04"),
        pytest.param(NODE, "nodes in v1 have no scale subresource", id="MIRR-04 cluster"),
        pytest.param(
            UNKNOWN,
            f"the API server knows no kind 'ReplicaTemplates' in API group '{GROUP}'",
            id="MIRR-03 a plural",
        ),
        pytest.param(
            NO_GROUP,
            "the API server knows no kind 'Thing' in API group 'things.example.org'",
            id="MIRR-03 no group",
        ),
        pytest.param(
            reference("x", group=""),
            "the API server knows no kind 'ReplicaTemplate' in the core API group",
            id="MIRR-03 group forgotten",
        ),
        pytest.param(
            reference("x", group="../secrets"),
            "cannot discover: API group: '../secrets' names nothing",
            id="a path for a group",
        ),
        pytest.param(
            reference("../../pods/x"),
            "name: '../../pods/x' names nothing",
            id="a path for a name",
        ),
    ],
)
@in_virtual_time
async def test_what_can_have_no_scale_is_reported_as_lasting(one: Reference, why: str) -> None:
    async with following() as rig:
        rig.want("store", one)
        await rig.until(lambda: rig.reading(one) is not None)
        found = rig.refusal(one)
        assert found.is_lasting
        assert found.why.startswith(f"{one}: ")
        assert why in found.why
        await asyncio.sleep(600)
        assert rig.requested()["discover"] <= 22, "twice a minute at most"
        assert len(rig.reported) == 1


@in_virtual_time
async def test_a_group_that_cannot_be_read_is_read_again_soon() -> None:
    async with following() as rig:
        rig.trouble.fails["discover"] = Failure.UNAVAILABLE
        for number in range(20):
            rig.put(f"demo-{number}", 3)
        rig.want("store", *(f"demo-{number}" for number in range(20)))
        await rig.until(lambda: len(rig.references.readings) == 20, within=4)
        assert not rig.refusal("demo-0").is_lasting
        assert rig.requested()["discover"] == 1, "all share one failure"
        rig.trouble.fails.clear()
        await rig.until_shown(3, "demo-0", within=40)


@in_virtual_time
async def test_an_operator_that_is_cut_off_sees_all_when_it_is_back() -> None:
    async with following() as rig:
        await rig.settle()
        rig.link.is_cut = True
        rig.put("demo", 4)
        await asyncio.sleep(400)
        assert not rig.refusal().is_lasting
        rig.link.is_cut = False
        await rig.until_shown(4, within=75)


@in_virtual_time
async def test_mirr_03_a_kind_that_is_removed_and_comes_back() -> None:
    """The answer to a path that is not served is no answer of an API server: plain text."""
    async with following() as rig:
        await rig.settle()
        rig.api.is_bare = True
        await rig.until(lambda: isinstance(rig.reading(), NoScale), within=260)
        await rig.until(lambda: rig.refusal().is_lasting, within=100)
        assert "the API server knows no kind 'ReplicaTemplate'" in rig.refusal().why
        begin = now()
        await asyncio.sleep(1200)
        assert set(rig.requested(begin)) == {"discover"}
        assert rig.requested(begin)["discover"] <= 21
        rig.api.is_bare = False
        rig.put("demo", 4)
        await rig.until_shown(4, within=70)
        await asyncio.sleep(2)
        rig.put("demo", 5)
        await rig.until_shown(5, within=0.5)


@in_virtual_time
async def test_mirr_03_a_kind_that_is_installed_late() -> None:
    async with following() as rig:
        rig.api.is_bare = True
        rig.want("store", "demo")
        await rig.until(lambda: rig.reading() is not None)
        assert rig.refusal().is_lasting
        await asyncio.sleep(100)
        rig.api.is_bare = False
        rig.put("demo", 3)
        await rig.until_shown(3, within=70)


@in_virtual_time
async def test_rbac_06_rights_that_are_granted_together_are_used_together() -> None:
    async with following() as rig:
        rig.forbid("list")
        rig.forbid("get", "replicatemplates/scale")
        rig.put("demo", 3)
        rig.want("store", "demo")
        await asyncio.sleep(30)
        rig.api.forbidden.clear()
        await rig.until_shown(3, within=70)
        await asyncio.sleep(1)
        rig.put("demo", 4)
        await rig.until_shown(4, within=0.5)


@in_virtual_time
async def test_rbac_06_a_right_to_read_alone_has_the_watch_tried_once_more() -> None:
    async with following() as rig:
        rig.forbid("list")
        rig.forbid("get", "replicatemplates/scale")
        rig.put("demo", 3)
        rig.want("store", "demo")
        await asyncio.sleep(30)
        rig.api.forbidden.remove((ACTOR, "get", "replicatemplates/scale"))
        await rig.until_shown(3, within=70)
        await asyncio.sleep(300)
        assert rig.requested()[listed()] == 2


@in_virtual_time
async def test_si_18_a_status_of_unknown_fate_is_read_back() -> None:
    async with following(timedelta(minutes=30)) as rig:
        rig.forbid("list")
        await rig.follow(3)
        status = "patch replicatemplates/demo/status"
        rig.trouble.fails[status] = Failure.GATEWAY_TIMEOUT_COMMITTED
        with pytest.raises(UnknownOutcome):
            await rig.references.publish(reference("demo"), 3)
        await rig.until(lambda: rig.reading() == shown(3, 3))


@in_virtual_time
async def test_an_unwanted_reference_is_polled_no_more() -> None:
    async with following() as rig:
        rig.forbid("list")
        await rig.follow(3)
        await asyncio.sleep(60)
        rig.want("store")
        begin = now()
        await asyncio.sleep(300)
        assert rig.requested(begin).total() == 0
        rig.want("store", "demo")
        await rig.until_shown(3)
        assert rig.requested(begin)["discover"] == 2, "nothing is remembered of what was not wanted"
