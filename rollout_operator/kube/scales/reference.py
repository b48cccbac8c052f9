"""Keep the reading of one reference: when its scale is read, and what is shown meanwhile.

A reading is what was read last. Reads that fail for a reason that may pass leave it as it is for
half a minute and replace it then, so that no downscale rests on a count which cannot be confirmed.
Where a watch brings changes, an idle scale is not read again: on a connection that died unseen it
may be as old as a watch lasts. What is watched, and how many read at a time, is left to
`references`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NoReturn

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.backoff import LONGEST_RETRY_AFTER, REFERENCES
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import Resource
from rollout_operator.kube.scales.decode import Shown, is_lasting
from rollout_operator.model.errors import ApiError, InvalidInput, NotFound, TooManyRequests
from rollout_operator.model.scaling import NoScale, Reading, Scale
from rollout_operator.telemetry.logs import log

# For so long a failed read changes nothing.
OLD_LASTS: Final = timedelta(seconds=30)
# What was written in one go is read in one go.
DEBOUNCE: Final = timedelta(milliseconds=50)
# Between two reads that changes cause: the status of a busy object changes all the time.
SPACING: Final = timedelta(seconds=1)
# Between two reads that fail until a person does something.
LASTING_PAUSE: Final = timedelta(minutes=1)
JITTER: Final = 0.1


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When references are read though no watch has shown a change; shared by all of them."""

    interval: timedelta
    clock: Clock
    rng: Callable[[], float]

    def vary(self, span: timedelta) -> timedelta:
        """Return about `span`, so that not all come at once."""
        return span * (1 + JITTER * (2 * self.rng() - 1))

    def spread(self) -> timedelta:
        """Return any part of the interval: many that begin at once are spread over all of it."""
        return self.interval * self.rng()


class Callbacks(msgspec.Struct, frozen=True, kw_only=True):
    """The callbacks of one reference to `References`."""

    fetch: Callable[[], Awaitable[Shown]]
    """Reads the scale. Raises ApiError and InvalidInput."""
    explain: Callable[[ApiError | InvalidInput], NoScale]
    is_watched: Callable[[], bool]
    """Whether `read_unless` is called with versions of the object."""
    on_change: Callable[[], None]
    """Called when the reading has changed."""


class FollowedReference:
    """One reference; `run` keeps its reading."""

    def __init__(self, callbacks: Callbacks, schedule: Schedule) -> None:
        self.reading: Reading | None = None
        """None before the first read."""
        self.resource: Resource | None = None
        """The resource as it was found last; None before that."""
        self.task: asyncio.Task[None] | None = None
        """Runs `run`; set by its starter."""
        self._callbacks = callbacks
        self._schedule = schedule
        self._clock = schedule.clock
        self._woken = asyncio.Event()
        self._must_read = False
        # While reads fail otherwise than by absence, changes of the object are no reason to read.
        self._ignores_changes = False
        self._version: str | None = None
        """Of the object as it was read last; None where that failed."""
        self._began = timedelta(0)
        self._due_at: timedelta | None = None
        """When it is read next for no reason but time; None where changes cause reads."""
        self._delay: Callable[[], timedelta | None] = lambda: None
        self._failing_since: timedelta | None = None
        self._failures = 0

    def read_again(self) -> None:
        """Read again, soon."""
        self._must_read = True
        self._woken.set()

    def read_unless(self, version: str) -> None:
        """Read again, unless the object was read in this version. Empty: it is gone."""
        # A role or a server is mended elsewhere: the object may change as often as it likes.
        if not self._ignores_changes and (not version or version != self._version):
            self.read_again()

    def expect(self, status_replicas: int) -> None:
        """Show a status that was just written, until the next read shows what became of it."""
        if isinstance(self.reading, Scale):
            self.reading = replace(self.reading, status_replicas=status_replicas)
        self.read_again()

    def wake(self) -> None:
        """Choose anew when to read: changes are watched now, or no longer."""
        self._woken.set()

    async def run(self) -> NoReturn:
        """Read, and read again when it is due, until cancelled."""
        while True:
            self._must_read = False
            self._began = self._clock.elapsed()
            await self._read()
            await self._wait_due()

    async def _read(self) -> None:
        try:
            shown = await self._callbacks.fetch()
        except (ApiError, InvalidInput) as error:
            self._version = None
            self._record_failure(error)
            return
        self._version = shown.version
        self._failures, self._failing_since, self._ignores_changes = 0, None, False
        if self._due_at is not None:
            self._due_at = self._began + self._schedule.vary(self._schedule.interval)
        self._delay = self._delay_of_next
        self._show(shown.scale)

    def _record_failure(self, error: ApiError | InvalidInput) -> None:
        self._failures += 1
        self._ignores_changes = not isinstance(error, NotFound | InvalidInput)
        if self._failing_since is None:
            self._failing_since = self._began
        if is_lasting(error):
            soon = isinstance(error, NotFound) and not self._callbacks.is_watched()
            pause = self._schedule.interval if soon else LASTING_PAUSE
            delay = self._schedule.vary(pause)
        else:
            delay = self._retry_delay(error)
        reason = self._callbacks.explain(error)
        if isinstance(self.reading, Scale) and not reason.is_lasting:
            left = self._failing_since + OLD_LASTS - self._clock.elapsed()
            if left > timedelta(0):
                self._delay = _constant(min(delay, self._clock.elapsed() - self._began + left))
                log.debug("Scale not read", err=error, again_in=delay)
                return
        self._delay = _constant(delay)
        self._show(reason)

    def _retry_delay(self, error: ApiError | InvalidInput) -> timedelta:
        delay = REFERENCES.delay(self._failures, 0.5 + self._schedule.rng() / 2)
        if isinstance(error, TooManyRequests) and error.retry_after is not None:
            delay = max(delay, min(error.retry_after, LONGEST_RETRY_AFTER))
        return delay

    def _delay_of_next(self) -> timedelta | None:
        if self._callbacks.is_watched():
            self._due_at = None
            return None
        if self._due_at is None:
            # The first time, and when a watch has ended that reported many.
            self._due_at = self._clock.elapsed() + self._schedule.spread()
        return self._due_at - self._began

    def _show(self, reading: Reading) -> None:
        if reading != self.reading:
            self.reading = reading
            self._callbacks.on_change()

    async def _wait_due(self) -> None:
        """Wait until there is reason to read again."""
        while not self._must_read:
            self._woken.clear()
            first = await race(woken=self._woken.wait(), due=self._wait_for(self._delay()))
            if first == "due":
                return
        quiet = self._clock.elapsed() - self._began
        await self._clock.sleep(max(DEBOUNCE, SPACING - quiet))

    async def _wait_for(self, delay: timedelta | None) -> None:
        """Wait for `delay` since the last read; for ever where it is None."""
        if delay is None:
            await asyncio.Event().wait()
            return
        await self._clock.sleep(self._began + delay - self._clock.elapsed())


def _constant(delay: timedelta) -> Callable[[], timedelta]:
    return lambda: delay
