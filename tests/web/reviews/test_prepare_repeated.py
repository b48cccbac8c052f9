"""Prepare-downscale: sent again, sent by several at once, or never answered.

D-24, D-25, SI-11, SI-12, SI-16, SEED-110, SEED-111.
"""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.guards.downscales import PERSIST_LIMIT, ReservationState
from rollout_operator.model.names import LAST_DOWNSCALE, Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Code, Verdict
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import LIMIT, WAIT, World, outdate, pod, three_zones
from tests.web.fake_pods import confirm, hang, refuse, slow

A, B = Uid("uid-zone-a"), Uid("uid-zone-b")
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("times", range(1, 6))
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("whole", [True, False], ids=["set", "scale"])
@in_virtual_time
async def test_si16_repeated(times: int, at_once: bool, whole: bool) -> None:
    """SI-16, D-24, FP-23: one round of POSTs, one verdict; each answer has its time."""
    world = three_zones()
    verdicts = await _request_often(world, times, at_once=at_once, whole=whole)
    assert [verdict.is_allowed for verdict in verdicts] == [True] * times
    assert [replace(verdict, annotations={}) for verdict in verdicts] == [
        replace(verdicts[0], annotations={})
    ] * times
    seconds = [7 if at_once else 7 + 6 * place for place in range(times)]
    stamps = [{LAST_DOWNSCALE: f"2026-01-02T03:04:{second:02}Z"} for second in seconds]
    assert [verdict.annotations for verdict in verdicts] == (stamps if whole else [{}] * times)
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]
    assert world.calls.names("DELETE") == []
    patches = [call for call in world.client.calls if call.startswith("patch")]
    assert patches == [f"patch pods/zone-a-{ordinal}" for ordinal in (4, 3, 0)], "one that stays"


async def _request_often(world: World, times: int, *, at_once: bool, whole: bool) -> list[Verdict]:
    if at_once:
        requested = (world.send_request("zone-a", 3, whole=whole) for _ in range(times))
        return list(await asyncio.gather(*requested))
    verdicts = []
    for _ in range(times):
        verdicts.append(await world.send_request("zone-a", 3, whole=whole))
        await world.clock.sleep(6 * SECOND)
    return verdicts


@in_virtual_time
async def test_only_a_new_pod_is_called_when_requested_again() -> None:
    """D-24, FP-25: a pod was replaced between prepare and removal."""
    world = three_zones()
    assert (await world.send_request("zone-a", 3)).is_allowed
    world.client.put("pods", pod("zone-a", 4, uid="uid-new"))
    world.sync()
    assert (await world.send_request("zone-a", 3)).is_allowed
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3", "zone-a-4"]
    assert world.calls.calls[-1].uid == "uid-new"
    reservation = world.memory.downscales.get(A)
    assert reservation is not None
    assert reservation.prepared == {"uid-zone-a-4-old", "uid-zone-a-3-old", "uid-new"}


@in_virtual_time
async def test_a_new_pod_that_refuses_does_not_undo_what_may_still_happen() -> None:
    """SI-12: the first answer may still be written; no pod is un-prepared before that is over."""
    world = three_zones()
    async with world.controlling():
        assert (await world.send_request("zone-a", 3)).is_allowed
        world.client.put("pods", pod("zone-a", 4, uid="uid-new"))
        await world.watch()
        await world.pass_time(20)
        world.calls.answer = refuse("zone-a-4")
        assert (await world.send_request("zone-a", 3)).reason.code is Code.POD_NOT_PREPARED
        world.calls.answer = confirm
        await world.pass_time(14)
        assert world.calls.names("DELETE") == [], "of what was allowed at the beginning"
        await world.pass_time(20)
        assert {call.uid for call in world.calls.calls if call.method == "DELETE"} == {
            "uid-new",
            "uid-zone-a-3-old",
        }


@in_virtual_time
async def test_a_write_that_is_refused_again_and_again_holds_no_zone_back_for_longer() -> None:
    """LI-01, LI-05: allowed, refused by another webhook; then a pod fails, and an HPA goes on."""
    world = three_zones()
    async with world.controlling():
        assert (await world.send_request("zone-a", 3)).is_allowed
        world.client.put("pods", pod("zone-a", 4, uid="uid-new"))
        await world.watch()
        world.calls.answer = refuse("zone-a-4")
        for _ in range(5):
            await world.pass_time(15)
            assert not (await world.send_request("zone-a", 3)).is_allowed
        assert {call.pod for call in world.calls.confirmed if call.method == "DELETE"} == {
            "zone-a-3",
            "zone-a-4",
        }
        await world.pass_time(15)
        assert (await world.send_request("zone-b", 4)).is_allowed


@in_virtual_time
async def test_a_review_that_joins_another_one_may_be_written_as_late_as_it_came() -> None:
    """SI-12: pods take 6 s, the second request comes at 5.5 s and is written 34 s after that."""
    world = three_zones()
    world.calls.answer = slow(6)
    async with world.controlling(), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(5.5 * SECOND)
        second = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(34 * SECOND)
        assert (await first).is_allowed
        assert (await second).is_allowed
        assert world.calls.names("DELETE") == []
        await world.pass_time(20)
        assert set(world.calls.names("DELETE")) == {"zone-a-3", "zone-a-4"}


@in_virtual_time
async def test_a_client_that_keeps_trying_is_judged_again() -> None:
    """SI-11, PREP-17: refused by another webhook for minutes; meanwhile zone b has changed."""
    world = three_zones()
    async with world.controlling():
        for _ in range(8):
            assert (await world.send_request("zone-a", 3)).is_allowed
            await world.pass_time(15)
        outdate(world, "zone-b")
        await world.watch()
        await world.pass_time(30)
        assert (await world.send_request("zone-a", 3)).reason.code is Code.OTHER_ZONE_NOT_READY
        await world.pass_time(60)
        assert world.calls.prepared() == set()


@pytest.mark.parametrize(
    ("moved", "home", "code"),
    [
        ("zone-a", "elsewhere", Code.ZONE_DOWNSCALED_LATELY),
        ("zone-b", "elsewhere", Code.ZONE_DOWNSCALED_LATELY),
        ("zone-b", None, Code.ZONE_DOWNSCALED_LATELY),
        ("zone-c", "elsewhere", None),
    ],
    ids=["it", "the one that went", "the one that went, of no group", "one at rest"],
)
@in_virtual_time
async def test_what_was_allowed_beside_other_zones_is_judged_again(
    moved: str, home: str | None, code: Code | None
) -> None:
    """SI-11, D-24: a set joins the group, and one of them was scaled down a moment ago."""
    world = three_zones(a=WAIT)
    world.label(moved, "rollout-group", home)
    if code:
        world.annotate("zone-b", LAST_DOWNSCALE, "2026-01-02T03:04:00Z")
    await world.watch()
    assert (await world.send_request("zone-a", 3)).is_allowed
    await world.clock.sleep(10 * SECOND)
    world.label(moved, "rollout-group", "ingester")
    await world.watch()
    verdict = await world.send_request("zone-a", 3)
    assert verdict.is_allowed if code is None else verdict.reason.code is code


@in_virtual_time
async def test_a_set_that_joins_a_group_while_its_pods_are_called_waits() -> None:
    """SI-10, SI-11: the review in another group is not over yet, and speaks for that alone."""
    world = three_zones(a=WAIT)
    world.label("zone-a", "rollout-group", "elsewhere")
    await world.watch()
    world.calls.answer = slow(6)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(SECOND)
        world.label("zone-a", "rollout-group", "ingester")
        await world.watch()
        verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.OTHER_DOWNSCALE_UNDERWAY, 429)
    assert (await first).is_allowed


@in_virtual_time
async def test_the_time_of_the_last_attempt_is_recorded() -> None:
    """SI-11: not that of the first, minutes ago: the other zones would wait too short."""
    world = three_zones()
    async with world.controlling():
        for _ in range(12):
            verdict = await world.send_request("zone-a", 3, whole=True)
            await world.pass_time(15)
        recorded = verdict.annotations[LAST_DOWNSCALE]
        latest = world.clock.now() - PERSIST_LIMIT - 16 * SECOND
        assert recorded >= f"{latest:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize("to", [4, 2], ids=["less", "more"])
@in_virtual_time
async def test_si12_overlapping_ranges(to: int) -> None:
    """SI-12, FP-19: the second waits, and its refusal reverts nothing."""
    world = three_zones()
    assert (await world.send_request("zone-a", 3)).is_allowed
    verdict = await world.send_request("zone-a", to)
    assert (verdict.reason.code, verdict.code) == (Code.OTHER_DOWNSCALE_UNDERWAY, 429)
    assert world.calls.names("DELETE") == []
    assert len(world.calls.names("POST")) == 2


@in_virtual_time
async def test_si12_the_next_range_does_not_revert_the_last_one() -> None:
    """SI-12: 5 to 4 is written and its pod is still there; 4 to 3 fails."""
    world = three_zones()
    async with world.controlling():
        assert (await world.send_request("zone-a", 4)).is_allowed
        world.commit("zone-a", 4)
        await world.watch()
        world.calls.answer = refuse("zone-a-3")
        assert not (await world.send_request("zone-a", 3)).is_allowed
        world.calls.answer = confirm
        await world.pass_time(300)
        assert set(world.calls.names("DELETE")) == {"zone-a-3"}


@in_virtual_time
async def test_d25_the_other_zone_may_go_when_the_first_was_refused() -> None:
    world = three_zones()
    world.calls.answer = refuse("zone-a-4")
    assert not (await world.send_request("zone-a", 3)).is_allowed
    assert (await world.send_request("zone-b", 3)).is_allowed


async def _cancel_at(world: World, step: int) -> bool:
    """Send a review, and cancel it when it has waited that often; return whether it still ran."""
    waits = 0
    reached = asyncio.Event()

    async def count(*_: object) -> None:
        nonlocal waits
        waits += 1
        if waits == step:
            reached.set()
            await asyncio.sleep(1)
        await asyncio.sleep(0)

    async def answer(method: str, endpoint: Endpoint) -> None:
        await count()

    world.client.pause, world.calls.answer = count, answer
    async with asyncio.TaskGroup() as tasks:
        requesting = tasks.create_task(world.send_request("zone-a", 2))
        waiting = tasks.create_task(reached.wait())
        await asyncio.wait([requesting, waiting], return_when=asyncio.FIRST_COMPLETED)
        was_running = not requesting.done()
        requesting.cancel()
        waiting.cancel()
    world.calls.answer = confirm
    return was_running


@pytest.mark.parametrize("step", range(1, 10))
@in_virtual_time
async def test_a_review_that_is_cut_off_leaves_no_prepared_pod(step: int) -> None:
    """W-13, FP-22, LI-05: cancelled in the live read, the records, the calls: pods that were called
    are un-prepared."""
    world = three_zones()
    assert await _cancel_at(world, step)
    downscales = world.memory.downscales
    assert downscales.get(A) is None
    called = {call.uid for call in world.calls.calls}
    assert called <= {one.uid for one in downscales.backlog.map_due_cancels(A)}
    assert (await world.send_request("zone-b", 4)).is_allowed
    async with world.controlling():
        await world.pass_time(60)
        called_pods = {call.uid for call in world.calls.confirmed if call.method == "DELETE"}
        assert called <= called_pods
        assert not [uid for uid in world.calls.prepared() if uid.startswith("uid-zone-a")]
        assert downscales.backlog.map_due_cancels(A) == {}
        assert not [name for name in world.recorded() if name.startswith("zone-a")]


@in_virtual_time
async def test_all_waits_of_a_review_are_cut_off_above() -> None:
    """The range of the test above: there is no tenth wait."""
    assert not await _cancel_at(three_zones(), 10)


@in_virtual_time
async def test_a_review_that_waits_for_the_same_one_learns_when_that_is_given_up() -> None:
    """FP-23: it is a reason to try again, and the operator is not stopping."""
    world = three_zones()
    world.calls.answer = hang
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(SECOND)
        second = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(SECOND)
        first.cancel()
    verdict = await second
    assert (verdict.reason.code, verdict.code) == (Code.REVIEW_TIMED_OUT, 429)
    assert "given up" in verdict.reason.text
    world.calls.answer = confirm
    assert (await world.send_request("zone-a", 3)).is_allowed


@in_virtual_time
async def test_a_review_that_waits_is_cut_off_alone() -> None:
    """The one that works goes on."""
    world = three_zones()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(SECOND / 20)
        second = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(SECOND / 50)
        second.cancel()
    assert (await first).is_allowed


@in_virtual_time
async def test_li06_two_rounds_are_enough_for_slow_pods() -> None:
    """LI-06: prepare takes 40 % of the time-out; the API server sends it twice."""
    world = three_zones()
    world.calls.answer = slow(4)
    begin = world.clock.elapsed()
    first = await world.send_request("zone-a", 3, whole=True)
    second = await world.send_request("zone-a", 3, whole=True)
    assert first == second
    assert first.is_allowed
    assert first.annotations == {LAST_DOWNSCALE: "2026-01-02T03:04:10Z"}, "SI-11: of the answer"
    assert world.clock.elapsed() - begin < LIMIT


@in_virtual_time
async def test_a_pod_to_un_prepare_is_taken_over_by_the_next_review() -> None:
    """SI-12: it failed, and is sent again before its pods are un-prepared a second time."""
    world = three_zones()
    world.calls.answer = refuse("zone-a-4")
    async with world.controlling():
        assert not (await world.send_request("zone-a", 3)).is_allowed
        world.calls.answer = confirm
        world.calls.calls.clear()
        assert (await world.send_request("zone-a", 3)).is_allowed
        assert world.memory.downscales.backlog.count() == 0
        world.commit("zone-a", 3)
        await world.watch()
        await world.pass_time(120)
        assert world.calls.names("DELETE") == []
        assert world.memory.downscales.count(ReservationState.PERSISTED) == 1
