"""The error tree: a class says what the caller should do."""

from datetime import timedelta
from typing import Self


class OperatorError(Exception):
    """Root of all errors that we raise on purpose."""


class InvalidInput(OperatorError):
    """A person must change something: report it, do not retry."""


class ConfigError(InvalidInput):
    """Flags or files do not make a configuration. The process ends with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class DecodeError(InvalidInput):
    """An API object does not have the shape that its kind promises. Names the field."""


class ApiError(OperatorError):
    """A call to the API server did not succeed.

    `call` reads like `list pods in namespace prod`; `status` is the HTTP status, 0 where none came.
    `problem` is the message without the call that it names.
    """

    def __init__(self, message: str, *, call: str = "", status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.call = call
        self.status = status
        self.reason = reason
        self.problem = message

    @classmethod
    def of(cls, call: str, problem: str, *, status: int = 0, reason: str = "") -> Self:
        """Return the error of a call that did not succeed since there is a problem."""
        error = cls(f"cannot {call}: {problem}", call=call, status=status, reason=reason)
        error.problem = problem
        return error


class NotFound(ApiError):
    """The object does not exist: look again, it may have been replaced."""


class Conflict(ApiError):
    """Another client wrote first, or a precondition failed: read again, plan again."""


class Gone(ApiError):
    """The version or list token is too old: list again."""


class Denied(ApiError):
    """Not authorised (401, or 403 by RBAC): a person must change the role it names."""


class Refused(ApiError):
    """The API server understood and will not do it (admission, validation): try another object."""


class TooManyRequests(ApiError):
    """The server refuses calls for now: call again after `retry_after`, where it names a time."""

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        status: int = 429,
        reason: str = "",
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message, call=call, status=status, reason=reason)
        self.retry_after = retry_after


class Throttled(ApiError):
    """Our own rate limiter would not send the request before its deadline: nothing was sent."""


class NotElected(ApiError):
    """This replica does not lead, or cannot be sure of it: nothing was sent."""


class DeadlinePassed(ApiError):
    """Our own time for a decision ended before the answer came, sent or not: decide again."""


class Unreachable(ApiError):
    """No useful answer (connection refused, 5xx, time-out of a read): back off."""


class UnknownOutcome(ApiError):
    """A write was sent and not answered: it may be committed now, later or never. Read back."""
