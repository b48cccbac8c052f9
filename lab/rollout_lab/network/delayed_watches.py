"""What a process sees of a watch: late, not at all, twice, or broken off, but never out of order.

Decides when each event of a stream comes through, as the faults want it. Opening the stream and
reading its lines is left to `client`.

A watch that lags is that of an API server which lags itself: the stream still ends at its time, and
what was not delivered by then comes on the next stream, at its own time. A frozen watch is that
of a dead connection: not even the end comes.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rollout_lab.apiserver.streams import Stream, StreamEvent
from rollout_lab.model.fields import metadata_of, name_of
from rollout_lab.network.faults import EVENT_OUTCOME, EventOutcome
from rollout_lab.network.link import Link, wait_for_ever
from rollout_operator.kube.api import JsonObject

SPOILED: Final = "spoiled"
"""The label of an event that was spoiled on its way."""


class _Sight(NamedTuple):
    """An event that the API server has sent before, perhaps on an earlier stream."""

    due: float
    is_lost: bool


class _Delivery(msgspec.Struct, frozen=True):
    """What will come through, and when at the earliest."""

    due: float
    event: StreamEvent
    outcome: EventOutcome = EVENT_OUTCOME


class Silent(Exception):
    """Nothing has come for longer than the process waits."""


class Expired(Exception):
    """The stream says that its version is too old."""


class DelayedWatch:
    """What one process has been sent of one collection, over all its streams."""

    def __init__(self, link: Link, plural: str) -> None:
        self.link = link
        self.frozen_until = 0.0
        self._plural = plural
        self._sights: dict[int, _Sight] = {}
        self._open: list[Delivery] = []
        link.on_heal.append(self._catch_up)

    def relist(self) -> None:
        """Forget what was lost: a list shows it."""
        self._sights.clear()

    def judge(self, event: StreamEvent) -> list[_Delivery]:
        """Return what becomes of an event that the API server sends now, as lines of the stream.

        An event that it has sent before on a stream that has ended is as late, or as lost, as then.
        """
        now = asyncio.get_running_loop().time()
        # What a stream begins with stands for a list: nothing is missing in the middle of it.
        if event.type == "ERROR" or event.is_state:
            return [_Delivery(now + self.link.latency(), event)]
        known = self._sights.get(event.revision) if event.type != "BOOKMARK" else None
        if known is not None and known.is_lost:
            return []
        if known is not None:
            return [_Delivery(max(known.due, now + self.link.latency()), event)]
        outcome = self._choose_outcome(event)
        due = now + self.link.latency() + outcome.delay.total_seconds()
        if outcome.freeze:
            self.frozen_until = max(self.frozen_until, now + outcome.freeze.total_seconds())
        if event.type != "BOOKMARK":
            self._sights[event.revision] = _Sight(due, outcome.drop)
        if outcome.drop:
            return []
        lines = [_Delivery(due, event, outcome)]
        return [*lines, _Delivery(due, event)] if outcome.duplicate else lines

    def _choose_outcome(self, event: StreamEvent) -> EventOutcome:
        link = self.link
        number = link.number_event(self._plural, event.type)
        return link.faults.on_event(
            link.actor, self._plural, event.type, name_of(event.object), number
        )

    def open(self, stream: Stream) -> "Delivery":
        """Follow a stream that was opened for this watch, until `close`."""
        delivery = Delivery(self, stream)
        self._open.append(delivery)
        return delivery

    def forget(self, delivery: "Delivery") -> None:
        """Follow it no more."""
        self._open.remove(delivery)

    def _catch_up(self) -> None:
        self.frozen_until = 0.0
        self._sights = {
            revision: sight._replace(due=0.0) for revision, sight in self._sights.items()
        }
        for delivery in self._open:
            delivery.catch_up()


class Delivery:
    """The lines of one open stream on their way to the process."""

    def __init__(self, watch: DelayedWatch, stream: Stream) -> None:
        self._watch = watch
        self._stream = stream
        self._lines: deque[_Delivery] = deque()
        self._end: float | None = None
        self._news = asyncio.Event()
        self._unsubscribe = watch.link.on_change(self._news.set)
        stream.on_event = self._pull
        self._pull()

    def close(self) -> None:
        """Drop the connection."""
        self._stream.on_event = None
        self._stream.close()
        self._unsubscribe()
        self._watch.forget(self)

    def catch_up(self) -> None:
        """Let everything through that was held back."""
        now = asyncio.get_running_loop().time()
        self._lines = deque(_Delivery(now, line.event, line.outcome) for line in self._lines)
        self._news.set()

    async def next_event(self, silence: float) -> StreamEvent | None:
        """Wait for the next event; None at the end that the server made.

        Raises Silent after so many seconds without any, ConnectionResetError where the connection
        broke, Expired where the server says that the version is too old.
        """
        loop = asyncio.get_running_loop()
        silent_at = loop.time() + silence
        while True:
            await self._watch.link.stay_alive()
            due = self._next_time()
            if due <= loop.time():
                return await self._deliver()
            if silent_at <= loop.time():
                raise Silent
            await self._wait(min(due, silent_at))

    def _next_time(self) -> float:
        """Return when the next line or the end is due; for a link that is cut it never is."""
        if self._watch.link.is_cut:
            return float("inf")
        times = [self._end] if self._end is not None else []
        if self._lines:
            times.append(self._lines[0].due)
        return max(min(times), self._watch.frozen_until) if times else float("inf")

    async def _deliver(self) -> StreamEvent | None:
        now = asyncio.get_running_loop().time()
        if not self._lines or self._lines[0].due > now:
            return None  # what is not due at the end comes on a later stream
        line = self._lines.popleft()
        if line.outcome.crash:
            self._watch.link.crash()
            await wait_for_ever()
        if line.outcome.cut:
            raise ConnectionResetError("Connection reset by peer")
        if line.outcome.gone:
            raise Expired
        return _spoil(line.event) if line.outcome.spoil else line.event

    async def _wait(self, until: float) -> None:
        self._news.clear()
        loop = asyncio.get_running_loop()
        timer = loop.call_at(until, self._news.set) if until < float("inf") else None
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _pull(self) -> None:
        """Take what the API server has sent."""
        while (event := self._stream.pop()) is not None:
            for line in self._watch.judge(event):
                # In the order of the stream: what follows a late event is late as well.
                due = max(line.due, self._lines[-1].due) if self._lines else line.due
                self._lines.append(_Delivery(due, line.event, line.outcome))
        if self._stream.is_closed and self._end is None:
            arrival = asyncio.get_running_loop().time() + self._watch.link.latency()
            last = self._lines[-1] if self._lines else None
            # What is not there by then comes on a later stream, but for an ERROR there is none.
            is_error = last is not None and last.event.type == "ERROR"
            self._end = max(arrival, last.due) if last is not None and is_error else arrival
        self._news.set()


def _spoil(event: StreamEvent) -> StreamEvent:
    """Return an event of the same object which has a label that is no text."""
    metadata = metadata_of(event.object)
    labels = metadata.get("labels")
    spoiled: JsonObject = {**labels, SPOILED: 0} if isinstance(labels, dict) else {SPOILED: 0}
    obj: JsonObject = {**event.object, "metadata": {**metadata, "labels": spoiled}}
    return replace(event, object=obj, body=msgspec.json.encode(obj))
