"""A Service as its clients see it: one address, and behind it whichever operators are ready.

It stands for endpoints and kube-proxy, of which this control plane has none. As these do, it learns
late that an operator ends: connections go there for a while after its SIGTERM.
"""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Self

from tests.world.operatorproc import OperatorProcess

# Between a pod's SIGTERM and the last proxy that has heard of it.
LAG: Final = timedelta(seconds=1)
_CHUNK: Final = 64 << 10


class Service:
    """Spreads connections over operators. Use with `async with`."""

    def __init__(self) -> None:
        self.port = 0
        self.refused = 0
        """Connections for which there was no endpoint, or which it did not take."""
        self._endpoints: list[OperatorProcess] = []
        self._server: asyncio.Server | None = None
        self._rng = random.Random(1)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *raised: Any) -> None:
        assert self._server is not None, "entered"
        self._server.close()

    def add(self, operator: OperatorProcess) -> None:
        self._endpoints.append(operator)

    def leads_to(self, operator: OperatorProcess) -> bool:
        return operator in self._endpoints

    def remove(self, operator: OperatorProcess) -> None:
        """Count out an operator; nothing happens where it is out already."""
        if operator in self._endpoints:
            self._endpoints.remove(operator)

    async def end(self, operator: OperatorProcess) -> int:
        """End an operator as the kubelet does; return its exit code."""
        ending = asyncio.create_task(operator.terminate())
        await asyncio.sleep(LAG.total_seconds())
        self.remove(operator)
        return await ending

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            operator = self._rng.choice(self._endpoints)
            upstream = await asyncio.open_connection("127.0.0.1", operator.tls_port)
        except (IndexError, OSError):
            self.refused += 1
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of one side, and end the other."""
    with suppress(OSError):
        while piece := await reader.read(_CHUNK):
            writer.write(piece)
            await writer.drain()
    writer.close()
