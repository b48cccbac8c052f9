"""An admin server on a free port, and clients for it: a proper one and raw bytes."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from aiohttp import ClientSession, web

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.states import Health
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.connection import Connection
from rollout_operator.web.middleware import ClusterRules
from tests.fakes_clock import FakeClock

CLOSE = "Host: x\r\nConnection: close\r\n\r\n"
"""The end of a raw request whose answer is read to the end."""


def check_anonymous(answer: bytes) -> None:
    """See that an answer does not say which versions it was made with (SEC-13)."""
    head = answer.partition(b"\r\n\r\n")[0]
    assert re.findall(rb"(?im)^server: *(.*?)\r?$", head) == [b"rollout-operator"]
    assert not re.search(rb"(?i)python|aiohttp", answer)


class World:
    """All that the server shows, and how to call it."""

    def __init__(self, cluster: ClusterRules | None = None) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.health = Health(self.clock)
        rules = cluster or ClusterRules(namespace="prod")
        self.server = AdminServer(0, self.metrics, self.health, rules)
        self.client = ClientSession()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and body."""
        async with self.client.get(self.url(path), headers=headers) as response:
            assert response.headers["Server"] == "rollout-operator"
            return response.status, await response.text()

    async def send(self, raw: bytes) -> bytes:
        """Send bytes on a connection of their own; return all that comes until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(raw)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        check_anonymous(answer)
        return answer

    def series(self, name: str) -> list[str]:
        """Return the lines of one metric."""
        body = b"".join(self.metrics.render())
        start = f"rollout_operator_{name}{{"
        return [line for line in body.decode().splitlines() if line.startswith(start)]


@asynccontextmanager
async def serving(cluster: ClusterRules | None = None) -> AsyncIterator[World]:
    """Run a server."""
    world = World(cluster)
    await world.server.start()
    try:
        yield world
    finally:
        await world.client.close()
        await world.server.stop()


@asynccontextmanager
async def listening(
    app: web.Application, *, read_limit: timedelta = timedelta(seconds=10)
) -> AsyncIterator[int]:
    """Run `operator.main` with the operator's own connections; give its port."""
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    server = runner.server
    assert server is not None
    listener = await asyncio.get_running_loop().create_server(
        lambda: Connection(server, read_limit=read_limit), "127.0.0.1", 0
    )
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await runner.cleanup()
