"""One log record as one line of text: logfmt or JSON.

Decides how values look and what is escaped, cut or hidden. Whatever a value holds, the result is
one line of valid UTF-8 without control characters. Which records are written is up to `logs`.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Final

from rollout_operator.model.errors import OperatorError
from rollout_operator.model.units import format_duration, format_rfc3339

Render = Callable[[str, str, str, Mapping[str, object]], bytes]
"""(level, timestamp, message, keys) to a line with its line feed."""

# An annotation may hold 256 KiB; a line of it helps no reader. In characters, before escaping.
MAX_VALUE: Final = 8192
_MAX_DEPTH: Final = 6
_MAX_ITEMS: Final = 256

REDACTED: Final = "<redacted>"
_SECRET_KEYS: Final = frozenset({"token", "authorization", "password"})

# Control characters, line and paragraph separators, marks that turn the direction of text around,
# and lone surrogates, which UTF-8 cannot carry.
_HOSTILE: Final = "\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_UNSAFE: Final = re.compile(f'[{_HOSTILE}"\\\\]')
_QUOTED_IN_LOGFMT: Final = re.compile(f'[{_HOSTILE} ="\ufffd]')
_NOT_IN_KEYS: Final = re.compile(f'[{_HOSTILE} ="\\\\\ufffd]')
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_OWN_KEYS: Final = frozenset({"level", "ts", "msg"})


def render_logfmt(level: str, timestamp: str, message: str, keys: Mapping[str, object]) -> bytes:
    """Return the record as `level=… ts=… msg="…" key=value …`, in the order given."""
    parts = [f"level={level} ts={timestamp} msg={_logfmt(message)}"]
    for key, value in keys.items():
        name, is_secret = _read_key(key)
        parts.append(f"{name}={REDACTED if is_secret else _logfmt(value)}")
    return f"{' '.join(parts)}\n".encode()


def render_json(level: str, timestamp: str, message: str, keys: Mapping[str, object]) -> bytes:
    """Return the record as one JSON object, with the same keys in the same order."""
    parts = [f'"level":"{level}","ts":"{timestamp}","msg":{_quote(message)}']
    for key, value in keys.items():
        name, is_secret = _read_key(key)
        parts.append(f'"{name}":{_quote(REDACTED) if is_secret else _json(value)}')
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
    # Most values are plain text, and each review writes ten.
    if type(value) is str:
        return _logfmt_text(value)
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
        f"{_quote(key)}:{_quote(REDACTED) if _is_secret(key) else _nested(item, depth - 1)}"
        for key, item in plain.items()
    )
    return "{" + ",".join(pairs) + "}"


def _plain(value: object) -> bool | int | float | str | dict[str, object] | list[object] | None:
    """Return the JSON value for any value; numbers are finite."""
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
    """Return text as a JSON string, which is also what logfmt readers take."""
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
