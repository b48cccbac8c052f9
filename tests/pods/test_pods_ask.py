"""Calls to pods, since when they are prepared: what is sent, what of the answer is read.

DELAY-04, DELAY-07, DELAY-12, T-05 rows 5 to 7, W-20, FP-25, SEC-11, SI-21, SI-23, D-27.
"""

import asyncio
import gzip
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.scaling import PodAnswer
from rollout_operator.pods import AT_MOST_PER_REVIEW, Method, PodClient
from rollout_operator.telemetry.metrics import Metrics
from tests.pods.one_call import count_calls
from tests.pods.pod_servers import Answer, PodServers, Seen, endless, hang, reply, reset, status
from tests.virtual_time import EPOCH, VirtualClock, elapsed, in_virtual_time

GOOD = b'{"timestamp": 1700000000}'
SINCE = datetime.fromtimestamp(1700000000, UTC)
EMPTY = "POST zone-a-4: the answer is empty"


async def send_request(client: PodClient, endpoint: Endpoint) -> PodAnswer:
    words = await client.fetch_answers([endpoint])
    assert set(words) == {endpoint.uid}
    return words[endpoint.uid]


async def test_a_pod_says_since_when_it_is_prepared(client: PodClient) -> None:
    """SEED-075, DELAY-12."""
    begin = datetime.now(UTC)
    async with PodServers(status(200, body=GOOD)) as pods:
        word = await send_request(client, pods.endpoint(4))
    assert (word.since, word.problem) == (SINCE, "")
    assert begin <= word.called_at <= datetime.now(UTC)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        ("a", "b=c", "/a?b=c"),
        ("a%2Fb/%7e//", "x=%20&y={z}&u=http://v/../w?", None),
        ("", "b", "/?b"),
        ("/a", "", "//a"),
        ("", "", "/"),
    ],
)
async def test_path_and_query_arrive_as_they_are_written(
    client: PodClient, method: Method, path: str, query: str, target: str | None
) -> None:
    """DELAY-04: and the port stands in `Host` only where it stands in the URL."""
    async with PodServers(status(200, body=GOOD)) as pods:
        endpoint = replace(pods.endpoint(4), path=path, query=query, shows_port=False)
        await (client.fetch_answers if method == "POST" else client.cancel_all)([endpoint])
    lines = pods.seen[0].head.decode().split("\r\n")
    assert lines[0] == f"{method} {target or f'/{path}?{query}'} HTTP/1.1"
    assert "Host: zone-a-4.zone-a.prod.svc.cluster.local." in lines


async def test_queries_are_not_logged(client: PodClient, lines: list[str]) -> None:
    """SI-23: they may hold a token."""
    async with PodServers(status(200, body=GOOD)) as pods:
        await send_request(client, replace(pods.endpoint(4), query="token=secret"))
    assert ["ingester/prepare" in line for line in lines] == [True]
    assert "secret" not in "".join(lines)


async def pause(seen: Seen) -> None:
    await seen.send(b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n")
    await seen.send(GOOD[:10])
    await asyncio.sleep(0.01)
    await seen.send(GOOD[10:])


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(status(202, body=GOOD), id="any 2xx"),
        pytest.param(pause, id="in pieces"),
        pytest.param(reply(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD), id="until the end"),
        pytest.param(
            reply(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"a\r\n" + GOOD[:10] + b"\r\nf\r\n" + GOOD[10:] + b"\r\n0\r\n\r\n"
            ),
            id="chunked",
        ),
        pytest.param(status(200, body=GOOD + b" " * (65536 - len(GOOD))), id="64 KiB"),
    ],
)
async def test_every_way_to_send_a_body_is_read(client: PodClient, answer: Answer) -> None:
    async with PodServers(answer) as pods:
        assert (await send_request(client, pods.endpoint(4))).since == SINCE


LATE = "POST zone-a-4: no answer within 200ms"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = "POST zone-a-4: the answer is longer than 65536 bytes"


async def stop_halfway(seen: Seen) -> None:
    await seen.send(HEAD + GOOD)
    await hang(seen)


async def drip(seen: Seen) -> None:
    await seen.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await seen.send(b" ")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(
            status(500, body=GOOD), "POST zone-a-4: HTTP status 500", id="T-05 row 5 status 500"
        ),
        pytest.param(status(409, body=GOOD), "POST zone-a-4: HTTP status 409", id="DELAY-07 409"),
        pytest.param(
            status(307, "Location: /other", body=GOOD), "POST zone-a-4: HTTP status 307", id="SI-21"
        ),
        pytest.param(
            reset, "POST zone-a-4: connection closed without an answer", id="T-05 row 6 reset"
        ),
        pytest.param(
            status(200, body=b"yes"),
            "POST zone-a-4: the answer is no JSON object: yes",
            id="T-05 row 7 no JSON",
        ),
        pytest.param(status(200), EMPTY, id="no body"),
        pytest.param(status(204), EMPTY, id="204"),
        pytest.param(reply(HEAD + GOOD), "POST zone-a-4: the answer broke off", id="too short"),
        pytest.param(
            reply(CHUNKED + b"zz\r\n"),
            "POST zone-a-4: no valid HTTP answer, or too long headers",
            id="bad chunk",
        ),
        pytest.param(hang, LATE, id="nothing"),
        pytest.param(stop_halfway, LATE, id="never the rest"),
        pytest.param(drip, LATE, id="slower than the time"),
        pytest.param(status(200, body=bytes(65537)), LONG, id="64 KiB and a byte"),
    ],
)
async def test_no_other_answer_gives_a_time(
    client: PodClient, hasty: PodClient, answer: Answer, problem: str
) -> None:
    """DELAY-07, FP-25: tried once, and nothing is followed."""
    async with PodServers(answer) as pods:
        word = await send_request(hasty if problem == LATE else client, pods.endpoint(4))
    assert (word.since, word.problem) == (None, problem)
    assert len(pods.seen) == 1


async def test_the_body_of_a_failure_stays_unread(client: PodClient) -> None:
    """DELAY-07: what does not count is not waited for."""

    async def refuse(seen: Seen) -> None:
        await seen.send(HEAD.replace(b"200", b"500") + GOOD)
        await hang(seen)

    async with PodServers(refuse) as pods, asyncio.timeout(10):
        assert (
            await send_request(client, pods.endpoint(4))
        ).problem == "POST zone-a-4: HTTP status 500"


async def test_nothing_is_unpacked(client: PodClient) -> None:
    """SEC-11: a few bytes may stand for gigabytes."""
    async with PodServers(status(200, "Content-Encoding: gzip", body=gzip.compress(GOOD))) as pods:
        word = await send_request(client, pods.endpoint(4))
    assert word.problem.startswith("POST zone-a-4: the answer is no JSON object: \\x1f\\ufffd")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"Content-Length: 10737418240\r\n", id="10 GiB"),
        pytest.param(b"", id="until the end"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", id="one chunk of 256 MiB"),
    ],
)
async def test_of_a_long_body_64_kib_are_read(client: PodClient, head: bytes) -> None:
    """FP-25, SEC-11."""
    sent: list[int] = []
    async with PodServers(hang) as pods:
        pods.answer = endless(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", b" " * 4096, sent)
        word = await send_request(client, pods.endpoint(4))
        await pods.reach(lambda: pods.active == 0)
    assert word.problem == LONG
    # What is read, and what the kernel holds at both ends.
    assert sent[0] < 700_000


async def test_the_body_of_a_prepared_pod_stays_unread(client: PodClient) -> None:
    """PREP-21: a pod that never ends its answer has confirmed all the same."""
    async with PodServers(stop_halfway) as pods, asyncio.timeout(10):
        assert await client.prepare_all([pods.endpoint(4)]) == []
        assert await client.cancel_all([pods.endpoint(4)]) == {}


async def test_every_pod_is_called_whatever_the_others_say(client: PodClient) -> None:
    """W-20: the first failure comes before any other answer, and stops no call."""
    async with PodServers(hang) as pods:

        async def answer(seen: Seen) -> None:
            if seen.ordinal % 3 == 0:
                await (reset(seen) if seen.ordinal % 2 else status(500)(seen))
                return
            await pods.reach(partial(has_seen, pods, min(70, AT_MOST_PER_REVIEW + 10)))
            await status(200, body=GOOD)(seen)

        pods.answer = answer
        words = await client.fetch_answers(pods.endpoints(70))
    assert {uid: word.since is None for uid, word in words.items()} == {
        Uid(f"uid-{ordinal}"): ordinal % 3 == 0 for ordinal in range(70)
    }
    assert {word.problem for word in words.values() if "-3:" in word.problem} == {
        "POST zone-a-3: connection closed without an answer"
    }
    assert len(pods.seen) == 70


def has_seen(pods: PodServers, number: int) -> bool:
    return len(pods.seen) >= number


async def test_what_is_requested_is_measured(hasty: PodClient, metrics: Metrics) -> None:
    """METR-21: a body that does not come is an error, one that says nothing is not."""
    async with PodServers(status(200)) as pods:
        await send_request(hasty, pods.endpoint(4, path="a"))
        pods.answer = stop_halfway
        await send_request(hasty, replace(pods.endpoint(4, path="a"), query="b"))
    assert count_calls(metrics) == {("/a", "POST", "200"): 1, ("/a", "POST", "error"): 1}


class SlowPods:
    """A `client.Sender` to pods that take 50 ms each."""

    def __init__(self) -> None:
        self.active = 0
        self.peak = 0

    async def send(self, method: Method, endpoint: Endpoint) -> int:
        await self.post(endpoint)
        return 200

    async def post(self, endpoint: Endpoint) -> tuple[int, bytes]:
        self.active += 1
        self.peak = max(self.peak, self.active)
        await asyncio.sleep(0.05)
        self.active -= 1
        return 200, GOOD

    async def close(self) -> None:
        pass


def crowd(number: int) -> Sequence[Endpoint]:
    return [
        Endpoint(pod=f"a-{at}", uid=Uid(f"{at}"), ip="10.0.0.1", host="a", port=80, path="")
        for at in range(number)
    ]


@pytest.mark.parametrize(("zones", "each", "seconds"), [(1, 1000, 1.6), (4, 250, 0.8)])
@in_virtual_time
async def test_a_thousand_pods_are_called_soon(zones: int, each: int, seconds: float) -> None:
    """DELAY-12, D-27: 32 at a time of one zone, 64 of the process."""
    slow = SlowPods()
    client = PodClient(slow, timeout=timedelta(seconds=5), metrics=Metrics(), clock=VirtualClock())
    async with asyncio.TaskGroup() as tasks:
        requesting = [tasks.create_task(client.fetch_answers(crowd(each))) for _ in range(zones)]
    assert [len(one.result()) for one in requesting] == [each] * zones
    assert elapsed().total_seconds() == pytest.approx(seconds, abs=0.06)
    assert slow.peak == min(64, zones * AT_MOST_PER_REVIEW)


@in_virtual_time
async def test_a_word_is_as_old_as_its_question() -> None:
    """Waiting for a turn is before it, waiting for the answer after it."""
    client = PodClient(
        SlowPods(), timeout=timedelta(seconds=5), metrics=Metrics(), clock=VirtualClock(), at_most=1
    )
    words = await client.fetch_answers(crowd(3))
    ages = sorted((word.called_at - EPOCH).total_seconds() for word in words.values())
    assert ages == pytest.approx([0, 0.05, 0.1], abs=0.01)
