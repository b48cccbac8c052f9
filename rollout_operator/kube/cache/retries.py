"""What an informer tries again, and when: calls that failed, and objects that could not be decoded.

`Failures` decides from the class of the error and from what failed before how long to wait and
whether to list again. What counts as a success is left to the informer; the random source is an
argument.

`Rereads`: the next event of an object may be days away, or may be what was spoiled on its
way; until then the object counts as down. So it is read after 5 s, then after twice as long
each time that it is still unreadable, up to five minutes. A read that fails says nothing of the
object: it is tried again after the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from enum import StrEnum, unique
from typing import Final, Generic, NoReturn

import msgspec

from rollout_operator.aio.backoff import LONGEST_RETRY_AFTER, REFUSED_WATCHES, UNREADABLES, WATCHES
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import race
from rollout_operator.kube.cache.store import Cached, Change, Key, Store
from rollout_operator.model.errors import (
    ApiError,
    Denied,
    Gone,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.logs import log

# A version that the server will never know again can show as 504 or 429 instead of 410.
FAILED_RESUMES: Final = 3
# A server that lags behind the others needs seconds to catch up.
WENT_BACK_PAUSE: Final = timedelta(seconds=2)
# Where thousands are unreadable, as after a change of the API that we do not know.
PACE: Final = timedelta(seconds=1)


@unique
class RetryCause(StrEnum):
    """Why a stream ended or a list failed: label values of a metric, never renamed."""

    CLOSED = "closed"
    """In order, as requested."""
    GONE = "gone"
    """The version is too old to resume from, or the list took too long to be one."""
    UNREACHABLE = "unreachable"
    THROTTLED = "throttled"
    DENIED = "denied"
    REFUSED = "refused"
    WENT_BACK = "went_back"
    """The server showed an older state than before."""
    REFRESH = "refresh"
    """A caller knew better."""


class WentBack(Unreachable):
    """The API server shows an older state than it did before: read again."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next. `is_news` says whether it is worth a line in the log."""

    cause: RetryCause
    delay: timedelta
    needs_list: bool
    is_news: bool

    @property
    def severity(self) -> Severity:
        """Return how loudly to log it."""
        match self.cause:
            case RetryCause.GONE:
                return Severity.INFO
            case RetryCause.DENIED | RetryCause.REFUSED:
                return Severity.ERROR
            case _:
                return Severity.WARN


class Failures(msgspec.Struct):
    """What failed since the stream last proved itself.

    A list alone ends no row: lists that succeed before watches that fail would make a hot loop.
    """

    in_row: int = 0
    gone: int = 0
    resumes: int = 0

    def record_list(self) -> None:
        """Record that a list came in: the next resume is the first."""
        self.resumes = 0

    def next(self, error: ApiError, rng: float, *, has_list: bool) -> Retry:
        """Count one more failure and return what follows; `rng` is in 0..1.

        `has_list` says whether it was a watch that failed.
        """
        self.in_row += 1
        self.resumes += has_list
        self.gone += isinstance(error, Gone)
        return Retry(
            cause=_cause(error),
            delay=self._delay(error, rng),
            needs_list=not has_list or isinstance(error, Gone) or self.resumes >= FAILED_RESUMES,
            # The first failures show what happens; one in ten then shows that it goes on.
            is_news=self.in_row <= FAILED_RESUMES or self.in_row % 10 == 0,
        )

    def _delay(self, error: ApiError, rng: float) -> timedelta:
        delay = WATCHES.delay(self.in_row, rng)
        match error:
            case Gone():
                return delay if self.gone > 1 else timedelta(0)
            case TooManyRequests(retry_after=wanted):
                return delay + min(wanted or timedelta(0), LONGEST_RETRY_AFTER)
            case WentBack():
                return delay + WENT_BACK_PAUSE
            case Throttled() | Unreachable():
                return delay
            case _:
                return REFUSED_WATCHES.delay(self.in_row, rng)


def _cause(error: ApiError) -> RetryCause:
    match error:
        case Gone():
            return RetryCause.GONE
        case TooManyRequests() | Throttled():
            return RetryCause.THROTTLED
        case WentBack():
            return RetryCause.WENT_BACK
        case Unreachable():
            return RetryCause.UNREACHABLE
        case Denied():
            return RetryCause.DENIED
        case _:
            return RetryCause.REFUSED


class _Due(msgspec.Struct, frozen=True):
    """When an object is read next, at which step of its back-off."""

    at: timedelta
    step: int


class Rereads(Generic[Cached]):
    """Reads the unreadable objects of a store again for as long as `run` runs."""

    def __init__(
        self,
        store: Store[Cached],
        reread: Callable[[Unreadable], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`reread` stores what it finds; it may raise ApiError."""
        self._store: Store[Cached] = store
        self._reread = reread
        self._clock = clock
        self._due: dict[Key, _Due] = {}
        self._news = asyncio.Event()

    def record(self, changes: Iterable[Change[Cached]]) -> None:
        """Record what was stored; objects that could be decoded do not matter."""
        for _, new in changes:
            if isinstance(new, Unreadable) and (key := (new.namespace, new.name)) not in self._due:
                self._due[key] = self._choose_next(1)
                self._news.set()

    async def run(self) -> NoReturn:
        """Read what is due until cancelled."""
        while True:
            key = min(self._due, key=lambda due: self._due[due].at, default=None)
            if key is None or self._due[key].at > self._clock.elapsed():
                await self._wait(key)
                continue
            await self._read(key, self._due[key].step)
            await self._clock.sleep(PACE)

    async def _wait(self, key: Key | None) -> None:
        """Wait until an object is due, or another object has come that may be due before it."""
        self._news.clear()
        if key is None:
            await self._news.wait()
        else:
            left = self._due[key].at - self._clock.elapsed()
            await race(news=self._news.wait(), due=self._clock.sleep(left))

    def _choose_next(self, step: int) -> _Due:
        return _Due(self._clock.elapsed() + UNREADABLES.bound(step), step)

    async def _read(self, key: Key, step: int) -> None:
        item = self._store.get(*key)
        if isinstance(item, Unreadable):
            try:
                await self._reread(item)
                step += 1
            except ApiError as error:
                wait = UNREADABLES.bound(step)
                log.debug("Not read again", object="/".join(key), again_in=wait, err=error)
        if isinstance(self._store.get(*key), Unreadable):
            self._due[key] = self._choose_next(step)
        else:
            del self._due[key]


class Liveness:
    """Whether a watch brings changes; a watch that is resumed without a pause still does."""

    def __init__(self) -> None:
        self.is_live = False
        self._callbacks: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when the watch goes down, and when it is back. Must not block."""
        self._callbacks.append(callback)

    def turn(self, *, is_live: bool) -> None:
        """Record what holds now."""
        if is_live is not self.is_live:
            self.is_live = is_live
            for callback in self._callbacks:
                callback()


class Staleness:
    """Calls back once where a cache is older than it may be; again after each proof of life."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[timedelta, Callable[[], None]]] = []
        self._reported_at: timedelta | None = None
        """The proof of life since which the cache was found to be too old."""

    def add(self, limit: timedelta, callback: Callable[[], None]) -> None:
        """Call back where the cache is older than `limit`. Must not block."""
        self._callbacks.append((limit, callback))

    def check(self, proven_at: timedelta | None, age: timedelta) -> None:
        """Call back where that is due; the newest proof of life was at `proven_at`."""
        if proven_at is None or proven_at == self._reported_at:
            return
        due = [callback for limit, callback in self._callbacks if age > limit]
        if due:
            self._reported_at = proven_at
        for callback in due:
            callback()
