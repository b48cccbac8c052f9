"""Follow which objects of one collection change, by their versions alone.

Decides how often the API server is read. What the objects hold is read elsewhere, where it is
needed. Other than an informer it caches no object, so that it may be behind, and its streams are
long: an idle stream costs one request in three minutes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final, NoReturn, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import Resource, WatchEvent
from rollout_operator.kube.cache.collection import PAGE_LIMIT, STEP, ObjectSource
from rollout_operator.kube.cache.informer import SHORT_STREAM, STREAM_GRACE
from rollout_operator.kube.cache.retries import Failures
from rollout_operator.kube.call import Call
from rollout_operator.kube.scales.decode import decode_head, is_lasting
from rollout_operator.model.decode.objects import decode_version
from rollout_operator.model.errors import ApiError, DecodeError, Unreachable
from rollout_operator.model.scaling import Reading, Scale
from rollout_operator.telemetry.logs import log

# A stream proves by its end that it was alive: so long a change may go unseen on a dead stream.
WATCH_LASTS: Final = timedelta(minutes=3)
WATCH_JITTER: Final = 0.1
# What a watch has failed to bring is found at the end of its stream: within five minutes (LI-02).
RELIST: Final = timedelta(minutes=2)
# A role that does not let us watch seldom changes.
REFUSED_PAUSE: Final = timedelta(minutes=10)


class Subscriber(Protocol):
    """A reference to one object."""

    reading: Reading | None

    def read_unless(self, version: str) -> None:
        """Read again, unless the object was read in this version. Empty: in any case."""
        ...

    def wake(self) -> None:
        """Take into account that `MetadataWatch.is_live` has changed."""
        ...


class MetadataWatch:
    """Reports to subscribers changes of all objects of a kind for as long as `run` runs."""

    def __init__(
        self,
        api: ObjectSource,
        resource: Resource,
        namespace: str,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        self.subscribers: dict[str, Subscriber] = {}
        """By name of the object."""
        self.task: asyncio.Task[None] | None = None
        """Runs `run`; set by its starter."""
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._version = ""
        self._listed_at = timedelta(0)
        self._failures = Failures()
        self._requested = asyncio.Event()
        self._is_live = False

    @property
    def is_live(self) -> bool:
        """Return whether subscribers learn of changes; else objects must be read to know."""
        return self._is_live

    def try_again(self) -> None:
        """Try now, where the API server has refused and there is reason to hope."""
        self._requested.set()

    async def run(self) -> NoReturn:
        """List and watch until cancelled. Errors of the API server are retried for ever."""
        while True:
            try:
                if not self._version or self._clock.elapsed() - self._listed_at >= RELIST:
                    await self._list()
                await self._follow()
            except ApiError as error:
                await self._wait_after(error)

    async def _list(self) -> None:
        requested_at = self._clock.elapsed()
        versions: dict[str, str] = {}
        version, token = await self._fetch_page(versions, "")
        while token:
            _, token = await self._fetch_page(versions, token)
        if not version:
            raise Unreachable(f"{self._text('list')}: metadata.resourceVersion is empty")
        self._version, self._listed_at = version, requested_at
        self._failures.record_list()
        for name, subscriber in self.subscribers.items():
            if name in versions:
                subscriber.read_unless(versions[name])
            elif isinstance(subscriber.reading, Scale):
                subscriber.read_unless("")

    async def _fetch_page(self, versions: dict[str, str], token: str) -> tuple[str, str]:
        page = await self._api.fetch_page(
            self._resource, self._namespace, limit=PAGE_LIMIT, token=token
        )
        for start in range(0, len(page.items), STEP):
            versions.update(self._read_head(raw) for raw in page.items[start : start + STEP])
            await asyncio.sleep(0)
        return page.resource_version, page.next_token

    def _read_head(self, raw: msgspec.Raw) -> tuple[str, str]:
        try:
            return decode_head(raw)
        except DecodeError as error:
            raise Unreachable(f"{self._text('list')}: {error}") from error

    async def _follow(self) -> None:
        spread = 1 - WATCH_JITTER * self._rng()
        lasts = timedelta(seconds=round((WATCH_LASTS * spread).total_seconds()))
        opened_at = self._clock.elapsed()
        limit = asyncio.timeout((lasts + STREAM_GRACE).total_seconds())
        try:
            async with (
                limit,
                self._api.watch(
                    self._resource,
                    self._namespace,
                    resource_version=self._version,
                    lasts=lasts,
                ) as events,
            ):
                self._turn(is_live=True)
                await self._consume(events)
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"{self._text('watch')}: no end {STREAM_GRACE} late"
            raise Unreachable(text) from error
        lasted = self._clock.elapsed() - opened_at
        if lasted < SHORT_STREAM:
            raise Unreachable(f"{self._text('watch')}: ended after {lasted}")
        self._failures = Failures()

    async def _consume(self, events: AsyncIterator[WatchEvent]) -> None:
        taken = 0
        async for event in events:
            self._take(event)
            taken += 1
            if taken % STEP == 0:
                await asyncio.sleep(0)

    def _take(self, event: WatchEvent) -> None:
        try:
            if event.type == "BOOKMARK":
                self._version = decode_version("bookmark", event.object)
                return
            name, self._version = decode_head(event.object)
        except DecodeError as error:
            raise Unreachable(f"{self._text('watch')}: {error}") from error
        if name in self.subscribers:
            self.subscribers[name].read_unless(self._version)

    async def _wait_after(self, error: ApiError) -> None:
        if is_lasting(error):
            self._turn(is_live=False)
            self._version = ""
            log.info("Polling: no watch", call=error.call, again_in=REFUSED_PAUSE, err=error)
            self._requested.clear()
            await race(requested=self._requested.wait(), due=self._clock.sleep(REFUSED_PAUSE))
            return
        retry = self._failures.next(error, self._rng(), has_list=bool(self._version))
        if retry.needs_list:
            self._version = ""
        # A stream that ended because its version is too old is opened again at once.
        if retry.delay:
            self._turn(is_live=False)
        if retry.is_news:
            write_log = log.at(retry.severity)
            write_log("Watch interrupted", kind=self._resource.kind, cause=retry.cause, err=error)
        await self._clock.sleep(retry.delay)

    def _turn(self, *, is_live: bool) -> None:
        if is_live is not self._is_live:
            self._is_live = is_live
            for subscriber in self.subscribers.values():
                subscriber.wake()

    def _text(self, verb: str) -> str:
        return Call(verb=verb, resource=self._resource, namespace=self._namespace).text
