"""Pods that answer HTTP: a server on a loopback address of its own for each pod of a world.

How a pod answers is said by name, at any time; its calls are written down with the UID that
it had at that moment. On `DELAYED_PATHS` a pod says since when it is prepared for a delayed
downscale, by UID: the one that takes its name later starts clean.
"""

import asyncio
import itertools
import json
import random
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Self

import msgspec

from tests.world.api import Json
from tests.world.childproc import free_ports

WAIT_LIMIT: Final = timedelta(seconds=30)
# A request without a whole head after that long is written down as it is and let go.
HEAD_LIMIT: Final = timedelta(seconds=10)
HEAD_BYTES: Final = 64 * 1024
DELAYED_PATH: Final = "/prepare-delayed-downscale"
# Those of Mimir, Loki and Tempo, which guides name.
DELAYED_PATHS: Final = (
    DELAYED_PATH,
    "/ingester/prepare-instance-ring-downscale",
    "/ingester/prepare-partition-downscale",
    "/live-store/prepare-partition-downscale",
)

# Several runs may share a machine: each starts somewhere else in 127.16.0.0 to 127.239.255.255.
_FIRST: Final = random.SystemRandom().randrange(16 << 16, 200 << 16)
_OFFSETS: Final = itertools.count()


def next_address() -> str:
    """Return a loopback address that nothing in this run had before."""
    number = _FIRST + next(_OFFSETS)
    while number % 256 in (0, 255):  # neither looks like the address of a host
        number = _FIRST + next(_OFFSETS)
    return f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"


class Respond(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod answers, perhaps late."""

    status: int = 200
    after: timedelta = timedelta(0)
    body: bytes | None = None
    """None: since when it is prepared, to a POST on `DELAYED_PATHS` that succeeds; else empty."""


OK: Final = Respond()
BROKEN: Final = Respond(status=500, body=b"cannot prepare")


class PodCall(msgspec.Struct, kw_only=True):
    at: float
    """When its head was read, on the monotonic clock that the judge uses."""
    pod: str
    uid: str
    method: str
    path: str
    status: int | None = None
    """What was answered, None where nothing was."""
    done_at: float | None = None
    """When the answer was written out; None while it is not, or where the caller had left."""

    @property
    def is_delayed(self) -> bool:
        return self.path.partition("?")[0] in DELAYED_PATHS

    @property
    def is_success(self) -> bool:
        return self.done_at is not None and self.status is not None and self.status // 100 == 2


class _Rule(msgspec.Struct, frozen=True):
    behaviour: Respond
    method: str


class _Seat(msgspec.Struct):
    """One living pod and its server."""

    name: str
    uid: str
    address: str
    server: asyncio.Server | None = None
    running: set[asyncio.Task[None]] = set()


class WebPods:
    """The servers of a world's pods. Use with `async with`; `World.serve_pods` does it all."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self.calls: list[PodCall] = []
        """All requests, in the order in which their heads were read."""
        self.prepared: set[str] = set()
        """UIDs, from a successful POST to a successful DELETE."""
        self.delayed_since: dict[str, int] = {}
        """Unix seconds by UID; a test may let hours pass here."""
        self._rules: dict[str, list[_Rule]] = {}
        self._seats: dict[str, _Seat] = {}
        self._is_over = False
        self._moved = asyncio.Condition()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._is_over = True
        for seat in self._seats.values():
            await _stop(seat)
        await self._tasks.__aexit__(*raised)

    # Addresses, as the kubelet requests them

    async def seat(self, pod: Json) -> str:
        name = pod["metadata"]["name"]
        address = next_address()
        seat = self._seats[name] = _Seat(name, pod["metadata"]["uid"], address)
        if not self._is_over:
            await self._listen(seat)
        return address

    async def leave(self, pod: Json) -> None:
        """Let nothing listen for a pod any more, and break off what it was answering."""
        seat = self._seats.get(pod["metadata"]["name"])
        if seat is not None and seat.uid == pod["metadata"]["uid"]:
            del self._seats[seat.name]
            self.delayed_since.pop(seat.uid, None)
            await _stop(seat)

    def address(self, name: str) -> str:
        """Return where a living pod is, whether it listens or not."""
        return self._seats[name].address

    # Behaviours

    def behave(self, name: str, behaviour: Respond, *, method: str = "") -> None:
        """Let a pod of that name, now and later, behave so; what was said last counts first.

        With `method` it goes for no other method. An empty name goes for each pod that has no word
        of its own.
        """
        self._rules.setdefault(name, []).append(_Rule(behaviour, method))

    def behave_well(self, name: str) -> None:
        """Forget what was said about a name: 200 for everything."""
        self._rules.pop(name, None)

    # Reads

    def calls_to(self, name: str, method: str = "") -> list[PodCall]:
        """Return the requests to pods of a name, of one method if it is named."""
        return [each for each in self.calls if each.pod == name and method in ("", each.method)]

    async def wait_until(
        self, what: str, holds: Callable[[], bool], limit: timedelta = WAIT_LIMIT
    ) -> None:
        """Wait until something holds of the calls. Raises TimeoutError that names it."""
        try:
            async with asyncio.timeout(limit.total_seconds()), self._moved:
                await self._moved.wait_for(holds)
        except TimeoutError as late:
            raise TimeoutError(f"after {limit}: not {what}\n{self.describe()}") from late

    def describe(self) -> str:
        start = self.calls[0].at if self.calls else 0.0
        return "\n".join(
            f"{call.at - start:8.3f} {call.method} {call.pod} ({call.uid}) {call.path}"
            f" -> {call.status or 'nothing'}{'' if call.done_at else ', not finished'}"
            for call in self.calls
        )

    # Serving

    async def _listen(self, seat: _Seat) -> None:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._tasks.create_task(
                self._serve(seat, reader, writer), name=f"pod-{seat.name}"
            )
            seat.running.add(task)
            task.add_done_callback(seat.running.discard)

        seat.server = await asyncio.start_server(accept, seat.address, self.port, limit=HEAD_BYTES)

    async def _serve(
        self, seat: _Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(HEAD_LIMIT.total_seconds()):
                head = await reader.readuntil(b"\r\n\r\n")
            call = _read_call(seat, head)
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            self.calls.append(call)
            await self._notify()
            await self._play(call, self._choose(call), reader, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the caller left, or sent what is no request: there is no client to answer
        finally:
            writer.transport.abort()
            await self._notify()

    def _choose(self, call: PodCall) -> Respond:
        for name in (call.pod, ""):
            for rule in reversed(self._rules.get(name, ())):
                if rule.method in ("", call.method):
                    return rule.behaviour
        return OK

    async def _play(
        self,
        call: PodCall,
        behaviour: Respond,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if behaviour.after and await _left(reader, behaviour.after):
            # The pod has begun and cannot know that no client waits any more.
            self._record_state(call, behaviour.status)
            return
        body = self._say(call, behaviour)
        head = f"HTTP/1.1 {behaviour.status} Because\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        writer.write(b"" if behaviour.status == 204 else body)
        call.status = behaviour.status
        await writer.drain()
        call.done_at = time.monotonic()
        self._record_state(call, call.status)

    def _say(self, call: PodCall, behaviour: Respond) -> bytes:
        is_called = call.is_delayed and call.method == "POST" and behaviour.status // 100 == 2
        if behaviour.body is not None or not is_called:
            return behaviour.body or b""
        self._record_state(call, behaviour.status)  # now, as it answers since when
        return json.dumps({"timestamp": self.delayed_since[call.uid]}).encode()

    def _record_state(self, call: PodCall, status: int) -> None:
        if status // 100 == 2 and call.is_delayed:
            if call.method == "POST":
                self.delayed_since.setdefault(call.uid, int(time.time()))
            elif call.method == "DELETE":
                self.delayed_since.pop(call.uid, None)
        elif status // 100 == 2 and call.method == "POST":
            self.prepared.add(call.uid)
        elif status // 100 == 2 and call.method == "DELETE":
            self.prepared.discard(call.uid)

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()


async def _left(reader: asyncio.StreamReader, limit: timedelta) -> bool:
    """Say whether the caller went away within the time."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while await reader.read(4096):
                pass
    except TimeoutError:
        return False
    return True


async def _stop(seat: _Seat) -> None:
    server, seat.server = seat.server, None
    if server is not None:
        server.close()
    running = list(seat.running)
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _read_call(seat: _Seat, head: bytes) -> PodCall:
    method, path, _ = head.decode("latin-1").split(" ", 2)
    return PodCall(at=time.monotonic(), pod=seat.name, uid=seat.uid, method=method, path=path)
