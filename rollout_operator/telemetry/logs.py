"""The log: `log.info("Constant message", key=value, err=error)`, one record per line on stderr.

Whatever a value holds, a record is one line of valid UTF-8 without control characters, with secrets
hidden. `Sink` decides what is lost when no process reads. Records of libraries come in through the
standard `logging`; ours do not, since one suppressed call there costs more than a whole admission
decision may.
"""

import json
import logging
import math
import os
import re
import select
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Final, Protocol

from rollout_operator.model.names import InvalidInput, OperatorError
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import format_duration, format_rfc3339

Render = Callable[[str, str, str, Mapping[str, object]], bytes]
"""(level, timestamp, message, keys) to a line with its line feed."""

# An annotation may hold 256 KiB; a line of it helps no reader. In characters, before escaping.
MAX_VALUE: Final = 8192
# Characters of names and of what else is written again and again.
_SHORT: Final = 64
_MAX_DEPTH: Final = 6
_MAX_ITEMS: Final = 256

_REDACTED: Final = "<redacted>"
_SECRET_KEYS: Final = frozenset({"token", "authorization", "password"})

# Control characters, line and paragraph separators, marks that turn the direction of text around,
# and lone surrogates, which UTF-8 cannot carry.
_HOSTILE: Final = "\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_UNSAFE: Final = re.compile(f'[{_HOSTILE}"\\\\]')
_QUOTED_IN_LOGFMT: Final = re.compile(f'[{_HOSTILE} ="\ufffd]')
_NOT_IN_KEYS: Final = re.compile(f'[{_HOSTILE} ="\\\\\ufffd]')
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_OWN_KEYS: Final = frozenset({"level", "ts", "msg"})


_BOUND: Final[ContextVar[Mapping[str, object]]] = ContextVar("bound log keys")
_NO_KEYS: Final[Mapping[str, object]] = {}

_STDERR: Final = 2
# A pipe that polls as writable takes this much without blocking (PIPE_BUF on Linux).
_PIECE: Final = 4096
# A burst may fill a pipe faster than the reader empties it; a reader that needs longer than this
# has stopped, and is not waited for again until it has read something.
_GRACE_MILLISECONDS: Final = 20

_LEVELS: Final = tuple(Severity)

_STDLIB_LEVELS: Final = {
    Severity.DEBUG: logging.DEBUG,
    Severity.INFO: logging.INFO,
    Severity.WARN: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


def render_logfmt(level: str, timestamp: str, message: str, keys: Mapping[str, object]) -> bytes:
    """Return the record as `level=… ts=… msg="…" key=value …`, in the order given."""
    parts = [f"level={level} ts={timestamp} msg={_logfmt(message)}"]
    for key, value in keys.items():
        name, is_secret = _read_key(key)
        parts.append(f"{name}={_REDACTED if is_secret else _logfmt(value)}")
    return f"{' '.join(parts)}\n".encode()


def render_json(level: str, timestamp: str, message: str, keys: Mapping[str, object]) -> bytes:
    parts = [f'"level":"{level}","ts":"{timestamp}","msg":{_quote(message)}']
    for key, value in keys.items():
        name, is_secret = _read_key(key)
        parts.append(f'"{name}":{_quote(_REDACTED) if is_secret else _json(value)}')
    return ("{" + ",".join(parts) + "}\n").encode()


def describe_error(error: BaseException) -> str:
    """Return an error as text: ours as they are, others with their class, groups in full."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe_error(part) for part in error.exceptions)
    text = str(error)
    if isinstance(error, OperatorError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _logfmt(value: object) -> str:
    # Most values are plain text, and each review writes ten, nearly all of them again and again.
    if type(value) is str:
        return _logfmt_short(value) if len(value) <= _SHORT else _logfmt_text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if isinstance(value, Enum):
        return _logfmt(value._value_)  # unlike `value` no call
    plain = _plain(value)
    return _logfmt_text(plain) if isinstance(plain, str) else _logfmt_text(_json(plain))


def _logfmt_text(text: str) -> str:
    # The word null stands for None, so a string of that name is quoted.
    if text in {"", "null"} or _QUOTED_IN_LOGFMT.search(text):
        return _quote(text)
    return text if len(text) <= MAX_VALUE else _cut(text)


_logfmt_short: Final = lru_cache(maxsize=512)(_logfmt_text)


def _json(value: object) -> str:
    plain = _plain(value)
    if isinstance(plain, str):
        return _quote(plain)
    if plain is None or isinstance(plain, bool | int | float):
        return json.dumps(plain)
    text = _nested(plain, _MAX_DEPTH)
    return text if len(text) <= MAX_VALUE else _quote(text)


def _nested(value: object, depth: int) -> str:
    """Return a collection as JSON, without what lies deeper or further back than is readable."""
    plain = _plain(value)
    if not isinstance(plain, dict | list):
        return _json(plain)
    if depth == 0:
        return _quote("...")
    if isinstance(plain, list):
        return "[" + ",".join(_nested(item, depth - 1) for item in plain) + "]"
    pairs = (
        f"{_quote(key)}:{_quote(_REDACTED) if _is_secret(key) else _nested(item, depth - 1)}"
        for key, item in plain.items()
    )
    return "{" + ",".join(pairs) + "}"


def _plain(value: object) -> bool | int | float | str | dict[str, object] | list[object] | None:
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case timedelta():
            return format_duration(value)
        case datetime():
            return format_rfc3339(value)
        case BaseException():
            return describe_error(value)
        case bytes():
            return value.decode(errors="replace")
        case Mapping():
            return {str(key): value[key] for key in list(value)[:_MAX_ITEMS]}
        case list() | tuple() | set() | frozenset():
            return list(value)[:_MAX_ITEMS]
        case _:
            return str(value)


def _quote(text: str) -> str:
    return f'"{_UNSAFE.sub(_escape, _cut(text))}"'


def _escape(character: re.Match[str]) -> str:
    char = character.group()
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _cut(text: str) -> str:
    if len(text) <= MAX_VALUE:
        return text
    return f"{text[:MAX_VALUE]}...({len(text)}-characters)"


# Keys are written in the source, so they are few; those of hostile mappings are not kept forever.
@lru_cache(maxsize=512)
def _read_key(key: str) -> tuple[str, bool]:
    """Return a key as it is written, and whether its value is hidden."""
    name = _NOT_IN_KEYS.sub("_", key[:128]) or "_"
    name = f"{name}_" if name in _OWN_KEYS else name
    return name, _is_secret(name)


@lru_cache(maxsize=512)
def _is_secret(key: str) -> bool:
    """Return whether a key's last word names a secret: `token`, `bearer_token`, `api.token`."""
    return re.split(r"[._-]", key.lower())[-1] in _SECRET_KEYS


Write = Callable[[bytes], None]
"""Takes one line with its line feed; must not raise."""

_FORMATS: Final[dict[str, Render]] = {"logfmt": render_logfmt, "json": render_json}


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
        emit: Emit = getattr(self, severity.value)
        return emit


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
    pass


def _stderr(render: Render, stamp: _Stamp) -> Write:
    def describe_loss(lines: int) -> bytes:
        return render(Severity.WARN.value, stamp(), "Log lines were lost", {"lines": lines})

    return Sink(_STDERR, describe_loss).write


class Sink:
    """Write whole lines to a descriptor, as far as its reader takes them.

    A line of which only a part was taken is finished before the next one starts, so that no two
    records are ever mixed. Lines that found no room are counted; `describe_loss` turns that count
    into the line which is written in their place once there is room again.
    """

    def __init__(self, descriptor: int, describe_loss: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._describe_loss = describe_loss
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)
        self._unfinished = b""
        self._lost = 0
        self._is_stuck = False
        # Threads write too, such as those that resolve names. A finalizer may log in the middle of
        # a write of its own thread, hence the re-entrant kind.
        self._lock = threading.RLock()

    @property
    def lost(self) -> int:
        """Return how many lines were lost since the last line that got through."""
        return self._lost

    def write(self, line: bytes) -> None:
        """Write one line, or count it as lost. May be called from any thread."""
        with self._lock:
            if not (self._finish() and self._write_loss() and self._push(line)):
                self._lost += 1

    def _finish(self) -> bool:
        if not self._unfinished:
            return True
        rest, self._unfinished = self._unfinished, b""
        if not self._push(rest):
            self._unfinished = rest
        return not self._unfinished

    def _write_loss(self) -> bool:
        """Write how many lines were lost, if any; return False where there was no room for it."""
        if not self._lost:
            return True
        if not self._push(self._describe_loss(self._lost)):
            return False
        self._lost = 0
        return not self._unfinished

    def _push(self, line: bytes) -> bool:
        """Write what there is room for; return False where not even the start was taken."""
        taken = 0
        while taken < len(line):
            if not self._has_room():
                break
            try:
                taken += os.write(self._descriptor, line[taken : taken + _PIECE])
            except OSError:  # EPIPE, EBADF, EAGAIN, ENOSPC: nothing that a log line could change
                self._is_stuck = True
                break
        if 0 < taken < len(line):
            self._unfinished = line[taken:]
        return taken > 0

    def _has_room(self) -> bool:
        ready = self._poller.poll(0 if self._is_stuck else _GRACE_MILLISECONDS)
        self._is_stuck = not any(event & select.POLLOUT for _, event in ready)
        return not self._is_stuck


class _Bridge(logging.Handler):
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
