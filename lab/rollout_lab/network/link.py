"""What connects one life of a process with the world, and what can cut it off.

Decides how long the ways take, and that a process which has died neither does nor learns anything
more; also which events of a watch come late, or never. What is sent over the link is left to
`client`, what goes wrong to `faults`.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from rollout_lab.apiserver.store import Stream, StreamEvent
from rollout_lab.model.fields import metadata_of, name_of
from rollout_lab.model.request import NotModelled
from rollout_lab.network.faults import (
    AS_USUAL,
    Failure,
    FaultOutcome,
    Faults,
    Occasion,
    OccasionKind,
    Way,
)
from rollout_operator.aio.clock import LoopClock, ServerClock
from rollout_operator.kube.api import Call, JsonObject

# How long one way takes: a millisecond at least, and up to so much more, in seconds.
LEAST: Final = 0.001
SPREAD: Final = 0.009
# Bytes that a process has sent before it died may arrive all the same.
ARRIVES_AFTER_DEATH: Final = 0.5

_T = TypeVar("_T")


class Link:
    """The network of one life of a process. Needs a running loop."""

    def __init__(self, actor: str, *, faults: Faults, rng: random.Random) -> None:
        """Connect `actor`, a process such as `operator-1`, under these faults."""
        self.actor = actor
        self.faults = faults
        self.rng = rng
        self.on_crash: Callable[[], None] | None = None
        """Called where a fault ends the process: once the link is dead, to end all the rest."""
        self.on_heal: list[Callable[[], None]] = []
        """Called by `heal`, for what is held back elsewhere."""
        self.clock = ServerClock(LoopClock())
        self._listeners: list[Callable[[], None]] = []
        self._dead = asyncio.Event()
        self._is_cut = False
        self._are_pods_cut = False
        self._calls = 0
        self._rounds: Counter[tuple[str, str, str, str]] = Counter()
        self._events: Counter[str] = Counter()
        self._flights: dict[asyncio.Task[Any], None] = {}

    @property
    def is_dead(self) -> bool:
        return self._dead.is_set()

    @property
    def is_cut(self) -> bool:
        """Return whether nothing comes through, to the API server or back, to pods or back."""
        return self._is_cut

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        self._notify()

    @property
    def cut_pods(self) -> bool:
        return self._are_pods_cut or self._is_cut

    @cut_pods.setter
    def cut_pods(self, is_cut: bool) -> None:
        self._are_pods_cut = is_cut

    def kill(self) -> None:
        """Let nothing of what the process does have an effect from now on, and no wait of it end.

        What has arrived at the API server is carried out; what is on its way, by chance.
        """
        self._dead.set()
        self._notify()

    def crash(self) -> None:
        """End the process, as a fault wants it."""
        if not self.is_dead:
            self.kill()
            if self.on_crash is not None:
                self.on_crash()

    def heal(self) -> None:
        """Let everything through again; watches that are frozen or lag catch up."""
        self._are_pods_cut = False
        for listener in self.on_heal:
            listener()
        self.is_cut = False

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the link is cut, healed or dead; call what is returned to end that."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    async def stay_alive(self) -> None:
        """Return at once; where the process has died, never."""
        if self.is_dead:
            await wait_for_ever()

    async def wait_dead(self) -> None:
        """Wait until the process has died."""
        await self._dead.wait()

    async def let_in(self) -> None:
        """Wait for the way to the process. Raises OSError where it is gone; cut, never returns."""
        await self._carry("question")

    async def let_out(self) -> None:
        """Wait for the way from the process; see `let_in`."""
        await self._carry("answer")

    def latency(self) -> float:
        """Return the seconds that one way takes."""
        return LEAST + SPREAD * self.rng.random()

    def may_arrive(self) -> bool:
        """Return whether what was sent a moment ago arrives."""
        if self._is_cut:
            return False
        return not self.is_dead or self.rng.random() < ARRIVES_AFTER_DEATH

    def number_call(self, call: Call, client: str) -> Occasion:
        """Count a call that is about to be made, and return it as faults know it."""
        self._calls += 1
        key = (call.verb, call.resource.plural, call.subresource, call.name)
        self._rounds[key] += 1
        return Occasion(
            kind=OccasionKind.CALL,
            number=self._calls,
            actor=self.actor,
            client=client,
            verb=call.verb,
            plural=call.resource.plural,
            subresource=call.subresource,
            name=call.name,
            round=self._rounds[key],
        )

    def number_event(self, plural: str, type: str) -> int:
        """Count an event of a watch and return its number; a bookmark has the number before it."""
        if type != "BOOKMARK":
            self._events[plural] += 1
        return self._events[plural]

    def run_to_end(self, work: Coroutine[Any, Any, _T]) -> asyncio.Future[_T]:
        """Run `work` to its end, whether or not a task still waits for it; return its result."""
        return asyncio.shield(self._run(work))

    async def ground(self) -> None:
        """End what is still on its way, for the end of a world."""
        flights = list(self._flights)
        for flight in flights:
            flight.cancel()
        if flights:
            await asyncio.wait(flights)

    async def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.current_task()
        assert task is not None, "run by launch"
        self._flights[task] = None
        try:
            return await work
        except NotModelled as error:
            # The operator may take this for an error of its own and go on.
            problem = {"message": f"the sandbox has a gap: {error}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(problem)
            raise
        finally:
            del self._flights[task]

    async def _carry(self, way: Way) -> None:
        occasion = Occasion(kind=OccasionKind.REVIEW, actor=self.actor, verb=way)
        outcome = self.faults.decide(occasion)
        await asyncio.sleep(self.latency() + outcome.before.total_seconds())
        if outcome.crash:
            self.crash()
        if self.is_dead:
            raise ConnectionRefusedError(f"{self.actor} has gone")
        if outcome.fails is Failure.RESET_BEFORE:
            raise ConnectionResetError(f"the connection to {self.actor} broke")
        if outcome.fails is Failure.LOST or self._is_cut:
            await wait_for_ever()

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


async def wait_for_ever() -> NoReturn:
    """Wait until cancelled."""
    while True:
        await asyncio.get_running_loop().create_future()


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
    outcome: FaultOutcome = AS_USUAL


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
        due = now + self.link.latency() + outcome.before.total_seconds()
        if outcome.freeze:
            self.frozen_until = max(self.frozen_until, now + outcome.freeze.total_seconds())
        if event.type != "BOOKMARK":
            self._sights[event.revision] = _Sight(due, outcome.fails is Failure.DROP)
        if outcome.fails is Failure.DROP:
            return []
        lines = [_Delivery(due, event, outcome)]
        is_twice = outcome.fails is Failure.DUPLICATE
        return [*lines, _Delivery(due, event)] if is_twice else lines

    def _choose_outcome(self, event: StreamEvent) -> FaultOutcome:
        link = self.link
        return link.faults.decide(
            Occasion(
                kind=OccasionKind.EVENT,
                actor=link.actor,
                verb=event.type,
                plural=self._plural,
                name=name_of(event.object),
                number=link.number_event(self._plural, event.type),
            )
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
        match line.outcome.fails:
            case Failure.CUT:
                raise ConnectionResetError("Connection reset by peer")
            case Failure.GONE:
                raise Expired
            case Failure.SPOIL:
                return _spoil(line.event)
        return line.event

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
