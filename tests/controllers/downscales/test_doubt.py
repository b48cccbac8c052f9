"""Downscales under caches that lag, stores that cannot be read, and records that others wrote."""

import copy
from collections import Counter
from datetime import timedelta

import pytest

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.model.names import DOWNSCALE_RECORD, LAST_DOWNSCALE, Unreachable
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Code
from rollout_operator.pods import PodError
from tests.controllers.downscales.granted import granted
from tests.controllers.fake_client import Json
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import (
    HOUR,
    WAIT,
    World,
    come_to_rest,
    part,
    pod,
    prepared_alone,
    three_zones,
    zone,
)
from tests.web.fake_pods import confirm, refuse

pytestmark = pytest.mark.thorough


@in_virtual_time
async def test_a_cache_from_before_the_review_proves_nothing() -> None:
    """D-25: the cache shows three replicas of a while ago; the store had five when it was read."""
    world = three_zones()
    five = copy.deepcopy(world.client.objects["statefulsets", "zone-a"])
    world.commit("zone-a", 3)
    world.sync()
    part(five, "metadata")["resourceVersion"] = "3"
    world.client.put("statefulsets", five)
    async with granted(world):
        await world.clock.sleep(timedelta(seconds=3))
        assert world.memory.downscales.count(ReservationState.OPEN) == 1
        assert world.annotation("zone-a") is None
        assert not (await world.send_request("zone-b", 4)).is_allowed
        await world.pass_time(60)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]


@pytest.mark.parametrize("lagging", ["statefulsets", "pods"])
@in_virtual_time
async def test_a_cache_that_lags_does_not_forget_a_debt(lagging: str) -> None:
    """LI-05: scaled up and down again while a watch was cut."""
    world = three_zones()
    store = world.client.objects
    hidden = {key: store[key] for key in store if key[1] in {"zone-a-3", "zone-a-4"}}
    if lagging == "statefulsets":
        hidden = {}
        five = copy.deepcopy(store["statefulsets", "zone-a"])
        world.commit("zone-a", 3)
        world.sync()
        part(five, "metadata")["resourceVersion"] = "3"
        world.client.put("statefulsets", five)
    else:
        for key in hidden:
            del store[key]
        world.sync()
        store.update(hidden)
    world.calls.answer = refuse("zone-a-4")
    async with world.controlling():
        assert not (await world.send_request("zone-a", 3)).is_allowed
        world.calls.answer = confirm
        await world.clock.sleep(timedelta(seconds=5))
        world.calls.calls.clear()
        await world.pass_time(60)
        assert {"zone-a-3", "zone-a-4"} == set(world.calls.names("DELETE"))
        await come_to_rest(world)


@in_virtual_time
async def test_a_store_that_cannot_be_called_is_called_again() -> None:
    """SI-12: no pod is un-prepared before the store has confirmed that it did not happen."""
    world = three_zones()

    def fail(call: str) -> None:
        if call == "get statefulsets/zone-a":
            raise Unreachable("time-out")

    world.client.before = fail
    async with granted(world):
        await world.pass_time(300)
        assert world.calls.names("DELETE") == []
        world.client.before = lambda call: None
        await world.pass_time(16)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]


@in_virtual_time
async def test_a_downscale_that_the_cache_does_not_show_is_not_reverted() -> None:
    """SI-12: written, and the watch is behind by minutes."""
    async with granted() as world:
        world.commit("zone-a", 3)
        await world.clock.sleep(timedelta(minutes=5))
        assert world.calls.names("DELETE") == []
        assert world.memory.downscales.count(ReservationState.OPEN) == 1
        assert not (await world.send_request("zone-b", 4)).is_allowed
        await world.watch()
        await world.pass_time(2)
        assert world.annotation("zone-a") == "2026-01-02T03:04:41Z", "the latest it can be"


@in_virtual_time
async def test_its_own_record_that_shows_late_is_none_of_another_process() -> None:
    """LI-01, LI-02: refused and undone; the event of a record was lost, a list shows it later."""
    world = three_zones()
    async with world.controlling():
        world.calls.answer = refuse("zone-a-4")
        assert not (await world.send_request("zone-a", 3)).is_allowed
        world.calls.answer = confirm
        await world.clock.sleep(timedelta(minutes=4))
        assert world.memory.downscales.list_sets() == []
        called = len(world.calls.calls)
        assert world.recorded()
        await world.watch()
        await world.pass_time(1)
        assert (await world.send_request("zone-b", 3)).is_allowed
        assert world.recorded() == ["zone-b-0", "zone-b-3", "zone-b-4"]
        assert len(world.calls.calls) == called + 2


@in_virtual_time
async def test_si11_what_happened_and_was_reverted_before_a_restart_counts() -> None:
    """5, 3, 5 while no process was there: only the record on a pod that stays is left of it."""
    world = three_zones(a=WAIT, b=WAIT)
    assert (await world.send_request("zone-a", 3)).is_allowed
    for name in ("zone-a-3", "zone-a-4"):
        again = pod("zone-a", int(name[-1]), uid=f"{name}-new", created="2026-01-02T03:04:30Z")
        world.client.put("pods", again)
    world.sync()
    world.restart()
    async with world.controlling():
        await world.pass_time(60)
        verdict = await world.send_request("zone-b", 3)
        assert verdict.reason.code is Code.ZONE_DOWNSCALED_LATELY
        assert world.annotation("zone-a") is not None


@pytest.mark.parametrize("evidence", ["record", "pods", "none"])
@in_virtual_time
async def test_si11_what_happened_unseen_and_was_reverted_counts(evidence: str) -> None:
    """5, 3, 5 while no event came: the record on the set, or its pods, show it."""
    world = three_zones(a=WAIT, b=WAIT)
    async with world.controlling():
        verdict = await world.send_request("zone-a", 3, whole=evidence == "record")
        if evidence == "record":
            world.commit("zone-a", 5, stamp=verdict.annotations[LAST_DOWNSCALE])
        if evidence == "pods":
            again = pod("zone-a", 4, uid="zone-a-4-new", created="2026-01-02T03:04:30Z")
            world.client.put("pods", again)
        world.sync()
        await world.pass_time(60)
        assert world.memory.downscales.list_sets() == []
        verdict = await world.send_request("zone-b", 3)
        if evidence == "none":
            assert verdict.is_allowed
            assert world.annotation("zone-a") is None
        else:
            assert verdict.reason.code is Code.ZONE_DOWNSCALED_LATELY
            assert world.annotation("zone-a") == "2026-01-02T03:04:42Z", "the latest it can be"


@in_virtual_time
async def test_a_record_that_was_left_over_is_no_proof_that_it_happened() -> None:
    """LI-01: undone, and killed when one of its records was still there: nothing waits for it."""
    world = three_zones(a=WAIT, b=WAIT)
    assert (await world.send_request("zone-a", 3)).is_allowed
    for ordinal in (3, 4):
        world.client.put("pods", pod("zone-a", ordinal))
    world.sync()
    assert world.recorded() == ["zone-a-0"]
    world.restart()
    async with world.controlling():
        await world.pass_time(60)
        assert (await world.send_request("zone-b", 3)).is_allowed
        assert world.annotation("zone-a") is None


@in_virtual_time
async def test_si11_a_downscale_without_prepared_pods_counts_after_a_crash() -> None:
    """3, 5 and 3 again before there are any new pods: one that stays has the record."""
    world = three_zones(a=WAIT, b=WAIT)
    for name in ("zone-a-3", "zone-a-4"):
        world.remove_pod(name)
    world.sync()
    assert (await world.send_request("zone-a", 3)).is_allowed
    assert world.calls.calls == []
    world.commit("zone-a", 3)
    world.sync()
    world.restart()
    async with world.controlling():
        await world.pass_time(5)
        assert (await world.send_request("zone-b", 3)).reason.code is Code.ZONE_DOWNSCALED_LATELY


@in_virtual_time
async def test_a_set_that_the_cache_does_not_show_yet_is_not_forgotten() -> None:
    """LI-05: created just now, and the watch is behind."""
    world = prepared_alone(zone("zone-a", group=None))
    world.sets.replace_all([])
    async with world.controlling():
        assert (await world.send_request("zone-a", 3, whole=True)).is_allowed
        await world.clock.sleep(timedelta(seconds=30))
        assert world.memory.downscales.count(ReservationState.OPEN) == 1
        await world.watch()
        await world.pass_time(30)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        await come_to_rest(world)


@in_virtual_time
async def test_a_set_that_the_cache_never_shows_is_forgotten_in_the_end() -> None:
    """It was created and deleted again while the watch was behind."""
    world = prepared_alone(zone("zone-a", group=None))
    world.sets.replace_all([])
    async with world.controlling():
        assert (await world.send_request("zone-a", 3, whole=True)).is_allowed
        await world.clock.sleep(timedelta(seconds=70))
        assert world.memory.downscales.list_sets() == []
        assert world.calls.names("DELETE") == []


@in_virtual_time
async def test_no_pod_is_un_prepared_by_a_cache_from_before_the_downscale() -> None:
    """SI-12: 5 to 3 was written, 3 to 2 failed, and the cache still shows five replicas."""
    async with granted() as world:
        world.commit("zone-a", 3)
        world.calls.answer = refuse("zone-a-2")
        assert not (await world.send_request("zone-a", 2)).is_allowed
        world.calls.answer = confirm
        world.calls.calls.clear()
        await world.clock.sleep(timedelta(minutes=5))
        assert world.calls.names("DELETE") == []
        await world.watch()
        await world.pass_time(60)
        assert world.calls.names("DELETE") == ["zone-a-2"]


@in_virtual_time
async def test_many_pods_are_un_prepared_a_few_at_a_time() -> None:
    """LI-05, LI-06: a review of the set runs in between, and all are un-prepared in time."""
    world = three_zones(100)
    async with world.controlling():
        assert (await world.send_request("zone-a", 0)).is_allowed
        await world.pass_time(60)
    called = [call for call in world.calls.calls if call.method == "DELETE"]
    assert list(Counter(call.at for call in called).values()) == [32, 32, 32, 4]
    assert len({call.pod for call in called}) == 100


def _put_record(world: World, name: str, text: str) -> None:
    one = copy.deepcopy(world.client.objects["pods", name])
    meta: Json = part(one, "metadata")
    meta["annotations"] = {DOWNSCALE_RECORD: text}
    world.client.put("pods", one)


@pytest.mark.parametrize(
    ("record", "deletes"),
    [
        ("rubbish", 0),
        ('{"replicasFrom":5,"replicasTo":-1,"at":"2026-01-02T03:04:05Z"}', 0),
        ('{"replicasFrom":5,"replicasTo":4,"at":"2026-01-02T03:04:05"}', 0),
        ('{"replicasFrom":5,"replicasTo":4,"at":"9999-12-31T23:59:59.9Z"}', 0),
        ('{"replicasFrom":5,"replicasTo":4,"at":"2026-01-02T04:04:05Z"}', 0),
        ('{"replicasFrom":5,"replicasTo":4,"at":"0001-01-01T00:00:00+23:59"}', 0),
        ('{"replicasFrom":99999999999999,"replicasTo":4,"at":"2026-01-02T03:04:05Z"}', 1),
    ],
)
@in_virtual_time
async def test_records_that_others_wrote(record: str, deletes: int) -> None:
    """SEC-25: at most a pod is told that it stays; no time of the future is recorded, no spin."""
    world = three_zones()
    _put_record(world, "zone-a-4", record)
    world.sync()
    world.restart()
    async with world.controlling():
        await world.pass_time(HOUR)
        assert len(world.calls.names("DELETE")) == deletes
        assert world.memory.downscales.list_sets() == []
        assert len(world.client.calls) < 10


@in_virtual_time
async def test_a_record_of_the_future_holds_nothing_back_for_ever() -> None:
    """SEC-25: it is found while the set wants fewer replicas already."""
    world = three_zones(4)
    world.client.put("pods", pod("zone-a", 4))
    _put_record(
        world, "zone-a-4", '{"replicasFrom":5,"replicasTo":4,"at":"9999-12-31T23:59:59.9Z"}'
    )
    world.sync()
    world.restart()
    async with world.controlling():
        assert world.memory.downscales.list_sets() == []
        await world.watch()
        await world.pass_time(60)
        assert world.annotation("zone-a") is None
        assert world.recorded() == []


@in_virtual_time
async def test_li05_a_pod_that_cannot_be_un_prepared_is_warned_of_once_for_each_cause(
    lines: list[str],
) -> None:
    """LI-05: not every 15 s, and not at level debug only; it is counted for as long."""
    world = three_zones()
    backlog = world.memory.downscales.backlog
    async with granted(world):
        world.calls.answer = refuse("zone-a-4", method="DELETE")
        await world.pass_time(300)
        assert backlog.count_unreached() == backlog.count() == 1
        assert _warnings(lines) == ["zone-a-4: HTTP status 500"]
        world.calls.answer = _unreachable
        await world.pass_time(300)
        assert backlog.count_unreached() == 1
        assert _warnings(lines) == ["zone-a-4: HTTP status 500", "zone-a-4: no route to host"]
        world.calls.answer = confirm
        await world.pass_time(30)
        assert backlog.count_unreached() == 0
        await come_to_rest(world)


async def _unreachable(method: str, endpoint: Endpoint) -> None:
    raise PodError(f"{method} {endpoint.pod}: no route to host")


def _warnings(lines: list[str]) -> list[str]:
    called = [line for line in lines if "level=warn" in line and "Pod cannot be told" in line]
    return [line.rpartition("DELETE ")[2].strip().rstrip('"') for line in called]
