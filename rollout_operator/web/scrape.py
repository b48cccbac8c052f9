"""The metrics page, made once for all who ask for it at about the same time.

Decides how much of the event loop scrapes may take, however many there are. It stays on the loop,
in pieces of two milliseconds: families are read while they change there, and a thread that makes
text of them would hold up the loop just as long, by Python's lock.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock

# A page is given out for nine times as long as it took to make: that is a tenth of the loop. Not
# for a fixed time: a small page is made in milliseconds, and who asks again wants the news.
KEEP_FACTOR: Final = 9
KEEP_LIMIT: Final = timedelta(seconds=1)


class Scrapes:
    """Gives out the page that `render` makes of pieces."""

    def __init__(self, render: Callable[[], Iterable[bytes]], clock: Clock) -> None:
        self._render = render
        self._clock = clock
        self._page = b""
        self._until: timedelta | None = None
        self._underway: asyncio.Future[bytes] | None = None

    async def get(self) -> bytes:
        """Return a page that was begun at most a second, and its own making, ago."""
        while self._underway is not None:
            underway = self._underway
            await asyncio.wait([underway])
            if not underway.cancelled():
                return underway.result()
        if self._until is not None and self._clock.elapsed() < self._until:
            return self._page
        return await self._make()

    async def _make(self) -> bytes:
        self._underway = underway = asyncio.get_running_loop().create_future()
        begin = self._clock.elapsed()
        pieces = []
        try:
            for piece in self._render():
                pieces.append(piece)
                # A thousand groups take 0.2 s: reconciles and probes do not wait for so long.
                await asyncio.sleep(0)
            self._page = b"".join(pieces)
            underway.set_result(self._page)
        finally:
            self._underway = None
            underway.cancel()  # where it was not made: then the next of those who wait makes it
        end = self._clock.elapsed()
        self._until = end + min((end - begin) * KEEP_FACTOR, KEEP_LIMIT)
        return self._page
