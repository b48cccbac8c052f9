"""Calls to all pods of a downscale: how many at a time, in which order, and what one failure stops.

T-07 rows 10 to 13, PREP-20 to PREP-22, POD-01, SI-21.
"""

import asyncio
import re
from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from rollout_operator.model.names import Uid
from rollout_operator.pods import AT_MOST_PER_REVIEW, PodClient
from rollout_operator.telemetry.metrics import Metrics
from tests.pods.conftest import SHORT, opened
from tests.pods.pod_servers import OK, Answer, PodServers, Seen, hang, status


def failing(*ordinals: int) -> Answer:
    """Answer 500 from these pods and 200 from the others."""

    async def answer(seen: Seen) -> None:
        await status(500 if seen.ordinal in ordinals else 200)(seen)

    return answer


def has_seen(pods: PodServers, number: int) -> bool:
    return len(pods.seen) >= number


class Gate:
    """Holds all requests back, and lets them pass one by one."""

    def __init__(self) -> None:
        self._passes = asyncio.Semaphore(0)

    async def answer(self, seen: Seen) -> None:
        await self._passes.acquire()
        await seen.send(OK)

    def open(self, number: int) -> None:
        for _ in range(number):
            self._passes.release()


async def test_all_pods_are_called_once(client: PodClient) -> None:
    """T-07 row 10: 64 endpoints, all succeed, exactly 64 POSTs."""
    async with PodServers(status(200)) as pods:
        failures = await client.prepare_all(pods.endpoints(64))
    assert failures == []
    assert Counter((seen.method, seen.ordinal) for seen in pods.seen) == {
        ("POST", ordinal): 1 for ordinal in range(64)
    }


async def test_one_failure_is_a_failure(client: PodClient) -> None:
    """T-07 row 11: 64 endpoints, the last one fails, at least 63 POSTs; the others succeeded."""
    async with PodServers(hang) as pods:

        async def answer(seen: Seen) -> None:
            if seen.ordinal == 0:
                await pods.reach(lambda: pods.active == 1 and len(pods.seen) == 64)
            await failing(0)(seen)

        pods.answer = answer
        failures = await client.prepare_all(pods.endpoints(64))
    assert [f"{failure}" for failure in failures] == ["POST zone-a-0: HTTP status 500"]
    assert len(pods.seen) == 64


async def test_all_are_undone_though_all_fail(client: PodClient) -> None:
    """T-07 row 12: 64 endpoints, all DELETEs fail, still exactly 64 DELETEs."""
    async with PodServers(status(500)) as pods:
        failures = await client.cancel_all(pods.endpoints(64))
    assert {uid: f"{failure}" for uid, failure in failures.items()} == {
        Uid(f"uid-{ordinal}"): f"DELETE zone-a-{ordinal}: HTTP status 500" for ordinal in range(64)
    }
    assert Counter((seen.method, seen.ordinal) for seen in pods.seen) == {
        ("DELETE", ordinal): 1 for ordinal in range(64)
    }


async def test_no_pods_are_no_calls(client: PodClient) -> None:
    """T-07 row 13."""
    async with PodServers(status(500)) as pods:
        assert await client.prepare_all([]) == []
        assert await client.cancel_all([]) == {}
        assert await client.fetch_answers([]) == {}
    assert pods.connections == 0


async def test_only_pods_that_could_not_be_un_prepared_are_reported(client: PodClient) -> None:
    """PREP-22."""
    async with PodServers(failing(1, 3)) as pods:
        failures = await client.cancel_all(pods.endpoints(5))
    assert sorted(failures) == ["uid-1", "uid-3"]


async def test_pods_are_called_in_the_given_order(narrow: PodClient) -> None:
    """PREP-20: the highest first, as the caller lists them."""
    async with PodServers(status(200)) as pods:
        assert await narrow.prepare_all(pods.endpoints(40)) == []
    assert [seen.ordinal for seen in pods.seen] == [*reversed(range(40))]


async def test_a_failure_begins_no_more(narrow: PodClient) -> None:
    """PREP-21: what waits for its turn is not sent."""
    async with PodServers(failing(7)) as pods:
        failures = await narrow.prepare_all(pods.endpoints(10))
    assert [f"{failure}" for failure in failures] == ["POST zone-a-7: HTTP status 500"]
    assert [seen.ordinal for seen in pods.seen] == [9, 8, 7]


async def test_a_failure_cancels_what_is_under_way(client: PodClient) -> None:
    """PREP-21: hanging pods delay no refusal, and are not reported as failed."""
    async with PodServers(hang) as pods:

        async def answer(seen: Seen) -> None:
            if seen.ordinal == 5:
                await pods.reach(lambda: pods.active == AT_MOST_PER_REVIEW)
                await status(503)(seen)
            await hang(seen)

        pods.answer = answer
        async with asyncio.timeout(10):
            failures = await client.prepare_all(pods.endpoints(32))
            await pods.reach(lambda: pods.active == 0)
    assert [f"{failure}" for failure in failures] == ["POST zone-a-5: HTTP status 503"]


@pytest.mark.parametrize("call", ["prepare_all", "cancel_all", "fetch_answers"])
async def test_cancelling_cancels_the_calls(client: PodClient, call: str) -> None:
    """The review is over: its calls end with it, and all turns are free again."""
    async with PodServers(hang) as pods:
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(getattr(client, call)(pods.endpoints(64)))
            await pods.reach(lambda: pods.active == AT_MOST_PER_REVIEW)
            calling.cancel()
        await pods.reach(lambda: pods.active == 0)
        pods.answer = status(200)
        assert await client.prepare_all(pods.endpoints(64)) == []
    assert calling.cancelled()


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_one_review_has_32_calls_under_way(client: PodClient, method: str) -> None:
    """PREP-20, PREP-22."""
    gate = Gate()
    async with PodServers(gate.answer) as pods:
        call = client.prepare_all if method == "POST" else client.cancel_all
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call(pods.endpoints(70)))
            for seen in range(32, 70):
                await pods.reach(partial(has_seen, pods, seen))
                gate.open(1)
            gate.open(70)
    assert len(pods.seen) == 70
    assert pods.peak == 32


async def test_a_process_has_64_calls_under_way(client: PodClient) -> None:
    """SEC: together, of all reviews; those that wait go on when others have ended."""
    gate = Gate()
    async with PodServers(gate.answer) as pods, asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(client.prepare_all(pods.endpoints(32)))
        for seen in range(64, 128):
            await pods.reach(partial(has_seen, pods, seen))
            gate.open(1)
        gate.open(128)
    assert len(pods.seen) == 128
    assert pods.peak == 64


async def test_waiting_for_a_turn_is_not_the_fault_of_a_pod(metrics: Metrics) -> None:
    """POD-01: the time is per request; 3 pods that take a part of it do not fail the last."""

    async def answer(seen: Seen) -> None:
        await asyncio.sleep(0.3)
        await seen.send(OK)

    async with (
        opened(timedelta(seconds=1), metrics, at_most=1) as client,
        PodServers(answer) as pods,
    ):
        assert await client.prepare_all(pods.endpoints(4)) == []


async def test_what_is_not_confirmed_in_time_has_failed(hasty: PodClient) -> None:
    """PREP-21: each pod has the same time, and the first that lets it pass fails them all."""
    async with PodServers(hang) as pods, asyncio.timeout(10):
        failures = await hasty.prepare_all(pods.endpoints(3))
        await pods.reach(lambda: pods.active == 0)
    assert failures
    for failure in failures:
        assert re.fullmatch(r"POST zone-a-[0-2]: no answer within 200ms", f"{failure}")


async def test_a_call_that_waits_for_a_turn_is_not_sent_late(narrow: PodClient) -> None:
    """Turns that others hold do not make a review go on beyond its end, and it leaves none held."""
    async with PodServers(hang) as pods, asyncio.TaskGroup() as tasks:
        other = tasks.create_task(narrow.prepare_all([pods.endpoint(9)]))
        await pods.reach(lambda: pods.active == 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT.total_seconds()):
                await narrow.prepare_all([pods.endpoint(1)])
        other.cancel()
        await pods.reach(lambda: pods.active == 0)
        pods.answer = status(200)
        assert await narrow.prepare_all([pods.endpoint(2)]) == []
    assert [seen.ordinal for seen in pods.seen] == [9, 2]


async def test_closing_ends_the_calls_under_way(client: PodClient) -> None:
    broken = "POST zone-a-0: connection closed without an answer"
    async with PodServers(hang) as pods, asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(client.prepare_all([pods.endpoint()]))
        requesting = tasks.create_task(client.fetch_answers([pods.endpoint()]))
        await pods.reach(lambda: pods.active == 2)
        await client.close()
    assert [f"{failure}" for failure in preparing.result()] == [broken]
    assert [word.problem for word in requesting.result().values()] == [broken]
