"""List a large collection as the beginning of a watch, where the API server offers that.

All objects come as events, then a bookmark says that this was all: one request instead of a page
for each 500 objects, none of them held in memory as JSON, and none of our own rate limiter's tokens
(D-54). For what one page holds there is nothing to gain. Older servers refuse it (422), and what
passes parameters by may never send that bookmark: then, and after a few failures, the pages of a
list are read as ever. What was read is handed over whole or not at all; what it replaces is left to
the informer.
"""

import asyncio
from datetime import timedelta
from typing import Final, Generic

from rollout_operator.kube.api import WatchEvent
from rollout_operator.kube.cache.collection import Collection, ObjectSource
from rollout_operator.kube.cache.store import Key
from rollout_operator.model.decode.objects import decode_bookmark
from rollout_operator.model.errors import ApiError, DecodeError, Refused, Unreachable
from rollout_operator.model.objects import Viewed
from rollout_operator.telemetry.logs import log

# For all objects: the most that a client waits for a page.
LASTS: Final = timedelta(seconds=60)
# A server that knows what is meant sends the first object, or the end, as soon as its own cache is
# up to date: within three seconds.
SILENCE: Final = timedelta(seconds=10)
FAILURES: Final = 3
STEP: Final = 100


class StateStream(Generic[Viewed]):
    """Reads all objects of a collection from a stream, for as long as that works."""

    def __init__(self, api: ObjectSource, of: Collection[Viewed]) -> None:
        self._api = api
        self._of: Collection[Viewed] = of
        # How often it may fail still; one success makes up for what went before.
        self._left = FAILURES

    async def fetch(self) -> tuple[list[Viewed], str] | None:
        """Return all views and the version that they are of, None where a list is to be read."""
        if not self._left:
            return None
        try:
            found = await self._read()
        except (ApiError, TimeoutError) as error:
            # Some fail for a while; a refusal, or objects without the word that these are all, is
            # the way of this server.
            is_way = isinstance(error, Refused | TimeoutError)
            self._left = 0 if is_way else self._left - 1
            log.debug("Listing by pages", **self._of.keys, streams_left=self._left, err=error)
            return None
        self._left = FAILURES
        return found

    async def _read(self) -> tuple[list[Viewed], str]:
        views: dict[Key, Viewed] = {}
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
                version = self._take(event, views)
                if version:
                    return list(views.values()), version
                taken += 1
                if taken % STEP == 0:
                    loop = asyncio.get_running_loop()
                    limit.reschedule(loop.time() + SILENCE.total_seconds())
                    await asyncio.sleep(0)
        raise Unreachable(f"{self._of.text('watch')}: ended before all objects were sent")

    def _take(self, event: WatchEvent, views: dict[Key, Viewed]) -> str:
        """Take an object; return the version where the event says that this was all."""
        if event.type == "BOOKMARK":
            try:
                bookmark = decode_bookmark(event.object)
            except DecodeError as error:
                raise Unreachable(f"{self._of.text('watch')}: {error}") from error
            return bookmark.version if bookmark.ends_state else ""
        view = self._of.read_known(event.object)
        key = (view.namespace, view.name)
        if event.type == "DELETED":
            views.pop(key, None)
        else:
            views[key] = view
        return ""
