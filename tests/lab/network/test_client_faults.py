"""What goes wrong with a call, and how it looks to the process that made it.

Section 3.2: errors, latency and crashes; SI-18: an unknown outcome is not a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest
from rollout_lab.network.faults import CrashPoint, Failure, FaultDecision

from rollout_operator.kube.api import SECRETS, Page
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Gone,
    Throttled,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from tests.lab.client_world import (
    ACTOR,
    NAMESPACE,
    ClientWorld,
    fails,
    loop_time,
    never_returns,
    secret,
)
from tests.simulation.planned_faults import CallPlan, ListPlan
from tests.virtual_time import in_virtual_time

Write = Callable[[ClientWorld], Awaitable[object]]
LATER = 3600.0


def create(world: ClientWorld) -> Awaitable[object]:
    return world.client.create(SECRETS, NAMESPACE, secret("new"))


def delete(world: ClientWorld) -> Awaitable[object]:
    return world.client.delete(SECRETS, NAMESPACE, "old", precondition=world.precondition("old"))


def names(page: Page) -> list[str]:
    return [msgspec.json.decode(item)["metadata"]["name"] for item in page.items]


@pytest.mark.parametrize(
    ("how", "error", "text", "seconds"),
    [
        (Failure.CONNECT, Unreachable, "no answer: Cannot connect to host", 0),
        (Failure.THROTTLED, Throttled, "client-side rate limiter: ", 0),
        (Failure.RESET_BEFORE, Unreachable, "no answer: Server disconnected", 0),
        (Failure.RESET_AFTER, Unreachable, "no answer: Server disconnected", 0),
        (Failure.TIMEOUT, Unreachable, "no answer: timed out after 60s", 60),
        (Failure.LATE, Unreachable, "no answer: timed out after 60s", 60),
        (Failure.CUT_BODY, Unreachable, "no answer: Response payload is not completed", 0),
        (Failure.GONE, Gone, "410 Expired: ", 0),
        (Failure.TOO_MANY, TooManyRequests, "429 TooManyRequests: ", 0),
        (Failure.INTERNAL, Unreachable, "500 InternalError: ", 0),
        (Failure.UNAVAILABLE, Unreachable, "503 ServiceUnavailable: ", 0),
        (Failure.GATEWAY_TIMEOUT, Unreachable, "504 Timeout: ", 0),
    ],
)
@in_virtual_time
async def test_a_read_fails(how: Failure, error: type[ApiError], text: str, seconds: int) -> None:
    world = ClientWorld(fails(how))
    with pytest.raises(error) as caught:
        await world.list()

    assert type(caught.value) is error
    assert f"{caught.value}".startswith(f"cannot list secrets in namespace default: {text}") or (
        error is Throttled and f"{caught.value}".startswith(text)
    )
    assert caught.value.call == "list secrets in namespace default"
    assert seconds <= loop_time() <= seconds + 0.02
    assert names(await world.list()) == []


@pytest.mark.parametrize("write", [create, delete])
@pytest.mark.parametrize(
    ("how", "error", "happens"),
    [
        (Failure.CONNECT, Unreachable, False),
        (Failure.THROTTLED, Throttled, False),
        (Failure.RESET_BEFORE, UnknownOutcome, False),
        (Failure.RESET_AFTER, UnknownOutcome, True),
        (Failure.TIMEOUT, UnknownOutcome, True),
        (Failure.LATE, UnknownOutcome, True),
        (Failure.CONFLICT, Conflict, False),
        (Failure.TOO_MANY, TooManyRequests, False),
        (Failure.INTERNAL, UnknownOutcome, False),
        (Failure.UNAVAILABLE, UnknownOutcome, False),
        (Failure.GATEWAY_TIMEOUT, UnknownOutcome, False),
        (Failure.GATEWAY_TIMEOUT_COMMITTED, UnknownOutcome, True),
    ],
)
@in_virtual_time
async def test_a_write_fails(
    how: Failure, error: type[ApiError], happens: bool, write: Write
) -> None:
    """SI-18: whether it was carried out cannot be known from how it failed."""
    world = ClientWorld(fails(how))
    world.put("old")
    with pytest.raises(ApiError) as caught:
        await write(world)

    assert type(caught.value) is error
    await asyncio.sleep(LATER)
    assert len(world.commits()) == happens
    assert [fault.kind for fault in world.reported] == [how.value]


@in_virtual_time
async def test_a_late_write_is_carried_out_when_its_caller_has_given_up() -> None:
    outcome = FaultDecision(fails=Failure.LATE, before=timedelta(seconds=20))
    world = ClientWorld(CallPlan(actor=ACTOR, number=1, outcome=outcome))
    with pytest.raises(UnknownOutcome):
        await create(world)
    assert loop_time() == 30
    assert not world.exists("new")

    await asyncio.sleep(30)
    assert world.exists("new")
    assert world.commits()[0].at.total_seconds() == pytest.approx(50, abs=0.02)


@in_virtual_time
async def test_of_a_write_whose_answer_is_cut_only_some_say_enough() -> None:
    """The status of a delete shows all; of what was written there is only half."""
    world = ClientWorld(fails(Failure.CUT_BODY, 1), fails(Failure.CUT_BODY, 2))
    world.put("old")
    await delete(world)
    with pytest.raises(UnknownOutcome, match="cannot tell what create secrets in namespace"):
        await create(world)
    assert world.exists("new")


@in_virtual_time
async def test_the_server_says_how_long_to_wait() -> None:
    world = ClientWorld(fails(Failure.TOO_MANY), fails(Failure.TOO_MANY_RETRY, 2))
    waits = []
    for _ in range(2):
        with pytest.raises(TooManyRequests) as caught:
            await create(world)
        waits.append(caught.value.retry_after)

    assert waits == [None, timedelta(seconds=2)]


@pytest.mark.parametrize("waits", [1, 3])
@in_virtual_time
async def test_a_delete_is_sent_in_time_or_not_at_all(waits: int) -> None:
    """What it rests on may be too old by then: nothing is sent, and nothing waits for that."""
    outcome = FaultDecision(waits=timedelta(seconds=waits))
    world = ClientWorld(CallPlan(actor=ACTOR, number=1, outcome=outcome))
    world.put("old")
    work = world.client.delete(
        SECRETS,
        NAMESPACE,
        "old",
        precondition=world.precondition("old"),
        sent_within=timedelta(seconds=2),
    )
    if waits < 2:
        await work
        assert loop_time() > 1
    else:
        with pytest.raises(Throttled):
            await work
        assert loop_time() == 0
    assert world.exists("old") is (waits > 2)


@in_virtual_time
async def test_a_slow_call_takes_longer_there_and_back() -> None:
    outcome = FaultDecision(before=timedelta(seconds=3), after=timedelta(seconds=5))
    world = ClientWorld(CallPlan(actor=ACTOR, number=1, outcome=outcome))
    await create(world)

    assert loop_time() == pytest.approx(8, abs=0.02)
    assert world.commits()[0].at.total_seconds() == pytest.approx(3, abs=0.02)


@pytest.mark.parametrize(
    ("point", "happens"),
    [
        (CrashPoint.BEFORE_SEND, False),
        (CrashPoint.AFTER_COMMIT, True),
        (CrashPoint.AFTER_REPLY, True),
    ],
)
@in_virtual_time
async def test_a_crash_within_a_write(point: CrashPoint, happens: bool) -> None:
    """Section 3.2: before the call, after the commit, after the reply."""
    world = ClientWorld(CallPlan(actor=ACTOR, number=1, outcome=FaultDecision(crash=point)))
    crashed: list[bool] = []
    world.link.on_crash = lambda: crashed.append(world.link.is_dead)
    # After the reply, it gets as far as its next wait.
    reached: list[str] = []

    async def work() -> None:
        await create(world)
        reached.append("reply")
        await world.list()
        reached.append("list")

    assert await never_returns(work())
    assert world.exists("new") is happens
    assert crashed == [True]
    assert reached == (["reply"] if point is CrashPoint.AFTER_REPLY else [])
    assert [fault.kind for fault in world.reported] == ["crash"]
    assert world.reported[0].text == f"call 1: create secrets: {point.name.lower()}"


@in_virtual_time
async def test_a_list_of_the_past_is_shown_to_informers_only() -> None:
    """Section 3.2, stale view: what an informer lists may be old; a live read never is."""
    world = ClientWorld(
        ListPlan(actor=ACTOR, plural="secrets", number=1, age=timedelta(seconds=5)),
        ListPlan(actor=ACTOR, plural="secrets", number=2, age=timedelta(hours=1)),
    )
    versions = []
    for name in "ab":
        await asyncio.sleep(4)
        versions.append(world.put(name))
    await asyncio.sleep(2)

    assert names(await world.list()) == ["a", "b"]
    old = await world.list(world.following)
    assert (names(old), old.resource_version) == (["a"], f"{versions[0]}")
    # Before the beginning there was nothing to be shown.
    assert names(await world.list(world.following)) == ["a", "b"]
    assert [fault.kind for fault in world.reported] == ["stale_list", "stale_list"]


@in_virtual_time
async def test_what_the_server_has_forgotten_is_not_shown() -> None:
    world = ClientWorld(ListPlan(actor=ACTOR, plural="secrets", number=1, age=timedelta(seconds=5)))
    for name in "abc":
        await asyncio.sleep(4)
        world.put(name)
    world.api.compact()
    assert names(await world.list(world.following)) == ["a", "b", "c"]


@in_virtual_time
async def test_flag16_a_client_waits_for_a_token_as_the_real_client_does() -> None:
    """FLAG-16: two at once, then one a second; a delete that must go sooner is Throttled."""
    world = ClientWorld(limits=RateLimiter(1, 2))
    world.put("a")
    for _ in range(4):
        await world.client.fetch(SECRETS, NAMESPACE, "a")
    assert 2 <= loop_time() < 2.1
    with pytest.raises(Throttled, match='rate limiter for Kubernetes API group "core"') as caught:
        await world.client.delete(
            SECRETS,
            NAMESPACE,
            "a",
            precondition=world.precondition("a"),
            sent_within=timedelta(milliseconds=10),
        )
    assert caught.value.call == "delete secrets/a in namespace default"
    assert loop_time() < 2.1, "it waited"
