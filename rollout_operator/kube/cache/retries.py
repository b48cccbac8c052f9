"""What an informer does after a call that failed: how long it waits and whether it lists again.

Decides from the class of the error and from what failed before. The calls themselves, and what
counts as a success, are left to the informer; chance is an argument.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, unique
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.model.errors import (
    ApiError,
    Denied,
    Gone,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.outcome import Severity

# A version that the server will never know again can show as 504 or 429 instead of 410.
FAILED_RESUMES: Final = 3
RETRY_AFTER_LIMIT: Final = timedelta(seconds=30)
# A server that lags behind the others needs seconds to catch up.
WENT_BACK_PAUSE: Final = timedelta(seconds=2)

BACKOFF: Final = Backoff(first=timedelta(seconds=0.1), most=timedelta(seconds=10))
# Only a person can mend these; asking more often only fills the audit log.
REFUSED_BACKOFF: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=30))


@unique
class RetryCause(StrEnum):
    """Why a stream ended or a list failed: label values of a metric, never renamed."""

    CLOSED = "closed"
    """In order, as asked."""
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
    """The API server shows an older state than it did before: ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What to do next. `is_news` tells whether it is worth a line in the log."""

    cause: RetryCause
    delay: timedelta
    needs_list: bool
    is_news: bool

    @property
    def severity(self) -> Severity:
        """Return how loudly to tell of it."""
        match self.cause:
            case RetryCause.GONE:
                return Severity.INFO
            case RetryCause.DENIED | RetryCause.REFUSED:
                return Severity.ERROR
            case _:
                return Severity.WARN


@dataclass(slots=True)
class Failures:
    """What failed since the stream last proved itself.

    A list alone ends no row: lists that succeed before watches that fail would make a hot loop.
    """

    in_row: int = 0
    gone: int = 0
    resumes: int = 0

    def note_list(self) -> None:
        """Note that a list came in: the next resume is a first one."""
        self.resumes = 0

    def next(self, error: ApiError, rng: float, *, has_list: bool) -> Retry:
        """Count one more failure and return what follows; `rng` is in 0..1.

        `has_list` tells whether it was a watch that failed.
        """
        self.in_row += 1
        self.resumes += has_list
        self.gone += isinstance(error, Gone)
        return Retry(
            cause=_cause(error),
            delay=self._delay(error, rng),
            needs_list=not has_list or isinstance(error, Gone) or self.resumes >= FAILED_RESUMES,
            # The first failures tell the story; one in ten then shows that it goes on.
            is_news=self.in_row <= FAILED_RESUMES or self.in_row % 10 == 0,
        )

    def _delay(self, error: ApiError, rng: float) -> timedelta:
        delay = BACKOFF.delay(self.in_row, rng)
        match error:
            case Gone():
                return delay if self.gone > 1 else timedelta(0)
            case TooManyRequests(retry_after=asked):
                return delay + min(asked or timedelta(0), RETRY_AFTER_LIMIT)
            case WentBack():
                return delay + WENT_BACK_PAUSE
            case Throttled() | Unreachable():
                return delay
            case _:
                return REFUSED_BACKOFF.delay(self.in_row, rng)


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
