"""Keep a store up to date: list a collection, watch it, list again when in doubt.

Decides when the cache may be trusted (`has_synced`, `age`) and how often the API server is read.
Which version is newer is left to the store, what follows a failure to `store.Failures`.

A watch proves itself by ending on time: a living server ends it in order, a dead connection cannot.
So a short watch is requested, and resumed; that costs one request. Bookmarks prove more, but an
idle server sends none: its etcd reports progress only every ten minutes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Final, Generic, NoReturn, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import Call, LiveReader, Page, Resource, Watcher, WatchEvent
from rollout_operator.kube.store import (
    Cached,
    Change,
    Failures,
    Key,
    Liveness,
    RetryCause,
    Staleness,
    Store,
    WentBack,
    decides,
    is_older,
)
from rollout_operator.model.decode.objects import Bookmark, decode_bookmark
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import ApiError, DecodeError, Refused, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.exposition import Counter
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# At 10 µs a pod a step stays near 1 ms, so that reviews and probes are answered in between.
STEP: Final = 100
# A page is held in memory as a whole: about 5 MB of pods.
_PAGE_LIMIT: Final = 500
# Idle streams prove themselves every 40 s or so; in step with no other stream.
WATCH_LASTS: Final = timedelta(seconds=40)
# Whatever a watch has failed to bring is found after this long, and the end of a stream: within
# five minutes (LI-02). Of 5,000 pods it takes a twentieth of a second.
RELIST: Final = timedelta(minutes=4)
_EVENT_TYPES: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_UNSHOWN: Final = Counter("unshown", "What no scrape reads.", ("kind", "outcome"), registry=None)


# For all objects: the most that a client waits for a page.
_LASTS: Final = timedelta(seconds=60)
# A server that knows what is meant sends the first object, or the end, as soon as its own cache is
# up to date: within three seconds.
SILENCE: Final = timedelta(seconds=10)
FAILURES: Final = 3

_WATCH_JITTER: Final = 0.1
# No proof for longer than a stream and this is to be the exception: what resumes later ends sooner.
_PROOF_LEEWAY: Final = timedelta(seconds=5)
_SHORTEST_WATCH: Final = timedelta(seconds=10)
# An end that comes sooner than requested, by more than this, may be the doing of a proxy.
_END_LEEWAY: Final = timedelta(seconds=5)
# The client cuts a silent stream five seconds after its end. This is for a client that fails to.
_STREAM_GRACE: Final = timedelta(seconds=15)
# A stream that ends sooner is a failure, however orderly: the next would end alike.
_SHORT_STREAM: Final = timedelta(seconds=1)
# A lagging server catches up within seconds; one restored from a backup never does.
_OLDER_LISTS: Final = 3
_REFRESH_PAUSE: Final = timedelta(seconds=10)
# Where a list fails between two streams, which go on. After a refresh it is tried again sooner.
_RELIST_PAUSE: Final = timedelta(seconds=30)


class ObjectSource(LiveReader, Watcher, Protocol):
    """The requests of an informer to the API server."""


class Collection(msgspec.Struct, Generic[Cached], frozen=True, kw_only=True):
    """The objects of a kind, all or some of them."""

    resource: Resource
    namespace: str
    """Empty where the kind belongs to the cluster, or is followed in all namespaces."""
    decode: Callable[[bytes | msgspec.Raw], Cached]
    store: Store[Cached]
    selector: str = ""
    field_selector: str = ""
    slots: AbstractAsyncContextManager[object] = msgspec.field(default_factory=nullcontext)
    """Entered for as long as a page of the list is held; shared with others by a semaphore."""
    watch_lasts: timedelta = WATCH_LASTS
    """For so long a connection that died may go unseen."""
    relist: timedelta = RELIST
    ends_on: Callable[[ApiError], bool] = lambda error: False
    """Returns whether a list or a watch that fails so is not to be tried again."""

    @property
    def label(self) -> str:
        """Return the label in metrics: several parts of one kind may be followed."""
        return f"{self.resource.kind} {self.field_selector}".rstrip()

    @property
    def keys(self) -> dict[str, object]:
        keys: dict[str, object] = {"kind": self.resource.kind}
        if self.namespace:
            keys["namespace"] = self.namespace
        if self.field_selector:
            keys["field_selector"] = self.field_selector
        return keys

    def text(self, verb: str) -> str:
        return Call(verb, self.resource, self.namespace).text

    async def fetch_page(self, api: LiveReader, *, token: str = "", has_turn: bool = False) -> Page:
        return await api.fetch_page(
            self.resource,
            self.namespace,
            selector=self.selector,
            field_selector=self.field_selector,
            limit=_PAGE_LIMIT,
            token=token,
            has_turn=has_turn,
        )

    def watch(
        self, api: Watcher, *, version: str = "", lasts: timedelta
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Open a watch from this version on; without one, all objects come first."""
        return api.watch(
            self.resource,
            self.namespace,
            resource_version=version,
            selector=self.selector,
            field_selector=self.field_selector,
            lasts=lasts,
            has_state=not version,
        )

    def read_bookmark(self, raw: msgspec.Raw) -> Bookmark:
        """Return what a bookmark of a stream says. Raises Unreachable where that is nothing."""
        try:
            return decode_bookmark(raw)
        except DecodeError as error:
            raise Unreachable(f"{self.text('watch')}: {error}") from error

    def read(self, raw: msgspec.Raw) -> Cached:
        try:
            return self.decode(raw)
        except DecodeError as error:
            lost = salvage(self.resource.kind, raw, error)
            if self.store.get(lost.namespace, lost.name) != lost:
                log.error("Unreadable object", reason=Code.OBJECT_UNREADABLE, err=error)
            return lost

    def read_known(self, raw: msgspec.Raw) -> Cached:
        """Return the stored object if the new one is equal, to save memory."""
        item = self.read(raw)
        cached = self.store.get(item.namespace, item.name)
        return cached if cached is not None and cached == item else item


def show_cache(metrics: Metrics, of: Collection[Cached], age: Callable[[], timedelta]) -> None:
    """Show at each scrape how much is stored, and how old it is; infinitely at the longest span."""
    store = of.store
    metrics.cached_objects.labels(kind=of.label).set_function(lambda: len(store))
    metrics.unreadable_objects.labels(kind=of.label).set_function(lambda: store.unreadable_count)

    def in_seconds() -> float:
        return float("inf") if (span := age()) == timedelta.max else span.total_seconds()

    metrics.watch_age.labels(of.label).set_function(in_seconds)


class WatchMeters:
    """What an informer counts, by the kind that it follows: every outcome exists at zero."""

    def __init__(self, metrics: Metrics | None, kind: str) -> None:
        restarts = _UNSHOWN if metrics is None else metrics.watch_restarts
        events = _UNSHOWN if metrics is None else metrics.watch_events
        self.restarts = {cause: restarts.labels(kind, cause) for cause in RetryCause}
        self.events = {type: events.labels(kind, type) for type in _EVENT_TYPES}


class StateStream(Generic[Cached]):
    """Lists a large collection as the beginning of a watch, for as long as that works.

    One request instead of a page for each 500 objects, none held in memory as JSON, and no further
    tokens (D-54). Older servers refuse it (422), and others may never send the bookmark that ends
    it: then, and after a few failures, pages are read. Objects are handed over all together or not
    at all.
    """

    def __init__(self, api: ObjectSource, of: Collection[Cached]) -> None:
        self._api = api
        self._of: Collection[Cached] = of
        # How often it may fail still; one success makes up for what went before.
        self._left = FAILURES

    async def fetch(self) -> tuple[list[Cached], str] | None:
        if not self._left:
            return None
        try:
            found = await self._read()
        except (ApiError, TimeoutError) as error:
            # Some fail for a while; a refusal, or objects without the mark that these are all, is
            # the way of this server.
            is_way = isinstance(error, Refused | TimeoutError)
            self._left = 0 if is_way else self._left - 1
            log.debug("Listing by pages", **self._of.keys, streams_left=self._left, err=error)
            return None
        self._left = FAILURES
        return found

    async def _read(self) -> tuple[list[Cached], str]:
        items: dict[Key, Cached] = {}
        async with (
            asyncio.timeout(SILENCE.total_seconds()) as limit,
            self._of.watch(self._api, lasts=_LASTS) as events,
        ):
            taken = 0
            async for event in events:
                version = self._take(event, items)
                if version:
                    return list(items.values()), version
                taken += 1
                if taken % STEP == 0:
                    loop = asyncio.get_running_loop()
                    limit.reschedule(loop.time() + SILENCE.total_seconds())
                    await asyncio.sleep(0)
        raise Unreachable(f"{self._of.text('watch')}: ended before all objects were sent")

    def _take(self, event: WatchEvent, items: dict[Key, Cached]) -> str:
        if event.type == "BOOKMARK":
            bookmark = self._of.read_bookmark(event.object)
            return bookmark.version if bookmark.ends_state else ""
        item = self._of.read_known(event.object)
        key = (item.namespace, item.name)
        if event.type == "DELETED":
            items.pop(key, None)
        else:
            items[key] = item
        return ""


class Informer(Generic[Cached]):
    """A store that follows the API server for as long as `run` runs."""

    def __init__(
        self,
        api: ObjectSource,
        of: Collection[Cached],
        metrics: Metrics | None,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        """Make an informer that is not running; without `metrics` it shows none.

        `rng` returns numbers in 0..1.
        """
        self._api = api
        self._of: Collection[Cached] = of
        self._clock = clock
        self._rng = rng
        self._meters = WatchMeters(metrics, of.label)
        if metrics is not None:
            show_cache(metrics, of, lambda: self.shown_age())
        self._states: StateStream[Cached] = StateStream(api, of)
        # The wait for the token of a list, while a watch goes on. Lists are less urgent than
        # rollouts: in a busy process a token may be half a minute away, and without its stream the
        # cache would be as old by then.
        self._turn: asyncio.Task[ApiError | None] | None = None
        self._tasks: asyncio.TaskGroup
        self._listed_from: str | None = None
        self._callbacks: list[Callable[[Cached | None, Cached | None], None]] = []
        self.shown_age: Callable[[], timedelta] = lambda: self.age
        """What metrics show."""
        self.liveness = Liveness()
        self.staleness = Staleness()
        self._synced = asyncio.Event()
        # The newest version of the collection that was seen, by list, event or bookmark.
        self._version = ""
        self._needs_list = True
        # When everything is to be listed anew although nothing is known to be wrong.
        self._list_due_at: timedelta | None = None
        self._stream: asyncio.Timeout | None = None
        self._opened_at = timedelta(0)
        self._proven_at: timedelta | None = None
        self._failures = Failures()
        self._older_lists = 0
        self._is_refreshed = True
        self._refreshed_at: timedelta | None = None
        self._broken_since: timedelta | None = None
        self._last_error: ApiError | None = None

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def version(self) -> str:
        """Return the newest version that was seen; changes of it may be reported after that."""
        return self._version

    @property
    def listed_from(self) -> str | None:
        """Return the version known before the list that is reported now; None: by the watch."""
        return self._listed_from

    @property
    def age(self) -> timedelta:
        """Return the time since the newest proof of life: list, event or bookmark.

        The longest span there is where there was none. A list counts from when it was requested.
        """
        if self._proven_at is None:
            return timedelta.max
        return self._clock.elapsed() - self._proven_at

    @property
    def last_error(self) -> ApiError | None:
        return self._last_error

    @property
    def broken_for(self) -> timedelta | None:
        """Return for how long every call has failed, None after a success."""
        if self._broken_since is None:
            return None
        return self._clock.elapsed() - self._broken_since

    def on_change(self, callback: Callable[[Cached | None, Cached | None], None]) -> None:
        """Call back with (old, new) after each stored change that decides; None is absence.

        Must not block; what it raises ends `run`.
        """
        self._callbacks.append(callback)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def refresh(self, cause: str) -> bool:
        """List again as soon as may be, for callers who can prove that the cache lags.

        The stream goes on until the rate limits let the list be sent: it may bring what is missed.
        Returns False where a list was requested less than `_REFRESH_PAUSE` ago: nothing is done
        then.
        """
        now = self._clock.elapsed()
        if self._refreshed_at is not None and now - self._refreshed_at < _REFRESH_PAUSE:
            return False
        log.warn("Listing again on request", **self._of.keys, cause=cause, age=self.age)
        self._refreshed_at = now
        self._is_refreshed = False
        self._list_due_at = now
        self._meters.restarts[RetryCause.REFRESH].inc()
        if self._stream is not None:
            self._request_turn()
        return True

    def _request_turn(self) -> None:
        if self._turn is None:
            name = f"{self._of.resource.plural} list"
            self._turn = self._tasks.create_task(self._wait_turn(), name=name)

    async def _wait_turn(self) -> ApiError | None:
        """Wait for a token, and end the stream once it is there; return why there is none."""
        try:
            await self._api.wait_turn(self._of.resource, self._of.namespace)
        except ApiError as error:
            return error
        if self._stream is not None and not self._stream.expired():
            self._stream.reschedule(asyncio.get_running_loop().time())
        return None

    async def run(self) -> NoReturn:
        """List and watch until cancelled, or an ApiError on which the collection ends is raised."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._run()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        raise AssertionError("an informer runs until it is cancelled")

    async def _run(self) -> NoReturn:
        while True:
            try:
                if self._needs_list:
                    await self._list()
                elif await self._has_turn():
                    await self._relist()
                else:
                    await self._follow()
            except ApiError as error:
                if self._of.ends_on(error):
                    self.liveness.turn(is_live=False)
                    raise
                await self._wait_after(error)

    async def _has_turn(self) -> bool:
        if self._list_due_at is not None and self._clock.elapsed() >= self._list_due_at:
            self._request_turn()
            await asyncio.sleep(0)  # where there are tokens it has one by now
        return self._turn is not None and self._turn.done()

    async def _take_turn(self) -> bool:
        """Wait for the token that was requested; return False where none was.

        Raises ApiError where the rate limits gave none.
        """
        turn, self._turn = self._turn, None
        if turn is None:
            return False
        if (error := await turn) is not None:
            raise error
        return True

    async def _list(self) -> None:
        self._listed_from = self._version
        try:
            await self._replace_all()
        finally:
            self._listed_from = None

    async def _replace_all(self) -> None:
        has_turn = await self._take_turn()
        requested_at, refreshed_at = self._clock.elapsed(), self._refreshed_at
        items, version = await self._fetch_all(has_turn)
        is_first = not self._version
        changes = self._of.store.replace_all(items)
        self._version, self._proven_at = version, requested_at
        self._needs_list = False
        # A refresh that was requested meanwhile may know of something newer.
        self._is_refreshed = self._refreshed_at == refreshed_at
        self._list_due_at = (
            requested_at + self._of.relist if self._is_refreshed else self._clock.elapsed()
        )
        self._failures.record_list()
        self._older_lists = 0
        write_log = log.info if is_first or changes else log.debug
        write_log("Listed", **self._of.keys, objects=len(items), changes=len(changes))
        for start in range(0, len(changes), STEP):
            self._notify(changes[start : start + STEP])
            await asyncio.sleep(0)

    async def _relist(self) -> None:
        """List between two streams. Where that fails the watch goes on, and it is tried later."""
        try:
            await self._list()
        except ApiError as error:
            # Of a server restored from a backup, streams prove themselves and bring nothing.
            self._is_refreshed &= not isinstance(error, WentBack)
            pause = _RELIST_PAUSE if self._is_refreshed else _REFRESH_PAUSE
            log.debug("Not listed anew", **self._of.keys, again_in=pause, err=error)
            self._list_due_at = self._clock.elapsed() + pause

    async def _fetch_all(self, has_turn: bool) -> tuple[list[Cached], str]:
        """Return all objects and their version: one page where that holds them, else a stream."""
        items: list[Cached] = []
        version, token = await self._fetch_items(items, "", has_turn)
        self._check_version(version)
        streamed = await self._states.fetch() if token else None
        if streamed is not None:
            self._check_version(streamed[1])
            return streamed
        while token:
            _, token = await self._fetch_items(items, token)
        return items, version

    async def _fetch_items(
        self, items: list[Cached], token: str, has_turn: bool = False
    ) -> tuple[str, str]:
        """Add the objects of one page; return the version of the list and the next token."""
        async with self._of.slots:
            page = await self._of.fetch_page(self._api, token=token, has_turn=has_turn)
            for start in range(0, len(page.items), STEP):
                items += [self._of.read_known(raw) for raw in page.items[start : start + STEP]]
                await asyncio.sleep(0)
            return page.resource_version, page.next_token

    def _check_version(self, version: str) -> None:
        if not version:
            raise Unreachable(f"{self._of.text('list')}: metadata.resourceVersion is empty")
        if not is_older(version, self._version):
            return
        text = f"{self._of.text('list')}: metadata.resourceVersion {version} < {self._version}"
        self._older_lists += 1
        if self._older_lists <= _OLDER_LISTS:
            raise WentBack(f"{text} seen before")
        log.warn("Accepting an older list", **self._of.keys, err=text)

    async def _follow(self) -> None:
        lasts = self._choose_span()
        self._opened_at = self._clock.elapsed()
        limit = asyncio.timeout((lasts + _STREAM_GRACE).total_seconds())
        try:
            async with limit:
                self._stream = limit
                await self._consume(lasts)
        except TimeoutError as error:
            if not limit.expired():
                raise
            if self._turn is not None and self._turn.done():
                return
            raise Unreachable(f"{self._of.text('watch')}: no end {_STREAM_GRACE} late") from error
        finally:
            self._stream = None
        self._judge_end(lasts)

    def _choose_span(self) -> timedelta:
        jitter = 1 + _WATCH_JITTER * (2 * self._rng() - 1)
        lasts = self._of.watch_lasts
        span = min(lasts * jitter, max(lasts + _PROOF_LEEWAY - self.age, _SHORTEST_WATCH))
        if not self._is_refreshed:
            span = _SHORTEST_WATCH  # the list that is wanted is tried again at its end
        # The API takes whole seconds.
        return timedelta(seconds=round(span.total_seconds()))

    async def _consume(self, lasts: timedelta) -> None:
        async with self._of.watch(self._api, version=self._version, lasts=lasts) as events:
            self._last_error = self._broken_since = None
            self.liveness.turn(is_live=True)
            # Not with the list alone: a cache that is not kept up to date is none.
            self._synced.set()
            taken = 0
            async for event in events:
                self._take(event)
                taken += 1
                if taken % STEP == 0:
                    await asyncio.sleep(0)

    def _judge_end(self, lasts: timedelta) -> None:
        now = self._clock.elapsed()
        lasted = now - self._opened_at
        if lasted < _SHORT_STREAM:
            raise Unreachable(f"{self._of.text('watch')}: ended after {lasted}")
        self._failures = Failures()
        self._meters.restarts[RetryCause.CLOSED].inc()
        if lasted >= lasts - _END_LEEWAY:
            self._proven_at = now

    def _take(self, event: WatchEvent) -> None:
        if event.type not in _EVENT_TYPES:
            raise Unreachable(f"{self._of.text('watch')}: type: unknown event {event.type[:40]!r}")
        self._meters.events[event.type].inc()
        if event.type == "BOOKMARK":
            self._advance(self._of.read_bookmark(event.object).version)
            return
        item = self._of.read(event.object)
        store = self._of.store
        changes = store.remove(item) if event.type == "DELETED" else store.upsert(item)
        self._advance(item.resource_version)
        self._notify(changes)

    def _advance(self, version: str) -> None:
        """Record a version of the stream: unless it is older, it proves that the cache is live."""
        if not version or is_older(version, self._version):
            return
        self._version = version
        self._proven_at = self._clock.elapsed()
        if self._failures.in_row and self._proven_at - self._opened_at >= _SHORT_STREAM:
            self._failures = Failures()

    def _notify(self, changes: Sequence[Change[Cached]]) -> None:
        for old, new in changes:
            if old is not None and new is not None and not decides(old, new):
                continue
            for callback in self._callbacks:
                callback(old, new)

    async def _wait_after(self, error: ApiError) -> None:
        retry = self._failures.next(error, self._rng(), has_list=not self._needs_list)
        self._needs_list = retry.needs_list
        self._meters.restarts[retry.cause].inc()
        self._last_error = error
        if self._broken_since is None:
            self._broken_since = self._clock.elapsed()
        if retry.delay:
            self.liveness.turn(is_live=False)
        self.staleness.check(self._proven_at, self.age)
        if retry.is_news:
            log.at(retry.severity)(
                "Watch interrupted",
                **self._of.keys,
                cause=retry.cause,
                retry_in=retry.delay,
                err=error,
            )
        await self._clock.sleep(retry.delay)
