"""How soon what has failed is tried again: calls, and reconciles of objects by name.

A reconcile of a group costs nothing; a call that fails again and again costs the API server. So the
same attempt is repeated ever more rarely: doubling up to the longest interval, with jitter,
and after five minutes of failing only twice a minute. Another attempt, in another zone or for
another revision, goes at once; pods that flap meanwhile do not make it another attempt.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.backoff import attempts
from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.worker import Result
from rollout_operator.model.errors import ApiError, Conflict, DecodeError, NotFound, TooManyRequests
from rollout_operator.model.outcome import Action, ReplacePods
from rollout_operator.telemetry.logs import log

PERMANENT_AFTER: Final = timedelta(minutes=5)
PERMANENT_WAIT: Final = timedelta(seconds=30)
# Not tried for this long after it was due: the next failure is a first.
FORGET_AFTER: Final = timedelta(minutes=2)

Attempt = tuple[str, ...]
"""Names what is attempted: equal when it is the same thing again."""

# While the caches fill, or are too old to decide by.
RECHECK: Final = timedelta(seconds=1)


def name_attempt(action: Action) -> Attempt:
    """Return the name of carrying out an action: its kind, zone and revision."""
    if isinstance(action, ReplacePods):
        return ("replace", action.zone.uid, action.zone.update_revision)
    return ("record", action.zone.uid, action.revision)


def get_retry_after(error: Exception) -> timedelta:
    """Return how long the API server wants us to wait after an error, zero where it does not."""
    wanted = error.retry_after if isinstance(error, TooManyRequests) else None
    return wanted or timedelta(0)


class _Failing(msgspec.Struct):
    since: timedelta
    not_before: timedelta
    error: str
    count: int = 0


class Attempts:
    """Memory of failed attempts."""

    def __init__(
        self, clock: Clock, *, longest: timedelta, rng: Callable[[], float] = lambda: 1.0
    ) -> None:
        """Remember by this clock; `rng`, in 0..1, spreads repeats of what failed together."""
        self._clock = clock
        self._rng = rng
        self._backoff = attempts(longest)
        self._failing: dict[Attempt, _Failing] = {}

    def wait_before(self, attempt: Attempt) -> tuple[timedelta, str]:
        """Return how long an attempt must still wait, zero for go, and the error it waits for."""
        failing = self._failing.get(attempt)
        if failing is None:
            return timedelta(0), ""
        left = failing.not_before - self._clock.elapsed()
        return max(left, timedelta(0)), failing.error

    def count(self, attempt: Attempt) -> int:
        """Return how often an attempt has failed in a row."""
        failing = self._failing.get(attempt)
        return 0 if failing is None else failing.count

    def failing_for(self, attempt: Attempt) -> timedelta:
        """Return for how long an attempt has been failing, zero where it is not."""
        failing = self._failing.get(attempt)
        return timedelta(0) if failing is None else self._clock.elapsed() - failing.since

    def record_failure(
        self, attempt: Attempt, error: str, *, at_least: timedelta = timedelta(0)
    ) -> timedelta:
        """Remember a failed attempt; return the wait before the next."""
        now = self._clock.elapsed()
        for old, failing in list(self._failing.items()):
            if now - failing.not_before > FORGET_AFTER:
                del self._failing[old]
        failing = self._failing.setdefault(attempt, _Failing(now, now, error))
        failing.count += 1
        wait = max(self._choose_wait(failing, now), at_least)
        failing.not_before = now + wait
        failing.error = error
        return wait

    def record_success(self, attempt: Attempt) -> None:
        """Forget the failures of an attempt."""
        self._failing.pop(attempt, None)

    def _choose_wait(self, failing: _Failing, now: timedelta) -> timedelta:
        if now - failing.since >= PERMANENT_AFTER:
            return PERMANENT_WAIT
        return self._backoff.bound(failing.count) * (1 + self._rng()) / 2


class Reconciles(msgspec.Struct, frozen=True, kw_only=True):
    """How objects of one kind are reconciled, each put off while it keeps failing.

    What an error of the API means for the next reconcile is decided here once for all kinds: a
    missing object is read again soon, a conflict is no news, anything else is a warning.
    """

    kind: str
    attempts: Attempts
    once: Callable[[str], Awaitable[timedelta | None]]
    """Reconciles an object by name, and returns when to do so again. May raise ApiError,
    DecodeError."""
    name_keys: Callable[[str], Mapping[str, object]]
    """Returns the log keys of an object."""
    on_failure: Callable[[str, Exception], None] = lambda name, error: None
    """Called with errors that are worth a warning."""
    recheck: timedelta = RECHECK
    """Returns after how long the cache shows that an object is gone."""

    async def reconcile(self, name: str) -> Result:
        """Reconcile an object unless that failed lately; return when to reconcile again."""
        attempt = (self.kind, name)
        wait, _ = self.attempts.wait_before(attempt)
        if wait:
            return Result(again=wait)
        try:
            again = await self.once(name)
        except NotFound:
            again = self.recheck
        except (ApiError, DecodeError) as error:
            wait = get_retry_after(error)
            again = self.attempts.record_failure(attempt, str(error), at_least=wait)
            self._log(name, error, again)
        else:
            self.attempts.record_success(attempt)
        return Result(again=again)

    def get_error(self, name: str) -> str:
        """Return why an object could not be reconciled last; empty where it could."""
        _, error = self.attempts.wait_before((self.kind, name))
        return error

    def _log(self, name: str, error: Exception, again: timedelta) -> None:
        keys = self.name_keys(name)
        if isinstance(error, Conflict):
            log.debug(f"{self.kind} has changed meanwhile", **keys, err=error)
        else:
            log.warn(f"{self.kind} not reconciled", **keys, again_in=again, err=error)
            self.on_failure(name, error)
