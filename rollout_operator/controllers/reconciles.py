"""Reconcile objects of one kind by name, each put off while it keeps failing.

What an error of the API means for the next reconcile is decided here and in `retries`, once for all
kinds: a missing object is read again soon, a conflict is no news, anything else is a warning.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.controllers.retries import Attempts, get_retry_after
from rollout_operator.controllers.worker import Result
from rollout_operator.model.errors import ApiError, Conflict, DecodeError, NotFound
from rollout_operator.telemetry.logs import log

# While the caches fill, or are too old to decide by.
RECHECK: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciles:
    """How objects of one kind are reconciled."""

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
