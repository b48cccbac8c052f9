"""Places that nothing may call: listening, and reporting every connection."""

import asyncio
import socket
import time
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import msgspec

from tests.world.webpods import next_address

# What a caller says first is worth seeing, but not worth waiting for.
FIRST_BYTES: Final = 2048
FIRST_BYTES_LIMIT: Final = timedelta(seconds=1)
KNOCK_LIMIT: Final = timedelta(seconds=10)


class Place(msgspec.Struct, frozen=True):
    """An address and a port."""

    address: str
    port: int


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that should not have been made."""

    at: float
    """On the monotonic clock."""
    place: Place
    caller: str
    said: bytes


class EgressTrap:
    """Listens on places of its own. Leaving the block raises AssertionError if a client came.

    `EgressTrap(count=3)` takes fresh addresses, with a port that the system chooses, the same for
    all; `places` names others.
    """

    def __init__(self, *places: Place, count: int = 0) -> None:
        self._wanted = list(places)
        self._count = count
        self.places: list[Place] = []
        """Where it listens."""
        self.visits: list[Visit] = []
        self._servers: list[asyncio.Server] = []
        self._tasks = asyncio.TaskGroup()
        self._guests: set[asyncio.Task[None]] = set()
        self._knocks: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        port = 0
        for place in [*self._wanted, *(Place(next_address(), 0) for _ in range(self._count))]:
            port = await self._listen(place.address, place.port or port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.settle()
        finally:
            for server in self._servers:
                server.close()
            await self._tasks.__aexit__(kind, error, trace)
        if error is None:
            self.assert_silent()

    def assert_silent(self) -> None:
        """Raise AssertionError that names each connection so far."""
        assert not self.visits, f"SI-21: {self.visits}"

    async def settle(self) -> None:
        """Wait until each connection made by now is a visit."""
        for place in self.places:
            await self._knock(place)
        guests = list(self._guests)
        if guests:
            await asyncio.wait(guests)

    async def _knock(self, place: Place) -> None:
        """Come last in the queue of those who wait to be let in, and wait for our turn."""
        ours = socket.socket()
        try:
            ours.setblocking(False)
            ours.bind((place.address, 0))
            seen = self._knocks[str(ours.getsockname())] = asyncio.Event()
            async with asyncio.timeout(KNOCK_LIMIT.total_seconds()):
                await asyncio.get_running_loop().sock_connect(ours, (place.address, place.port))
                await seen.wait()
        finally:
            ours.close()

    async def _listen(self, address: str, port: int) -> int:
        listening = socket.create_server((address, port))
        place = Place(address, int(listening.getsockname()[1]))

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            knock = self._knocks.pop(str(writer.get_extra_info("peername")), None)
            if knock is not None:
                knock.set()
                writer.transport.abort()
                return
            task = self._tasks.create_task(self._record(place, reader, writer), name="egress-trap")
            self._guests.add(task)
            task.add_done_callback(self._guests.discard)

        self._servers.append(await asyncio.start_server(accept, sock=listening))
        self.places.append(place)
        return place.port

    async def _record(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        at, said = time.monotonic(), b""
        caller = str(writer.get_extra_info("peername"))
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(FIRST_BYTES_LIMIT.total_seconds()):
                said = await reader.read(FIRST_BYTES)
        self.visits.append(Visit(at=at, place=place, caller=caller, said=said))
        writer.transport.abort()
