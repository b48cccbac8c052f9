"""Read again by itself what a list or watch brought and could not be decoded.

Its next event may be days away, or may have been the one that was spoiled on its way; until then
the object counts as down. Decides when each is read: after 5 s, then after twice as long each time
that it is still unreadable, up to five minutes. A read that fails says nothing of the object: it is
tried again after the same time. How it is read, and whether it is newer than what is stored, is
left to the informer and the store.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, NoReturn

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import race
from rollout_operator.kube.cache.store import Key, Store
from rollout_operator.model.errors import ApiError
from rollout_operator.model.objects import Unreadable, Viewed
from rollout_operator.telemetry.logs import log

FIRST: Final = timedelta(seconds=5)
MOST: Final = timedelta(minutes=5)
# Where thousands are unreadable, as after a change of the API that we do not know.
PACE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Due:
    """When an object is read next, and how long that was waited for."""

    at: timedelta
    after: timedelta


class Rereads(Generic[Viewed]):
    """Reads the unreadable objects of a store again for as long as `run` runs."""

    def __init__(
        self,
        store: Store[Viewed],
        reread: Callable[[Unreadable], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`reread` stores what it finds; it may raise ApiError."""
        self._store: Store[Viewed] = store
        self._reread = reread
        self._clock = clock
        self._due: dict[Key, _Due] = {}
        self._news = asyncio.Event()

    def note(self, view: Viewed) -> None:
        """Take note of a view that was stored; those that could be decoded do not matter."""
        key = (view.namespace, view.name)
        if isinstance(view, Unreadable) and key not in self._due:
            self._due[key] = _Due(self._clock.elapsed() + FIRST, FIRST)
            self._news.set()

    async def run(self) -> NoReturn:
        """Read what is due until cancelled."""
        while True:
            key = min(self._due, key=lambda one: self._due[one].at, default=None)
            if key is None or self._due[key].at > self._clock.elapsed():
                await self._wait(key)
                continue
            await self._read(key, self._due[key].after)
            await self._clock.sleep(PACE)

    async def _wait(self, key: Key | None) -> None:
        """Wait until an object is due, or another one has come that may be due before it."""
        self._news.clear()
        if key is None:
            await self._news.wait()
        else:
            left = self._due[key].at - self._clock.elapsed()
            await race(news=self._news.wait(), due=self._clock.sleep(left))

    async def _read(self, key: Key, after: timedelta) -> None:
        view = self._store.get(*key)
        if isinstance(view, Unreadable):
            try:
                await self._reread(view)
                after = min(after * 2, MOST)
            except ApiError as error:
                log.debug("Not read again", object="/".join(key), again_in=after, err=error)
        if isinstance(self._store.get(*key), Unreadable):
            self._due[key] = _Due(self._clock.elapsed() + after, after)
        else:
            del self._due[key]
