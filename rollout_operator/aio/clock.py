"""Time as an argument: what time it is here and by a server's answers, and how to wait."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, Protocol

# `Date` headers have whole seconds: by so much the truth may be later.
CLOCK_ERROR: Final = timedelta(seconds=1)
# And by as much as the fastest of late answers took, on a machine on which much runs.
_ANSWER_DELAY: Final = timedelta(seconds=1)
# An answer that took long, or came after a later answer, gives too early a time: the latest
# estimate is the best. For so long: clocks drift apart, and a server's may be set back.
ESTIMATE_LASTS: Final = timedelta(minutes=5)


class Clock(Protocol):
    def now(self) -> datetime: ...

    def elapsed(self) -> timedelta: ...

    async def sleep(self, span: timedelta) -> None: ...


class LoopClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time())

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(span.total_seconds(), 0))


class MachineClock(LoopClock):
    """The clock of a process on a machine of its own: right also within a turn of the loop.

    uvloop's clock shows when the last turn began. A process that is frozen within a turn would take
    its lease for valid (`kube.election`). Both are CLOCK_MONOTONIC.
    """

    def elapsed(self) -> timedelta:
        return timedelta(seconds=time.monotonic())


class ServerClock:
    """The clock behind the answers of one server.

    Decides from dates and the time that passed since, never from the clock of our own machine: that
    may be wrong, and may jump. Whose answers count is left to the caller.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # What the server's clock showed when ours was at zero: best of this span, and of the last.
        self._best: datetime | None = None
        self._before: datetime | None = None
        self._since = timedelta(0)

    def record_header(self, date: str) -> None:
        """Take the header `Date` of an answer that came just now; nonsense is ignored."""
        try:
            self.record(_parse_date(date))
        except (ValueError, OverflowError):
            return

    def record(self, shown: datetime) -> None:
        now = self._clock.elapsed()
        start = shown - now
        if self._best is None or now - self._since >= ESTIMATE_LASTS:
            self._before, self._best, self._since = self._best, start, now
        self._best = max(self._best, start)

    def now(self) -> datetime | None:
        """Return the server's time now, up to a second too early; None before its first answer.

        The header has whole seconds. Grows steadily between answers; a better estimate makes it
        jump forward. It goes back by less than a second as answers age, and further only minutes
        after the server's clock did.
        """
        starts = [start for start in (self._best, self._before) if start is not None]
        return max(starts) + self._clock.elapsed() if starts else None


# Answers of one second have the same header, and its parser is slow.
@lru_cache(1)
def _parse_date(header: str) -> datetime:
    return parsedate_to_datetime(header).astimezone(UTC)


def refine_time(shown: datetime | None, own: datetime) -> datetime:
    """Return the time of a server to the fraction of a second, by our own clock where it may be so.

    `shown` is what `ServerClock.now` returned. Another writer, whose clock is right, stamps what it
    does a moment after us with a later time then, and not with an earlier time.
    """
    return own if shown is None else min(max(own, shown), shown + CLOCK_ERROR + _ANSWER_DELAY)
