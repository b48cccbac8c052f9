"""Two ways to spare the API server and the cache while a whole collection is listed.

`ListTurn`: lists are less urgent than what rollouts do. Under the limits of a busy process a token
may be half a minute away, and a cache without a stream would be as old by then. So the stream is
kept until the list can be sent.

`StateStream`: a large collection is listed as the beginning of a watch, where the API server offers
that. All objects come as events, then a bookmark says that this was all: one request instead of a
page for each 500 objects, none of them held in memory as JSON, and none of our own rate limiter's
tokens (D-54). Older servers refuse it (422), and what passes parameters by may never send that
bookmark: then, and after a few failures, the pages of a list are read as ever. What was read is
handed over whole or not at all.

When a list is due, and what it replaces, is left to the informer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Generic, NoReturn

from rollout_operator.kube.api import WatchEvent
from rollout_operator.kube.cache.collection import STEP, Collection, ObjectSource
from rollout_operator.kube.cache.store import Cached, Key
from rollout_operator.model.errors import ApiError, Refused, Unreachable
from rollout_operator.telemetry.logs import log

# For all objects: the most that a client waits for a page.
LASTS: Final = timedelta(seconds=60)
# A server that knows what is meant sends the first object, or the end, as soon as its own cache is
# up to date: within three seconds.
SILENCE: Final = timedelta(seconds=10)
FAILURES: Final = 3


class ListTurn:
    """The token of one list: requested while a watch goes on, used once."""

    def __init__(self, wait: Callable[[], Awaitable[None]], on_token: Callable[[], None]) -> None:
        """`wait` may raise ApiError; `on_token` is called as soon as the token is there."""
        self._wait = wait
        self._on_token = on_token
        self._is_requested = False
        self._requested = asyncio.Event()
        self._settled = asyncio.Event()
        self._error: ApiError | None = None

    @property
    def is_settled(self) -> bool:
        """Return whether the wait for the token is over: `take` waits no more."""
        return self._settled.is_set()

    def request(self) -> None:
        """Begin to wait, unless that goes on already."""
        if not self._is_requested:
            self._is_requested = True
            self._requested.set()

    async def take(self) -> bool:
        """Wait for the token that was requested; return False where none was.

        Raises ApiError where the rate limits gave none.
        """
        if not self._is_requested:
            return False
        await self._settled.wait()
        error, self._error = self._error, None
        self._settled.clear()
        self._is_requested = False
        if error is not None:
            raise error
        return True

    async def run(self) -> NoReturn:
        """Wait for each token that is requested, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                await self._wait()
            except ApiError as error:
                # The watch goes on to its end: without a token there is nothing to drop it for.
                self._error = error
                self._settled.set()
            else:
                self._settled.set()
                self._on_token()


class StateStream(Generic[Cached]):
    """Reads all objects of a collection from a stream, for as long as that works."""

    def __init__(self, api: ObjectSource, of: Collection[Cached]) -> None:
        self._api = api
        self._of: Collection[Cached] = of
        # How often it may fail still; one success makes up for what went before.
        self._left = FAILURES

    async def fetch(self) -> tuple[list[Cached], str] | None:
        """Return all objects and their version, None where a list is to be read."""
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
            self._api.watch(
                self._of.resource,
                self._of.namespace,
                resource_version="",
                selector=self._of.selector,
                field_selector=self._of.field_selector,
                lasts=LASTS,
                has_state=True,
            ) as events,
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
        """Take an object; return the version where the event says that this was all."""
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
