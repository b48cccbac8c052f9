"""Pods as plain TCP servers on loopback addresses, which answer bytes that a test scripts.

    async with PodServers(status(500)) as pods:
        await confirm(client, pods.endpoint(4))
        assert pods.seen[0].head == ...

One port answers on all of 127.0.0.0/8, so that each pod has an address of its own. What waits for
ever inside of the context is ended after half a minute.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint

Answer = Callable[["Seen"], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Seen:
    """One request as it arrived, and the connection to answer it on."""

    ip: str
    head: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def method(self) -> str:
        return self.head.split()[0].decode()

    @property
    def ordinal(self) -> int:
        """Return the ordinal of the pod that was called; see `PodServers.endpoint`."""
        return int(self.ip.rpartition(".")[2]) - 100

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class PodServers:
    """The servers. `seen` are all requests in the order of their arrival."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self._tls = tls
        self.seen: list[Seen] = []
        self.connections = 0
        self.active = 0
        self.peak = 0
        self.port = 0
        self._change = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._limit = asyncio.timeout(30)

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        listening = socket.create_server(("0.0.0.0", 0), backlog=256)  # noqa: S104 (pods have any loopback address)
        # Else the kernel would take megabytes of a body that is not read.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        self._server = await asyncio.start_server(self._serve, sock=listening, ssl=self._tls)
        self.port = listening.getsockname()[1]
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._limit.__aexit__(*raised)

    def endpoint(self, ordinal: int = 0, *, path: str = "ingester/prepare") -> Endpoint:
        """Return the pod of an ordinal from 0 to 150."""
        return Endpoint(
            pod=f"zone-a-{ordinal}",
            uid=Uid(f"uid-{ordinal}"),
            ip=f"127.0.0.{100 + ordinal}",
            host=f"zone-a-{ordinal}.zone-a.prod.svc.cluster.local.",
            port=self.port,
            path=path,
        )

    def endpoints(self, number: int) -> list[Endpoint]:
        """Return so many pods, the highest first."""
        return [self.endpoint(ordinal) for ordinal in reversed(range(number))]

    async def reach(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is read whenever a request comes or ends."""
        async with asyncio.timeout(10), self._change:
            await self._change.wait_for(condition)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._converse(reader, writer)
        finally:
            if not writer.is_closing():
                writer.transport.abort()
            self._tasks.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen = Seen(writer.get_extra_info("sockname")[0], head, reader, writer)
        await self._record(+1, seen)
        try:
            await self.answer(seen)
            if not writer.is_closing():
                writer.close()
                await writer.wait_closed()
        finally:
            await self._record(-1)

    async def _record(self, step: int, seen: Seen | None = None) -> None:
        self.active += step
        self.peak = max(self.peak, self.active)
        if seen is not None:
            self.seen.append(seen)
        async with self._change:
            self._change.notify_all()


def reply(data: bytes) -> Answer:
    """Answer these bytes and close the connection."""

    async def answer(seen: Seen) -> None:
        await seen.send(data)

    return answer


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    lines = [f"HTTP/1.1 {code} Reason", *headers, f"Content-Length: {len(body)}", "", ""]
    return reply("\r\n".join(lines).encode() + body)


def endless(head: bytes, piece: bytes, sent: list[int]) -> Answer:
    """Answer `head`, then pieces until the client stops; put the number of bytes into `sent`."""

    async def answer(seen: Seen) -> None:
        sent.append(0)
        await seen.send(head)
        while True:
            await seen.send(piece)
            sent[-1] += len(piece)
            await asyncio.sleep(0)

    return answer


async def hang(seen: Seen) -> None:
    """Answer nothing, until the caller goes away."""
    await seen.reader.read()


async def reset(seen: Seen) -> None:
    """Break the connection without an answer."""
    seen.writer.transport.abort()
