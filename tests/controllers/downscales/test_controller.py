"""What becomes of downscales that were allowed: recorded where they happened, else un-prepared."""

import copy
from datetime import timedelta
from itertools import pairwise

import pytest

from rollout_operator.controllers.downscales import RESYNC
from rollout_operator.guards.downscales import PERSIST_LIMIT, ReservationState
from rollout_operator.model.names import LAST_DOWNSCALE, Denied, Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Code
from rollout_operator.pods import PodError
from tests.controllers.downscales.granted import granted, write
from tests.controllers.fake_client import Json
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import (
    HOUR,
    SECOND,
    WAIT,
    World,
    come_to_rest,
    part,
    pod,
    three_zones,
)
from tests.web.fake_pods import confirm, refuse

pytestmark = pytest.mark.thorough

A = Uid("uid-zone-a")
# LI-05: after a downscale that did not happen, pods are un-prepared within this.
SOON = timedelta(seconds=60)
GOING = ("zone-a-3", "zone-a-4")


@in_virtual_time
async def test_refused_by_another_client_afterwards() -> None:
    """LI-05, W-36, FP-22, SI-12: un-prepared once it cannot happen, and before a minute."""
    async with granted() as world:
        assert world.recorded() == ["zone-a-0", "zone-a-3", "zone-a-4"]
        answered = world.clock.elapsed()
        await world.pass_time(35)
        assert world.calls.names("DELETE") == []
        await world.pass_time(24)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        called = [call.at for call in world.calls.calls if call.method == "DELETE"]
        assert PERSIST_LIMIT <= min(called) <= max(called) <= answered + SOON
        assert world.calls.prepared() == set()
        await come_to_rest(world)
    assert world.annotation("zone-a") is None
    assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]


@in_virtual_time
async def test_a_downscale_that_happens_through_scale_is_recorded_once() -> None:
    """SEED-093, D-23, PREP-24, SI-11: the time is that of the write; no pod is un-prepared."""
    async with granted() as world:
        await world.pass_time(20)
        await write(world, 3)
        await world.pass_time(2)
        assert world.annotation("zone-a") == "2026-01-02T03:04:26Z", "03:04:05 and 20.1 s, up"
        await world.pass_time(100)
        assert world.memory.downscales.count(ReservationState.PERSISTED) == 1
        for name in ("zone-a-3", "zone-a-4"):
            world.remove_pod(name)
        await world.watch()
        await come_to_rest(world)
    assert world.client.calls.count("patch statefulsets/zone-a") == 1
    assert world.calls.names("DELETE") == []


@in_virtual_time
async def test_a_downscale_whose_answer_carried_the_time_is_not_written_again() -> None:
    """D-23, W-14."""
    world = three_zones()
    async with world.controlling():
        verdict = await world.send_request("zone-a", 3, whole=True)
        await write(world, 3, stamp=verdict.annotations[LAST_DOWNSCALE])
        await world.pass_time(60)
    assert "patch statefulsets/zone-a" not in world.client.calls


@in_virtual_time
async def test_a_record_that_is_long_on_its_way_does_not_put_back_a_later_one() -> None:
    """SI-11, FP-15: 3 replicas, 4 and 3 again, while the time of the first is being written."""
    world = three_zones()

    async def overtake(call: str) -> None:
        if call == "patch statefulsets/zone-a" and world.annotation("zone-a") is None:
            world.commit("zone-a", 4)
            world.commit("zone-a", 3, stamp="2026-01-02T03:09:00Z")

    world.client.pause = overtake
    async with granted(world):
        await write(world, 3)
        await world.pass_time(1)
        assert world.annotation("zone-a") == "2026-01-02T03:09:00Z"
        await world.watch()
        await world.pass_time(60)
        assert world.annotation("zone-a") == "2026-01-02T03:09:00Z"


@in_virtual_time
async def test_another_downscale_is_held_back_by_what_is_remembered() -> None:
    """SI-11, D-22: the annotation cannot be written; the other zone has to wait all the same."""
    world = three_zones(a=WAIT, b=WAIT)

    def fail(call: str) -> None:
        if call.startswith("patch statefulsets"):
            raise Denied("statefulsets is forbidden", status=403)

    world.client.before = fail
    async with granted(world):
        await write(world, 3)
        await world.pass_time(600)
        assert not (await world.send_request("zone-b", 3)).is_allowed
        attempts = world.client.calls.count("patch statefulsets/zone-a")
        assert 600 / 15 <= attempts <= 600 / 15 + 10
        world.client.before = lambda call: None
        await world.pass_time(20)
        assert world.annotation("zone-a") == "2026-01-02T03:04:07Z", "not the time of the patch"


@pytest.mark.parametrize("downs", [(3,), (4, 3)], ids=["5, 3, 5", "5, 4, 3, 5"])
@in_virtual_time
async def test_scaled_up_again_before_the_pods_go(downs: tuple[int, ...]) -> None:
    """LI-05, W-36: the pods are still the same: they are told that they stay."""
    world = three_zones()
    async with world.controlling():
        for replicas in downs:
            assert (await world.send_request("zone-a", replicas)).is_allowed
            await write(world, replicas)
            await world.pass_time(5)
        await write(world, 5)
        await world.pass_time(24)
        assert world.calls.names("DELETE") == []
        await world.pass_time(36)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        await come_to_rest(world)
    assert world.calls.prepared() == set()


def _deaf_until(world: World, pod_name: str, seconds: float) -> None:
    async def answer(method: str, endpoint: Endpoint) -> None:
        await confirm(method, endpoint)
        is_deaf = world.clock.elapsed() < timedelta(seconds=seconds)
        if method == "DELETE" and endpoint.pod == pod_name and is_deaf:
            raise PodError(f"{method} {pod_name}: no route to host")

    world.calls.answer = answer


@in_virtual_time
async def test_a_pod_that_cannot_be_reached_at_first() -> None:
    """LI-05, FP-26: tried until it answers, at most 15 s apart; the other pod is called once."""
    world = three_zones()
    _deaf_until(world, "zone-a-4", 600)
    async with granted(world):
        await world.pass_time(600)
        assert world.calls.names("DELETE").count("zone-a-3") == 1
        tries = [one.at for one in world.calls.calls if one.pod == "zone-a-4"][1:]
        gaps = [late - early for early, late in pairwise(tries)]
        assert len(gaps) >= 600 / 16 - 3
        assert timedelta(seconds=1) <= min(gaps) <= max(gaps) <= timedelta(seconds=16)
        await world.pass_time(60)
        assert world.calls.confirmed[-1].pod == "zone-a-4"
        await come_to_rest(world)


@in_virtual_time
async def test_pods_that_change_all_the_time_do_not_shorten_the_pauses() -> None:
    """LI-06: a pod that is down is not called at each event, with reviews waiting meanwhile."""
    world = three_zones()
    _deaf_until(world, "zone-a-4", HOUR)
    async with granted(world):
        await world.pass_time(60)
        world.calls.calls.clear()
        for _ in range(600):
            await world.watch()
            await world.clock.sleep(timedelta(milliseconds=100))
        assert 4 <= len(world.calls.calls) <= 12


@in_virtual_time
async def test_two_zones_whose_records_are_found_are_not_both_taken_as_granted() -> None:
    """SI-11, D-25: zone a was refused, zone b granted; the next process cannot tell which."""
    world = three_zones(a=WAIT, b=WAIT)
    world.calls.answer = refuse("zone-a-4")
    assert not (await world.send_request("zone-a", 3)).is_allowed
    world.calls.answer = confirm
    assert (await world.send_request("zone-b", 3)).is_allowed
    world.restart()
    async with world.controlling():
        await world.pass_time(12)
        for name in ("zone-a", "zone-b"):
            verdict = await world.send_request(name, 3)
            assert verdict.reason.code is Code.OTHER_DOWNSCALE_UNDERWAY
        await world.pass_time(SOON.total_seconds())
        assert (await world.send_request("zone-b", 3)).is_allowed
        await write(world, 3, "zone-b")
        assert (await world.send_request("zone-a", 3)).reason.code is Code.ZONE_DOWNSCALED_LATELY


@in_virtual_time
async def test_a_crash_does_not_shorten_the_time_of_a_review_that_was_repeated() -> None:
    """SI-12: sent again at 30 s, crashed at 31 s, written at 60 s: no pod is un-prepared."""
    world = three_zones()
    assert (await world.send_request("zone-a", 3)).is_allowed
    await world.pass_time(30)
    assert (await world.send_request("zone-a", 3)).is_allowed
    await world.pass_time(1)
    world.restart()
    async with world.controlling():
        await world.pass_time(29)
        await write(world, 3)
        await world.pass_time(60)
        assert world.calls.names("DELETE") == []
        assert world.annotation("zone-a") == "2026-01-02T03:05:06Z"


async def _adopt(world: World, sts: Json, uid: Uid, replicas: int) -> None:
    """Make a StatefulSet anew, which adopts the pods one by one that the one before has left."""
    own = [
        part(one, "metadata")
        for (plural, name), one in world.client.objects.items()
        if plural == "pods" and name.startswith("zone-a-")
    ]
    for pod_meta in own:
        pod_meta["ownerReferences"], pod_meta["orphaned"] = [], pod_meta["ownerReferences"]
    sts = copy.deepcopy(sts)
    part(sts, "metadata")["uid"] = uid
    world.client.put("statefulsets", sts)
    world.commit("zone-a", replicas)
    for pod_meta in own:
        (owner,) = pod_meta.pop("orphaned")
        pod_meta["ownerReferences"] = [{**owner, "uid": uid}]
        world.sync()
        if pod_meta["name"] == "zone-a-0":  # it carries a record, and its event wakes us
            world.memory.queue.add(uid)
        await world.clock.sleep(SECOND)


@in_virtual_time
async def test_the_set_is_deleted() -> None:
    """Nothing is left of it, and no pod is called."""
    async with granted() as world:
        del world.client.objects["statefulsets", "zone-a"]
        world.sync()
        world.memory.queue.add(A)
        await world.pass_time(60)
        assert world.memory.downscales.list_sets() == []
        assert world.memory.downscales.last.times == {}
        assert world.calls.names("DELETE") == []


@pytest.mark.parametrize(
    ("deaf_for", "gone_at", "back_at", "replicas", "told"),
    [
        (0, 5, 15, 5, GOING),
        (0, 5, 600, 5, GOING),
        (100, 60, 70, 5, GOING),
        (0, 5, 15, 4, GOING[:1]),
        (0, 5, 15, 3, ()),
        (0, 60, 70, 5, ()),
    ],
    ids=[
        "before they were told", "long away", "one could not be reached", "one less is wanted",
        "none is wanted", "they had been told",
    ],
)  # fmt: skip
@in_virtual_time
async def test_li05_a_set_that_adopts_prepared_pods_tells_them(
    deaf_for: int, gone_at: int, back_at: int, replicas: int, told: tuple[str, ...]
) -> None:
    """LI-05: the set is deleted without its pods, and made anew, after a downscale failed."""
    world = three_zones()
    for name in GOING if deaf_for else ():
        _deaf_until(world, name, deaf_for)
    async with granted(world):
        await world.pass_time(gone_at)
        one = world.client.objects.pop(("statefulsets", "zone-a"))
        await world.watch()
        await world.pass_time(back_at - gone_at)
        world.calls.calls.clear()
        world.calls.confirmed.clear()
        await _adopt(world, one, Uid("uid-new"), replicas)
        await world.pass_time(120)
        assert sorted({call.pod for call in world.calls.confirmed}) == list(told)
        assert world.calls.names("POST") == []
        for name in set(GOING).difference(told) if replicas < 5 else ():
            world.remove_pod(name)
        await come_to_rest(world)


STRAYS = {
    "zone-a-debug": "a copy by kubectl debug",
    "zone-a-9x": "no ordinal",
    "zone-a-01": "leading zero",
    "zone-a-9": "not adopted yet",
}


def _put_stray(world: World, name: str) -> None:
    """Create a pod by hand, with the labels of zone a."""
    stray = copy.deepcopy(world.client.objects["pods", "zone-a-0"])
    meta = part(stray, "metadata")
    meta |= {"name": name, "uid": "uid-stray", "ownerReferences": [], "annotations": {}}
    world.client.put("pods", stray)
    world.sync()


@pytest.mark.parametrize("is_set_terminating", [False, True])
@pytest.mark.parametrize("name", STRAYS, ids=STRAYS.values())
@in_virtual_time
async def test_si11_a_stray_pod_hides_no_downscale_of_an_earlier_process(
    name: str, is_set_terminating: bool
) -> None:
    """SI-11, LI-05: the records name the set itself, which takes over no pods of another."""
    world = three_zones(a=WAIT, b=WAIT)
    assert (await world.send_request("zone-a", 3)).is_allowed
    if is_set_terminating:
        one = world.client.objects["statefulsets", "zone-a"]
        part(one, "metadata")["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    _put_stray(world, name)
    world.restart()
    async with world.controlling():
        await world.pass_time(12)
        verdict = await world.send_request("zone-b", 3)
        assert verdict.reason.code is Code.OTHER_DOWNSCALE_UNDERWAY
        await world.pass_time(SOON.total_seconds())
        assert sorted({*world.calls.names("DELETE")}) == list(GOING)
        await come_to_rest(world)


@pytest.mark.parametrize("name", [*STRAYS][:2], ids=[*STRAYS.values()][:2])
@in_virtual_time
async def test_li05_a_set_that_takes_over_pods_awaits_none_that_it_never_adopts(name: str) -> None:
    """LI-05: what it has adopted is told all the same."""
    world = three_zones()
    async with granted(world):
        await world.pass_time(5)
        one = world.client.objects.pop(("statefulsets", "zone-a"))
        await world.watch()
        await _adopt(world, one, Uid("uid-new"), 5)
        _put_stray(world, name)
        await world.pass_time(120)
        assert sorted({call.pod for call in world.calls.confirmed[2:]}) == list(GOING)
        await come_to_rest(world)


@in_virtual_time
async def test_a_record_that_fails_does_not_delay_a_cancel() -> None:
    """LI-05, D-18: 5 to 2 failed, 5 to 4 happened and cannot be recorded; 2 and 3 are called."""
    world = three_zones()
    world.calls.answer = refuse("zone-a-2")

    def fail(call: str) -> None:
        if call.startswith("patch statefulsets"):
            raise Denied("statefulsets is forbidden", status=403)

    world.client.before = fail
    async with world.controlling():
        assert not (await world.send_request("zone-a", 2)).is_allowed
        world.calls.answer = confirm
        assert (await world.send_request("zone-a", 4)).is_allowed
        await write(world, 4)
        world.calls.calls.clear()
        await world.pass_time(60)
        assert sorted(world.calls.names("DELETE")) == ["zone-a-2", "zone-a-3"]


# Pods that come back under the names of those that went (LI-05)


async def _scale_down(world: World) -> None:
    """Let a downscale from 5 to 3 happen; its pods are terminating."""
    assert (await world.send_request("zone-a", 3)).is_allowed
    world.commit("zone-a", 3)
    for name in GOING:
        one = copy.deepcopy(world.client.objects["pods", name])
        part(one, "metadata")["deletionTimestamp"] = "2026-01-02T03:05:00Z"
        world.client.put("pods", one)
    await world.watch()


async def _come_back(world: World, *, runs: bool = True) -> None:
    for name in GOING:
        world.client.objects.pop(("pods", name), None)
        one = pod("zone-a", int(name[-1]), uid=f"uid-new-{name[-1]}")
        if not runs:
            part(one, "status")["podIP"] = ""
        world.client.put("pods", one)
    await world.watch()


@pytest.mark.parametrize("waits", [1, 50, 300])
@pytest.mark.parametrize("crashes", [False, True], ids=["lives on", "crashes"])
@in_virtual_time
async def test_li05_reverted_while_pods_are_terminating(waits: int, *, crashes: bool) -> None:
    """LI-05: pods take long to go; their successors are un-prepared once, when they run."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(waits)
        await write(world, 5)
        if not crashes:
            await world.pass_time(100)
            assert world.calls.names("DELETE") == [], "the pods that go are not called"
            assert world.memory.downscales.backlog.count() == 2
            assert (await world.memory.controller.reconcile(A)).again == RESYNC
            await _see_them_called(world)
    if crashes:
        world.restart()
        async with world.controlling():
            await _see_them_called(world)


async def _see_them_called(world: World) -> None:
    await _come_back(world, runs=False)
    await world.pass_time(100)
    assert world.calls.names("DELETE") == [], "they do not run yet"
    await _come_back(world)
    await world.pass_time(100)
    assert sorted(world.calls.names("DELETE")) == list(GOING)
    called = {call.uid for call in world.calls.confirmed if call.method == "DELETE"}
    assert called == {"uid-new-3", "uid-new-4"}
    await come_to_rest(world)


@in_virtual_time
async def test_a_downscale_that_is_not_reverted_is_forgotten_with_its_pods() -> None:
    """LI-01: no call is due while they go, nor a minute after they have gone."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(300)
        assert world.memory.downscales.backlog.count() == 0
        for name in GOING:
            world.remove_pod(name)
        await world.watch()
        await world.pass_time(100)
        assert world.memory.downscales.list_sets() == []
        assert world.recorded() == []
        world.commit("zone-a", 5)
        await _come_back(world)
        await world.pass_time(100)
        assert world.calls.names("DELETE") == []
        await come_to_rest(world)


@pytest.mark.parametrize(("waits", "called"), [(50, list(GOING)), (70, [])])
@pytest.mark.parametrize("unseen", [0, 29])
@in_virtual_time
async def test_li05_a_pod_that_comes_back_within_a_minute_is_un_prepared(
    waits: int, called: list[str], unseen: int
) -> None:
    """LI-05: the minute begins when they have gone, however long ago they were read last."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(50)
        await world.clock.sleep(unseen * SECOND)
        for name in GOING:
            world.remove_pod(name)
        await world.watch()
        await world.pass_time(waits)
        world.commit("zone-a", 5)
        await _come_back(world)
        await world.pass_time(100)
        assert sorted(world.calls.names("DELETE")) == called
        await come_to_rest(world)


@in_virtual_time
async def test_si12_a_pod_that_is_to_go_again_is_not_un_prepared() -> None:
    """SI-12: 5, 3, 5, and 3 again before the new pods have been un-prepared."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(50)
        await write(world, 5)
        await _come_back(world, runs=False)
        await world.pass_time(50)
        await _come_back(world)
        world.calls.calls.clear()
        await world.send_request("zone-a", 3)
        await write(world, 3)
        first = world.calls.calls[:1]
        await world.pass_time(100)
        posts = [index for index, one in enumerate(world.calls.calls) if one.method == "POST"]
        assert first
        assert "DELETE" not in [one.method for one in world.calls.calls[min(posts, default=0) :]]
