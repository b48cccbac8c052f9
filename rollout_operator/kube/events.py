"""Write Kubernetes Events (`events.k8s.io/v1`) without ever holding up their caller.

One task writes them from a bounded queue, with the rate limit of their own API group. What is too
much for an object or for the queue is dropped and counted. If the right or the API is missing, one
line says so and hardly any request follows. What deserves an Event is decided in
`planning.events`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from typing import Final, NoReturn, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import EVENT_WRITES, REFUSED_EVENTS, Recent
from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    EVENTS,
    MULTI_AZ_ROLLOUTS,
    PODS,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
    Patcher,
    Resource,
)
from rollout_operator.model.budget import EventAction, EventKind, EventRecord
from rollout_operator.model.decode.wire import clip
from rollout_operator.model.names import (
    FIELD_MANAGER,
    ApiError,
    Conflict,
    Denied,
    NotFound,
    Throttled,
    TooManyRequests,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import EVENT_OUTCOMES, Metrics

# At most so many Events of each type at once, and one each REFILL after that, of an object. A
# rollout reports each batch, and a client its refusals: these leave some, so that they do not crowd
# out that it is complete.
BURST: Final = 60
REFILL: Final = timedelta(seconds=15)
ROUTINE_LEAVES: Final = 20
# A client that reaches the webhooks may have refusals of any pod reported, one after the other: all
# together they have this much, so that they neither fill the store nor crowd out other Events.
REFUSALS_BURST: Final = 100
REFUSALS_REFILL: Final = timedelta(seconds=2)
_REFUSALS: Final = frozenset({EventAction.REFUSE_EVICTION, EventAction.REFUSE_DOWNSCALE})
# A drain repeats its requests every five seconds.
EVICTION_SPACING: Final = timedelta(minutes=5)
MOST_OBJECTS: Final = 4096
# As client-go has it: the same Event within this time is the same series.
SERIES_LASTS: Final = timedelta(minutes=6)
# A note may have a kilobyte.
MOST_SERIES: Final = 1024

MOST_WAITING: Final = 512
# Routine leaves the rest of the queue to other Events.
MOST_ROUTINE_WAITING: Final = 256
ATTEMPTS: Final = 4
_FLUSH_LIMIT: Final = timedelta(seconds=1)
# What the API server takes, in bytes.
MAX_NOTE: Final = 1024
_MAX_INSTANCE: Final = 128
# The name of an object may have 253 characters, and that of its Event no more.
_MAX_PREFIX: Final = 220

_RESOURCES: Final[Mapping[EventKind, Resource]] = {
    EventKind.STATEFULSET: STATEFULSETS,
    EventKind.POD: PODS,
    EventKind.BUDGET: ZONE_BUDGETS,
    EventKind.POLICY: MULTI_AZ_ROLLOUTS,
    EventKind.RELEASE: ROLLOUTS,
    EventKind.SCHEDULE: ROLLOUT_SCHEDULES,
    EventKind.CLUSTER_SCHEDULE: CLUSTER_ROLLOUT_SCHEDULES,
}
_LOUD: Final = frozenset({Severity.WARN, Severity.ERROR})
# It may be written later, or the answer may come: nothing is wrong with the Event itself.
_PASSING: Final = (Unreachable, UnknownOutcome, TooManyRequests, Throttled)


class _Bucket(msgspec.Struct):
    most: int
    refill: timedelta
    tokens: float
    filled_at: timedelta
    refused_at: timedelta | None = None
    """When the last refusal of an eviction was admitted."""

    def count(self, now: timedelta) -> float:
        """Return how many Events there may still be."""
        gained = (now - self.filled_at) / self.refill
        self.tokens, self.filled_at = min(self.tokens + gained, self.most), now
        return self.tokens

    def is_as_new(self, now: timedelta) -> bool:
        """Return whether nothing is held against the object any more."""
        is_over = self.refused_at is None or now - self.refused_at >= EVICTION_SPACING
        return is_over and self.count(now) >= self.most


class EventLimits:
    """How many Events each object may have, and refusals of reviews all together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: Recent[tuple[Uid, bool], _Bucket] = Recent(MOST_OBJECTS)
        self._refusals = self._make(REFUSALS_BURST, REFUSALS_REFILL)

    def __len__(self) -> int:
        return len(self._objects)

    def admit(
        self,
        uid: Uid,
        action: EventAction,
        leaves: int = ROUTINE_LEAVES,
        *,
        is_loud: bool = False,
    ) -> bool:
        """Return whether an Event of an object leaves so many to others, and take its token."""
        now, key = self._clock.elapsed(), (uid, is_loud)
        # Else each pod that was ever deleted would stay.
        while self._objects and next(iter(self._objects.values())).is_as_new(now):
            self._objects.popitem(last=False)
        own = self._objects.get(key) or self._make(BURST, REFILL)
        self._objects.put(key, own)
        is_eviction = action is EventAction.REFUSE_EVICTION
        if is_eviction and own.refused_at is not None and now - own.refused_at < EVICTION_SPACING:
            return False
        if own.count(now) < 1 + leaves or (action in _REFUSALS and self._refusals.count(now) < 1):
            return False
        own.tokens -= 1
        if action in _REFUSALS:
            self._refusals.tokens -= 1
        if is_eviction:
            own.refused_at = now
        return True

    def _make(self, most: int, refill: timedelta) -> _Bucket:
        return _Bucket(most, refill, tokens=most, filled_at=self._clock.elapsed())


class _Series(msgspec.Struct, frozen=True, kw_only=True):
    """An Event that was written, and how often it has happened."""

    name: str
    count: int
    last_at: timedelta
    """On the clock's `elapsed`."""


class EventApi(Patcher, Protocol):
    """The part of the API client that Events need; errors as in `kube.api`."""

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes: ...


class _WaitingEvent(msgspec.Struct, frozen=True, kw_only=True):
    event: EventRecord
    name: str
    at: datetime


class EventSender:
    """The Events of one process. Must be used from one event loop."""

    def __init__(
        self,
        client: EventApi,
        *,
        instance: str,
        controller: str = FIELD_MANAGER,
        now: Callable[[], datetime],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Write Events of the process `instance` by this client; `now` is the server's time.

        `controller` is the source that they name.
        """
        self._client = client
        self._instance = instance[:_MAX_INSTANCE] or controller
        self._controller = controller
        self._now = now
        self._clock = clock
        # Looking one up by its label costs more than counting.
        self._outcomes = {word: metrics.events.labels(word) for word in EVENT_OUTCOMES}
        self._limits = EventLimits(clock)
        self._series: Recent[EventRecord, _Series] = Recent(MOST_SERIES)
        self._queue: deque[_WaitingEvent] = deque()
        self._filled = asyncio.Event()
        self._numbers = count()
        self._silent_until = timedelta(0)
        self._denials = 0
        self._warned: set[str] = set()
        """Namespaces of which the log says that Events are denied there."""

    def record(self, event: EventRecord) -> None:
        """Queue an Event if there is room for it."""
        leaves, is_loud = ROUTINE_LEAVES if event.is_routine else 0, event.severity in _LOUD
        if self.admit(event.regarding.uid, event.action, leaves, is_loud=is_loud):
            self.enqueue(event)

    def admit(
        self,
        uid: Uid,
        action: EventAction,
        leaves: int = ROUTINE_LEAVES,
        *,
        is_loud: bool = False,
    ) -> bool:
        """Return whether an object may have an event now, and count it where it may not.

        For what happens many times a second: only what is admitted need be put into words.
        """
        if self._clock.elapsed() < self._silent_until:
            self._count("denied")
            return False
        if not self._limits.admit(uid, action, leaves, is_loud=is_loud):
            self._count("limited")
            return False
        return True

    def enqueue(self, event: EventRecord) -> None:
        """Have an admitted event written soon, if the queue has room."""
        if len(self._queue) >= (MOST_ROUTINE_WAITING if event.is_routine else MOST_WAITING):
            self._count("dropped")
            return
        at = self._now()
        self._queue.append(_WaitingEvent(event=event, name=self._name(event, at), at=at))
        self._filled.set()

    async def run(self) -> NoReturn:
        """Write what is recorded until cancelled."""
        while True:
            await self._filled.wait()
            await self._empty()

    async def flush(self) -> None:
        """Write what still waits, for a moment at most; `run` has ended by now."""
        try:
            async with asyncio.timeout(_FLUSH_LIMIT.total_seconds()):
                await self._empty()
        except TimeoutError:
            log.debug("Stopping with Events that are not written", number=len(self._queue))
            self._drop_all("dropped")

    async def _empty(self) -> None:
        while self._queue:
            event = self._queue[0]
            await self._deliver(event)
            # Not before: where this is cancelled, `flush` writes it under the same name.
            if self._queue and self._queue[0] is event:
                self._queue.popleft()
        self._filled.clear()

    async def _deliver(self, waiting_event: _WaitingEvent) -> None:
        """Write one Event, or give it up."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._count(await self._write(waiting_event))
                self._denials = 0
                return
            except _PASSING as error:
                if attempt == ATTEMPTS:
                    self._fail(waiting_event, error)
                    return
            except (Denied, NotFound) as error:
                self._record_denied(waiting_event.event, error)
                return
            except ApiError as error:
                self._fail(waiting_event, error)
                return
            await self._clock.sleep(EVENT_WRITES.bound(attempt))

    async def _write(self, waiting_event: _WaitingEvent) -> str:
        """Write one Event, or its series on; return the outcome that is counted."""
        event, namespace = waiting_event.event, _get_namespace(waiting_event.event)
        series = self._series.get(event)
        if series is not None and self._clock.elapsed() - series.last_at <= SERIES_LASTS:
            again = {"count": series.count + 1, "lastObservedTime": _render_time(waiting_event.at)}
            try:
                await self._client.patch(EVENTS, namespace, series.name, {"series": again})
            except NotFound:
                self._series.pop(event, None)  # Events last for an hour or so
            else:
                self._remember(event, series.name, series.count + 1)
                return "repeated"
        with suppress(Conflict):  # an attempt without an answer has written it
            await self._client.create(EVENTS, namespace, self._render(waiting_event))
        self._remember(event, waiting_event.name, 1)
        return "written"

    def _remember(self, event: EventRecord, name: str, count: int) -> None:
        self._series.put(event, _Series(name=name, count=count, last_at=self._clock.elapsed()))

    def _render(self, waiting_event: _WaitingEvent) -> JsonObject:
        event, regarding = waiting_event.event, waiting_event.event.regarding
        resource = _RESOURCES[regarding.kind]
        return {
            "apiVersion": f"{EVENTS.group}/{EVENTS.version}",
            "kind": EVENTS.kind,
            "metadata": {"name": waiting_event.name, "namespace": _get_namespace(event)},
            "eventTime": _render_time(waiting_event.at),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": event.action.value,
            "reason": event.reason,
            "regarding": {
                "apiVersion": "/".join(filter(None, (resource.group, resource.version))),
                "kind": resource.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
            "note": cut_note(event.note),
            "type": "Warning" if event.severity in _LOUD else "Normal",
        }

    def _name(self, event: EventRecord, at: datetime) -> str:
        prefix = event.regarding.name[:_MAX_PREFIX].rstrip(".-")
        return f"{prefix}.{int(at.timestamp() * 1_000_000):x}{next(self._numbers):04x}"

    def _record_denied(self, event: EventRecord, error: ApiError) -> None:
        """Send nothing for a while: requests do not bring a missing right or API.

        An object of the cluster has its Events in another namespace: those of this one go on.
        """
        if event.regarding.namespace:
            self._denials += 1
            self._silent_until = self._clock.elapsed() + REFUSED_EVENTS.bound(self._denials)
            self._drop_all("denied")
        else:
            self._count("denied")
        namespace = _get_namespace(event)
        if namespace not in self._warned:
            self._warned.add(namespace)
            log.warn("Events are not written; everything else goes on", err=error)

    def _drop_all(self, outcome: str) -> None:
        for _ in self._queue:
            self._count(outcome)
        self._queue.clear()

    def _fail(self, waiting_event: _WaitingEvent, error: ApiError) -> None:
        log.debug(
            "Event not written",
            reason=waiting_event.event.reason,
            note=waiting_event.event.note,
            err=error,
        )
        self._count("failed")

    def _count(self, outcome: str) -> None:
        self._outcomes[outcome].inc()


def _get_namespace(event: EventRecord) -> str:
    """Return the namespace to write to; about cluster objects, where kubectl looks."""
    return event.regarding.namespace or "default"


def cut_note(text: str) -> str:
    """Return a sentence as an Event may hold it: printable, at most `MAX_NOTE` bytes of UTF-8."""
    shown = clip(text, MAX_NOTE)
    encoded = shown.encode()
    if len(encoded) <= MAX_NOTE:
        return shown
    return f"{encoded[: MAX_NOTE - 3].decode(errors='ignore')}..."


def _render_time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"
