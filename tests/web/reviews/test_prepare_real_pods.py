"""The hook with the real client, and pods that are servers on loopback addresses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from rollout_operator.model.outcome import Code
from rollout_operator.pods.client import PodClient
from rollout_operator.pods.sender import HttpSender
from rollout_operator.telemetry.metrics import Metrics
from tests.pods.pod_servers import OK, PodServers, Seen, hang, status
from tests.web.downscale_world import WHERE, World, pods_of, zone


@asynccontextmanager
async def world_of(servers: PodServers, *, seconds: float = 5) -> AsyncIterator[World]:
    """Yield a world of one zone whose pods are these servers; a call may take so long."""
    where = {**WHERE, "grafana.com/prepare-downscale-http-port": f"{servers.port}"}
    world = World([zone("zone-a", annotations=where)], pods_of("zone-a"))
    client = PodClient(
        HttpSender("test"),
        timeout=timedelta(seconds=seconds),
        metrics=Metrics(),
        clock=world.clock,
    )
    world.restart(client)
    try:
        yield world
    finally:
        await client.close()


async def test_prep_20_pods_are_called_at_their_own_address() -> None:
    """PREP-20, SI-10, SEED-116: the address of the pod, its DNS name as host."""
    async with PodServers(status(204)) as servers, world_of(servers) as world:
        verdict = await world.ask("zone-a", 3)
        assert verdict.is_allowed
        assert sorted((seen.method, seen.ordinal) for seen in servers.seen) == [
            ("POST", 3),
            ("POST", 4),
        ]
        host = f"Host: zone-a-4.zone-a.test.svc.cluster.local.:{servers.port}".encode()
        first = next(seen for seen in servers.seen if seen.ordinal == 4)
        assert first.head.startswith(b"POST /ingester/prepare HTTP/1.1\r\n")
        assert host in first.head.split(b"\r\n")


async def test_prep_22_one_pod_refuses() -> None:
    """PREP-21, PREP-22: all pods of the range are told that they stay."""

    async def answer(seen: Seen) -> None:
        refuses = seen.method == "POST" and seen.ordinal == 3
        await (status(500)(seen) if refuses else seen.send(OK))

    async with PodServers(answer) as servers, world_of(servers) as world:
        verdict = await world.ask("zone-a", 2)
        assert verdict.reason.code is Code.POD_NOT_PREPARED
        assert "POST zone-a-3: HTTP status 500" in verdict.reason.text
        told = [seen.ordinal for seen in servers.seen if seen.method == "DELETE"]
        assert sorted(told) == [2, 3, 4]
        assert world.memory.downscales.backlog.count() == 3


async def test_w13_a_pod_that_does_not_answer() -> None:
    """W-13: the client's own limit ends the call; the pods are told within the review."""

    async def answer(seen: Seen) -> None:
        hangs = seen.method == "POST" and seen.ordinal == 3
        await (hang(seen) if hangs else seen.send(OK))

    async with PodServers(answer) as servers, world_of(servers, seconds=0.2) as world:
        verdict = await world.ask("zone-a", 3)
        assert verdict.reason.code is Code.POD_NOT_PREPARED
        assert "POST zone-a-3: no answer within 200ms" in verdict.reason.text
        told = [seen.ordinal for seen in servers.seen if seen.method == "DELETE"]
        assert sorted(told) == [3, 4]
