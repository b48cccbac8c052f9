"""The arbiter where calls fail, hang or are cancelled: what may be recorded counts until it is
known, and is released where no answer confirmed it (SI-17, SI-18, LI-09, FP-11, FP-14, FP-36).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.guards.arbiter import ANSWER_LIMIT
from rollout_operator.guards.grants import (
    RECORD_REMOVAL_LIMIT,
    WRITE_LASTS,
    DisruptionRequest,
    GrantedPod,
    GrantState,
)
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import (
    ApiError,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import Refusal
from tests.guards.arbiter_bench import (
    LONG,
    SECOND,
    Hold,
    Process,
    World,
    failing,
    render_answer,
    start,
)
from tests.virtual_time import elapsed, in_virtual_time

USED = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"
CHANGED = "429 grant_not_recorded: ingester-zone-a-0 changed at this very moment"  # the rest is cut
LATE = "429 grant_not_recorded: no answer of the API server about ingester-zone-a-0 in time"
LOST = "429 grant_not_recorded: that ingester-zone-a-0 may go could not be recorded: "
DOWN = Unreachable("list pods: connection refused")
DOUBTFUL = GrantState.DOUBTFUL


def assert_nothing_left(here: World, x: Process) -> None:
    """Hold that neither memory nor store has anything of a grant."""
    assert (here.recorded(), len(x.in_flight)) == ([], 0)


@pytest.mark.parametrize("change", ["change", "replace"])
@in_virtual_time
async def test_fp11_a_pod_that_changed_since_it_was_decided_on_is_not_granted(change: str) -> None:
    """SI-17: a record is written by compare-and-swap, and nothing is kept where that fails."""
    here, x = start()
    getattr(here, change)("a-0")
    assert await x.evict("a-0") == CHANGED
    assert here.client.verbs() == ["patch"]
    assert_nothing_left(here, x)
    assert await x.evict("b-0") == "allowed"


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
    here, x = start()
    here.client.before = failing("patch", error)
    assert await x.evict("a-0") == text
    assert len(x.in_flight) == 0


@in_virtual_time
async def test_si18_a_record_without_an_answer_counts_and_is_not_confirmed() -> None:
    """It was written: no pod may go as long as that has not been read back."""
    here, x = start()
    here.client.lost.add("patch pods/ingester-zone-a-0")
    assert (await x.evict("a-0")).startswith(LOST)
    assert here.client.verbs() == ["patch"]
    assert x.state("a-0") is DOUBTFUL
    assert await x.evict("b-0") == USED
    assert await x.evict("a-1") == USED
    # LI-09: the answer may never have left; what is known is the record.
    contested = "429 grant_contested: ingester-zone-a-0 may have been allowed to go"
    assert (await x.evict("a-0")).startswith(contested)


@pytest.mark.parametrize(
    ("call", "within", "took"),
    [
        pytest.param("patch", LONG, ANSWER_LIMIT, id="a record"),
        pytest.param("patch", SECOND, SECOND, id="the caller has less time"),
        pytest.param("list", LONG, ANSWER_LIMIT, id="the read after the record"),
    ],
)
@in_virtual_time
async def test_si18_what_hangs_is_given_up_and_counts(
    call: str, within: timedelta, took: timedelta
) -> None:
    here, x = start()
    here.client.pause = Hold(call)
    assert await x.evict("a-0", within=within) == LATE
    assert elapsed() == took
    assert here.recorded() == (["a-0"] if call == "list" else [])
    assert x.state("a-0") is DOUBTFUL
    assert await x.evict("b-0") == USED


@pytest.mark.parametrize("call", ["patch", "list"])
@in_virtual_time
async def test_fp36_the_requester_has_gone_meanwhile(call: str) -> None:
    """Cancelled at an await, and others are in the queue: none of them is let through."""
    _, x = start()
    async with asyncio.TaskGroup() as tasks, x.evicting("a-0", call) as first:
        second = tasks.create_task(x.evict("b-0"))
        await asyncio.sleep(0)
        first.cancel()
    assert second.result() == USED
    assert x.state("a-0") is DOUBTFUL
    assert x.inflight == 0


@pytest.mark.parametrize("also", [False, True], ids=["the read", "and the release"])
@in_virtual_time
async def test_si18_a_read_that_fails_releases_the_record_at_once(also: bool) -> None:
    """SI-18: what cannot be released counts."""
    here, x = start()

    def fail(call: str) -> None:
        if call.startswith("list") or (also and len(here.client.calls) > 1):
            raise DOWN

    here.client.before = fail
    assert await x.evict("a-0") == f"{LOST}list pods: connection refused"
    assert here.client.verbs() == ["patch", "list", "patch"]
    if also:
        assert (here.recorded(), x.state("a-0")) == (["a-0"], DOUBTFUL)
    else:
        assert_nothing_left(here, x)


@pytest.mark.parametrize("is_shown", [False, True], ids=["an old cache", "FP-07 a lost event"])
@in_virtual_time
async def test_si02_what_broke_since_the_cache_is_seen_before_the_answer(
    is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SI-02: the record is released; the refusal names what is down.

    A cache that shows the record may have missed what came before it: it stands in for no list.
    """
    here, x = start()
    patch = here.client.patch

    async def show(*args: Any, **words: Any) -> bytes:
        body = await patch(*args, **words)
        if is_shown:
            x.pods.upsert(here.live("a-0"))
        return body

    monkeypatch.setattr(here.client, "patch", show)
    here.break_pod("c-2")
    refused = await x.evict("a-0")
    assert refused == "429 disruption_budget_used: 1 pod not ready in ingester-zone-c"
    assert here.client.verbs() == ["patch", "list", "patch"]
    assert_nothing_left(here, x)


def _remove(here: World, x: Process) -> None:
    here.annotate("a-0", None)


def _overwrite(here: World, x: Process) -> None:
    here.annotate("a-0", '{"uid":"other"}')


def _terminate(here: World, x: Process) -> None:
    here.terminate("a-0")


def _freeze(here: World, x: Process) -> None:
    x.clock.ahead = timedelta(seconds=5)


@pytest.mark.parametrize(
    ("meddle", "answer", "left"),
    [
        pytest.param(_remove, CHANGED, "", id="its record was removed"),
        pytest.param(_overwrite, CHANGED, '{"uid":"other"}', id="replaced: theirs stays"),
        pytest.param(_terminate, CHANGED, "", id="the pod goes by itself"),
        pytest.param(_freeze, LATE, "", id="the process was frozen, and no timer has run"),
    ],
)
@in_virtual_time
async def test_si17_no_answer_without_the_own_record_in_time(
    meddle: Callable[[World, Process], None], answer: str, left: str
) -> None:
    here, x = start()
    here.client.before = lambda call: meddle(here, x) if call.startswith("list") else None
    assert await x.evict("a-0") == answer
    assert (here.record("a-0"), len(x.in_flight)) == (left, 0)


@in_virtual_time
async def test_a_request_whose_time_is_over_sends_and_reserves_nothing() -> None:
    """The third pod of a slow rollout must not count as doubtful for nothing."""
    here, x = start()
    assert await x.evict("a-0", within=timedelta(0)) == LATE
    assert (here.client.calls, len(x.in_flight)) == ([], 0)


@in_virtual_time
async def test_li07_a_record_of_a_rollout_without_an_answer_is_given_up_in_time() -> None:
    """LI-07, SI-17: the group is held meanwhile, and the pod counts until its record is known."""
    here, x = start()
    here.client.pause = Hold("patch")
    request = DisruptionRequest(pod=x.cached("a-0"), engine=DisruptionSource.ROLLOUT, limit=1)
    answer = await x.gate.reserve(request, LONG)
    assert elapsed() == WRITE_LASTS
    assert isinstance(answer, Refusal)
    assert answer.reason.code is Code.GRANT_NOT_RECORDED
    assert x.state("a-0") is not None


@pytest.mark.parametrize("error", [None, DOWN], ids=["released", "SI-18: not, and counts"])
@in_virtual_time
async def test_zpdb60_a_rollout_releases_what_it_does_not_use(error: ApiError | None) -> None:
    """The next pod may go at once."""
    here, x = start()
    await x.gate.release_pod(x.cached("a-0"))
    assert here.client.calls == [], "it was not permitted yet"
    permit = await x.roll("a-0")
    assert isinstance(permit, GrantedPod)
    if error is not None:
        here.client.before = failing("patch", error)
    await x.gate.release_pod(permit.pod)
    if error is None:
        assert_nothing_left(here, x)
        x.sync()
        assert render_answer(await x.roll("a-1")) == "allowed"
    else:
        assert x.state("a-0") is DOUBTFUL
        assert await x.evict("b-0") == USED


@in_virtual_time
async def test_d65_a_record_that_never_had_its_turn_leaves_no_doubt() -> None:
    """D-65, LI-09: nothing was sent, so nothing stands in the way of others any more."""
    here, x = start()
    here.client.turn = hold = Hold("patch pods")
    assert (await x.evict("a-0")).startswith("429 grant_not_recorded")
    assert len(x.in_flight) == 0
    hold.open.set()
    assert await x.evict("b-0") == "allowed"
    assert here.recorded() == ["b-0"]


# What was recorded for a client that hung up is released in the background


@asynccontextmanager
async def releasing(of: Process) -> AsyncIterator[None]:
    """Have a process release what is abandoned, until the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(of.gate.run())
        await asyncio.sleep(0)
        yield
        running.cancel()


async def hang_up(of: Process, call: str = "list", then: Hold | None = None) -> Hold:
    """Request an eviction of a-0, and go as soon as a call has begun; return what holds it back.

    `then` holds back what follows.
    """
    of.world.client.pause = hold = Hold(call)
    async with asyncio.TaskGroup() as tasks:
        client = tasks.create_task(of.evict("a-0"))
        await hold.arrived.wait()
        of.world.client.pause = then or hold
        client.cancel()
    return hold


@pytest.mark.parametrize("hangs_up", [True, False], ids=["it hangs up", "its answer is late"])
@in_virtual_time
async def test_li09_a_client_without_an_answer_holds_no_other_up(hangs_up: bool) -> None:
    """LI-09, LI-07: no answer has let the pod go: others need not wait for 8 s."""
    here, x = start()
    async with releasing(x):
        if hangs_up:
            hold = await hang_up(x)
        else:
            here.client.pause = hold = Hold("list")
            await x.evict("a-0")
        assert elapsed() == (timedelta(0) if hangs_up else ANSWER_LIMIT)
        hold.open.set()
        assert await x.evict("b-0") == "allowed"
    assert elapsed() == (timedelta(0) if hangs_up else ANSWER_LIMIT)
    assert here.recorded() == ["b-0"]
    assert x.state("a-0") is None


@in_virtual_time
async def test_si18_a_record_in_flight_stays_in_doubt() -> None:
    """SI-18: the patch may be carried out after whatever would release it."""
    here, x = start()
    async with releasing(x):
        await hang_up(x, "patch")
        assert x.state("a-0") is DOUBTFUL
        await asyncio.sleep(RECORD_REMOVAL_LIMIT.total_seconds())
    assert x.state("a-0") is DOUBTFUL
    assert here.client.verbs() == ["patch"]


@in_virtual_time
async def test_si17_a_grant_whose_answer_may_have_left_stays() -> None:
    """SI-17: the client goes the moment after the decision."""
    here, x = start()
    given = asyncio.Event()
    x.in_flight.on_change(lambda pod: given.set())

    async def answer_slowly() -> None:
        await x.evict("a-0")
        await asyncio.sleep(1)  # on its way to the client

    async with releasing(x), asyncio.TaskGroup() as tasks:
        client = tasks.create_task(answer_slowly())
        await given.wait()
        client.cancel()
        await asyncio.sleep(RECORD_REMOVAL_LIMIT.total_seconds())
        assert x.state("a-0") is GrantState.GRANTED
        assert here.recorded() == ["a-0"]
    assert here.client.verbs() == ["patch", "list"]


@in_virtual_time
async def test_si18_what_cannot_be_released_is_in_doubt_and_counts() -> None:
    _, x = start()
    async with releasing(x):
        fails = Hold("patch", error=DOWN)
        fails.open.set()
        await hang_up(x, then=fails)
        assert x.state("a-0") is DOUBTFUL
        assert (await x.evict("b-0")).startswith("429 disruption_budget_used")


@pytest.mark.parametrize("ends", [False, True], ids=["LI-07", "FP-36: the process ends"])
@in_virtual_time
async def test_si18_a_release_that_hangs_is_in_doubt_after_four_seconds(ends: bool) -> None:
    """LI-07: from then on the controller of disruptions looks after it, of this or another process
    (FP-36).
    """
    _, x = start()
    async with releasing(x):
        await hang_up(x, then=Hold("patch"))
        await asyncio.sleep(RECORD_REMOVAL_LIMIT.total_seconds() - 1)
        assert x.state("a-0") is GrantState.REQUESTED, "others wait for it meanwhile"
        if not ends:
            await asyncio.sleep(2)
            assert x.state("a-0") is DOUBTFUL
    assert x.state("a-0") is DOUBTFUL
