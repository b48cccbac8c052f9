"""One decision, reserved at once, recorded and confirmed (T-11, W-34, SI-01, SI-17)."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.guards.arbiter import (
    CONTEST_PAUSE,
    CONTEST_READS,
    MOST_WAITING,
    REPEAT_LIMIT,
    SLICE,
)
from rollout_operator.guards.grants import DisruptionRequest
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.names import Conflict
from rollout_operator.model.objects import Underway
from tests.guards.arbiter_bench import (
    LONG,
    SECOND,
    Process,
    World,
    render_answer,
    rule,
    start,
    world,
)
from tests.planning.disruptions import PATTERN
from tests.virtual_time import EPOCH, elapsed, in_virtual_time

USED = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"


@in_virtual_time
async def test_t11_11_a_grant_is_recorded_and_confirmed_in_two_calls() -> None:
    """T-11 row 11, SI-17: a compare-and-swap that names the pod, then one read of all zones."""
    here, x = start()
    assert await x.evict("a-0") == "allowed"
    assert here.client.verbs() == ["patch", "list"]
    record = msgspec.json.decode(here.record("a-0"), type=Record)
    uid, engine = here.live("a-0").uid, DisruptionSource.EVICTION
    assert record == Record(uid=uid, by="x", at=EPOCH, engine=engine, lasts=REPEAT_LIMIT)
    assert (x.requests("allowed", 200), x.inflight) == (1, 0)


@pytest.mark.parametrize("other", ["a-2", "b-0", "c-1"])
@in_virtual_time
async def test_t11_16_what_was_granted_counts_although_no_cache_shows_it(other: str) -> None:
    """T-11 rows 16 and 17, W-34: the second is refused without a call."""
    here, x = start()
    assert await x.evict("a-0") == "allowed"
    here.client.calls.clear()
    assert await x.evict(other) == USED
    assert here.client.calls == []
    assert x.requests("denied", 429) == 1
    # FP-20, FP-40: also in another process, or after a restart without memory.
    assert await here.start("y").evict(other) == USED


@in_virtual_time
async def test_si01_two_requests_at_once_one_is_granted() -> None:
    """Nothing is awaited between a decision and its reservation."""
    here, x = start()
    answers = await asyncio.gather(x.evict("a-0"), x.evict("b-0"), x.evict("a-1"))
    assert list(answers) == ["allowed", USED, USED]
    assert here.recorded() == ["a-0"]
    assert here.client.verbs() == ["patch", "list"]


@in_virtual_time
async def test_w55_requests_that_wait_for_a_grant_in_flight_go_on_in_order_when_it_fails() -> None:
    """The first came to nothing: the one that came second is granted, not the third."""
    here, x = start()
    gone = Conflict("changed", status=409)
    stuck = x.evicting("a-0", "patch pods/ingester-zone-a-0", error=gone)
    async with asyncio.TaskGroup() as tasks, stuck as first:
        second = tasks.create_task(x.evict("b-0"))
        third = tasks.create_task(x.evict("c-0"))
        await asyncio.sleep(1)
        assert not second.done()
        assert x.inflight == 3  # METR-32
    assert first.result().startswith("429 grant_not_recorded: ingester-zone-a-0 changed")
    assert second.result() == "allowed"
    assert third.result() == "429 disruption_budget_used: 1 pod not ready in ingester-zone-b"
    assert here.recorded() == ["b-0"]
    assert x.inflight == 0


@in_virtual_time
async def test_w55_waiting_ends_in_time() -> None:
    _, x = start()
    async with x.evicting("a-0", "patch"):
        assert await x.evict("b-0", within=2 * SECOND) == USED
        assert elapsed() == 2 * SECOND


@in_virtual_time
async def test_w55_no_caller_waits_for_what_would_not_help() -> None:
    """A downscale has begun meanwhile: whatever becomes of the grant in flight."""
    here, x = start()
    async with x.evicting("a-0", "patch"):
        here.downscale = Underway(zone="ingester-zone-b", replicas_from=3, replicas_to=2)
        assert (await x.evict("b-0")).startswith("429 downscale_underway")
        assert elapsed() == timedelta(0)


@in_virtual_time
async def test_w55_too_many_do_not_wait() -> None:
    _, x = start()
    async with asyncio.TaskGroup() as tasks, x.evicting("a-0", "patch"):
        waiting = [tasks.create_task(x.evict("b-0")) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0.01)
        assert await x.evict("c-0") == USED
        assert elapsed() < SECOND
    assert {task.result() for task in waiting} == {USED}


@in_virtual_time
async def test_w55_budgets_do_not_wait_for_one_another() -> None:
    """One stuck call costs the pods of its own budget only."""
    here, _ = start(rule(), rule(name="store", selector={"rollout-group": "store"}))
    for letter in "xy":
        here.add_zone(letter, {"rollout-group": "store"})
    x = here.start()
    async with x.evicting("a-0", "patch pods/ingester-zone-a-0") as stuck:
        assert await x.evict("x-0") == "allowed"
        assert elapsed() == timedelta(0)
        assert not stuck.done()
    assert here.recorded() == ["a-0", "x-0"]


@in_virtual_time
async def test_si16_the_same_requested_again_has_the_same_answer_and_one_record() -> None:
    """A review that is repeated within two seconds; also both at the same time."""
    here, x = start()
    both = await asyncio.gather(x.evict("a-0"), x.evict("a-0"))
    assert set(both) == {"allowed"}
    await asyncio.sleep(1.9)
    assert await x.evict("a-0") == "allowed"
    assert here.client.verbs() == ["patch", "list"]


@in_virtual_time
async def test_si16_later_it_is_not_granted_anew_and_still_counts() -> None:
    """A release of the second grant would release the first, too."""
    here, x = start(rule(2))
    assert await x.evict("a-0") == "allowed"
    record = here.record("a-0")
    await asyncio.sleep(2)
    text = "429 grant_contested: ingester-zone-a-0 was allowed to go a moment ago"
    assert await x.evict("a-0") == text
    assert render_answer(await x.roll("a-0")) == text
    x.sync()
    assert await x.evict("a-0") == text
    other = await here.start("y").evict("a-0")  # which knows of the record only
    assert other.startswith("429 grant_contested: ingester-zone-a-0 may have been allowed to go")
    assert here.record("a-0") == record
    assert await x.evict("b-0") == USED
    assert here.client.verbs() == ["patch", "list"]


@pytest.mark.parametrize("seconds", [0, 5, 30])
@in_virtual_time
async def test_si17_a_record_outlasts_the_last_answer_that_it_may_have(seconds: int) -> None:
    """A repeated answer may be acted upon for as long as the first, and begins later."""
    here, x = start()
    request = DisruptionRequest(
        pod=x.cached("a-0"), engine=DisruptionSource.EVICTION, lasts=timedelta(seconds=seconds)
    )
    await x.gate.request(request, LONG)
    record = msgspec.json.decode(here.record("a-0"), type=Record)
    assert record.lasts >= request.lasts + REPEAT_LIMIT
    grant = x.in_flight.get(request.pod.uid)
    assert grant is not None
    assert grant.lasts == record.lasts


def rollout_of(x: Process, pods: int) -> list[DisruptionRequest]:
    """Return requests for all pods of zone a."""
    names = [f"a-{at}" for at in range(pods)]
    return [
        DisruptionRequest(pod=x.cached(name), engine=DisruptionSource.ROLLOUT, limit=9)
        for name in names
    ]


@in_virtual_time
async def test_d51_many_pods_are_decided_on_with_one_read_of_each_zone() -> None:
    """D-51: the work grows with the pods, not with their square."""
    _, x = start(rule(), rule(name="one", selector={"app": "another"}), pods=30)
    assert await x.evict("b-0") == "allowed"
    requests, x.pods.reads = rollout_of(x, 30), 0
    refusals = await x.gate.assess_all(requests)
    assert {render_answer(one) for one in refusals if one is not None} == {
        "429 disruption_budget_used: 1 pod not ready in ingester-zone-b"
    }
    assert len({id(one) for one in refusals}) == 1
    assert x.pods.reads == 3


@in_virtual_time
async def test_d51_others_have_their_turn_while_many_pods_are_decided_on() -> None:
    _, x = start(rule(pattern=PATTERN), pods=SLICE + 1)
    turns: list[str] = []

    async def decide() -> None:
        await x.gate.assess_all(rollout_of(x, SLICE + 1))
        turns.append("decided")

    async def wait() -> None:
        turns.append("another")

    await asyncio.gather(decide(), wait())
    assert turns == ["another", "decided"]


# Two processes at the same moment: at most one goes on (FP-20, SI-01)

USED_A = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"
USED_B = "429 disruption_budget_used: 1 pod not ready in ingester-zone-b"


@pytest.mark.parametrize(("first", "second"), [("x", "y"), ("y", "x")])
@in_virtual_time
async def test_fp20_of_two_at_the_same_time_the_one_with_the_lesser_name_goes_on(
    first: str, second: str
) -> None:
    """Same second, same read: the other releases, and the winner waits for that."""
    here = world()
    requested = {first: "a-0", second: "b-0"}
    answers = await _request_all(here, requested)
    assert answers[requested["x"]] == "allowed"
    assert answers[requested["y"]] == (USED_A if requested["x"] == "a-0" else USED_B)
    assert here.recorded() == [requested["x"]]
    assert CONTEST_PAUSE < elapsed() < 2 * CONTEST_PAUSE


async def _take_a_moment(call: str) -> None:
    await asyncio.sleep(0.01)


async def _request_all(here: World, requested: dict[str, str]) -> dict[str, str]:
    """Request all at the same moment, one process each; each call takes a hundredth of a second."""
    here.client.pause = _take_a_moment
    processes = {name: here.start(name) for name in requested}
    async with asyncio.TaskGroup() as tasks:
        running = {
            pod: tasks.create_task(processes[name].evict(pod)) for name, pod in requested.items()
        }
    return {pod: task.result() for pod, task in running.items()}


@in_virtual_time
async def test_fp20_the_earlier_record_wins_also_where_it_arrives_later() -> None:
    """The first to decide had a slow way: its record is the older all the same."""
    here = world()
    y, x = here.start("y"), here.start("x")
    slow = ("patch pods/ingester-zone-a-0", "list")
    async with asyncio.TaskGroup() as tasks, y.evicting("a-0", *slow) as early:
        await asyncio.sleep(0.5)
        late = tasks.create_task(x.evict("b-0"))
        await asyncio.sleep(0.5)
        assert here.recorded() == ["b-0"]
    assert early.result() == "allowed"
    assert late.result() == USED_A
    assert here.recorded() == ["a-0"]


@in_virtual_time
async def test_fp20_the_winner_gives_up_where_the_other_does_not_release() -> None:
    """It died, or it was given before our record arrived: then both would go."""
    here = world()
    y, x = here.start("y"), here.start("x")
    async with y.evicting("a-0", "patch pods/ingester-zone-a-0") as early:
        await asyncio.sleep(0.5)
        assert await x.evict("b-0") == "allowed"
        here.client.calls.clear()
    assert early.result() == USED_B
    assert here.recorded() == ["b-0"]
    assert here.client.verbs().count("list") == CONTEST_READS
    assert elapsed() < 2 * CONTEST_READS * CONTEST_PAUSE


@in_virtual_time
async def test_fp20_the_loser_does_not_wait() -> None:
    here = world()
    x, y = here.start("x"), here.start("y")
    async with y.evicting("b-0", "patch pods/ingester-zone-b-0") as late:
        assert await x.evict("a-0") == "allowed"
    assert late.result() == USED_A
    assert elapsed() < CONTEST_PAUSE
    assert here.recorded() == ["a-0"]


@in_virtual_time
async def test_si02_a_winner_with_another_trouble_does_not_wait() -> None:
    """A pod is down besides: that the other one releases would not help."""
    here = world()

    def crash(call: str) -> None:
        if call.startswith("list"):
            here.break_pod("c-1")

    here.client.before = crash
    answers = await _request_all(here, {"x": "a-0", "y": "b-0"})
    assert {text.split(":")[0] for text in answers.values()} == {"429 disruption_budget_used"}
    assert here.recorded() == []
    assert elapsed() < CONTEST_PAUSE
