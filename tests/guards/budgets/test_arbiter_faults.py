"""The gate where calls fail, hang or are cancelled: what may be recorded counts until it is known
(SI-17, SI-18, FP-11, FP-14, FP-36).
"""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.guards.budgets.arbiter import ANSWER_LIMIT
from rollout_operator.guards.budgets.in_flight import GrantState
from rollout_operator.guards.budgets.pod_records import WRITE_LASTS
from rollout_operator.guards.budgets.request import DisruptionRequest, Permit
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.errors import (
    ApiError,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import Refusal
from tests.guards.arbiter_bench import LONG, SECOND, Hold, Process, failing, rule, tell, world
from tests.virtual_time import elapsed, in_virtual_time

USED = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"
CHANGED = "429 grant_not_recorded: ingester-zone-a-0 changed at this very moment"  # the rest is cut
LATE = "429 grant_not_recorded: no answer of the API server about ingester-zone-a-0 in time"
LOST = "429 grant_not_recorded: that ingester-zone-a-0 may go could not be recorded: "
DOWN = Unreachable("list pods: connection refused")


def stage(of: Process, pod: str) -> GrantState | None:
    """Return how far the grant of a pod has come."""
    grant = of.pending.get(of.cached(pod).uid)
    return None if grant is None else grant.stage


@in_virtual_time
async def test_fp11_a_pod_that_changed_since_it_was_decided_on_is_not_granted() -> None:
    """SI-17: a record is written by compare-and-swap, and nothing is kept where that fails."""
    here = world()
    x = here.start()
    here.change("a-0")
    assert (await x.evict("a-0")) == CHANGED
    assert here.client.verbs() == ["patch"]
    assert len(x.pending) == 0
    assert here.recorded() == []
    assert await x.evict("b-0") == "allowed"


@in_virtual_time
async def test_fp11_a_pod_that_was_replaced_is_not_granted() -> None:
    here = world()
    x = here.start()
    here.replace("a-0")
    assert (await x.evict("a-0")) == CHANGED
    assert here.recorded() == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(NotFound("gone", status=404), CHANGED, id="the pod is gone"),
        pytest.param(Refused("no", status=400), f"{LOST}no", id="a webhook refuses the record"),
        pytest.param(Throttled("later"), f"{LOST}later", id="our own limiter: nothing was sent"),
        pytest.param(TooManyRequests("busy"), f"{LOST}busy", id="the server turns it away"),
        pytest.param(Unreachable("refused"), f"{LOST}refused", id="nothing could be sent"),
    ],
)
@in_virtual_time
async def test_what_was_certainly_not_written_is_forgotten(error: ApiError, text: str) -> None:
    here = world()
    x = here.start()
    here.client.before = failing("patch", error)
    assert await x.evict("a-0") == text
    assert len(x.pending) == 0


@in_virtual_time
async def test_si18_a_record_without_an_answer_counts_and_is_not_confirmed() -> None:
    """It was written: nobody may go as long as that has not been read back."""
    here = world()
    x = here.start()
    here.client.lost.add("patch pods/ingester-zone-a-0")
    assert (await x.evict("a-0")).startswith(LOST)
    assert here.client.verbs() == ["patch"]
    assert stage(x, "a-0") is GrantState.DOUBTFUL
    assert await x.evict("b-0") == USED
    assert await x.evict("a-1") == USED
    assert (await x.evict("a-0")).startswith("429 grant_contested")


@in_virtual_time
async def test_si18_a_record_that_hangs_is_given_up_after_four_seconds_and_counts() -> None:
    here = world()
    x = here.start()
    here.client.pause = Hold("patch")
    assert await x.evict("a-0") == LATE
    assert elapsed() == ANSWER_LIMIT
    assert stage(x, "a-0") is GrantState.DOUBTFUL
    assert await x.evict("b-0") == USED


@in_virtual_time
async def test_si18_whoever_asks_has_less_time_than_that() -> None:
    here = world()
    x = here.start()
    here.client.pause = Hold("patch")
    assert await x.evict("a-0", within=SECOND) == LATE
    assert elapsed() == SECOND
    assert stage(x, "a-0") is GrantState.DOUBTFUL


@in_virtual_time
async def test_si18_a_look_that_hangs_leaves_the_record_for_somebody_to_take_back() -> None:
    here = world()
    x = here.start()
    here.client.pause = Hold("list")
    assert await x.evict("a-0") == LATE
    assert elapsed() == ANSWER_LIMIT
    assert here.recorded() == ["a-0"]
    assert stage(x, "a-0") is GrantState.DOUBTFUL
    assert await x.evict("b-0") == USED


@pytest.mark.parametrize("call", ["patch", "list"])
@in_virtual_time
async def test_fp36_who_asked_has_gone_meanwhile(call: str) -> None:
    """Cancelled at an await, and others are in the queue: none of them is let through."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold(call)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(x.evict("a-0"))
        await hold.arrived.wait()
        second = tasks.create_task(x.evict("b-0"))
        await asyncio.sleep(0)
        first.cancel()
    assert second.result() == USED
    assert stage(x, "a-0") is GrantState.DOUBTFUL
    assert x.inflight == 0


@in_virtual_time
async def test_a_look_that_fails_takes_the_record_back_at_once() -> None:
    here = world()
    x = here.start()
    here.client.before = failing("list", DOWN)
    assert await x.evict("a-0") == f"{LOST}list pods: connection refused"
    assert here.client.verbs() == ["patch", "list", "patch"]
    assert here.recorded() == []
    assert len(x.pending) == 0


@in_virtual_time
async def test_si18_a_record_that_cannot_be_taken_back_counts() -> None:
    here = world()
    x = here.start()

    def cut(call: str) -> None:
        if here.client.verbs() != ["patch"]:
            raise DOWN

    here.client.before = cut
    assert (await x.evict("a-0")).startswith(LOST)
    assert here.recorded() == ["a-0"]
    assert stage(x, "a-0") is GrantState.DOUBTFUL


@in_virtual_time
async def test_si02_what_broke_since_the_cache_is_seen_before_the_answer() -> None:
    """SI-02: the record is withdrawn; the refusal tells what is down."""
    here = world()
    x = here.start()
    here.break_pod("c-2")
    refused = await x.evict("a-0")
    assert refused == "429 disruption_budget_used: 1 pod not ready in ingester-zone-c"
    assert here.recorded() == []
    assert len(x.pending) == 0


@pytest.mark.parametrize("text", [None, '{"uid":"other"}'], ids=["removed", "replaced"])
@in_virtual_time
async def test_si17_no_answer_without_the_own_record(text: str | None) -> None:
    """Somebody removed or replaced it: theirs stays as it is, whatever it says."""
    here = world()
    x = here.start()

    def meddle(call: str) -> None:
        if call.startswith("list"):
            here.annotate("a-0", text)

    here.client.before = meddle
    assert await x.evict("a-0") == CHANGED
    assert here.record("a-0") == (text or "")
    assert len(x.pending) == 0


@in_virtual_time
async def test_si17_no_answer_for_a_pod_that_goes_by_itself() -> None:
    here = world()
    x = here.start()
    here.client.before = lambda call: here.terminate("a-0") if call[:4] == "list" else None
    assert await x.evict("a-0") == CHANGED


@in_virtual_time
async def test_si17_a_process_that_was_frozen_does_not_answer() -> None:
    """Five seconds are lost between record and look, and no timer has run: it may be too late."""
    here = world()
    x = here.start()

    def freeze(call: str) -> None:
        if call.startswith("list"):
            x.clock.ahead = timedelta(seconds=5)

    here.client.before = freeze
    assert await x.evict("a-0") == LATE
    assert here.recorded() == []
    assert len(x.pending) == 0


@in_virtual_time
async def test_an_ask_whose_time_is_over_sends_and_reserves_nothing() -> None:
    """The third pod of a slow rollout must not count as doubtful for nothing."""
    here = world()
    x = here.start()
    assert await x.evict("a-0", within=timedelta(0)) == LATE
    assert here.client.calls == []
    assert len(x.pending) == 0


@in_virtual_time
async def test_li07_a_record_of_a_rollout_without_an_answer_is_given_up_in_time() -> None:
    """LI-07, SI-17: the group is held meanwhile, and the pod counts until its record is known."""
    here = world()
    x = here.start()

    async def hang(call: str) -> None:
        await asyncio.sleep(LONG.total_seconds() if call.startswith("patch") else 0)

    here.client.pause = hang
    ask = DisruptionRequest(pod=x.cached("a-0"), engine=DisruptionSource.ROLLOUT, limit=1)
    begin = elapsed()
    answer = await x.gate.reserve(ask, begin + LONG)
    assert elapsed() - begin == WRITE_LASTS
    assert isinstance(answer, Refusal)
    assert answer.reason.code is Code.GRANT_NOT_RECORDED
    assert stage(x, "a-0") is not None


@in_virtual_time
async def test_zpdb60_a_rollout_gives_back_what_it_does_not_use() -> None:
    """The next pod may go at once."""
    here = world()
    x = here.start()
    permit = await x.roll("a-0")
    assert isinstance(permit, Permit)
    await x.gate.give_back(permit.pod)
    assert here.recorded() == []
    assert len(x.pending) == 0
    x.sync()
    assert tell(await x.roll("a-1")) == "allowed"


@in_virtual_time
async def test_si18_what_cannot_be_given_back_counts() -> None:
    here = world(rule())
    x = here.start()
    permit = await x.roll("a-0")
    assert isinstance(permit, Permit)
    here.client.before = failing("patch", DOWN)
    await x.gate.give_back(permit.pod)
    assert stage(x, "a-0") is GrantState.DOUBTFUL
    assert await x.evict("b-0") == USED


@in_virtual_time
async def test_nothing_is_given_back_that_nobody_was_permitted() -> None:
    here = world()
    x = here.start()
    await x.gate.give_back(x.cached("a-0"))
    assert here.client.calls == []


@in_virtual_time
async def test_d65_a_record_that_never_had_its_turn_leaves_no_doubt() -> None:
    """D-65, LI-09: nothing was sent, so nothing stands in the way of others any more."""
    here = world()
    x = here.start()
    hold = Hold("patch pods")
    here.client.turn = hold
    assert (await x.evict("a-0")).startswith("429 grant_not_recorded")
    assert len(x.pending) == 0
    hold.open.set()
    assert await x.evict("b-0") == "allowed"
    assert here.recorded() == ["b-0"]


@in_virtual_time
async def test_li09_a_grant_in_doubt_is_not_said_to_have_been_given() -> None:
    """LI-09: the answer may never have left; what is known is the record."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    assert (await x.evict("a-0")).startswith("429 grant_")
    hold.open.set()
    told = await x.evict("a-0")
    assert told.startswith("429 grant_contested: ingester-zone-a-0 may have been allowed to go")
