"""Calls to pods: stories of one call and of many, and what needs more than an answer of a pod.

POD-01, RATE-07, PREP-20 to PREP-22, DELAY-12, W-20, W-59, SI-21, D-27.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.pods import AT_MOST_PER_REVIEW, MOST_PATHS, Method, PodClient
from rollout_operator.telemetry.metrics import Metrics
from tests.pods.pod_servers import OK, PodServers, hang, status
from tests.pods.stage import GOOD, LONG, SHORT, PodStage, opened
from tests.stories import check_stories
from tests.virtual_time import EPOCH, VirtualClock, elapsed, in_virtual_time

NAME = "zone-a-4.zone-a.prod.svc.cluster.local"


test_story = check_stories(__file__, calls=PodStage, crowd=PodStage, tls=PodStage)


async def test_an_address_of_version_6_is_called() -> None:
    """D-27, FP-38: a cluster without IPv4."""
    arrived: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    try:
        server = await asyncio.start_server(serve, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    port = server.sockets[0].getsockname()[1]
    async with PodServers(hang) as pods, opened(LONG, Metrics()) as client:
        assert await client.prepare_all([replace(pods.endpoint(), ip="::1", port=port)]) == []
    server.close()
    await server.wait_closed()
    assert f"Host: zone-a-0.zone-a.prod.svc.cluster.local.:{port}\r\n".encode() in arrived[0]


async def test_a_pod_that_cannot_be_reached_got_nothing() -> None:
    """The time covers connecting too: a full queue of connections answers as a lost node does."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            other = sockets.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        async with PodServers(hang) as pods, opened(SHORT, Metrics()) as client:
            port = full.getsockname()[1]
            pod = replace(pods.endpoint(4), ip="127.0.0.1", port=port)
            [error] = await client.prepare_all([pod])
    assert f"{error}" == "POST zone-a-4: no answer within 200ms"


async def test_proxies_and_netrc_of_the_environment_are_not_for_pods(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """W-29, D-27, POD-01: no proxy and no credential, unlike earlier releases."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login a password b\n")
    netrc.chmod(0o600)
    async with PodServers(status(500)) as proxy, PodServers(status(200)) as pods:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NETRC", str(netrc))
        async with opened(LONG, Metrics()) as client:
            assert await client.prepare_all([pods.endpoint()]) == []
    assert proxy.connections == 0
    assert b"authorization" not in pods.seen[0].head.lower()


async def test_by_default_the_authorities_of_the_system_are_trusted(lines: list[str]) -> None:
    """The words are OpenSSL's, and differ between its releases."""
    commands = [f"tls {NAME}", "answer 200 GOOD", "fetch 4 scheme=https", "seen"]
    *_, reply, seen = await PodStage(lines).play(commands)
    assert reply.startswith("POST zone-a-4: certificate not accepted: ")
    assert seen.startswith("nothing")


async def test_a_pod_with_tls_is_not_called_without(lines: list[str]) -> None:
    commands = [f"tls {NAME}", "answer 200 GOOD", "fetch 4", "seen"]
    *_, reply, seen = await PodStage(lines).play(commands)
    assert reply.startswith("POST zone-a-4: ")
    assert seen.startswith("nothing")


async def test_a_pod_without_tls_is_sent_nothing() -> None:
    """Servers answer a greeting that they do not understand with words, as here."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with PodServers(hang) as pods, opened(LONG, Metrics()) as client, asyncio.timeout(10):
        port = server.sockets[0].getsockname()[1]
        pod = replace(pods.endpoint(4), ip="127.0.0.1", port=port, scheme="https")
        [error] = await client.prepare_all([pod])
    server.close()
    await server.wait_closed()
    assert f"{error}" == "POST zone-a-4: no TLS connection"


async def test_tenants_cannot_make_series_without_end(lines: list[str]) -> None:
    """W-59: the first paths have their own, the rest share one."""
    paths = [*range(MOST_PATHS + 5), 0]
    calls = [f"prepare 4 path=p{number}" for number in paths]
    *_, counts = await PodStage(lines).play(["answer 200", *calls, "counts"])
    own = [f"/p{number} POST 200 {1 + (number == 0)}" for number in range(MOST_PATHS)]
    assert counts == ", ".join([*own, "other POST 200 5"])


class SlowPods:
    """A `Sender` to pods that take 50 ms each."""

    def __init__(self) -> None:
        self.active = 0
        self.peak = 0

    async def send(
        self, method: Method, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
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
