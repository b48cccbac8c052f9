"""The log: `log.info("Constant message", key=value, err=error)`, one record per line on stderr.

Decides which levels are written and where records come from: our own calls, and those which
libraries make through the standard `logging`. How a record looks is decided in `logtext`, what
happens when no process reads in `sink`.

The standard package is not used for our own records: one suppressed call there costs more than a
whole admission decision may.
"""

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.logtext import Render, render_json, render_logfmt
from rollout_operator.telemetry.sink import Sink

_BOUND: Final[ContextVar[Mapping[str, object]]] = ContextVar("bound log keys")
_NO_KEYS: Final[Mapping[str, object]] = {}

Write = Callable[[bytes], None]
"""Takes one line with its line feed; must not raise."""

_STDERR: Final = 2
_FORMATS: Final[dict[str, Render]] = {"logfmt": render_logfmt, "json": render_json}
_LEVELS: Final = tuple(Severity)

_STDLIB_LEVELS: Final = {
    Severity.DEBUG: logging.DEBUG,
    Severity.INFO: logging.INFO,
    Severity.WARN: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


class Emit(Protocol):
    """Write one record: a constant message, then what is special about this record as keys."""

    def __call__(self, message: str, /, **keys: object) -> None: ...


class Logger:
    """The four levels as callables, bound by `configure`; a suppressed one does nothing at all."""

    __slots__ = ("debug", "error", "info", "level", "warn")

    debug: Emit
    info: Emit
    warn: Emit
    error: Emit
    level: Severity

    def at(self, severity: Severity) -> Emit:
        """Return the callable of one level."""
        match severity:
            case Severity.DEBUG:
                return self.debug
            case Severity.INFO:
                return self.info
            case Severity.WARN:
                return self.warn
            case Severity.ERROR:
                return self.error


log: Final = Logger()


@contextmanager
def bind_keys(**keys: object) -> Iterator[None]:
    """Add these keys to each record of what runs or begins within the block."""
    token = _BOUND.set({**_BOUND.get(_NO_KEYS), **keys})
    try:
        yield
    finally:
        _BOUND.reset(token)


def configure(
    *,
    format: str = "logfmt",
    level: str = Severity.DEBUG,
    write: Write | None = None,
    now: Callable[[], int] = time.time_ns,
) -> None:
    """Bind the levels of `log`: to `write`, or to stderr where it is None.

    `now` returns nanoseconds since 1970. Raises InvalidInput for an unknown format or level.
    """
    if format not in _FORMATS:
        raise InvalidInput(f"unknown log format: {format}")
    if level not in _LEVELS:
        raise InvalidInput(f"unknown log level: {level}")
    render = _FORMATS[format]
    stamp = _Stamp(now)
    out = _stderr(render, stamp) if write is None else write
    log.level = Severity(level)
    first = _LEVELS.index(log.level)
    for place, severity in enumerate(_LEVELS):
        emit = _emitter(severity, render, stamp, out) if place >= first else _suppress
        setattr(log, severity.value, emit)


def install_stdlib_bridge() -> None:
    """Route records of libraries, and Python's warnings, through `log`, as it is configured now.

    Their debug records stay out: some of them carry whole response bodies, Secrets included.
    """
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(max(_STDLIB_LEVELS[log.level], logging.INFO))
    logging.captureWarnings(True)


class _Stamp:
    """The time as RFC 3339 in UTC with nanoseconds; the part to the second is made once."""

    __slots__ = ("_now", "_prefix")

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._prefix = (-1, "")

    def __call__(self) -> str:
        seconds, nanoseconds = divmod(self._now(), 1_000_000_000)
        prefix_second, prefix = self._prefix
        if prefix_second != seconds:
            prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
            self._prefix = (seconds, prefix)
        return f"{prefix}.{nanoseconds:09d}Z"


def _emitter(severity: Severity, render: Render, stamp: _Stamp, write: Write) -> Emit:
    level = severity.value

    def emit(message: str, /, **keys: object) -> None:
        bound = _BOUND.get(_NO_KEYS)
        write(render(level, stamp(), message, {**bound, **keys} if bound else keys))

    return emit


def _suppress(message: str, /, **keys: object) -> None:
    """Write nothing."""


def _stderr(render: Render, stamp: _Stamp) -> Write:
    def describe_loss(lines: int) -> bytes:
        return render(Severity.WARN.value, stamp(), "Log lines were lost", {"lines": lines})

    return Sink(_STDERR, describe_loss).write


class _Bridge(logging.Handler):
    """Hand records of the standard `logging` to `log`."""

    def emit(self, record: logging.LogRecord) -> None:
        keys: dict[str, object] = {"logger": record.name}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            keys["err"] = error
            keys["stack"] = "".join(traceback.format_exception(error))
        log.at(_severity(record.levelno))(_message(record), **keys)


def _severity(number: int) -> Severity:
    for severity in reversed(_LEVELS):
        if number >= _STDLIB_LEVELS[severity]:
            return severity
    return Severity.DEBUG


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # arguments that do not fit their text
        return str(record.msg)


configure()
